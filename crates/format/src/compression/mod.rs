//! Block compression (`util/compression.cc`, "compress format version 2").
//!
//! | type | payload |
//! |---|---|
//! | Snappy | a raw Snappy block, which holds its own size |
//! | zlib | varint32 size, raw deflate |
//! | LZ4, LZ4HC | varint32 size, a raw LZ4 block |
//! | ZSTD | varint32 size, a ZSTD frame |
//!
//! Files of format_version 0 and 1 have "compress format version 1", which is read and not written. Snappy and ZSTD are
//! the same there:
//!
//! | type | payload |
//! |---|---|
//! | zlib | raw deflate |
//! | LZ4, LZ4HC | the size in 32 bits, 4 more bytes, a raw LZ4 block |
//!
//! Type 2 of LevelDB's files is a ZSTD frame. It is not read.

mod compress;
mod decompress;
mod library;

pub use compress::{Compressor, zstd_level};
use compress::{Lz4Mode, lz4_mode};
pub use decompress::Decompressor;

/// Compression of a stored block; the value is in the block's trailer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CompressionType {
    /// As it is.
    None = 0,
    /// Snappy.
    Snappy = 1,
    /// Raw deflate.
    Zlib = 2,
    /// LZ4, fast mode.
    Lz4 = 4,
    /// LZ4, high-compression mode; the same payload as LZ4.
    Lz4hc = 5,
    /// Zstandard.
    Zstd = 7,
}

impl CompressionType {
    /// All types that are read and written here, in the order of their codes.
    pub const ALL: [Self; 6] = [
        Self::None,
        Self::Snappy,
        Self::Zlib,
        Self::Lz4,
        Self::Lz4hc,
        Self::Zstd,
    ];

    /// The type with the trailer's code, if it is supported.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|&kind| kind as u8 == code)
    }

    /// The type that an OPTIONS file names, for example `kLZ4Compression`.
    pub fn from_option(name: &str) -> Option<Self> {
        Some(match name {
            "kNoCompression" => Self::None,
            "kSnappyCompression" => Self::Snappy,
            "kZlibCompression" => Self::Zlib,
            "kLZ4Compression" => Self::Lz4,
            "kLZ4HCCompression" => Self::Lz4hc,
            "kZSTD" => Self::Zstd,
            _ => return None,
        })
    }

    /// RocksDB's display name, as the property `rocksdb.compression` has it before
    /// format_version 7 (`util/compression.cc:CompressionTypeToString`).
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "NoCompression",
            Self::Snappy => "Snappy",
            Self::Zlib => "Zlib",
            Self::Lz4 => "LZ4",
            Self::Lz4hc => "LZ4HC",
            Self::Zstd => "ZSTD",
        }
    }
}

/// RocksDB neither compresses nor stores compressed blocks of this size or more
/// (`block_based_table_builder.cc:kCompressionSizeLimit`).
pub const COMPRESSION_SIZE_LIMIT: usize = i32::MAX as usize;

/// Level that stands for "the library's default" (`CompressionOptions::kDefaultCompressionLevel`).
pub const DEFAULT_LEVEL: i32 = 32767;

/// Code that compresses blocks. Each implementation writes other bytes, which decompress to the same block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Implementation {
    /// The library that RocksDB uses too.
    #[default]
    Library,
    /// Rockmill's own code, version 1, which GPUs run as well ([`CompressionSettings::with_rockmill`]).
    Rockmill1,
}

impl Implementation {
    /// Name in job files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Rockmill1 => "rockmill-1",
        }
    }

    /// The implementation with that name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Library, Self::Rockmill1]
            .into_iter()
            .find(|implementation| implementation.name() == name)
    }
}

/// How data blocks are compressed (`CompressionOptions`, the members that change bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionSettings {
    /// Algorithm.
    pub kind: CompressionType,
    /// The code that runs it.
    pub implementation: Implementation,
    /// Level; [`DEFAULT_LEVEL`] is the library's default.
    pub level: i32,
    /// zlib window bits; negative means raw deflate, which is the only form written.
    pub window_bits: i32,
    /// Whether ZSTD frames carry a checksum of their own.
    pub zstd_checksum: bool,
    /// A block is stored raw unless it shrinks to this many bytes of 1024.
    pub max_compressed_bytes_per_kb: u32,
    /// The dictionary with which the data blocks of a file are compressed, if they are.
    pub dictionary: Option<DictionarySettings>,
}

/// The dictionary of a file: samples of its data blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DictionarySettings {
    /// Maximum bytes of the dictionary.
    pub max_bytes: usize,
    /// Maximum bytes of the blocks at the beginning of the file from which samples are taken.
    pub max_buffer_bytes: u64,
    /// How ZSTD makes the dictionary of samples. Without it, they are the dictionary.
    pub training: Option<Training>,
}

/// How ZSTD makes a dictionary of samples (`util/compression.cc:MaybeCloneSpecialized`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Training {
    /// Maximum bytes of the samples.
    pub max_sample_bytes: usize,
    /// The level whose statistics go with the first samples; `None`: the library selects the content.
    pub level: Option<i32>,
}

impl DictionarySettings {
    /// Maximum bytes of the samples.
    pub fn max_sample_bytes(&self) -> usize {
        self.training
            .map_or(self.max_bytes, |training| training.max_sample_bytes)
    }

    /// The dictionary of contiguous samples of these sizes; empty if they make none.
    pub fn of_samples(&self, samples: Vec<u8>, sizes: &[usize]) -> Vec<u8> {
        match self.training {
            None => samples,
            Some(Training { level, .. }) => {
                rockmill_codec::zstd_dictionary(&samples, sizes, self.max_bytes, level)
            }
        }
    }
}

impl CompressionSettings {
    /// Shorter dictionaries are not used: ZSTD does nothing with them, and the library of LZ4 cannot take them.
    pub const FEWEST_DICTIONARY_BYTES: usize = 8;

    /// Blocks stored uncompressed.
    pub fn none() -> Self {
        Self {
            kind: CompressionType::None,
            implementation: Implementation::Library,
            level: DEFAULT_LEVEL,
            window_bits: -14,
            zstd_checksum: false,
            max_compressed_bytes_per_kb: 896,
            dictionary: None,
        }
    }

    /// The settings with Rockmill's own code in place of the library's, if it supports them: Snappy, LZ4 without
    /// acceleration, and ZSTD of the default level or of levels 1 to 3 without a checksum in its frames.
    #[must_use]
    pub fn with_rockmill(&self) -> Option<Self> {
        let has_own = match self.kind {
            CompressionType::Snappy => true,
            CompressionType::Lz4 | CompressionType::Lz4hc => {
                lz4_mode(self.kind, self.level) == Lz4Mode::Fast(1)
            }
            CompressionType::Zstd => {
                let is_usual = self.level == DEFAULT_LEVEL || (1..=3).contains(&self.level);
                is_usual && !self.zstd_checksum
            }
            CompressionType::None | CompressionType::Zlib => false,
        };
        (has_own && self.dictionary.is_none()).then(|| Self {
            implementation: Implementation::Rockmill1,
            ..self.clone()
        })
    }

    /// Whether blocks of this kind and level can have a dictionary that is made here.
    pub fn takes_dictionary(kind: CompressionType, level: i32) -> bool {
        match kind {
            CompressionType::Zstd | CompressionType::Zlib => true,
            CompressionType::Lz4 | CompressionType::Lz4hc => {
                matches!(lz4_mode(kind, level), Lz4Mode::Fast(_))
            }
            CompressionType::None | CompressionType::Snappy => false,
        }
    }

    /// Whether a library compresses; false if blocks are stored uncompressed.
    pub fn is_by_library(&self) -> bool {
        self.kind != CompressionType::None && self.implementation == Implementation::Library
    }

    /// Name of the compressor in records of jobs: `lz4/rockmill-1`, or `lz4/library-1.10.0` with the version of the
    /// linked library. Equal names write equal bytes. `None` if blocks are stored uncompressed.
    pub fn compressor(&self) -> Option<String> {
        let (codec, version) = library::name_and_version(self.kind)?;
        let name = self.implementation.name();
        Some(match self.implementation {
            Implementation::Library => format!("{codec}/{name}-{version}"),
            Implementation::Rockmill1 => format!("{codec}/{name}"),
        })
    }

    /// The limit up to which a block of `size` bytes is stored compressed.
    pub fn max_compressed_size(&self, size: usize) -> u64 {
        const KIB_SHIFT: u32 = 10;
        (u64::from(self.max_bytes_per_kb()) * size as u64) >> KIB_SHIFT
    }

    /// [`CompressionSettings::max_compressed_bytes_per_kb`], limited to 1023 as in RocksDB.
    pub fn max_bytes_per_kb(&self) -> u32 {
        self.max_compressed_bytes_per_kb.min(1023)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coding::{put_varint, varint_len};
    use flate2::{Decompress, FlushDecompress, Status};
    use proptest::prelude::*;
    use twox_hash::XxHash64;

    fn settings(kind: CompressionType, level: i32) -> CompressionSettings {
        CompressionSettings {
            kind,
            level,
            ..CompressionSettings::none()
        }
    }

    /// Incompressible bytes.
    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let words = (0..len as u64).step_by(8);
        let words = words.flat_map(|at| XxHash64::oneshot(seed, &at.to_le_bytes()).to_le_bytes());
        words.take(len).collect()
    }

    proptest! {
        #[test]
        fn what_was_compressed_decompresses(
            word in proptest::collection::vec(any::<u8>(), 1..40),
            repeat in 1usize..200,
            kind in prop::sample::select(CompressionType::ALL.to_vec()),
            level in prop::sample::select(vec![DEFAULT_LEVEL, -3, 1, 5]),
            dictionary in proptest::collection::vec(any::<u8>(), 0..40),
            is_short in any::<bool>(),
        ) {
            let block = word.repeat(repeat);
            let settings = settings(kind, level);
            let dictionary = match CompressionSettings::takes_dictionary(kind, level) {
                true if is_short => dictionary,
                true => [dictionary, word].concat().repeat(3000),
                false => Vec::new(),
            };
            let mut compressor = Compressor::with_dictionary(&settings, &dictionary)?;
            let (stored, used) = compressor.compress(&block)?;
            let stored = &*stored.to_vec();
            let mut behind = [b"before".as_slice(), &block].concat();
            prop_assert_eq!(compressor.compress_in_place(&mut behind, 6)?, used);
            prop_assert_eq!(&behind, &[b"before".as_slice(), stored].concat());
            let mut out = Vec::new();
            Decompressor::new(dictionary).decompress(used, stored, &mut out)?;
            prop_assert_eq!(out, block);
        }

        #[test]
        fn zlib_takes_blocks_of_any_content_with_any_window(
            window_bits in -15..=-9,
            seed in any::<u64>(),
            len in 1usize..200_000,
        ) {
            let settings = CompressionSettings {
                window_bits,
                ..settings(CompressionType::Zlib, DEFAULT_LEVEL)
            };
            let block = noise(seed, len);
            let mut compressor = Compressor::new(&settings)?;
            prop_assert_eq!(compressor.compress(&block)?, (&*block, CompressionType::None));
        }

        #[test]
        fn decompression_is_total(
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            kind in prop::sample::select(CompressionType::ALL.to_vec()),
            dictionary in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let _ = Decompressor::new(dictionary).decompress(kind, &payload, &mut Vec::new());
        }
    }

    #[test]
    fn repetitive_blocks_shrink_with_every_codec() {
        let block = b"compaction ".repeat(400);
        for kind in &CompressionType::ALL[1..] {
            let mut compressor =
                Compressor::new(&settings(*kind, DEFAULT_LEVEL)).expect("settings");
            let (stored, used) = compressor.compress(&block).expect("compresses");
            assert_eq!(used, *kind);
            assert!(stored.len() < block.len() / 5, "{kind:?}: {}", stored.len());
        }
    }

    #[test]
    fn a_dictionary_shrinks_blocks_that_resemble_it() {
        let block = noise(1, 1000);
        for kind in [
            CompressionType::Lz4,
            CompressionType::Zlib,
            CompressionType::Zstd,
        ] {
            let settings = settings(kind, DEFAULT_LEVEL);
            assert!(CompressionSettings::takes_dictionary(kind, DEFAULT_LEVEL));
            let dictionary = [noise(2, 70_000), noise(1, 1000)].concat();
            let mut with = Compressor::with_dictionary(&settings, &dictionary).expect("settings");
            let (stored, used) = with.compress(&block).expect("compresses");
            assert!(
                used == kind && stored.len() < 100,
                "{kind:?}: {}",
                stored.len()
            );
        }
    }

    #[test]
    fn rocksdb_can_read_blocks_with_a_dictionary_in_its_window() {
        /// RocksDB reads with these, whatever it has written with.
        const WINDOW_BITS: u8 = 14;
        let dictionary = noise(1, 64 << 10);
        let mut compressed = 0;
        // All of it is in the dictionary, and most lies outside the window.
        for from in (0..60 << 10).step_by(1 << 10) {
            let block = &dictionary[from..from + 4000];
            for window_bits in -15..=-9 {
                let settings = CompressionSettings {
                    window_bits,
                    ..settings(CompressionType::Zlib, DEFAULT_LEVEL)
                };
                let compressor = Compressor::with_dictionary(&settings, &dictionary);
                let mut compressor = compressor.expect("settings");
                let (stored, kind) = compressor.compress(block).expect("compresses");
                if kind == CompressionType::None {
                    continue;
                }
                let stored = &stored[varint_len(block.len() as u64)..];
                let mut inflate = Decompress::new_with_window_bits(false, WINDOW_BITS);
                inflate.set_dictionary(&dictionary).expect("a dictionary");
                let mut out = Vec::with_capacity(block.len());
                let read = inflate.decompress_vec(stored, &mut out, FlushDecompress::Finish);
                assert!(
                    matches!(read, Ok(Status::StreamEnd)) && out == block,
                    "{window_bits} at {from}: {read:?}"
                );
                compressed += 1;
            }
        }
        assert!(compressed > 0);
    }

    #[test]
    fn random_blocks_are_stored_raw() {
        let block: Vec<u8> = (0u64..250)
            .flat_map(|i| twox_hash::XxHash3_64::oneshot(&i.to_le_bytes()).to_le_bytes())
            .collect();
        let mut compressor = Compressor::new(&settings(CompressionType::Lz4, 1)).expect("settings");
        let (stored, used) = compressor.compress(&block).expect("compresses");
        assert_eq!((stored, used), (&block[..], CompressionType::None));
    }

    #[test]
    fn a_claimed_size_beyond_reason_is_refused_before_allocating() {
        let mut payload = Vec::new();
        put_varint(&mut payload, u64::from(u32::MAX));
        payload.extend_from_slice(&[0; 16]);
        for kind in [
            CompressionType::Lz4,
            CompressionType::Zlib,
            CompressionType::Zstd,
        ] {
            let failed = Decompressor::new(Vec::new()).decompress(kind, &payload, &mut Vec::new());
            assert!(failed.expect_err("refused").what.contains("claims"));
        }
    }
}

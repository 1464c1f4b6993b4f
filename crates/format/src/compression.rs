//! Block compression (`util/compression.cc`, "compress format version 2").
//!
//! | type | payload |
//! |---|---|
//! | Snappy | a raw Snappy block, which holds its own size |
//! | zlib | varint32 size, raw deflate |
//! | LZ4, LZ4HC | varint32 size, a raw LZ4 block |
//! | ZSTD | varint32 size, a ZSTD frame |

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use lz4::block::CompressionMode;

use crate::coding::{Cursor, put_varint};
use crate::error::{Error, Result};

/// How a block is stored; the value stands in the block's trailer.
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

    /// The type with the trailer's code, if it is one that is handled.
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

/// zstd level behind [`DEFAULT_LEVEL`] (`util/compression.h:SanitizeZSTDCompressionLevel`).
const ZSTD_DEFAULT_LEVEL: i32 = 3;

/// zlib level behind [`DEFAULT_LEVEL`] (`Z_DEFAULT_COMPRESSION`).
const ZLIB_DEFAULT_LEVEL: u32 = 6;

/// Highest level that has an effect in LZ4HC.
const LZ4HC_MAX_LEVEL: i32 = 12;

/// Most negative LZ4 level, as acceleration.
const LZ4_MAX_ACCELERATION: i32 = 65537;

/// Largest possible growth on decompression; a claimed size beyond it is a lie, and must not make
/// us allocate. LZ4 gives at most 255 bytes for one; deflate 1032; Snappy 64 for three; zstd's
/// run-length blocks 128 KiB for four.
const fn max_growth(kind: CompressionType) -> u64 {
    match kind {
        CompressionType::None => 1,
        CompressionType::Snappy => 32,
        CompressionType::Lz4 | CompressionType::Lz4hc => 256,
        CompressionType::Zlib => 1040,
        CompressionType::Zstd => 128 * 1024,
    }
}

/// Decompresses blocks of one file; holds the dictionary and the state that zstd reuses.
pub struct Decompressor {
    dictionary: Vec<u8>,
    zstd: Option<zstd::bulk::Decompressor<'static>>,
}

impl std::fmt::Debug for Decompressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decompressor")
            .field("dictionary_bytes", &self.dictionary.len())
            .finish_non_exhaustive()
    }
}

impl Decompressor {
    /// A decompressor for blocks that were compressed with `dictionary` (empty: without one).
    pub fn new(dictionary: Vec<u8>) -> Self {
        Self {
            dictionary,
            zstd: None,
        }
    }

    /// Replaces `out` with the uncompressed block.
    ///
    /// # Errors
    /// Corruption if the payload is malformed or does not give the size that it claims.
    pub fn decompress(
        &mut self,
        kind: CompressionType,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        if kind == CompressionType::None {
            out.extend_from_slice(payload);
            return Ok(());
        }
        let (size, body) = claimed_size(kind, payload)?;
        out.resize(size, 0);
        let written = match kind {
            CompressionType::None => unreachable!("stored blocks returned above"),
            CompressionType::Snappy => snap::raw::Decoder::new()
                .decompress(body, out)
                .map_err(|e| e.to_string()),
            CompressionType::Zlib => self.inflate(body, out),
            CompressionType::Lz4 | CompressionType::Lz4hc => self.lz4(body, out),
            CompressionType::Zstd => self.zstd(body, out),
        };
        match written {
            Ok(written) if written == size => Ok(()),
            Ok(written) => Err(Error::corruption(
                0,
                format!("{} block of {written} bytes claims {size}", kind.name()),
            )),
            Err(why) => Err(Error::corruption(
                0,
                format!("malformed {} block: {why}", kind.name()),
            )),
        }
    }

    fn inflate(&self, body: &[u8], out: &mut [u8]) -> std::result::Result<usize, String> {
        let mut inflate = Decompress::new(false);
        if !self.dictionary.is_empty() {
            inflate
                .set_dictionary(&self.dictionary)
                .map_err(|e| e.to_string())?;
        }
        // Z_SYNC_FLUSH: RocksDB's writer ends the stream, but only the claimed bytes matter.
        let status = inflate
            .decompress(body, out, FlushDecompress::Finish)
            .map_err(|e| e.to_string())?;
        if status != Status::StreamEnd {
            return Err("deflate stream does not end".to_owned());
        }
        Ok(inflate.total_out() as usize)
    }

    fn lz4(&self, body: &[u8], out: &mut [u8]) -> std::result::Result<usize, String> {
        if self.dictionary.is_empty() {
            let size = i32::try_from(out.len()).map_err(|e| e.to_string())?;
            lz4::block::decompress_to_buffer(body, Some(size), out).map_err(|e| e.to_string())
        } else {
            lz4_flex::block::decompress_into_with_dict(body, out, &self.dictionary)
                .map_err(|e| e.to_string())
        }
    }

    fn zstd(&mut self, body: &[u8], out: &mut [u8]) -> std::result::Result<usize, String> {
        if self.zstd.is_none() {
            let made = zstd::bulk::Decompressor::with_dictionary(&self.dictionary);
            self.zstd = Some(made.map_err(|e| e.to_string())?);
        }
        let decoder = self.zstd.as_mut().ok_or("no zstd decoder")?;
        decoder
            .decompress_to_buffer(body, out)
            .map_err(|e| e.to_string())
    }
}

/// Uncompressed size that a payload claims, checked against what its bytes could ever give, and the
/// compressed bytes.
fn claimed_size(kind: CompressionType, payload: &[u8]) -> Result<(usize, &[u8])> {
    let (size, body) = if kind == CompressionType::Snappy {
        let size = snap::raw::decompress_len(payload)
            .map_err(|e| Error::corruption(0, format!("malformed Snappy block: {e}")))?;
        (size, payload)
    } else {
        let mut cursor = Cursor::new(payload);
        (cursor.varint32()? as usize, cursor.rest())
    };
    let most = max_growth(kind).saturating_mul(body.len() as u64 + 1);
    if size as u64 > most || size > COMPRESSION_SIZE_LIMIT {
        return Err(Error::corruption(
            0,
            format!(
                "{} block of {} bytes claims {size} uncompressed bytes",
                kind.name(),
                body.len()
            ),
        ));
    }
    Ok((size, body))
}

/// How data blocks are compressed (`CompressionOptions`, the members that change bytes).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressionSettings {
    /// Algorithm.
    pub kind: CompressionType,
    /// Level; [`DEFAULT_LEVEL`] is the library's default.
    pub level: i32,
    /// zlib window bits; negative means raw deflate, which is the only form written.
    pub window_bits: i32,
    /// Whether ZSTD frames carry a checksum of their own.
    pub zstd_checksum: bool,
    /// A block is stored raw unless it shrinks to this many bytes of 1024.
    pub max_compressed_bytes_per_kb: u32,
}

impl CompressionSettings {
    /// Blocks stored as they are.
    pub fn none() -> Self {
        Self {
            kind: CompressionType::None,
            level: DEFAULT_LEVEL,
            window_bits: -14,
            zstd_checksum: false,
            max_compressed_bytes_per_kb: 896,
        }
    }
}

enum Codec {
    Stored,
    Snappy(Box<snap::raw::Encoder>),
    Zlib { level: Compression, window: u8 },
    Lz4(CompressionMode, CompressionType),
    Zstd(zstd::bulk::Compressor<'static>),
}

/// Compresses blocks as RocksDB's built-in compressors do.
pub struct Compressor {
    codec: Codec,
    max_bytes_per_kb: u64,
    scratch: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

/// The widest and narrowest deflate windows, as powers of two.
const ZLIB_WINDOW_BITS: std::ops::RangeInclusive<i32> = 9..=15;

impl Compressor {
    /// A compressor for `settings`.
    ///
    /// # Errors
    /// Unsupported if the settings ask for something that is not written here.
    pub fn new(settings: &CompressionSettings) -> Result<Self> {
        let level = settings.level;
        let default = level == DEFAULT_LEVEL;
        let codec = match settings.kind {
            CompressionType::None => Codec::Stored,
            CompressionType::Snappy => Codec::Snappy(Box::new(snap::raw::Encoder::new())),
            CompressionType::Zlib => {
                let window = -settings.window_bits;
                if !ZLIB_WINDOW_BITS.contains(&window) {
                    return Err(Error::unsupported(
                        0,
                        format!("zlib window_bits {}", settings.window_bits),
                    ));
                }
                let level = if default || level < 0 {
                    ZLIB_DEFAULT_LEVEL
                } else {
                    level.min(9) as u32
                };
                Codec::Zlib {
                    level: Compression::new(level),
                    window: window as u8,
                }
            }
            CompressionType::Lz4 | CompressionType::Lz4hc => lz4_codec(settings.kind, level),
            CompressionType::Zstd => {
                let level = if default { ZSTD_DEFAULT_LEVEL } else { level };
                let mut zstd = zstd::bulk::Compressor::new(level)
                    .map_err(|e| Error::unsupported(0, format!("zstd level {level}: {e}")))?;
                zstd.include_checksum(settings.zstd_checksum)
                    .map_err(|e| Error::unsupported(0, format!("zstd checksum: {e}")))?;
                Codec::Zstd(zstd)
            }
        };
        Ok(Self {
            codec,
            max_bytes_per_kb: u64::from(settings.max_compressed_bytes_per_kb.min(1023)),
            scratch: Vec::new(),
        })
    }

    /// Whether all blocks are stored as they are.
    pub fn is_stored(&self) -> bool {
        matches!(self.codec, Codec::Stored)
    }

    /// Type that shrunk blocks get; LZ4 and LZ4HC go by the level, not by which was configured.
    pub fn kind(&self) -> CompressionType {
        match &self.codec {
            Codec::Stored => CompressionType::None,
            Codec::Snappy(_) => CompressionType::Snappy,
            Codec::Zlib { .. } => CompressionType::Zlib,
            Codec::Lz4(_, kind) => *kind,
            Codec::Zstd(_) => CompressionType::Zstd,
        }
    }

    /// Compresses `block`. Returns the bytes to store and their type: [`CompressionType::None`] and
    /// `block` itself where compression gains too little (`CompressAndVerifyBlock`).
    ///
    /// # Errors
    /// Unsupported if the library fails, which it does for want of memory.
    pub fn compress<'a>(&'a mut self, block: &'a [u8]) -> Result<(&'a [u8], CompressionType)> {
        const KIB_SHIFT: u32 = 10;
        if self.is_stored() || block.len() >= COMPRESSION_SIZE_LIMIT {
            return Ok((block, CompressionType::None));
        }
        let limit = (self.max_bytes_per_kb * block.len() as u64) >> KIB_SHIFT;
        let kind = self
            .fill_scratch(block)
            .map_err(|why| Error::unsupported(0, format!("compression failed: {why}")))?;
        if self.scratch.len() as u64 <= limit {
            Ok((&self.scratch, kind))
        } else {
            Ok((block, CompressionType::None))
        }
    }

    /// Puts the block that lies in `bytes` from `start` into the form in which it is stored, and returns its
    /// type.
    ///
    /// # Errors
    /// As [`Compressor::compress`].
    ///
    /// # Panics
    /// If `bytes` ends before `start`.
    pub fn compress_in_place(
        &mut self,
        bytes: &mut Vec<u8>,
        start: usize,
    ) -> Result<CompressionType> {
        let (_, kind) = self.compress(&bytes[start..])?;
        if kind != CompressionType::None {
            bytes.truncate(start);
            bytes.extend_from_slice(&self.scratch);
        }
        Ok(kind)
    }

    fn fill_scratch(&mut self, block: &[u8]) -> std::result::Result<CompressionType, String> {
        let out = &mut self.scratch;
        out.clear();
        match &mut self.codec {
            Codec::Stored => unreachable!("stored blocks are not compressed"),
            Codec::Snappy(encoder) => {
                out.resize(snap::raw::max_compress_len(block.len()), 0);
                let len = encoder.compress(block, out).map_err(|e| e.to_string())?;
                out.truncate(len);
                Ok(CompressionType::Snappy)
            }
            Codec::Zlib { level, window } => {
                put_varint(out, block.len() as u64);
                let mut deflate = Compress::new_with_window_bits(*level, false, *window);
                // Room for stored deflate blocks: a few bytes per 16 KiB.
                out.reserve(block.len() + block.len() / 1000 + 64);
                let status = deflate
                    .compress_vec(block, out, FlushCompress::Finish)
                    .map_err(|e| e.to_string())?;
                if status != Status::StreamEnd {
                    return Err("deflate did not finish".to_owned());
                }
                Ok(CompressionType::Zlib)
            }
            Codec::Lz4(mode, kind) => {
                put_varint(out, block.len() as u64);
                let head = out.len();
                let bound = lz4::block::compress_bound(block.len()).map_err(|e| e.to_string())?;
                out.resize(head + bound, 0);
                let len =
                    lz4::block::compress_to_buffer(block, Some(*mode), false, &mut out[head..])
                        .map_err(|e| e.to_string())?;
                out.truncate(head + len);
                Ok(*kind)
            }
            Codec::Zstd(encoder) => {
                put_varint(out, block.len() as u64);
                let head = out.len();
                out.resize(head + zstd::zstd_safe::compress_bound(block.len()), 0);
                let len = encoder
                    .compress_to_buffer(block, &mut out[head..])
                    .map_err(|e| e.to_string())?;
                out.truncate(head + len);
                Ok(CompressionType::Zstd)
            }
        }
    }
}

/// LZ4 and LZ4HC share levels: positive ones are LZ4HC's, others are accelerations, whichever of the
/// two is configured; only the default differs (`util/compression.cc:GetCompressor`).
fn lz4_codec(kind: CompressionType, level: i32) -> Codec {
    let high = match level {
        DEFAULT_LEVEL => kind == CompressionType::Lz4hc,
        level => level >= 1,
    };
    if high {
        let level = if level == DEFAULT_LEVEL { 0 } else { level };
        let mode = CompressionMode::HIGHCOMPRESSION(level.min(LZ4HC_MAX_LEVEL));
        Codec::Lz4(mode, CompressionType::Lz4hc)
    } else {
        let acceleration = level.clamp(-LZ4_MAX_ACCELERATION, -1).abs();
        let acceleration = if level >= 0 { 1 } else { acceleration };
        Codec::Lz4(CompressionMode::FAST(acceleration), CompressionType::Lz4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings(kind: CompressionType, level: i32) -> CompressionSettings {
        CompressionSettings {
            kind,
            level,
            ..CompressionSettings::none()
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_decompresses(
            word in proptest::collection::vec(any::<u8>(), 1..40),
            repeat in 1usize..200,
            kind in prop::sample::select(CompressionType::ALL.to_vec()),
            level in prop::sample::select(vec![DEFAULT_LEVEL, -3, 1, 5]),
        ) {
            let block = word.repeat(repeat);
            let mut compressor = Compressor::new(&settings(kind, level))?;
            let (stored, used) = compressor.compress(&block)?;
            let stored = &*stored.to_vec();
            let mut behind = [b"before".as_slice(), &block].concat();
            prop_assert_eq!(compressor.compress_in_place(&mut behind, 6)?, used);
            prop_assert_eq!(&behind, &[b"before".as_slice(), stored].concat());
            let mut out = Vec::new();
            Decompressor::new(Vec::new()).decompress(used, stored, &mut out)?;
            prop_assert_eq!(out, block);
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

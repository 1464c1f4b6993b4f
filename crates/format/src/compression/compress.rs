//! Compresses blocks to their stored form.

use flate2::{Compress, Compression, FlushCompress, Status};
use lz4::block::CompressionMode;

use super::{
    COMPRESSION_SIZE_LIMIT, CompressionSettings, CompressionType, DEFAULT_LEVEL, Implementation,
};
use crate::coding::put_varint;
use crate::error::{Error, Result};

/// zstd level behind [`DEFAULT_LEVEL`] (`util/compression.h:SanitizeZSTDCompressionLevel`).
const ZSTD_DEFAULT_LEVEL: i32 = 3;

/// zlib level behind [`DEFAULT_LEVEL`] (`Z_DEFAULT_COMPRESSION`).
const ZLIB_DEFAULT_LEVEL: u32 = 6;

/// Highest level that has an effect in LZ4HC.
const LZ4HC_MAX_LEVEL: i32 = 12;

/// Lowest LZ4 level, as acceleration.
const LZ4_MAX_ACCELERATION: i32 = 65537;

/// The level of ZSTD's library for a level of the options.
#[must_use]
pub fn zstd_level(level: i32) -> i32 {
    match level {
        DEFAULT_LEVEL => ZSTD_DEFAULT_LEVEL,
        level => level,
    }
}

enum Codec {
    Stored,
    Snappy(Box<snap::raw::Encoder>),
    Zlib { level: Compression, window: u8 },
    Lz4(Lz4Mode),
    Zstd(zstd::bulk::Compressor<'static>),
    Rockmill1(rockmill_codec::Codec),
}

/// Compresses blocks as RocksDB's built-in compressors do.
pub struct Compressor {
    codec: Codec,
    settings: CompressionSettings,
    /// That of the blocks, for a codec that takes it with every block.
    dictionary: Vec<u8>,
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
    /// Unsupported if the settings need a format that is not written here.
    pub fn new(settings: &CompressionSettings) -> Result<Self> {
        let level = settings.level;
        let default = level == DEFAULT_LEVEL;
        let codec = match settings.kind {
            kind if settings.implementation == Implementation::Rockmill1 => {
                Codec::Rockmill1(match kind {
                    CompressionType::Snappy => rockmill_codec::Codec::Snappy,
                    CompressionType::Lz4 | CompressionType::Lz4hc => rockmill_codec::Codec::Lz4,
                    CompressionType::Zstd => rockmill_codec::Codec::Zstd,
                    CompressionType::None | CompressionType::Zlib => {
                        let what = format!("{} by Rockmill's own code", kind.name());
                        return Err(Error::unsupported(0, what));
                    }
                })
            }
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
            CompressionType::Lz4 | CompressionType::Lz4hc => {
                Codec::Lz4(lz4_mode(settings.kind, level))
            }
            CompressionType::Zstd => {
                let level = zstd_level(level);
                let mut zstd = zstd::bulk::Compressor::new(level)
                    .map_err(|e| Error::unsupported(0, format!("zstd level {level}: {e}")))?;
                zstd.include_checksum(settings.zstd_checksum)
                    .map_err(|e| Error::unsupported(0, format!("zstd checksum: {e}")))?;
                Codec::Zstd(zstd)
            }
        };
        Ok(Self {
            codec,
            settings: settings.clone(),
            dictionary: Vec::new(),
            scratch: Vec::new(),
        })
    }

    /// A compressor for `settings`, of blocks that are read with this dictionary. A very short one is not used.
    ///
    /// # Errors
    /// Unsupported if the settings need a format that is not written here, or take no dictionary.
    pub fn with_dictionary(settings: &CompressionSettings, dictionary: &[u8]) -> Result<Self> {
        let mut compressor = Self::new(settings)?;
        if dictionary.len() < CompressionSettings::FEWEST_DICTIONARY_BYTES {
            return Ok(compressor);
        }
        match &mut compressor.codec {
            Codec::Zstd(zstd) => {
                let level = match settings.level {
                    DEFAULT_LEVEL => ZSTD_DEFAULT_LEVEL,
                    level => level,
                };
                let unsupported = |e| Error::unsupported(0, format!("zstd dictionary: {e}"));
                zstd.set_dictionary(level, dictionary)
                    .and_then(|()| zstd.include_checksum(settings.zstd_checksum))
                    .map_err(unsupported)?;
            }
            Codec::Zlib { .. } | Codec::Lz4(Lz4Mode::Fast(_)) => {
                compressor.dictionary = dictionary.to_vec();
            }
            _ => {
                let what = format!("a dictionary for {}", settings.kind.name());
                return Err(Error::unsupported(0, what));
            }
        }
        Ok(compressor)
    }

    /// Whether all blocks are stored uncompressed.
    pub fn is_stored(&self) -> bool {
        matches!(self.codec, Codec::Stored)
    }

    /// Type of compressed blocks; the level selects LZ4 or LZ4HC, not the configured type.
    pub fn kind(&self) -> CompressionType {
        match &self.codec {
            Codec::Stored => CompressionType::None,
            Codec::Snappy(_) => CompressionType::Snappy,
            Codec::Zlib { .. } => CompressionType::Zlib,
            Codec::Lz4(mode) => mode.kind(),
            Codec::Rockmill1(rockmill_codec::Codec::Snappy) => CompressionType::Snappy,
            Codec::Rockmill1(rockmill_codec::Codec::Lz4) => CompressionType::Lz4,
            Codec::Rockmill1(rockmill_codec::Codec::Zstd) => CompressionType::Zstd,
            Codec::Zstd(_) => CompressionType::Zstd,
        }
    }

    /// Compresses `block`. Returns the bytes to store and their type: [`CompressionType::None`] and `block` itself if
    /// compression gains too little (`CompressAndVerifyBlock`).
    ///
    /// # Errors
    /// Unsupported if the library fails, which happens if memory is short.
    pub fn compress<'a>(&'a mut self, block: &'a [u8]) -> Result<(&'a [u8], CompressionType)> {
        if self.is_stored() || block.len() >= COMPRESSION_SIZE_LIMIT {
            return Ok((block, CompressionType::None));
        }
        let limit = self.settings.max_compressed_size(block.len());
        let kind = self
            .fill_scratch(block, limit as usize)
            .map_err(|why| Error::unsupported(0, format!("compression failed: {why}")))?;
        if kind != CompressionType::None && self.scratch.len() as u64 <= limit {
            Ok((&self.scratch, kind))
        } else {
            Ok((block, CompressionType::None))
        }
    }

    /// Replaces the block that begins at `start` in `bytes` by its stored form, and returns its type.
    ///
    /// # Errors
    /// The errors of [`Compressor::compress`].
    ///
    /// # Panics
    /// If `bytes` ends before `start`.
    pub fn compress_in_place(
        &mut self,
        bytes: &mut Vec<u8>,
        start: usize,
    ) -> Result<CompressionType> {
        let (len, kind) = self.compress_over(&mut bytes[start..])?;
        bytes.truncate(start + len);
        Ok(kind)
    }

    /// Writes the stored form of `block` over its beginning. Returns the bytes of this form and its type.
    ///
    /// # Errors
    /// The errors of [`Compressor::compress`].
    pub fn compress_over(&mut self, block: &mut [u8]) -> Result<(usize, CompressionType)> {
        let (stored, kind) = self.compress(block)?;
        let len = stored.len();
        if kind != CompressionType::None {
            block[..len].copy_from_slice(&self.scratch);
        }
        Ok((len, kind))
    }

    /// Compresses `block` into the scratch buffer. The type is [`CompressionType::None`] if the result does not fit
    /// there. It may also be `None` if the block does not shrink to `limit` bytes.
    fn fill_scratch(
        &mut self,
        block: &[u8],
        limit: usize,
    ) -> std::result::Result<CompressionType, String> {
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
                if !self.dictionary.is_empty() {
                    // RocksDB reads with a window of 16 KiB, whatever the options say.
                    const READ_BYTES: usize = 1 << 14;
                    let unread = self.dictionary.len().saturating_sub(READ_BYTES);
                    let set = deflate.set_dictionary(&self.dictionary[unread..]);
                    set.map_err(|e| e.to_string())?;
                }
                // Small windows may need more space for incompressible data, which is then stored uncompressed.
                out.reserve(block.len() + block.len() / 1000 + 64);
                let status = deflate
                    .compress_vec(block, out, FlushCompress::Finish)
                    .map_err(|e| e.to_string())?;
                Ok(match status {
                    Status::StreamEnd => CompressionType::Zlib,
                    Status::Ok | Status::BufError => CompressionType::None,
                })
            }
            Codec::Lz4(mode) => {
                put_varint(out, block.len() as u64);
                let head = out.len();
                let bound = match self.dictionary.is_empty() {
                    true => lz4::block::compress_bound(block.len()).map_err(|e| e.to_string())?,
                    false => lz4_flex::block::get_maximum_output_size(block.len()),
                };
                out.resize(head + bound, 0);
                let room = &mut out[head..];
                // The safe interface of the library has no dictionaries.
                let len = match self.dictionary.as_slice() {
                    [] => lz4::block::compress_to_buffer(block, Some(mode.library()), false, room)
                        .map_err(|e| e.to_string())?,
                    own => lz4_flex::block::compress_into_with_dict(block, room, own)
                        .map_err(|e| e.to_string())?,
                };
                out.truncate(head + len);
                Ok(mode.kind())
            }
            Codec::Rockmill1(codec) => {
                let kind = match codec {
                    rockmill_codec::Codec::Snappy => CompressionType::Snappy,
                    rockmill_codec::Codec::Lz4 => {
                        put_varint(out, block.len() as u64);
                        CompressionType::Lz4
                    }
                    rockmill_codec::Codec::Zstd => {
                        put_varint(out, block.len() as u64);
                        CompressionType::Zstd
                    }
                };
                let capacity = limit.saturating_sub(out.len());
                Ok(match codec.compress(block, out, capacity) {
                    true => kind,
                    false => CompressionType::None,
                })
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

/// How LZ4 compresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lz4Mode {
    /// LZ4 with an acceleration.
    Fast(i32),
    /// LZ4HC with a level.
    High(i32),
}

impl Lz4Mode {
    fn kind(self) -> CompressionType {
        match self {
            Self::Fast(_) => CompressionType::Lz4,
            Self::High(_) => CompressionType::Lz4hc,
        }
    }

    fn library(self) -> CompressionMode {
        match self {
            Self::Fast(acceleration) => CompressionMode::FAST(acceleration),
            Self::High(level) => CompressionMode::HIGHCOMPRESSION(level),
        }
    }
}

/// LZ4 and LZ4HC share levels: positive levels select LZ4HC, others are accelerations of LZ4, for both configured
/// types. Only the default differs (`util/compression.cc:GetCompressor`).
pub fn lz4_mode(kind: CompressionType, level: i32) -> Lz4Mode {
    let high = match level {
        DEFAULT_LEVEL => kind == CompressionType::Lz4hc,
        level => level >= 1,
    };
    if high {
        let level = if level == DEFAULT_LEVEL { 0 } else { level };
        Lz4Mode::High(level.min(LZ4HC_MAX_LEVEL))
    } else {
        let acceleration = level.clamp(-LZ4_MAX_ACCELERATION, -1).abs();
        Lz4Mode::Fast(if level >= 0 { 1 } else { acceleration })
    }
}

//! Decompresses stored blocks.

use flate2::{Decompress, FlushDecompress, Status};

use super::{COMPRESSION_SIZE_LIMIT, CompressionType};
use crate::coding::{Cursor, le32};
use crate::error::{Error, ErrorKind, Result};

/// Bytes before the LZ4 block of a legacy file. RocksDB reads the first four of them.
const LEGACY_LZ4_HEADER: usize = 8;

/// First bytes of a ZSTD frame. No deflate stream begins with them: they would be a stored block with a wrong length.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Minimum growth in bytes of the output of deflate, if its size is not stored.
const LEAST_GROWTH: usize = 4096;

/// Maximum growth on decompression. A claimed size beyond it is wrong, and no memory is allocated for it. LZ4 gives at
/// most 255 bytes for one; deflate 1032; Snappy 64 for three; zstd's run-length blocks 128 KiB for four.
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
    /// Whether the file has format_version 0 or 1.
    is_legacy: bool,
    /// Maximum size of a decompressed block.
    most_bytes: usize,
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
            is_legacy: false,
            most_bytes: COMPRESSION_SIZE_LIMIT,
        }
    }

    /// The same for blocks of at most that size. Larger ones are not understood.
    #[must_use]
    pub fn at_most(self, most_bytes: usize) -> Self {
        Self {
            most_bytes: most_bytes.min(COMPRESSION_SIZE_LIMIT),
            ..self
        }
    }

    /// The same for a file of format_version 0 or 1.
    #[must_use]
    pub(crate) fn of_legacy_file(self, is_legacy: bool) -> Self {
        Self { is_legacy, ..self }
    }

    /// Replaces `out` with the uncompressed block.
    ///
    /// # Errors
    /// Corruption if the payload is malformed or does not have the size that it claims. `UnsupportedCompression` if it
    /// is malformed zlib or LZ4 of a legacy file: programs other than RocksDB write files with the same footer, and
    /// their types of compression have other meanings.
    pub fn decompress(
        &mut self,
        kind: CompressionType,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.clear();
        match kind {
            CompressionType::None => {
                out.extend_from_slice(payload);
                Ok(())
            }
            CompressionType::Zlib | CompressionType::Lz4 | CompressionType::Lz4hc
                if self.is_legacy =>
            {
                self.decompress_legacy(kind, payload, out)
                    .map_err(|error| Error {
                        kind: ErrorKind::UnsupportedCompression,
                        what: format!(
                            "compression type {} in format_version 0 or 1: {}",
                            kind as u8, error.what
                        )
                        .into(),
                        ..error
                    })
            }
            _ => {
                let (size, body) = claimed_size(kind, payload)?;
                self.decompress_sized(kind, size, body, out)
            }
        }
    }

    fn decompress_legacy(
        &mut self,
        kind: CompressionType,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if kind == CompressionType::Zlib {
            if payload.starts_with(&ZSTD_MAGIC) {
                return Err(Error::unsupported(0, "LevelDB's ZSTD"));
            }
            return self.inflate_unsized(payload, out);
        }
        let (header, body) = payload
            .split_at_checked(LEGACY_LZ4_HEADER)
            .ok_or_else(|| Error::corruption(0, "LZ4 block shorter than its header"))?;
        let size = checked_size(kind, le32(header) as usize, body)?;
        self.decompress_sized(kind, size, body, out)
    }

    fn decompress_sized(
        &mut self,
        kind: CompressionType,
        size: usize,
        body: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if size > self.most_bytes {
            let what = format!(
                "a block of {size} bytes, of which {} may be read",
                self.most_bytes
            );
            return Err(Error::unsupported(0, what));
        }
        out.resize(size, 0);
        let written = match kind {
            CompressionType::None => unreachable!("stored blocks have no size"),
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

    fn new_inflate(&self) -> std::result::Result<Decompress, String> {
        let mut inflate = Decompress::new(false);
        if !self.dictionary.is_empty() {
            inflate
                .set_dictionary(&self.dictionary)
                .map_err(|e| e.to_string())?;
        }
        Ok(inflate)
    }

    /// Decompresses a stream whose size is not stored.
    fn inflate_unsized(&self, body: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let malformed =
            |why: &str| Error::corruption(0, format!("malformed deflate stream: {why}"));
        let mut inflate = self.new_inflate().map_err(|e| malformed(&e))?;
        loop {
            let before = (inflate.total_in(), inflate.total_out());
            out.reserve(body.len().max(LEAST_GROWTH));
            let rest = &body[(before.0 as usize).min(body.len())..];
            let status = inflate.decompress_vec(rest, out, FlushDecompress::None);
            match status.map_err(|e| malformed(&e.to_string()))? {
                Status::StreamEnd => return Ok(()),
                _ if (inflate.total_in(), inflate.total_out()) == before => {
                    return Err(malformed("it does not end"));
                }
                _ if out.len() > self.most_bytes => {
                    return Err(malformed("it is larger than a block may be"));
                }
                _ => {}
            }
        }
    }

    fn inflate(&self, body: &[u8], out: &mut [u8]) -> std::result::Result<usize, String> {
        let mut inflate = self.new_inflate()?;
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

/// Uncompressed size that a payload claims, checked against the maximum for its bytes, and the compressed bytes.
fn claimed_size(kind: CompressionType, payload: &[u8]) -> Result<(usize, &[u8])> {
    let (size, body) = if kind == CompressionType::Snappy {
        let size = snap::raw::decompress_len(payload)
            .map_err(|e| Error::corruption(0, format!("malformed Snappy block: {e}")))?;
        (size, payload)
    } else {
        let mut cursor = Cursor::new(payload);
        (cursor.varint32()? as usize, cursor.rest())
    };
    Ok((checked_size(kind, size, body)?, body))
}

/// A claimed size, unless it exceeds the maximum for the bytes.
fn checked_size(kind: CompressionType, size: usize, body: &[u8]) -> Result<usize> {
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
    Ok(size)
}

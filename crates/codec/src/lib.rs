//! Compression of blocks by Rockmill's own code, which is the same for a GPU and for the host: `kernels/codec/`. Here
//! it runs on the host. It compresses to the same bytes as a GPU.
//!
//! Compressed data has an identity, `lz4/rockmill-1`, `snappy/rockmill-1` or `zstd/rockmill-1`, which determines every
//! byte. The formats are those of liblz4, libsnappy and libzstd; either reads what the other one wrote.
//!
//! The checksum of blocks, [`xxh3`](xxh3::xxh3), is here too: like the compression, it needs unsafe code.

mod ffi;
pub mod xxh3;

pub use ffi::zstd_dictionary;

use std::error::Error;
use std::fmt;

/// A format, with version 1 of Rockmill's compressor for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Codec {
    /// LZ4 blocks, without a frame and without the content's size in front.
    Lz4,
    /// Snappy blocks, without a frame; they begin with the content's size.
    Snappy,
    /// A ZSTD frame with the content's size and without a checksum.
    Zstd,
}

/// A payload that is not a block of the requested size. LZ4 payloads with an offset of 0, or with a match that ends in
/// the last five bytes of the block, are always refused. The format forbids both, but liblz4 takes some of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the compressed block is malformed")
    }
}

impl Error for Malformed {}

/// Why a ZSTD frame could not be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZstdError {
    /// It is damaged, has another size, or is not one frame alone. Frames made with a dictionary that has no number are
    /// malformed as well, unless they do not use it.
    Malformed,
    /// It was made with a dictionary.
    Dictionary,
}

impl fmt::Display for ZstdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the ZSTD frame is malformed",
            Self::Dictionary => "the ZSTD frame needs a dictionary",
        })
    }
}

impl Error for ZstdError {}

/// Decompresses a ZSTD frame, which must fill `out` exactly. After an error, the contents of `out` are undefined.
///
/// Some frames are refused that libzstd accepts but never writes. They have Huffman codes of 12 bits, Huffman streams
/// that end within a code, or blocks that are larger than the format allows.
///
/// # Errors
///
/// If the frame is damaged, has another size or needs a dictionary.
pub fn zstd_decompress(frame: &[u8], out: &mut [u8]) -> Result<(), ZstdError> {
    ffi::decode_zstd(frame, out)
}

impl Codec {
    /// Appends the compressed `block` to `out`, in at most `capacity` bytes. Returns false and leaves `out` unchanged
    /// if the result is larger, or if the block has more than 2 GiB.
    pub fn compress(self, block: &[u8], out: &mut Vec<u8>, capacity: usize) -> bool {
        let Some(most) = most_bytes(block.len()) else {
            return false;
        };
        out.reserve(capacity.min(most));
        let room = &mut out.spare_capacity_mut()[..capacity.min(most)];
        let size = ffi::encode(self, block, room);
        // SAFETY: the code has written `size` bytes there.
        unsafe { out.set_len(out.len() + size) };
        size > 0
    }

    /// Decompresses `payload`, which must fill `out` exactly. After an error, the contents of `out` are undefined.
    ///
    /// # Errors
    ///
    /// If the payload is damaged or has another size.
    pub fn decompress(self, payload: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
        ffi::decode(self, payload, out)
    }
}

/// Version of the linked zlib. The function is in this crate because a program may link the system's zlib, and the
/// crates that compress have no unsafe code.
pub fn zlib_version() -> &'static str {
    ffi::zlib_version()
}

/// Maximum size of a compressed block of `len` bytes; `None` if `len` is too large.
fn most_bytes(len: usize) -> Option<usize> {
    const MAX_BLOCK_BYTES: usize = 1 << 31;
    (len <= MAX_BLOCK_BYTES).then(|| len + len / 6 + 32)
}

//! The same formats by other libraries: liblz4, the snap crate and libzstd.

use lz4::block::CompressionMode;
use rockmill_codec::Codec;

/// Effort of LZ4's library.
#[derive(Debug, Clone, Copy)]
pub enum Effort {
    /// LZ4's acceleration.
    Fast(i32),
    /// LZ4HC's level.
    High(i32),
}

/// RocksDB's default level.
const ZSTD_LEVEL: i32 = 3;

pub const USUAL: Effort = Effort::Fast(1);

pub fn compress(codec: Codec, effort: Effort, block: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Snappy => {
            let made = snap::raw::Encoder::new().compress_vec(block);
            made.expect("a block of ordinary size")
        }
        Codec::Zstd => zstd::bulk::compress(block, ZSTD_LEVEL).expect("it has memory"),
        Codec::Lz4 => {
            let mode = match effort {
                Effort::Fast(acceleration) => CompressionMode::FAST(acceleration),
                Effort::High(level) => CompressionMode::HIGHCOMPRESSION(level),
            };
            let bound = lz4::block::compress_bound(block.len()).expect("an ordinary size");
            let mut out = vec![0; bound];
            let made = lz4::block::compress_to_buffer(block, Some(mode), false, &mut out);
            out.truncate(made.expect("there is enough room"));
            out
        }
    }
}

/// The content, if the payload is sound and has exactly `len` bytes of content.
pub fn decompress(codec: Codec, payload: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    let size = match codec {
        Codec::Snappy => {
            // The decoder accepts a smaller size as well, and an empty payload is an error.
            let size = snap::raw::Decoder::new().decompress(payload, &mut out);
            size.ok()?
        }
        Codec::Zstd => zstd::bulk::decompress_to_buffer(payload, &mut out).ok()?,
        Codec::Lz4 => {
            let len = i32::try_from(len).expect("an ordinary size");
            lz4::block::decompress_to_buffer(payload, Some(len), &mut out).ok()?
        }
    };
    (size == len).then_some(out)
}

/// Whether an LZ4 payload that liblz4 accepts breaks a rule that Rockmill enforces: an offset of 0, or a match that
/// ends in the last five bytes. liblz4 copies some short matches before it checks either.
pub fn breaks_a_rule(payload: &[u8], len: usize) -> bool {
    let mut rest = payload.iter().copied();
    let long = |half: u8, rest: &mut dyn Iterator<Item = u8>| {
        let mut length = usize::from(half);
        let mut more = half == 15;
        while more {
            let byte = rest.next().unwrap_or(0);
            length += usize::from(byte);
            more = byte == 255;
        }
        length
    };
    let mut made = 0;
    while let Some(token) = rest.next() {
        let literals = long(token >> 4, &mut rest);
        let (Some(low), Some(high)) = (rest.by_ref().nth(literals), rest.next()) else {
            break;
        };
        made += literals + long(token & 15, &mut rest) + 4;
        if low == 0 && high == 0 || made + 5 > len {
            return true;
        }
    }
    false
}

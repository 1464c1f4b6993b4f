//! `kernels/codec/host.cpp` and the version of zlib, in safe functions.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use crate::{Codec, Malformed, ZstdError};

const CODEC_OK: u32 = 0;
const CODEC_UNSUPPORTED: u32 = 2;

type Encode = unsafe extern "C" fn(*const u8, u32, *mut u8, u32) -> u32;
type Decode = unsafe extern "C" fn(*const u8, u32, *mut u8, u32) -> u32;

unsafe extern "C" {
    fn rockmill_lz4_encode(src: *const u8, n: u32, dst: *mut u8, capacity: u32) -> u32;
    fn rockmill_snappy_encode(src: *const u8, n: u32, dst: *mut u8, capacity: u32) -> u32;
    fn rockmill_zstd_encode(src: *const u8, n: u32, dst: *mut u8, capacity: u32) -> u32;
    fn rockmill_lz4_decode(src: *const u8, n: u32, dst: *mut u8, m: u32) -> u32;
    fn rockmill_snappy_decode(src: *const u8, n: u32, dst: *mut u8, m: u32) -> u32;
    fn rockmill_zstd_decode(src: *const u8, n: u32, dst: *mut u8, m: u32) -> u32;
}

/// Writes the compressed block to `out` and returns its size; 0 if `out` is too small or the block is too large.
pub fn encode(codec: Codec, block: &[u8], out: &mut [MaybeUninit<u8>]) -> usize {
    let encode: Encode = match codec {
        Codec::Lz4 => rockmill_lz4_encode,
        Codec::Snappy => rockmill_snappy_encode,
        Codec::Zstd => rockmill_zstd_encode,
    };
    let Ok(n) = u32::try_from(block.len()) else {
        return 0;
    };
    let capacity = u32::try_from(out.len()).unwrap_or(u32::MAX);
    // SAFETY: it reads `n` bytes of the block, and writes at most `capacity`.
    let size = unsafe { encode(block.as_ptr(), n, out.as_mut_ptr().cast(), capacity) };
    size as usize
}

pub fn decode(codec: Codec, payload: &[u8], out: &mut [u8]) -> Result<(), Malformed> {
    let decode: Decode = match codec {
        Codec::Lz4 => rockmill_lz4_decode,
        Codec::Snappy => rockmill_snappy_decode,
        Codec::Zstd => rockmill_zstd_decode,
    };
    match call(decode, payload, out) {
        Some(CODEC_OK) => Ok(()),
        _ => Err(Malformed),
    }
}

pub fn decode_zstd(frame: &[u8], out: &mut [u8]) -> Result<(), ZstdError> {
    match call(rockmill_zstd_decode, frame, out) {
        Some(CODEC_OK) => Ok(()),
        Some(CODEC_UNSUPPORTED) => Err(ZstdError::Dictionary),
        _ => Err(ZstdError::Malformed),
    }
}

/// The status; `None` if one of the sizes is too large.
fn call(decode: Decode, payload: &[u8], out: &mut [u8]) -> Option<u32> {
    let n = u32::try_from(payload.len()).ok()?;
    let m = u32::try_from(out.len()).ok()?;
    // SAFETY: on any payload, it reads at most `n` bytes, and writes at most `m`.
    Some(unsafe { decode(payload.as_ptr(), n, out.as_mut_ptr(), m) })
}

pub fn zlib_version() -> &'static str {
    // SAFETY: it returns a constant string.
    let version = unsafe { CStr::from_ptr(libz_sys::zlibVersion()) };
    version.to_str().unwrap_or("unknown")
}

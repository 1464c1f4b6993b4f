//! `kernels/codec/host.cpp`, the version of zlib and ZSTD's trainer of dictionaries, in safe functions.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use zstd_sys::{ZDICT_finalizeDictionary, ZDICT_isError, ZDICT_params_t, ZDICT_trainFromBuffer};

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

/// Makes a dictionary for ZSTD of at most `max_bytes` from contiguous samples of these sizes. Without a level, the library
/// selects the content (`ZDICT_trainFromBuffer`). With a level, the content is the first samples, with statistics for that
/// level (`ZDICT_finalizeDictionary`). Returns no bytes if the samples are too few or do not compress, or if `sizes` are not
/// theirs. The library takes some 6 MB.
pub fn zstd_dictionary(
    samples: &[u8],
    sizes: &[usize],
    max_bytes: usize,
    level: Option<i32>,
) -> Vec<u8> {
    let all = sizes
        .iter()
        .try_fold(0_usize, |all, &size| all.checked_add(size));
    let (true, Ok(number)) = (all == Some(samples.len()), u32::try_from(sizes.len())) else {
        return Vec::new();
    };
    let mut dictionary = vec![0; max_bytes];
    let content_bytes = samples.len().min(max_bytes);
    let (out, samples) = (dictionary.as_mut_ptr().cast(), samples.as_ptr().cast());
    // SAFETY: it writes at most `max_bytes` bytes, reads `number` sizes, and samples of these sizes, which is their length.
    let size = unsafe {
        match level {
            None => ZDICT_trainFromBuffer(out, max_bytes, samples, sizes.as_ptr(), number),
            Some(level) => {
                let parameters = ZDICT_params_t {
                    compressionLevel: level,
                    notificationLevel: 0,
                    dictID: 0,
                };
                ZDICT_finalizeDictionary(
                    out,
                    max_bytes,
                    samples,
                    content_bytes,
                    samples,
                    sizes.as_ptr(),
                    number,
                    parameters,
                )
            }
        }
    };
    // SAFETY: it only compares the number.
    let is_error = unsafe { ZDICT_isError(size) } != 0;
    dictionary.truncate(if is_error { 0 } else { size });
    dictionary.shrink_to_fit();
    dictionary
}

//! XXH3 of 64 bits with seed 0, RocksDB's checksum of blocks.
//!
//! A block's bytes are hashed three times on the CPU path: when they are read, when they are sealed, and when the
//! sealed block is checked. `twox-hash` uses AVX2. For long input, this module has an algorithm with AVX-512, which
//! saves a third of the time for blocks of 4 KiB (docs/decisions/cpu-path.md). It needs unsafe code.

#[cfg(target_arch = "x86_64")]
mod avx512;
pub mod constants;

use twox_hash::XxHash3_64;

/// The hash of `bytes`.
#[inline]
pub fn xxh3(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(hash) = avx512::xxh3_long(bytes) {
        return hash;
    }
    XxHash3_64::oneshot(bytes)
}

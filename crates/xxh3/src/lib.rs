//! XXH3 of 64 bits, seed 0, as RocksDB sums blocks with it.
//!
//! A block's bytes are summed three times on the CPU path: when they are read, when they are sealed, and when the
//! sealed block is checked. `twox-hash` does it with AVX2; the form for long input is here once more with AVX-512, which
//! takes a third off for blocks of 4 KiB (docs/decisions/cpu-path.md). That needs unsafe code: all of it is in this crate.

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

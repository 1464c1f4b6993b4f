//! Tests of the GPU backend. They are modules of `crates/compaction/tests/gpu_tests.rs`, which provides
//! `crate::common`: one program then holds the kernels once for all of them.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` choose the cases.

mod cache;
mod columns;
mod faults;
mod lending;
mod memory;
mod one_task;
mod same_files;
mod snapshots;

use std::sync::OnceLock;

use cache::Warmed;
use rockmill_cuda::Target;

/// The target that `ROCKMILL_TEST_DEVICE` names (`cuda:N`), or the host.
fn target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

/// That target with default settings, opened once for all tests that do not change it. Many of its tasks find their input in
/// the cache.
fn device() -> &'static Warmed {
    static BACKEND: OnceLock<Warmed> = OnceLock::new();
    BACKEND.get_or_init(Warmed::open)
}

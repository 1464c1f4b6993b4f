//! Tests of the GPU backend. They are modules of `crates/compaction/tests/gpu_tests.rs`, which provides
//! `crate::common`: one program then holds the kernels once for all of them.
//!
//! `PROPTEST_CASES` and `PROPTEST_RNG_SEED` choose the cases.

mod faults;
mod lending;
mod memory;
mod one_task;
mod same_files;
mod snapshots;

use std::sync::OnceLock;

use rockmill_cuda::{CudaBackend, CudaSettings, Target};

/// The target that `ROCKMILL_TEST_DEVICE` names (`cuda:N`), or the host.
fn target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

/// That target with default settings, opened once for all tests that do not change it.
fn device() -> &'static CudaBackend {
    static BACKEND: OnceLock<CudaBackend> = OnceLock::new();
    BACKEND.get_or_init(|| {
        CudaBackend::new(target(), CudaSettings::default()).expect("the device opens")
    })
}

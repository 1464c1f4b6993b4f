//! Where the kernels run.

use rockmill_cuda::Target;

/// The host, or the GPU that `ROCKMILL_TEST_DEVICE` names (`cuda:N`).
pub fn target() -> Target {
    let named = std::env::var("ROCKMILL_TEST_DEVICE").unwrap_or_default();
    match named.strip_prefix("cuda:") {
        Some(number) => Target::Cuda(number.parse().expect("cuda:N")),
        None => Target::Host,
    }
}

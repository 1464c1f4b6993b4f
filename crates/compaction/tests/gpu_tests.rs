//! All tests that run on a device, in one program: those of the GPU backend and the recorded jobs.
//!
//! The kernels run on the host, or on the GPU that `ROCKMILL_TEST_DEVICE` names (`cuda:N`). `scripts/gpu-bundle.sh`
//! copies this program to machines with a GPU.

#[path = "../../cpu/tests/common/mod.rs"]
mod common;
#[path = "../../cuda/tests/device/mod.rs"]
mod device;
mod recorded_jobs;

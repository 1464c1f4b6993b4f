//! All tests that run on a device, in one program: those of the GPU backend and the recorded jobs.
//!
//! The kernels run on the host, or on the GPU that `ROCKMILL_TEST_DEVICE` names (`cuda:N`). `scripts/gpu-bundle.sh`
//! copies this program to machines with a GPU.

use rockmill_testkit::cases as common;
mod device;
mod recorded_jobs;

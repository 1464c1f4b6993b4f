//! A process that is killed with SIGKILL while Rockmill compacts its database loses nothing and tears no batch. The
//! next process removes all remaining files.
//!
//! ```text
//! ROCKMILL_SEED=N ROCKMILL_CASES=200 ROCKMILL_JSON=FILE \
//!     cargo test --release -p rockmill-tests --test kill a_killed -- --nocapture
//! ```
//!
//! kills that many processes and writes a summary; see [`rockmill_tests::crash`]. `ROCKMILL_AT_ONCE=4` runs four of
//! them in parallel, `ROCKMILL_TEST_DEVICE=cuda:0` lets them compact on a GPU; simulated devices work as well.

use std::path::Path;

use rockmill_tests::crash::campaign::Campaign;
use rockmill_tests::device::{KERNELS_ON_HOST, named};

/// A small number, because the kernels are slow on the host.
const KILLS_WITH_KERNELS: u64 = 6;
const PROGRAM: &str = env!("CARGO_BIN_EXE_crash");

fn from_environment() -> Campaign {
    Campaign::from_environment(Path::new(PROGRAM)).expect("the environment makes sense")
}

fn run(campaign: &Campaign) {
    campaign.run().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_killed_process_loses_nothing() {
    run(&from_environment());
}

#[test]
fn a_process_killed_while_a_gpus_kernels_work_loses_nothing() {
    run(&Campaign {
        device: named(KERNELS_ON_HOST).expect("a device"),
        kills: KILLS_WITH_KERNELS,
        json: None,
        ..from_environment()
    });
}

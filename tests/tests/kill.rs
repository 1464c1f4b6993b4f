//! A process that is killed with SIGKILL while Rockmill compacts its database loses nothing, tears no batch,
//! and leaves nothing that the next one does not remove.
//!
//! ```text
//! ROCKMILL_SEED=N ROCKMILL_CASES=200 ROCKMILL_JSON=FILE \
//!     cargo test --release -p rockmill-tests --test kill a_killed -- --nocapture
//! ```
//!
//! kills so many processes and writes what they came to; see [`rockmill_tests::crash`]. `ROCKMILL_AT_ONCE=4` has four
//! of them at a time, `ROCKMILL_TEST_DEVICE=cuda:0` has them compact on a GPU; simulated devices go as well.

use std::path::Path;

use rockmill_tests::crash::campaign::Campaign;
use rockmill_tests::crash::device::{KERNELS_ON_HOST, named};

/// The kernels take their time on the host.
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

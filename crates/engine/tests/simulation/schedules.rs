//! Several databases, jobs and devices at once, in virtual time, with devices that fail and jobs that are cancelled.
//!
//! What each case is made of comes from its seed; in which order threads come to do it does not.

mod fleet;
mod tally;
mod world;

use std::time::Instant;

use rand::SeedableRng;
use rand::rngs::SmallRng;

use tally::Tally;
use world::World;

const DEFAULT_SEED: u64 = 1;
const DEFAULT_CASES: u64 = 300;

/// So many cases meet every fault.
const ENOUGH_CASES: u64 = 200;

#[test]
fn jobs_end_as_on_the_cpu_alone_whatever_devices_do() {
    let first = super::from_environment("ROCKMILL_SIM_SEED", DEFAULT_SEED);
    let cases = super::from_environment("ROCKMILL_SIM_CASES", DEFAULT_CASES);
    println!("seeds {first} to {}", first + cases - 1);
    let started = Instant::now();
    let mut tally = Tally::default();
    for seed in first..first + cases {
        println!("ROCKMILL_SIM_SEED={seed} ROCKMILL_SIM_CASES=1");
        let world = World::draw(&mut SmallRng::seed_from_u64(seed), seed);
        tally.add(&world.run());
    }
    tally.print(cases, started.elapsed());
    if cases >= ENOUGH_CASES {
        tally.assert_all_was_met();
    }
}

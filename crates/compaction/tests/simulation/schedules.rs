//! Several databases, jobs and devices in parallel, in virtual time, with devices that fail and jobs that are
//! cancelled.
//!
//! A case's seed determines its contents, but not the order in which threads run.

mod bounds;
mod crowd;
mod draw;
mod registry;
mod request;
mod tally;
mod watch;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_testkit::machine;

use tally::Tally;
use world::World;

const DEFAULT_SEED: u64 = 1;
const DEFAULT_CASES: u64 = 600;

/// Number of cases that is enough to meet every fault.
const ENOUGH_CASES: u64 = 500;

/// A case takes some hundredths of a second. After this time it hangs.
const HUNG: Duration = Duration::from_secs(120);

#[test]
fn jobs_end_as_on_the_cpu_alone_whatever_devices_do() {
    let first = machine::number("ROCKMILL_SIM_SEED", DEFAULT_SEED);
    let cases = machine::cases(DEFAULT_CASES);
    println!("seeds {first} to {}", first + cases - 1);
    let started = Instant::now();
    let tally = run_all(first..first + cases);
    tally.print(cases, started.elapsed());
    if cases >= ENOUGH_CASES {
        tally.assert_all_was_met();
    }
}

/// Runs a case for each seed, as many in parallel as there are CPUs.
fn run_all(seeds: Range<u64>) -> Tally {
    let next = AtomicU64::new(seeds.start);
    let (tally, running) = (Mutex::new(Tally::default()), Running::default());
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|s| *s < seeds.end)
        {
            let _case = running.begin(seed);
            let world = World::draw(&mut SmallRng::seed_from_u64(seed), seed);
            let ending = world.run();
            tally.lock().expect("no panic").add(&world, &ending);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            std::thread::sleep(Duration::from_millis(5));
            running.look();
        }
    });
    tally.into_inner().expect("no panic")
}

/// The running cases by seed, with the time of their start.
#[derive(Debug, Default)]
struct Running(Mutex<BTreeMap<u64, Instant>>);

/// A running case. If it panics, it prints how to repeat it.
struct Case<'a>(&'a Running, u64);

fn repeat(seed: u64) -> String {
    format!("to repeat it: ROCKMILL_SIM_SEED={seed} ROCKMILL_CASES=1")
}

impl Running {
    fn begin(&self, seed: u64) -> Case<'_> {
        let mut running = self.0.lock().expect("no panic");
        running.insert(seed, Instant::now());
        Case(self, seed)
    }

    /// Ends the process if a case hangs, because its threads cannot be ended.
    fn look(&self) {
        let running = self.0.lock().expect("no panic");
        if let Some((seed, _)) = running.iter().find(|(_, began)| began.elapsed() > HUNG) {
            eprintln!("a case hangs; {}", repeat(*seed));
            std::process::exit(1);
        }
    }
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", repeat(self.1));
        }
        if let Ok(mut running) = self.0.0.lock() {
            running.remove(&self.1);
        }
    }
}

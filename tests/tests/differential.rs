//! Random cases on RocksDB alone and on RocksDB with Rockmill: the same entries, the same reads.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_tests::differential::Outcome;
use rockmill_tests::workload::Case;
use rockmill_tests::{differential, seed};

/// Small cases by default: a few minutes on two cores.
const DEFAULT_CASES: u64 = 240;
/// One case in so many breaks SingleDelete's contract.
const BROKEN_CONTRACT_EVERY: u64 = 16;
/// The least share of the jobs that Rockmill must do, in percent: what it takes is not to decline.
const LEAST_DONE_PERCENT: u64 = 70;
/// The least share of the steps to measure in which Rockmill must do the job, in percent.
const LEAST_MEASURED_PERCENT: u64 = 70;

#[derive(Default)]
struct Total {
    scheduled: u64,
    done: u64,
    failed: u64,
    measures: u64,
    measured: u64,
    declines: BTreeMap<String, u64>,
    last_error: Option<String>,
    differences: Vec<String>,
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.measures += outcome.measures;
        self.measured += outcome.measured;
        let stats = outcome.stats;
        self.scheduled += stats.jobs_scheduled;
        self.done += stats.jobs_done;
        self.failed += stats.jobs_failed;
        for (reason, count) in stats.declines {
            *self.declines.entry(reason).or_default() += count;
        }
        self.last_error = stats.last_error.or(self.last_error.take());
    }
}

fn run_case(number: u64, first: u64) -> Result<Outcome, String> {
    let case = Case::new(
        first + number,
        (first + number).is_multiple_of(BROKEN_CONTRACT_EVERY),
    );
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    differential::run(&case, directory.path())
}

#[test]
fn rockmill_compacts_as_rocksdb_does() {
    let (first, cases) = (seed::first_seed(), seed::cases(DEFAULT_CASES));
    println!("seeds {first} to {}", first + cases - 1);
    let (next, total) = (AtomicU64::new(0), Mutex::new(Total::default()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cases {
                        return;
                    }
                    let result = run_case(number, first);
                    let mut total = total.lock().expect("no worker panics while it adds");
                    match result {
                        Ok(outcome) => total.add(outcome),
                        Err(difference) => total.differences.push(difference),
                    }
                }
            });
        }
    });
    let total = total.into_inner().expect("no worker panics while it adds");
    println!(
        "{} of {} measures were of a job that Rockmill did",
        total.measured, total.measures
    );
    println!(
        "{} jobs: {} done, {} failed ({:?}), declined: {:?}",
        total.scheduled, total.done, total.failed, total.last_error, total.declines
    );
    assert!(
        total.differences.is_empty(),
        "{} of {cases} cases differ; replay one with ROCKMILL_SEED=<seed> ROCKMILL_CASES=1:\n{}",
        total.differences.len(),
        total.differences.join("\n")
    );
    assert!(total.scheduled > 0, "no job reached the service");
    assert_eq!(total.failed, 0, "the last error: {:?}", total.last_error);
    assert!(
        total.done * 100 >= total.scheduled * LEAST_DONE_PERCENT,
        "only {} of {} jobs were done; declined: {:?}",
        total.done,
        total.scheduled,
        total.declines
    );
    assert!(
        total.measured * 100 >= total.measures * LEAST_MEASURED_PERCENT,
        "only {} of {} measures were of a job that Rockmill did",
        total.measured,
        total.measures
    );
}

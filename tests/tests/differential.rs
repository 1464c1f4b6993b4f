//! Random cases on RocksDB alone and on RocksDB with Rockmill must give the same entries and reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill_tests::differential::{Measures, Outcome};
use rockmill_tests::workload::Case;
use rockmill_tests::{differential, seed};

/// Small cases by default: a few minutes on two cores.
const DEFAULT_CASES: u64 = 160;
/// One case in `BROKEN_CONTRACT_EVERY` breaks SingleDelete's contract.
const BROKEN_CONTRACT_EVERY: u64 = 16;

#[derive(Default)]
struct Total {
    scheduled: u64,
    done: u64,
    measures: Measures,
    declines: BTreeMap<String, u64>,
    differences: Vec<String>,
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.measures.done += outcome.measures.done;
        self.measures.with_tombstones += outcome.measures.with_tombstones;
        self.measures.declined += outcome.measures.declined;
        self.measures.refused += outcome.measures.refused;
        let stats = outcome.stats;
        self.scheduled += stats.jobs_offered;
        self.done += stats.jobs_done;
        for (reason, count) in stats.jobs_declined_by_reason {
            *self.declines.entry(reason).or_default() += count;
        }
    }
}

fn run_case(seed: u64) -> Result<Outcome, String> {
    let case = Case::new(seed, seed.is_multiple_of(BROKEN_CONTRACT_EVERY));
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    differential::run(&case, directory.path())
}

#[test]
fn rockmill_compacts_as_rocksdb_does() {
    let seeds = seed::seeds(DEFAULT_CASES);
    // Not captured by the test harness, so that the seeds are printed even if RocksDB aborts the process.
    let _ = writeln!(std::io::stderr(), "seeds {seeds:?}");
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Total::default()));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let result = run_case(seed);
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
    println!("compared jobs: {:?}", total.measures);
    println!(
        "{} jobs: {} done, declined: {:?}",
        total.scheduled, total.done, total.declines
    );
    assert!(
        total.differences.is_empty(),
        "{} of {} cases differ; replay one with ROCKMILL_SEED=<seed> ROCKMILL_CASES=1:\n{}",
        total.differences.len(),
        seeds.len(),
        total.differences.join("\n")
    );
    assert!(total.scheduled > 0, "no job reached the service");
    // A small number of cases may have only automatic compactions.
    assert!(
        total.measures.done > 0 || (seeds.len() as u64) < DEFAULT_CASES,
        "no job was compared"
    );
    assert!(
        total.measures.with_tombstones > 0 || (seeds.len() as u64) < DEFAULT_CASES,
        "no job with range tombstones was compared"
    );
}

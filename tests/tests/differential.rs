//! Random cases on RocksDB alone and on RocksDB with Rockmill must give the same entries and reads.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rockmill::DeviceList;
use rockmill_tests::device::{self, KERNELS_ON_HOST, Subcompactions};
use rockmill_tests::differential::{FEATURES, Measures, Outcome};
use rockmill_tests::workload::Case;
use rockmill_tests::{differential, seed};

/// Small cases by default: a few minutes on two cores.
const DEFAULT_CASES: u64 = 160;
/// One case in `BROKEN_CONTRACT_EVERY` breaks SingleDelete's contract.
const BROKEN_CONTRACT_EVERY: u64 = 16;
/// One case in `ON_CPU_EVERY` compacts on the CPU, and the others by a GPU's kernels on the host, unless
/// `ROCKMILL_TEST_DEVICE` names the device of all.
const ON_CPU_EVERY: u64 = 3;

#[derive(Default)]
struct Total {
    scheduled: u64,
    done: u64,
    subcompactions: Subcompactions,
    measures: Measures,
    declines: BTreeMap<String, u64>,
    differences: Vec<String>,
}

impl Total {
    fn add(&mut self, outcome: Outcome) {
        self.measures.add(&outcome.measures);
        let stats = outcome.stats;
        let subcompactions = Subcompactions::from(&stats);
        self.subcompactions.cpu += subcompactions.cpu;
        self.subcompactions.device += subcompactions.device;
        self.subcompactions.redone += subcompactions.redone;
        self.scheduled += stats.jobs_offered;
        self.done += stats.jobs_done;
        for (reason, count) in stats.jobs_declined_by_reason {
            *self.declines.entry(reason).or_default() += count;
        }
    }

    /// Prints the counts, the measured jobs by feature among them.
    fn print(&self) {
        println!("compared jobs:                       on the CPU  on a device");
        for (feature, _) in FEATURES {
            let [cpu, device] = self.measures.done.get(feature).copied().unwrap_or_default();
            println!("{feature:36} {cpu:10} {device:12}");
        }
        let (declined, refused) = (self.measures.declined, self.measures.refused);
        println!("declined {declined}, refused by RocksDB {refused}");
        println!(
            "{} jobs: {} done, declined: {:?}; {:?}",
            self.scheduled, self.done, self.declines, self.subcompactions
        );
    }
}

/// The device that `ROCKMILL_TEST_DEVICE` names, or that of the seed.
fn device_of(seed: u64) -> DeviceList {
    let is_named = std::env::var_os("ROCKMILL_TEST_DEVICE").is_some();
    let device = match is_named || seed.is_multiple_of(ON_CPU_EVERY) {
        true => device::tested(),
        false => device::named(KERNELS_ON_HOST),
    };
    device.expect("the name of a device")
}

fn run_case(seed: u64) -> Result<Outcome, String> {
    let case = Case::new(seed, seed.is_multiple_of(BROKEN_CONTRACT_EVERY));
    let directory = tempfile::tempdir().map_err(|e| e.to_string())?;
    differential::run(&case, directory.path(), device_of(seed))
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
    total.print();
    assert!(
        total.differences.is_empty(),
        "{} of {} cases differ; replay one with ROCKMILL_SEED=<seed> ROCKMILL_CASES=1:\n{}",
        total.differences.len(),
        seeds.len(),
        total.differences.join("\n")
    );
    assert!(total.scheduled > 0, "no job reached the service");
    let has_device = seeds.iter().any(|&seed| !device_of(seed).is_cpu_alone());
    // A small number of cases may have only automatic compactions.
    if seeds.len() as u64 >= DEFAULT_CASES {
        assert!(
            !has_device || total.subcompactions.device > 0,
            "the device did nothing"
        );
        for (feature, has_kernels) in FEATURES {
            let [on_cpu, on_device] = total
                .measures
                .done
                .get(feature)
                .copied()
                .unwrap_or_default();
            let is_tested = match has_device && has_kernels {
                true => on_device > 0,
                false => on_cpu > 0,
            };
            assert!(is_tested, "no job was compared with {feature}");
        }
    }
}

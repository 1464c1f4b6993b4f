//! `rockmill bench close`: how long a database that closes waits for its running job.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill::Service;
use rockmill_engine::staging::STAGING_DIR;
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, CompactionService, CompactionServiceJobInfo,
    CompactionServiceJobStatus, DB, ScheduleResponse,
};
use serde::Serialize;

use crate::outcome::Failure;
use crate::output;
use crate::side_by_side::database::{Keys, Origin, Spec};
use crate::side_by_side::device::{self, Jobs, Tuning};
use crate::side_by_side::workload::Workload;
use crate::side_by_side::{self, rocksdb_failed};

/// Entries for each key, files to merge and threads that fill: as `bench compaction` has them.
const VERSIONS: u64 = 4;
const RUNS: u64 = 8;
const WRITERS: u64 = 16;

/// Tries for each close that is wanted: some come when the job has just ended.
const TRIES: u32 = 4;

/// What `rockmill bench close` takes.
#[derive(Debug, clap::Args)]
pub struct CloseArgs {
    /// Entries of each database: KEYxVALUE[:none|lz4|zstd|snappy][:ENTRIES].
    #[arg(long, default_value = "16x256:none:2M")]
    workload: Workload,
    /// Databases that share a service; one of them closes while each has a job.
    #[arg(long, default_value = "1,3", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    databases: Vec<u32>,
    /// Closes to measure for each number of databases.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    closes: u32,
    /// Slices in flight at most [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// What Rockmill computes on: cpu, cuda, cuda:N, sim:NAME or sim:FILE.json (without + or , in its name), several
    /// joined by +, or auto.
    #[arg(long, default_value = "cpu")]
    device: String,
    #[command(flatten)]
    tuning: Tuning,
    /// Size in MiB of the files to write.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=65536))]
    target_file_mib: u64,
    /// Folder for the databases, which are removed at the end [default: the system's for temporary
    /// files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Draws the moments.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print rows for machines.
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    device: String,
    threads: u32,
    target_file_mib: u64,
    databases: u32,
    /// Closes that came while the database had a job.
    closes: u32,
    /// From RocksDB's telling that the database closes until the last of its jobs came back.
    job_ms: Spread,
    /// `CancelAllBackgroundWork` in all, RocksDB's own part included.
    close_ms: Spread,
    /// Jobs done in all rounds, the others' among them.
    jobs_done: u64,
    /// The compaction of all databases undisturbed, seconds.
    undisturbed_s: f64,
}

/// How times are spread, milliseconds.
#[derive(Debug, Serialize)]
struct Spread {
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
}

impl Spread {
    /// Of at least one time.
    fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let rank = |share: f64| ((share * sorted.len() as f64).ceil() as usize).max(1) - 1;
        let at = |share| sorted[rank(share)].as_secs_f64() * 1e3;
        Self {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: at(1.0),
        }
    }
}

/// Runs the measurements.
pub fn run(args: &CloseArgs) -> Result<(), Failure> {
    let spec = Spec {
        workload: args.workload,
        versions: VERSIONS,
        runs: RUNS,
        delete_every: None,
        above_older: false,
        direct_io: false,
        paranoid: false,
        keys: Keys::Mixed,
        writers: WRITERS,
        target_file_bytes: args.target_file_mib << 20,
    };
    let rows = side_by_side::in_scratch(args.dir.as_deref(), |scratch| {
        let origin = Origin::make(scratch.join("origin"), &spec)?;
        origin.warm()?;
        let databases = args.databases.iter();
        let rows = databases.map(|&databases| measure(args, &spec, &origin, scratch, databases));
        rows.collect::<Result<Vec<_>, Failure>>()
    })?;
    output::document_or_text(args.json, &rows, |out| {
        let mut table = output::table([
            "databases",
            "closes",
            "job ms p50",
            "p90",
            "p99",
            "max",
            "close ms p50",
            "p99",
            "max",
        ]);
        for row in &rows {
            let (job, close) = (&row.job_ms, &row.close_ms);
            let times = [
                job.p50, job.p90, job.p99, job.max, close.p50, close.p99, close.max,
            ];
            let counts = [row.databases, row.closes].map(|count| count.to_string());
            let times = times.map(|time| format!("{time:.1}"));
            table.add_row(counts.into_iter().chain(times));
        }
        Ok(writeln!(out, "{table}")?)
    })
}

fn measure(
    args: &CloseArgs,
    spec: &Spec,
    origin: &Origin,
    dir: &Path,
    databases: u32,
) -> Result<Row, Failure> {
    let threads = args.threads.unwrap_or_else(side_by_side::usual_threads);
    let device = device::parse(&args.device)?;
    let service = device::service(device, threads, &args.tuning, Jobs::All)?;
    let round = |delay| Round::run(spec, origin, &service, dir, databases, delay);
    let undisturbed = round(None)?.elapsed;
    let mut rng = SmallRng::seed_from_u64(args.seed);
    let (mut job, mut close) = (Vec::new(), Vec::new());
    for _ in 0..args.closes * TRIES {
        if job.len() == args.closes as usize {
            break;
        }
        let closed = round(Some(undisturbed.mul_f64(rng.random())))?;
        if let Some(waited) = closed.job {
            job.push(waited);
            close.push(closed.close);
        }
    }
    if job.is_empty() {
        let what = "no job was running at any close: take a larger --workload";
        return Err(Failure::Usage(what.to_owned()));
    }
    let stats = service.stats();
    if stats.jobs_failed > 0 {
        return Err(Failure::Data(format!("jobs failed:\n{stats}")));
    }
    Ok(Row {
        workload: spec.name(),
        device: device.to_string(),
        threads,
        target_file_mib: args.target_file_mib,
        databases,
        closes: job.len() as u32,
        job_ms: Spread::of(&job),
        close_ms: Spread::of(&close),
        jobs_done: stats.jobs_done,
        undisturbed_s: undisturbed.as_secs_f64(),
    })
}

/// What came of compacting all databases and closing the first.
struct Round {
    elapsed: Duration,
    close: Duration,
    /// How long the job that was running took to come back.
    job: Option<Duration>,
}

impl Round {
    fn run(
        spec: &Spec,
        origin: &Origin,
        service: &Service,
        dir: &Path,
        databases: u32,
        close_after: Option<Duration>,
    ) -> Result<Self, Failure> {
        let clock = Clock::default();
        let mut open = Vec::new();
        for number in 0..databases {
            let path = dir.join(number.to_string());
            origin.copy_to(&path)?;
            let mut options = spec.options(1);
            // Databases of a process share RocksDB's threads, of which some only flush.
            options.set_max_background_jobs(2 * (databases as i32 + 1));
            options.set_compaction_service(Timed {
                service: service.clone(),
                clock: if number == 0 {
                    clock.clone()
                } else {
                    Clock::default()
                },
            });
            let db = DB::open(&options, &path);
            open.push((db.map_err(|e| rocksdb_failed("open a database", &e))?, path));
        }
        let started = Instant::now();
        let close = std::thread::scope(|scope| {
            for (db, _) in &open {
                scope.spawn(|| compact(db));
            }
            let Some(delay) = close_after else {
                return Duration::ZERO;
            };
            std::thread::sleep(delay);
            let closing = Instant::now();
            open[0].0.cancel_all_background_work(true);
            closing.elapsed()
        });
        let elapsed = started.elapsed();
        for (number, (db, path)) in open.into_iter().enumerate() {
            let must_be_done = number > 0 || close_after.is_none();
            check(db, &path, must_be_done)?;
            fs::remove_dir_all(&path)
                .map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
        }
        Ok(Self {
            elapsed,
            close,
            job: clock.waited(),
        })
    }
}

fn compact(db: &DB) {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
}

/// Looks whether a database was compacted, and that nothing is left of a job.
fn check(db: DB, path: &Path, must_be_done: bool) -> Result<(), Failure> {
    let files = db.live_files();
    let files = files.map_err(|e| rocksdb_failed("list its files", &e))?;
    drop(db);
    if must_be_done && files.iter().any(|file| file.level == 0) {
        let what = "a database that did not close was not compacted";
        return Err(Failure::Data(what.to_owned()));
    }
    if path.join(STAGING_DIR).exists() {
        return Err(Failure::Data("a staging folder was left".to_owned()));
    }
    Ok(())
}

/// When a database was told to close, and when its jobs came back. Clones share it.
#[derive(Debug, Clone, Default)]
struct Clock(Arc<Mutex<Times>>);

#[derive(Debug, Default)]
struct Times {
    running: u32,
    /// The time, and whether a job was running.
    told: Option<(Instant, bool)>,
    last_return: Option<Instant>,
}

impl Clock {
    fn times(&self) -> MutexGuard<'_, Times> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the first telling to the last return, if a job was running.
    fn waited(&self) -> Option<Duration> {
        let times = self.times();
        let (told, true) = times.told? else {
            return None;
        };
        Some(times.last_return?.saturating_duration_since(told))
    }
}

/// A service with a clock.
struct Timed {
    service: Service,
    clock: Clock,
}

impl CompactionService for Timed {
    fn name(&self) -> &CStr {
        self.service.name()
    }

    fn schedule(&self, info: &CompactionServiceJobInfo<'_>, input: &[u8]) -> ScheduleResponse {
        self.service.schedule(info, input)
    }

    fn wait(&self, scheduled_job_id: &CStr, result: &mut Vec<u8>) -> CompactionServiceJobStatus {
        self.clock.times().running += 1;
        let status = self.service.wait(scheduled_job_id, result);
        let mut times = self.clock.times();
        times.running -= 1;
        times.last_return = Some(Instant::now());
        status
    }

    fn cancel_awaiting_jobs(&self) {
        {
            let mut times = self.clock.times();
            let running = times.running > 0;
            times.told.get_or_insert((Instant::now(), running));
        }
        self.service.cancel_awaiting_jobs();
    }

    fn on_installation(&self, scheduled_job_id: &CStr, status: Option<CompactionServiceJobStatus>) {
        self.service.on_installation(scheduled_job_id, status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let times: Vec<_> = (1..=200).rev().map(Duration::from_millis).collect();
        let spread = Spread::of(&times);
        let found = [spread.p50, spread.p90, spread.p99, spread.max];
        assert_eq!(found, [100.0, 180.0, 198.0, 200.0]);
        let one = Spread::of(&times[..1]);
        assert_eq!((one.p50, one.max), (200.0, 200.0));
    }

    #[test]
    fn only_a_running_job_is_waited_for() {
        let clock = Clock::default();
        let now = Instant::now();
        let set = |told, last_return| {
            *clock.times() = Times {
                running: 0,
                told,
                last_return,
            };
            clock.waited()
        };
        let later = now + Duration::from_millis(5);
        assert_eq!(set(None, Some(now)), None);
        assert_eq!(set(Some((now, false)), Some(later)), None);
        assert_eq!(
            set(Some((now, true)), Some(later)),
            Some(Duration::from_millis(5))
        );
    }
}

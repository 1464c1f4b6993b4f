//! The process that is killed: opens a database with a service and writes to it from several threads.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill::{DeviceList, Service};
use rockmill_compaction::TaskDeadline;
use rust_rocksdb::{DB, Options, Snapshot};

use super::progress::Progress;
use super::script::{Script, WRITERS, count_key, handles};
use super::shape::{DatabaseShape, FILTER_BITS_PER_KEY};
use super::watch::{Trap, Watched};
use crate::content::read_everything;
use crate::device::{self, Subcompactions};

/// Maximum number of parallel subcompactions.
const THREADS: usize = 2;
const MEMORY_BUDGET_BYTES: u64 = 128 << 20;
/// A writer takes a snapshot every `SNAPSHOT_EVERY` batches, and reads it at most the same number of batches later.
const SNAPSHOT_EVERY: u64 = 400;
/// One batch in `FLUSH_EVERY` is followed by a flush of a family.
const FLUSH_EVERY: u32 = 3000;
/// Subcompactions are small: a device that takes longer than this hangs.
const DEVICE_DEADLINE: Duration = Duration::from_secs(2);
/// Interval at which a process records its number of subcompactions.
const COUNT_EVERY: Duration = Duration::from_millis(5);

/// First argument of a writer process.
pub const DOOR: &str = "write";
/// Line that is printed when database and device are open.
pub const OPEN: &str = "open";

/// Arguments of the process.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The database's folder.
    pub database: PathBuf,
    /// The file of [`Progress`].
    pub progress: PathBuf,
    /// Seed of the database's shape and script.
    pub seed: u64,
    /// Device that compacts.
    pub device: DeviceList,
    /// Step to stop at.
    pub trap: Option<Trap>,
}

impl Arguments {
    /// The arguments as strings.
    #[must_use]
    pub fn to_strings(&self) -> Vec<String> {
        let mut strings = vec![
            self.database.display().to_string(),
            self.progress.display().to_string(),
            self.seed.to_string(),
            self.device.to_string(),
        ];
        if let Some(trap) = self.trap {
            let holds = if trap.holds { HOLD } else { PASS };
            strings.extend([
                trap.point.name().to_owned(),
                trap.nth.to_string(),
                holds.to_owned(),
            ]);
        }
        strings
    }

    /// Parses the output of [`Arguments::to_strings`].
    ///
    /// # Errors
    ///
    /// A description of the error.
    pub fn parse(strings: &[String]) -> Result<Self, String> {
        let number = |text: &String| text.parse().map_err(|_| format!("{text:?} is no number"));
        let (required, trap) = match strings {
            [database, progress, seed, device] => ([database, progress, seed, device], None),
            [database, progress, seed, device, point, nth, holds] => {
                let trap = Trap {
                    point: point.parse()?,
                    nth: number(nth)?,
                    holds: holds == HOLD,
                };
                ([database, progress, seed, device], Some(trap))
            }
            _ => {
                let usage = "arguments: DATABASE PROGRESS SEED DEVICE [POINT NTH hold|pass]";
                return Err(usage.to_owned());
            }
        };
        Ok(Self {
            database: required[0].into(),
            progress: required[1].into(),
            seed: number(required[2])?,
            device: device::named(required[3])?,
            trap,
        })
    }
}

const HOLD: &str = "hold";
const PASS: &str = "pass";

/// Creates a service on `device` over `storage`, with the filter bits of [`DatabaseShape`].
///
/// # Errors
///
/// An error if it cannot be built.
pub fn service(
    storage: Arc<dyn rockmill_storage::Storage>,
    device: DeviceList,
) -> Result<Service, String> {
    Service::builder()
        .min_job_bytes(0)
        .threads(THREADS)
        .memory_budget_bytes(MEMORY_BUDGET_BYTES)
        .filter_bits_per_key(FILTER_BITS_PER_KEY)
        .device(device)
        .change(|settings| settings.task_deadline = TaskDeadline::at_least(DEVICE_DEADLINE))
        .storage(storage)
        .build()
        .map_err(|e| format!("cannot build the service: {e}"))
}

/// Writes until it is killed, or until its standard input ends because its parent is gone.
///
/// # Errors
///
/// RocksDB's or the system's error, or a wrong result of a snapshot, as text.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
    let progress = Progress::open(&arguments.progress).map_err(|e| format!("progress: {e}"))?;
    let progress = Arc::new(progress);
    let watched = Watched::new(&arguments.database, Arc::clone(&progress), arguments.trap);
    let mut options = Options::default();
    let service = service(watched.storage(), arguments.device)?;
    options.set_compaction_service(service.clone());
    let db =
        DatabaseShape::new(arguments.seed, arguments.device).open(options, &arguments.database)?;
    // Before that, the CPU does jobs of existing files.
    service.wait_for_device().map_err(|e| e.to_string())?;
    let process = Process {
        db,
        service,
        script: Script::new(arguments.seed),
        progress,
        watched,
    };
    process
        .watched
        .note(|gauges| gauges.open = 1)
        .map_err(|e| format!("progress: {e}"))?;
    say(OPEN).map_err(|e| format!("standard output: {e}"))?;
    std::thread::scope(|scope| {
        let process = &process;
        for writer in 0..WRITERS {
            scope.spawn(move || end(process.write(writer)));
        }
        scope.spawn(|| end(process.count()));
    });
    Ok(())
}

/// Ends the process with all of its threads.
fn end(Err(error): Result<Infallible, String>) {
    eprintln!("crash: {error}");
    std::process::exit(1);
}

/// Prints a line and flushes it.
///
/// # Errors
///
/// The operating system's error.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

struct Process {
    db: DB,
    service: Service,
    script: Script,
    progress: Arc<Progress>,
    watched: Watched,
}

/// A snapshot, the number of the last batch before it, and the number of the batch before which it is read.
struct Held<'a> {
    snapshot: Snapshot<'a>,
    taken_at: u64,
    read_at: u64,
}

impl Process {
    /// Continues after the last batch of `writer`; returns only with an error.
    fn write(&self, writer: usize) -> Result<Infallible, String> {
        let families = handles(&self.db)?;
        let found = self.db.get_cf(families[0], count_key(writer));
        let found = found.map_err(|e| format!("the last batch of writer {writer}: {e}"))?;
        let mut number = count(found.as_deref())?;
        let mut rng = SmallRng::seed_from_u64(number ^ writer as u64);
        let mut held: Option<Held<'_>> = None;
        loop {
            number += 1;
            self.script.write(&self.db, writer, number)?;
            self.progress
                .acknowledge(writer, number)
                .map_err(|e| format!("progress: {e}"))?;
            if rng.random_ratio(1, FLUSH_EVERY) {
                let family = families[rng.random_range(0..families.len())];
                self.db
                    .flush_cf(family)
                    .map_err(|e| format!("flush: {e}"))?;
            }
            match held.take() {
                Some(due) if due.read_at <= number => self.read(writer, &due)?,
                None if number % SNAPSHOT_EVERY == 0 => {
                    held = Some(Held {
                        snapshot: self.db.snapshot(),
                        taken_at: number,
                        read_at: number + rng.random_range(1..=SNAPSHOT_EVERY),
                    });
                }
                other => held = other,
            }
        }
    }

    /// Records the number of subcompactions by device repeatedly; returns only with an error.
    fn count(&self) -> Result<Infallible, String> {
        loop {
            let subcompactions = Subcompactions::from(&self.service.stats());
            self.watched
                .note(|gauges| gauges.subcompactions = subcompactions)
                .map_err(|e| format!("progress: {e}"))?;
            std::thread::sleep(COUNT_EVERY);
        }
    }

    /// Checks that a snapshot shows the last batch before it in every family.
    fn read(&self, writer: usize, held: &Held<'_>) -> Result<(), String> {
        for family in handles(&self.db)? {
            let key = count_key(writer);
            let found = held.snapshot.get_cf_opt(family, key, read_everything());
            let found = count(found.map_err(|e| format!("a snapshot: {e}"))?.as_deref())?;
            if found != held.taken_at {
                return Err(format!(
                    "a snapshot behind batch {} of writer {writer} shows batch {found}",
                    held.taken_at
                ));
            }
        }
        self.watched
            .note(|gauges| gauges.snapshots_read += 1)
            .map_err(|e| format!("progress: {e}"))
    }
}

/// Parses the number in the value of a [`count_key`]; 0 if there is no value.
///
/// # Errors
///
/// An error if it is not a number.
pub fn count(value: Option<&[u8]>) -> Result<u64, String> {
    let Some(value) = value else {
        return Ok(0);
    };
    let text = std::str::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| format!("\"{}\" is no count", value.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::watch::Point;

    #[test]
    fn arguments_survive_the_command_line() {
        for point in Point::all() {
            let arguments = Arguments {
                database: "/db".into(),
                progress: "/progress".into(),
                seed: 7,
                device: device::named("cpu+cuda:3").expect("two devices"),
                trap: Some(Trap {
                    point,
                    nth: 3,
                    holds: point == Point::Taken,
                }),
            };
            assert_eq!(Arguments::parse(&arguments.to_strings()), Ok(arguments));
        }
        assert!(Arguments::parse(&[]).is_err());
    }
}

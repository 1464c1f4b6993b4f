//! The process that is killed: opens a database with a service and writes to it from several threads.

use std::convert::Infallible;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill::{DeviceList, Service};
use rust_rocksdb::{DB, Options, Snapshot};

use super::device::{self, Subcompactions};
use super::progress::Progress;
use super::script::{Script, WRITERS, count_key, handles};
use super::shape::{DatabaseShape, FILTER_BITS_PER_KEY};
use super::watch::{Trap, Watched};
use crate::content::read_everything;

/// Subcompactions in flight at most.
const THREADS: usize = 2;
const MEMORY_BUDGET_BYTES: u64 = 128 << 20;
/// A writer takes a snapshot every so many batches, and looks at it after at most as many.
const SNAPSHOT_EVERY: u64 = 400;
/// One batch in so many is followed by a flush of a family.
const FLUSH_EVERY: u32 = 3000;
/// Subcompactions are small: a device that has not answered by then hangs.
const DEVICE_PATIENCE: Duration = Duration::from_secs(2);
/// How often a process says how many subcompactions it has done.
const COUNT_EVERY: Duration = Duration::from_millis(5);

/// The first argument of a program that is to be a writer.
pub const DOOR: &str = "write";
/// What is printed when database and device are open.
pub const OPEN: &str = "open";

/// What the process is told.
#[derive(Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The database's folder.
    pub database: PathBuf,
    /// The file of [`Progress`].
    pub progress: PathBuf,
    /// Of the database's shape and script.
    pub seed: u64,
    /// What it compacts with.
    pub device: DeviceList,
    /// Where to stop.
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

    /// Reads what [`Arguments::to_strings`] made.
    ///
    /// # Errors
    ///
    /// What is wrong with them.
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

/// A service on `device` over `storage` that knows the filters of [`DatabaseShape`].
///
/// # Errors
///
/// If it cannot be built.
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
        .device_patience(DEVICE_PATIENCE)
        .storage(storage)
        .build()
        .map_err(|e| format!("cannot build the service: {e}"))
}

/// Writes until it is killed, or until its standard input ends: then nobody is left to kill it.
///
/// # Errors
///
/// RocksDB's or the system's, and what a snapshot should have shown, as text.
pub fn run(arguments: &Arguments) -> Result<(), String> {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        std::process::exit(1);
    });
    let progress = Progress::open(&arguments.progress).map_err(|e| format!("progress: {e}"))?;
    let progress = Arc::new(progress);
    let watched = Watched::new(&arguments.database, Arc::clone(&progress), arguments.trap);
    let mut options = Options::default();
    let service = service(Arc::new(watched.clone()), arguments.device)?;
    options.set_compaction_service(service.clone());
    let db =
        DatabaseShape::new(arguments.seed, arguments.device).open(options, &arguments.database)?;
    // Until then the CPU does the jobs of files that were there.
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

/// Ends the process, since nobody else ends the other threads.
fn end(Err(error): Result<Infallible, String>) {
    eprintln!("crash: {error}");
    std::process::exit(1);
}

/// Prints a line at once.
///
/// # Errors
///
/// The system's.
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

/// A snapshot, the batch behind which it was taken, and that before which it is read.
struct Held<'a> {
    snapshot: Snapshot<'a>,
    taken_at: u64,
    read_at: u64,
}

impl Process {
    /// Goes on behind the last batch of `writer` and never ends but with an error.
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

    /// Says again and again who did how many subcompactions, and never ends but with an error.
    fn count(&self) -> Result<Infallible, String> {
        loop {
            let subcompactions = Subcompactions::from(&self.service.stats());
            self.watched
                .note(|gauges| gauges.subcompactions = subcompactions)
                .map_err(|e| format!("progress: {e}"))?;
            std::thread::sleep(COUNT_EVERY);
        }
    }

    /// A snapshot must show the last batch before it in every family.
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

/// The number in the value of a [`count_key`]; 0 if there is none.
///
/// # Errors
///
/// If it is no number.
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

//! Loading: all values of a database are copied to device memory, or flushed values reach a view.

use rockmill_side_by_side::machine::usual_threads;
use rockmill_terminal::outcome::Failure;
use rockmill_view::View;

use super::data::{Database, Shape, mixed};
use super::gpu::{Batch, Memory, Pinned};
use super::measure::{Bench, Experiment, Way, WayName};

const VALUES_BYTES: u64 = 16 << 30;
const VALUE_BYTES: usize = 256;

/// Keys whose values are checked after each run.
const CHECKED: u64 = 1000;

/// Bytes of values that are flushed before each refresh.
const FLUSHED_BYTES: u64 = 1 << 30;

struct Load {
    database: Database,
    name: &'static str,
    point: &'static str,
    /// Number of keys that reach the device, and their bytes in files.
    work: (u64, u64),
}

/// Measures loading from files in the page cache, and by direct I/O.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn loads(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for (point, direct_reads) in [("from the page cache", false), ("by direct I/O", true)] {
        let keys = bench.scaled(VALUES_BYTES / VALUE_BYTES as u64, CHECKED);
        let shape = Shape {
            direct_reads,
            ..Shape::of(keys, VALUE_BYTES)
        };
        let database = Database::of_numbers(bench.folder, shape)?;
        let work = (keys, database.file_bytes()?);
        bench.measure(&Load {
            database,
            name: "load",
            point,
            work,
        })?;
    }
    Ok(())
}

/// Measures how views take flushed values.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn refreshes(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let keys = bench.scaled(VALUES_BYTES / VALUE_BYTES as u64, CHECKED);
    let flushed = bench.scaled(FLUSHED_BYTES / VALUE_BYTES as u64, CHECKED);
    let shape = Shape::of(keys, VALUE_BYTES);
    let database = Database::of_numbers(bench.folder, shape)?;
    // One file for each flush, which no compaction removes before it is read.
    let options = [
        ("write_buffer_size", "2147483648"),
        ("level0_file_num_compaction_trigger", "64"),
    ];
    let set = database.db.set_options(&options);
    set.map_err(|e| Failure::Environment(format!("RocksDB cannot change options: {e}")))?;
    bench.measure(&Load {
        database,
        name: "refresh",
        point: "from the page cache",
        work: (flushed, flushed * VALUE_BYTES as u64),
    })
}

impl Experiment for Load {
    fn name(&self) -> (&'static str, String) {
        (self.name, self.point.to_owned())
    }

    fn ways(&self) -> Vec<WayName> {
        match self.is_refresh() {
            true => vec![WayName::View],
            false => vec![WayName::Dense, WayName::View],
        }
    }

    fn work(&self) -> (u64, u64) {
        self.work
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let gpu = &bench.gpu;
        let bytes = self.database.keys as usize * VALUE_BYTES;
        let to = match way {
            WayName::View if self.is_refresh() => {
                let view = bench.view(&self.database, None)?;
                self.write(1)?;
                To::Refreshed(view, 1)
            }
            WayName::View => To::View(None),
            _ => To::Dense(gpu.pinned(bytes)?, gpu.memory(bytes)?),
        };
        // Some of them are written before refreshes.
        let numbers = (0..CHECKED).map(|at| match at % 2 {
            0 => self.database.keys / CHECKED * at,
            _ => self.written(at, at % 3),
        });
        let numbers: Vec<_> = numbers.collect();
        let on_device = gpu.with(&numbers)?;
        Ok(Box::new(LoadWay {
            of: self,
            bench,
            to,
            keys: gpu.keys(on_device.all())?,
            numbers,
            on_device,
            rows: gpu.memory(CHECKED as usize * VALUE_BYTES)?,
            statuses: gpu.memory(CHECKED as usize)?,
        }))
    }
}

impl Load {
    fn is_refresh(&self) -> bool {
        self.name == "refresh"
    }

    /// A key that is written with a version.
    fn written(&self, at: u64, version: u64) -> u64 {
        mixed(at ^ mixed(version)) % self.database.keys
    }

    /// Writes values of a version, and flushes them.
    fn write(&self, version: u64) -> Result<(), Failure> {
        let numbers: Vec<_> = (0..self.work.0)
            .map(|at| self.written(at, version))
            .collect();
        let threads = usual_threads() as usize;
        self.database.put(&numbers, threads, version, VALUE_BYTES)?;
        let flushed = self.database.db.flush();
        flushed.map_err(|e| Failure::Environment(format!("RocksDB cannot flush: {e}")))
    }
}

/// What is loaded.
enum To {
    Dense(Pinned, Memory<u8>),
    View(Option<View>),
    /// With the version of the values that were written last.
    Refreshed(View, u64),
}

struct LoadWay<'a> {
    of: &'a Load,
    bench: &'a Bench<'a>,
    to: To,
    numbers: Vec<u64>,
    on_device: Memory<u64>,
    keys: Memory<u8>,
    rows: Memory<u8>,
    statuses: Memory<u8>,
}

impl Way for LoadWay<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let database = &self.of.database;
        match &mut self.to {
            To::View(view) => {
                *view = None;
                *view = Some(self.bench.view(database, None)?);
            }
            To::Refreshed(view, _) => {
                view.refresh()?;
            }
            To::Dense(pinned, values) => {
                database.scan_rows(pinned.bytes(), VALUE_BYTES)?;
                let bytes = 0..pinned.bytes().len();
                self.bench.gpu.write_pinned(values.all(), pinned, bytes)?;
            }
        }
        Ok(())
    }

    fn check(&mut self) -> Result<u64, Failure> {
        let gpu = &self.bench.gpu;
        let batch = Batch {
            numbers: self.on_device.all(),
            keys: self.keys.all(),
            rows: self.rows.all(),
            statuses: self.statuses.all(),
            value_bytes: VALUE_BYTES,
        };
        match &self.to {
            To::View(Some(view)) | To::Refreshed(view, _) => gpu.look_up(view, &batch)?,
            To::View(None) => {}
            To::Dense(_, values) => gpu.gather(&batch, values.all())?,
        }
        let mut expected = vec![0; self.numbers.len() * VALUE_BYTES];
        (self.of.database).get_rows(&self.numbers, 1, &mut expected, VALUE_BYTES)?;
        if gpu.read(self.rows.all())? != expected {
            let what = format!("{}: a view has other values than RocksDB", self.of.name);
            return Err(Failure::Data(what));
        }
        if let To::Refreshed(_, version) = &mut self.to {
            *version += 1;
            self.of.write(*version)?;
        }
        Ok(0)
    }
}

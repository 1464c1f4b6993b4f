//! Loading: all values of a database into device memory.

use rockmill_terminal::outcome::Failure;
use rockmill_view::View;

use super::data::{Database, Shape};
use super::gpu::{Batch, Memory, Pinned};
use super::measure::{Bench, Experiment, Way, WayName};

const VALUES_BYTES: u64 = 16 << 30;
const VALUE_BYTES: usize = 256;

/// Keys whose values are checked after each run.
const CHECKED: u64 = 1000;

struct Load {
    database: Database,
    point: &'static str,
    file_bytes: u64,
}

/// Measures loading from files in the page cache, and by direct I/O.
///
/// # Errors
/// As [`Bench::measure`].
pub fn loads(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for (point, direct_reads) in [("from the page cache", false), ("by direct I/O", true)] {
        let keys = bench.scaled(VALUES_BYTES / VALUE_BYTES as u64, CHECKED);
        let shape = Shape {
            direct_reads,
            ..Shape::of(keys, VALUE_BYTES)
        };
        let database = Database::of_numbers(bench.folder, shape)?;
        let file_bytes = database.file_bytes()?;
        bench.measure(&Load {
            database,
            point,
            file_bytes,
        })?;
    }
    Ok(())
}

impl Experiment for Load {
    fn name(&self) -> (&'static str, String) {
        ("load", self.point.to_owned())
    }

    fn ways(&self) -> Vec<WayName> {
        vec![WayName::Dense, WayName::View]
    }

    fn work(&self) -> (u64, u64) {
        (self.database.keys, self.file_bytes)
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let gpu = &bench.gpu;
        let bytes = self.database.keys as usize * VALUE_BYTES;
        let to = match way {
            WayName::View => To::View(None),
            _ => To::Dense(gpu.pinned(bytes)?, gpu.memory(bytes)?),
        };
        let numbers: Vec<_> = (0..CHECKED)
            .map(|at| self.database.keys / CHECKED * at)
            .collect();
        let numbers = gpu.with(&numbers)?;
        Ok(Box::new(LoadWay {
            of: self,
            bench,
            to,
            keys: gpu.keys(numbers.all())?,
            numbers,
            rows: gpu.memory(CHECKED as usize * VALUE_BYTES)?,
            statuses: gpu.memory(CHECKED as usize)?,
        }))
    }
}

/// What is loaded.
enum To {
    Dense(Pinned, Memory<u8>),
    View(Option<View>),
}

struct LoadWay<'a> {
    of: &'a Load,
    bench: &'a Bench<'a>,
    to: To,
    numbers: Memory<u64>,
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
            numbers: self.numbers.all(),
            keys: self.keys.all(),
            rows: self.rows.all(),
            statuses: self.statuses.all(),
            value_bytes: VALUE_BYTES,
        };
        let has_statuses = match &self.to {
            To::View(Some(view)) => {
                gpu.look_up(view, &batch)?;
                true
            }
            To::View(None) => return Ok(0),
            To::Dense(_, values) => {
                gpu.gather(&batch, values.all())?;
                false
            }
        };
        match gpu.wrong_rows(&batch, has_statuses, 0)? {
            0 => Ok(0),
            wrong => Err(Failure::Data(format!("load: {wrong} rows are wrong"))),
        }
    }
}

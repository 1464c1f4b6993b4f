//! Batches of gets: keys are in device memory, and values are written there.

use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rockmill_core::Error;
use rockmill_cuda::DeviceTable;
use rockmill_terminal::outcome::Failure;
use rockmill_view::View;

use super::data::{Database, KEY_BYTES, Shape, mixed};
use super::gpu::{Batch, Memory, Pinned, Resident};
use super::measure::{Bench, Experiment, Way, WayName};

/// Bytes of all values, and of those of a run, at full scale.
const VALUES_BYTES: u64 = 4 << 30;
const RUN_BYTES: u64 = 512 << 20;

/// Minimum number of keys, at any scale.
const MIN_KEYS: u64 = 2000;

/// Exponent of Zipf's law.
const SKEW: f64 = 1.05;

const SEED: u64 = 25;

/// The distribution of keys.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Uniform,
    Zipfian,
}

impl Draw {
    fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipfian => "zipfian",
        }
    }

    /// Draws `n` numbers below `keys`.
    fn numbers(self, keys: u64, n: usize) -> Vec<u64> {
        let mut rng = SmallRng::seed_from_u64(SEED);
        match self {
            Self::Uniform => (0..n).map(|_| rng.random_range(0..keys)).collect(),
            Self::Zipfian => {
                let zipf = Zipf::new(keys as f64, SKEW).expect("there are keys");
                // Frequent keys are far apart.
                let drawn = (0..n).map(|_| mixed(zipf.sample(&mut rng) as u64) % keys);
                drawn.collect()
            }
        }
    }
}

/// Lookups of the batch.
struct Lookups<'a> {
    name: &'static str,
    point: String,
    /// `None` if a table is made on the device.
    database: Option<&'a Database>,
    keys: u64,
    value_bytes: usize,
    numbers: Vec<u64>,
    /// Number of parts of the batch, which are looked up one after another.
    calls: usize,
    ways: Vec<WayName>,
}

/// Measures batches of gets of several sizes.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn lookups(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for value_bytes in [64, 256, 512, 1024] {
        let keys = bench.scaled(VALUES_BYTES / value_bytes as u64, MIN_KEYS);
        let database = Database::of_numbers(bench.folder, Shape::of(keys, value_bytes))?;
        let n = bench.scaled(RUN_BYTES / value_bytes as u64, MIN_KEYS) as usize;
        for draw in [Draw::Uniform, Draw::Zipfian] {
            bench.measure(&Lookups {
                name: "lookup",
                point: format!("{} of {value_bytes} B", draw.name()),
                database: Some(&database),
                keys,
                value_bytes,
                numbers: draw.numbers(keys, n),
                calls: 1,
                ways: WayName::LOOKUPS.to_vec(),
            })?;
        }
    }
    Ok(())
}

/// Measures small batches.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn latencies(bench: &mut Bench<'_>) -> Result<(), Failure> {
    const VALUE_BYTES: usize = 64;
    const MOST_KEYS: usize = 1 << 20;
    const MOST_CALLS: usize = 4000;
    let keys = bench.scaled(VALUES_BYTES / VALUE_BYTES as u64, MIN_KEYS);
    let database = Database::of_numbers(bench.folder, Shape::of(keys, VALUE_BYTES))?;
    for batch in [1, 32, 1024, 32768] {
        let most = bench.scaled(MOST_KEYS as u64, MIN_KEYS) as usize;
        let calls = (most / batch).clamp(2, MOST_CALLS);
        bench.measure(&Lookups {
            name: "latency",
            point: format!("batches of {batch}"),
            database: Some(&database),
            keys,
            value_bytes: VALUE_BYTES,
            numbers: Draw::Uniform.numbers(keys, batch * calls),
            calls,
            ways: vec![WayName::Multiget, WayName::View, WayName::Kernel8],
        })?;
    }
    Ok(())
}

/// Measures steps of a model with embeddings: tables with rows of 128 halves, in each of which many rows are looked up.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn embeddings(bench: &mut Bench<'_>) -> Result<(), Failure> {
    const TABLES: u64 = 26;
    const ROWS: u64 = 1 << 20;
    const KEYS_OF_STEP: u64 = 65_536;
    const VALUE_BYTES: usize = 256;
    let rows = bench.scaled(ROWS, MIN_KEYS);
    let keys = TABLES * rows;
    let database = Database::of_numbers(bench.folder, Shape::of(keys, VALUE_BYTES))?;
    let n = bench.scaled(KEYS_OF_STEP, 1) as usize;
    let of_tables = Draw::Zipfian.numbers(rows, n * TABLES as usize).into_iter();
    let numbers = of_tables.zip(0..).map(|(row, at)| at % TABLES * rows + row);
    bench.measure(&Lookups {
        name: "embedding",
        point: format!("{TABLES} tables of {rows} rows"),
        database: Some(&database),
        keys,
        value_bytes: VALUE_BYTES,
        numbers: numbers.collect(),
        calls: 1,
        ways: vec![
            WayName::Multiget,
            WayName::Pinned,
            WayName::Dense,
            WayName::View,
            WayName::Kernel8,
        ],
    })
}

/// Measures tables that take most of a device's memory. They are made there, and not loaded.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn tables(bench: &mut Bench<'_>) -> Result<(), Failure> {
    /// Bytes of slots and records.
    const TABLES_BYTES: [u64; 2] = [70_000_000_000, 110_000_000_000];
    for table_bytes in TABLES_BYTES {
        for value_bytes in [64, 256, 512] {
            let key_bytes = KEY_BYTES as u64;
            let slot_bytes = DeviceTable::slot_bytes(table_bytes) / table_bytes;
            let record_bytes = DeviceTable::record_bytes(key_bytes, value_bytes as u64);
            let keys = bench.scaled(table_bytes / (record_bytes + slot_bytes), MIN_KEYS);
            let n = bench.scaled(RUN_BYTES / value_bytes as u64, MIN_KEYS) as usize;
            bench.measure(&Lookups {
                name: "table",
                point: format!("of {} GB, {value_bytes} B", table_bytes / 1_000_000_000),
                database: None,
                keys,
                value_bytes,
                numbers: Draw::Uniform.numbers(keys, n),
                calls: 1,
                ways: (WayName::LOOKUPS.into_iter())
                    .filter(|way| way.lanes().is_some())
                    .collect(),
            })?;
        }
    }
    Ok(())
}

impl Experiment for Lookups<'_> {
    fn name(&self) -> (&'static str, String) {
        (self.name, self.point.clone())
    }

    fn ways(&self) -> Vec<WayName> {
        self.ways.clone()
    }

    fn work(&self) -> (u64, u64) {
        let keys = self.numbers.len() as u64;
        (keys, keys * self.value_bytes as u64)
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let from = self.from(bench, way)?;
        let (gpu, n) = (&bench.gpu, self.numbers.len());
        let numbers = gpu.with(&self.numbers)?;
        Ok(Box::new(LookupWay {
            of: self,
            bench,
            from,
            keys: gpu.keys(numbers.all())?,
            numbers,
            rows: gpu.memory(n * self.value_bytes)?,
            statuses: gpu.memory(n)?,
            times_ns: Vec::new(),
        }))
    }
}

impl Lookups<'_> {
    fn from(&self, bench: &Bench<'_>, way: WayName) -> Result<From, Failure> {
        let gpu = &bench.gpu;
        let Some(database) = self.database else {
            let table = gpu.place(self.keys, self.value_bytes)?;
            let lanes = way.lanes();
            let (lanes, in_kernel) =
                lanes.ok_or_else(|| Error::internal("a table without lanes"))?;
            return Ok(From::Lanes(table, lanes, in_kernel));
        };
        let all_bytes = self.keys as usize * self.value_bytes;
        match way {
            WayName::Dense | WayName::Pinned => {
                let mut pinned = gpu.pinned(all_bytes)?;
                database.scan_rows(pinned.bytes(), self.value_bytes)?;
                if way == WayName::Pinned {
                    return Ok(From::Pinned(pinned));
                }
                let values = gpu.memory(all_bytes)?;
                gpu.write_pinned(values.all(), &pinned, 0..all_bytes)?;
                Ok(From::Dense(values))
            }
            WayName::View => Ok(From::View(bench.view(database, None)?)),
            way => match way.lanes() {
                Some((lanes, in_kernel)) => {
                    // A hold of a view keeps its memory.
                    let held = gpu.hold(&bench.view(database, None)?)?;
                    Ok(From::Lanes(held, lanes, in_kernel))
                }
                None => {
                    let mut rows = gpu.pinned(self.numbers.len() * self.value_bytes)?;
                    let threads = self.best_threads(bench, database, &mut rows)?;
                    Ok(From::Database(rows, threads))
                }
            },
        }
    }

    /// The fastest number of threads for a part of a call.
    fn best_threads(
        &self,
        bench: &Bench<'_>,
        database: &Database,
        rows: &mut Pinned,
    ) -> Result<usize, Failure> {
        const PART: usize = 16;
        const LEAST: usize = 64 << 10;
        let call = self.numbers.len() / self.calls;
        let part = &self.numbers[..call.min((call / PART).max(LEAST))];
        bench.best_threads(|threads| {
            let rows = &mut rows.bytes()[..part.len() * self.value_bytes];
            database.get_rows(part, threads, rows, self.value_bytes)
        })
    }
}

/// Source of the values.
enum From {
    Database(Pinned, usize),
    Pinned(Pinned),
    Dense(Memory<u8>),
    View(View),
    Lanes(Resident, u32, bool),
}

struct LookupWay<'a> {
    of: &'a Lookups<'a>,
    bench: &'a Bench<'a>,
    from: From,
    numbers: Memory<u64>,
    keys: Memory<u8>,
    rows: Memory<u8>,
    statuses: Memory<u8>,
    times_ns: Vec<u64>,
}

impl LookupWay<'_> {
    fn call(&mut self, number: usize) -> Result<(), Failure> {
        let (gpu, size) = (&self.bench.gpu, self.of.value_bytes);
        let len = self.of.numbers.len() / self.of.calls;
        let range = number * len..(number + 1) * len;
        let batch = batch(
            &self.numbers,
            &self.keys,
            &self.rows,
            &self.statuses,
            size,
            range.clone(),
        );
        match &mut self.from {
            From::Database(pinned, threads) => {
                let bytes = range.start * size..range.end * size;
                let database = self.of.database.expect("it was opened with it");
                let rows = &mut pinned.bytes()[bytes.clone()];
                database.get_rows(&self.of.numbers[range], *threads, rows, size)?;
                gpu.write_pinned(batch.rows, pinned, bytes)?;
            }
            From::Pinned(values) => gpu.gather(&batch, values.all())?,
            From::Dense(values) => gpu.gather(&batch, values.all())?,
            From::View(view) => gpu.look_up(view, &batch)?,
            From::Lanes(from, lanes, in_kernel) => {
                gpu.look_up_with(*lanes, *in_kernel, from, &batch)?;
            }
        }
        Ok(())
    }
}

fn batch<'a>(
    numbers: &'a Memory<u64>,
    keys: &'a Memory<u8>,
    rows: &'a Memory<u8>,
    statuses: &'a Memory<u8>,
    value_bytes: usize,
    range: std::ops::Range<usize>,
) -> Batch<'a> {
    let scaled = |bytes: usize| range.start * bytes..range.end * bytes;
    Batch {
        numbers: numbers.part(range.clone()),
        keys: keys.part(scaled(KEY_BYTES)),
        rows: rows.part(scaled(value_bytes)),
        statuses: statuses.part(range.clone()),
        value_bytes,
    }
}

impl Way for LookupWay<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        self.times_ns.clear();
        for number in 0..self.of.calls {
            let began = Instant::now();
            self.call(number)?;
            self.times_ns.push(began.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    fn check(&mut self) -> Result<u64, Failure> {
        let (size, all) = (self.of.value_bytes, 0..self.of.numbers.len());
        let batch = batch(
            &self.numbers,
            &self.keys,
            &self.rows,
            &self.statuses,
            size,
            all,
        );
        let has_statuses = matches!(self.from, From::View(_) | From::Lanes(..));
        match self.bench.gpu.wrong_rows(&batch, has_statuses, 0)? {
            0 => Ok(0),
            wrong => {
                let what = format!("{} {}: {wrong} rows are wrong", self.of.name, self.of.point);
                Err(Failure::Data(what))
            }
        }
    }

    fn latencies(&mut self, _wall_s: f64) -> Result<Vec<u64>, Failure> {
        let is_timed = self.of.calls > 1;
        Ok(if is_timed {
            std::mem::take(&mut self.times_ns)
        } else {
            Vec::new()
        })
    }

    fn threads(&self) -> Option<usize> {
        match self.from {
            From::Database(_, threads) => Some(threads),
            _ => None,
        }
    }
}

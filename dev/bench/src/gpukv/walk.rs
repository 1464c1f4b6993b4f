//! Gets, each of which depends on the previous value, and reads of all values in their order.

use std::time::Instant;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill_terminal::outcome::Failure;

use super::data::{Database, Shape, mixed};
use super::gpu::{Memory, Pinned, Resident, Values, Walk};
use super::measure::{Bench, Experiment, Way, WayName};

/// Values that the CPU-driven way gets at a time.
const BATCH: usize = 1 << 16;

const SEED: u64 = 26;

/// Walks from value to value.
struct Walks<'a> {
    name: &'static str,
    point: String,
    database: &'a Database,
    value_bytes: usize,
    starts: Vec<u64>,
    steps: u32,
    /// Whether each step is timed.
    is_timed: bool,
}

/// Measures one chain of gets: each key depends on the last value.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn dependent(bench: &mut Bench<'_>) -> Result<(), Failure> {
    const VALUES_BYTES: u64 = 4 << 30;
    const STEPS: u64 = 20_000;
    for value_bytes in [64, 256] {
        let keys = bench.scaled(VALUES_BYTES / value_bytes as u64, 1000);
        let database = Database::of_numbers(bench.folder, Shape::of(keys, value_bytes))?;
        bench.measure(&Walks {
            name: "dependent",
            point: format!("gets of {value_bytes} B"),
            database: &database,
            value_bytes,
            starts: vec![0],
            steps: bench.scaled(STEPS, 100) as u32,
            is_timed: true,
        })?;
    }
    Ok(())
}

/// Measures reads of values of 4 KiB: of all in their order, and of values that depend on others.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn reads(bench: &mut Bench<'_>, is_dynamic: bool) -> Result<(), Failure> {
    const KEYS: u64 = 4_000_000;
    const VALUE_BYTES: usize = 4096;
    /// Walks at a time, and values that each reads.
    const WALKS: u64 = 16 << 10;
    const STEPS: u32 = 64;
    let keys = bench.scaled(KEYS, 100);
    let database = Database::of_numbers(bench.folder, Shape::of(keys, VALUE_BYTES))?;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let walks = bench.scaled(WALKS, 10);
    let (name, starts, steps) = match is_dynamic {
        true => {
            let starts = (0..walks).map(|_| rng.random_range(0..keys));
            ("dynamic", starts.collect(), STEPS)
        }
        false => ("streaming", (0..keys).collect(), 1),
    };
    bench.measure(&Walks {
        name,
        point: format!("reads of {VALUE_BYTES} B"),
        database: &database,
        value_bytes: VALUE_BYTES,
        starts,
        steps,
        is_timed: false,
    })
}

impl Experiment for Walks<'_> {
    fn name(&self) -> (&'static str, String) {
        (self.name, self.point.clone())
    }

    fn ways(&self) -> Vec<WayName> {
        vec![
            WayName::Launch,
            WayName::Pinned,
            WayName::Dense,
            WayName::View,
        ]
    }

    fn work(&self) -> (u64, u64) {
        let keys = self.starts.len() as u64 * u64::from(self.steps);
        (keys, keys * self.value_bytes as u64)
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let gpu = &bench.gpu;
        let all_bytes = self.database.keys as usize * self.value_bytes;
        let from = match way {
            WayName::View => From::View(gpu.hold(&bench.view(self.database, None)?)?),
            WayName::Pinned | WayName::Dense => {
                let mut pinned = gpu.pinned(all_bytes)?;
                self.database.scan_rows(pinned.bytes(), self.value_bytes)?;
                if way == WayName::Pinned {
                    From::Pinned(pinned)
                } else {
                    let values = gpu.memory(all_bytes)?;
                    gpu.write_pinned(values.all(), &pinned, 0..all_bytes)?;
                    From::Dense(values)
                }
            }
            _ => {
                let batch = BATCH.min(self.starts.len());
                let mut rows = gpu.pinned(batch * self.value_bytes)?;
                let part = &self.starts[..batch];
                let threads = bench.best_threads(|threads| {
                    let rows = rows.bytes();
                    self.database
                        .get_rows(part, threads, rows, self.value_bytes)
                })?;
                let on_device = gpu.memory(batch * self.value_bytes)?;
                From::Database(rows, on_device, threads)
            }
        };
        let ticks = self.steps as usize;
        Ok(Box::new(WalkWay {
            of: self,
            bench,
            from,
            numbers: gpu.with(&self.starts)?,
            sums: gpu.memory(self.starts.len())?,
            ticks: gpu.memory(if self.is_timed { ticks } else { 0 })?,
            times_ns: Vec::new(),
        }))
    }
}

/// Source of the values.
enum From {
    Database(Pinned, Memory<u8>, usize),
    Pinned(Pinned),
    Dense(Memory<u8>),
    View(Resident),
}

struct WalkWay<'a> {
    of: &'a Walks<'a>,
    bench: &'a Bench<'a>,
    from: From,
    numbers: Memory<u64>,
    sums: Memory<u64>,
    ticks: Memory<u32>,
    times_ns: Vec<u64>,
}

impl WalkWay<'_> {
    fn walk(
        &self,
        values: Values<'_>,
        range: std::ops::Range<usize>,
        steps: u32,
    ) -> Result<(), Failure> {
        let has_ticks = self.of.is_timed && !matches!(values, Values::Ordered(_));
        let wrong = self.bench.gpu.walk(&Walk {
            values,
            numbers: self.numbers.part(range.clone()),
            sums: self.sums.part(range),
            keys: self.of.database.keys,
            steps,
            words: (self.of.value_bytes / size_of::<u64>()) as u32,
            step_ticks: has_ticks.then(|| self.ticks.all()),
        })?;
        if wrong == 0 {
            return Ok(());
        }
        let what = format!(
            "{}: {wrong} walks found something other than a value",
            self.of.name
        );
        Err(Failure::Data(what))
    }

    /// The CPU-driven way: for each step the host gets the values, and the device returns the ones that it needs next.
    fn launch(&mut self) -> Result<(), Failure> {
        let gpu = &self.bench.gpu;
        let mut numbers = self.of.starts.clone();
        self.times_ns.clear();
        for step in 0..self.of.steps {
            let began = Instant::now();
            for first in (0..numbers.len()).step_by(BATCH) {
                let range = first..numbers.len().min(first + BATCH);
                let From::Database(rows, on_device, threads) = &mut self.from else {
                    return Ok(());
                };
                let size = self.of.value_bytes;
                let bytes = 0..range.len() * size;
                let part = &mut rows.bytes()[bytes.clone()];
                self.of
                    .database
                    .get_rows(&numbers[range.clone()], *threads, part, size)?;
                gpu.write_pinned(on_device.all(), rows, bytes)?;
                let From::Database(_, on_device, _) = &self.from else {
                    return Ok(());
                };
                self.walk(Values::Ordered(on_device.all()), range, 1)?;
            }
            if step + 1 < self.of.steps {
                numbers = gpu.read(self.numbers.all())?;
            }
            self.times_ns.push(began.elapsed().as_nanos() as u64);
        }
        Ok(())
    }
}

impl Way for WalkWay<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let values = match &self.from {
            From::Database(..) => return self.launch(),
            From::Pinned(values) => Values::Dense(values.all()),
            From::Dense(values) => Values::Dense(values.all()),
            From::View(view) => Values::Resident(view),
        };
        self.walk(values, 0..self.of.starts.len(), self.of.steps)
    }

    fn check(&mut self) -> Result<u64, Failure> {
        let gpu = &self.bench.gpu;
        let all = [&self.sums, &self.numbers].map(|memory| gpu.read(memory.all()));
        let [sums, numbers] = all;
        let (sums, numbers) = (sums?, numbers?);
        let each = sums.iter().chain(&numbers).zip(0..);
        let digest = each.fold(0, |digest: u64, (&word, at)| {
            digest.wrapping_add(mixed(word.wrapping_add(mixed(at))))
        });
        // The next run begins with the same numbers.
        gpu.write(self.numbers.all(), &self.of.starts)?;
        gpu.write(self.sums.all(), &vec![0; sums.len()])?;
        Ok(digest)
    }

    fn latencies(&mut self, wall_s: f64) -> Result<Vec<u64>, Failure> {
        if !self.of.is_timed {
            return Ok(Vec::new());
        }
        if matches!(self.from, From::Database(..)) {
            return Ok(std::mem::take(&mut self.times_ns));
        }
        // The frequency of the device's clock changes, and the steps take nearly all of the run.
        let ticks = self.bench.gpu.read(self.ticks.all())?;
        let all: u64 = ticks.iter().map(|&ticks| u64::from(ticks)).sum();
        let ns_per_tick = wall_s * 1e9 / all.max(1) as f64;
        let times = ticks
            .iter()
            .map(|&ticks| (f64::from(ticks) * ns_per_tick) as u64);
        Ok(times.collect())
    }

    fn threads(&self) -> Option<usize> {
        match self.from {
            From::Database(_, _, threads) => Some(threads),
            _ => None,
        }
    }
}

//! Gets, one in a hundred of which follows a put, while the view is refreshed each second, with and without writes by
//! the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill_side_by_side::machine::usual_threads;
use rockmill_terminal::outcome::Failure;
use rockmill_view::{RingSettings, View};
use rust_rocksdb::{DB, Error, WriteBatch};

use super::data::{Database, Shape, key_of, value_of};
use super::gpu::{Batch, Memory, Pinned};
use super::measure::{Bench, Experiment, Way, WayName};

const KEYS: u64 = 16_000_000;
const VALUE_BYTES: usize = 256;

/// Keys of a round; one in this many is put.
const ROUND_KEYS: u64 = 2_000_000;
const PUT_EVERY: usize = 100;

/// Seconds that a run takes at full scale.
const RUN_S: f64 = 3.0;

/// Versions of values that kernels and clients put, and of those that the writer puts.
const VERSION: u64 = 1;
const WRITER_VERSION: u64 = 2;

const SEED: u64 = 29;

struct Mixed<'a> {
    database: &'a Database,
    numbers: Vec<u64>,
    has_writer: bool,
    run_s: f64,
}

/// Measures gets and puts together.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn mixes(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let keys = bench.scaled(KEYS, 1000);
    let database = Database::of_numbers(bench.folder, Shape::of(keys, VALUE_BYTES))?;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let n = bench.scaled(ROUND_KEYS, 1000);
    let numbers: Vec<_> = (0..n).map(|_| rng.random_range(0..keys)).collect();
    for has_writer in [false, true] {
        bench.measure(&Mixed {
            database: &database,
            numbers: numbers.clone(),
            has_writer,
            run_s: RUN_S * bench.args.scale.min(1.0),
        })?;
    }
    Ok(())
}

impl Experiment for Mixed<'_> {
    fn name(&self) -> (&'static str, String) {
        let beside = if self.has_writer {
            ", a writer beside"
        } else {
            ""
        };
        ("mixed", format!("1 % puts{beside}"))
    }

    fn ways(&self) -> Vec<WayName> {
        vec![WayName::Multiget, WayName::Kernel8]
    }

    fn work(&self) -> (u64, u64) {
        let keys = self.numbers.len() as u64;
        (keys, keys * VALUE_BYTES as u64)
    }

    fn open<'a>(
        &'a self,
        bench: &'a Bench<'_>,
        way: WayName,
    ) -> Result<Box<dyn Way + 'a>, Failure> {
        let (gpu, n) = (&bench.gpu, self.numbers.len());
        let from = match way {
            WayName::Multiget => {
                let mut rows = gpu.pinned(n * VALUE_BYTES)?;
                let threads = bench.best_threads(|threads| self.by_clients(threads, &mut rows))?;
                From::Database(rows, threads)
            }
            _ => {
                let settings = RingSettings {
                    threads: (usual_threads() as usize / 4).max(1),
                    ..RingSettings::default()
                };
                From::View(Arc::new(bench.view(self.database, Some(settings))?))
            }
        };
        let numbers = gpu.with(&self.numbers)?;
        let mut beside = Vec::new();
        if self.has_writer {
            let (db, keys) = (Arc::clone(&self.database.db), self.database.keys);
            let write = move |is_done: &AtomicBool| write_until(&db, keys, is_done);
            beside.push(Beside::start(move |is_done| {
                write(is_done).map_err(|e| e.to_string())
            }));
        }
        if let From::View(view) = &from {
            let view = Arc::clone(view);
            beside.push(Beside::start(move |is_done| refresh_until(&view, is_done)));
        }
        Ok(Box::new(MixedWay {
            of: self,
            bench,
            from,
            keys: gpu.keys(numbers.all())?,
            numbers,
            rows: gpu.memory(n * VALUE_BYTES)?,
            statuses: gpu.memory(n)?,
            times_ns: Vec::new(),
            _beside: beside,
        }))
    }
}

impl Mixed<'_> {
    fn by_clients(&self, threads: usize, rows: &mut Pinned) -> Result<(), Failure> {
        let puts: Vec<_> = self.numbers.iter().copied().step_by(PUT_EVERY).collect();
        self.database.put(&puts, threads, VERSION, VALUE_BYTES)?;
        (self.database).get_rows(&self.numbers, threads, rows.bytes(), VALUE_BYTES)
    }
}

/// A thread that works during runs until this is dropped.
struct Beside {
    is_done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Beside {
    fn start(work: impl FnOnce(&AtomicBool) -> Result<(), String> + Send + 'static) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        Self {
            is_done,
            thread: Some(thread::spawn(move || work(&done))),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("rockmill-bench: background work of a run ended early: {error}");
        }
    }
}

/// Refreshes a view each second.
fn refresh_until(view: &View, is_done: &AtomicBool) -> Result<(), String> {
    const LOOKS: u32 = 100;
    for look in 1.. {
        thread::sleep(Duration::from_secs(1) / LOOKS);
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        if look % LOOKS == 0 {
            view.refresh().map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn write_until(db: &DB, keys: u64, is_done: &AtomicBool) -> Result<(), Error> {
    const BATCH: usize = 64;
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut value = [0; VALUE_BYTES];
    while !is_done.load(Ordering::Relaxed) {
        let mut batch = WriteBatch::default();
        for _ in 0..BATCH {
            let number = rng.random_range(0..keys);
            value_of(number, WRITER_VERSION, &mut value);
            batch.put(key_of(number), value);
        }
        db.write(&batch)?;
    }
    Ok(())
}

/// Source of the values.
enum From {
    Database(Pinned, usize),
    View(Arc<View>),
}

struct MixedWay<'a> {
    of: &'a Mixed<'a>,
    bench: &'a Bench<'a>,
    from: From,
    numbers: Memory<u64>,
    keys: Memory<u8>,
    rows: Memory<u8>,
    statuses: Memory<u8>,
    /// Times of the rounds of the last run.
    times_ns: Vec<u64>,
    _beside: Vec<Beside>,
}

impl MixedWay<'_> {
    fn batch(&self) -> Batch<'_> {
        Batch {
            numbers: self.numbers.all(),
            keys: self.keys.all(),
            rows: self.rows.all(),
            statuses: self.statuses.all(),
            value_bytes: VALUE_BYTES,
        }
    }

    fn round(&mut self) -> Result<(), Failure> {
        let gpu = &self.bench.gpu;
        if let From::Database(rows, threads) = &mut self.from {
            self.of.by_clients(*threads, rows)?;
            let bytes = 0..rows.bytes().len();
            gpu.write_pinned(self.rows.all(), rows, bytes)?;
        }
        if let From::View(view) = &self.from {
            let held = gpu.hold(view)?;
            let undone = gpu.mix(&held, &self.batch(), PUT_EVERY as u32, VERSION)?;
            if undone > 0 {
                let error = view.ring_counts().last_error.unwrap_or_default();
                let what = format!("mixed: {undone} puts were not done; {error}");
                return Err(Failure::Data(what));
            }
        }
        Ok(())
    }
}

impl Way for MixedWay<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        self.times_ns.clear();
        let began = Instant::now();
        while self.times_ns.is_empty() || began.elapsed().as_secs_f64() < self.of.run_s {
            let round = Instant::now();
            self.round()?;
            self.times_ns.push(round.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    fn rounds(&self) -> u64 {
        self.times_ns.len() as u64
    }

    fn latencies(&mut self, _wall_s: f64) -> Result<Vec<u64>, Failure> {
        Ok(self.times_ns.clone())
    }

    fn check(&mut self) -> Result<u64, Failure> {
        let has_statuses = matches!(self.from, From::View(_));
        match self
            .bench
            .gpu
            .wrong_rows(&self.batch(), has_statuses, WRITER_VERSION)?
        {
            // The version of a row depends on timing.
            0 => Ok(0),
            wrong => Err(Failure::Data(format!("mixed: {wrong} rows are wrong"))),
        }
    }

    fn threads(&self) -> Option<usize> {
        match self.from {
            From::Database(_, threads) => Some(threads),
            From::View(_) => None,
        }
    }
}

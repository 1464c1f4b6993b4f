//! Requests of kernels to the host, compared with as many threads of the host that call RocksDB themselves.

use std::thread;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rockmill_side_by_side::machine::usual_threads;
use rockmill_terminal::outcome::Failure;
use rockmill_view::{RingSettings, Target, View};

use super::data::{Database, Shape, value_of};
use super::gpu::{Memory, Requests, Resident};
use super::measure::{Bench, Experiment, Way, WayName};

const KEYS: u64 = 4_000_000;
const VALUE_BYTES: usize = 64;
const WORDS: u32 = (VALUE_BYTES / size_of::<u64>()) as u32;

/// Tiles that send requests, and requests of each tile.
const TILES: u64 = 2048;
const HOST_TILES: u64 = 16;
const EACH: u64 = 256;

/// The version of values that are put.
const VERSION: u64 = 1;

const SEED: u64 = 27;

struct Ring<'a> {
    database: &'a Database,
    is_put: bool,
    threads: usize,
    numbers: Vec<u64>,
    each: u32,
}

/// Measures gets and puts with several numbers of threads.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn rings(bench: &mut Bench<'_>) -> Result<(), Failure> {
    let keys = bench.scaled(KEYS, 1000);
    let database = Database::of_numbers(bench.folder, Shape::of(keys, VALUE_BYTES))?;
    let mut rng = SmallRng::seed_from_u64(SEED);
    // On the host, tiles run one after another.
    let tiles = if bench.target == Target::Host {
        HOST_TILES
    } else {
        TILES
    };
    let each = bench.scaled(EACH, 4);
    let numbers: Vec<_> = (0..tiles * each)
        .map(|_| rng.random_range(0..keys))
        .collect();
    for is_put in [false, true] {
        for threads in [1, 4, 16] {
            if threads > usual_threads().max(1) as usize {
                break;
            }
            bench.measure(&Ring {
                database: &database,
                is_put,
                threads,
                numbers: numbers.clone(),
                each: each as u32,
            })?;
        }
    }
    Ok(())
}

/// A time in which no kernel sends requests.
const IDLE: Duration = Duration::from_secs(1);

/// A view with threads that answer kernels, and no requests.
struct Idle {
    database: Database,
    threads: usize,
    is_held: bool,
}

/// Measures what an idle view costs.
///
/// # Errors
/// The errors of [`Bench::measure`].
pub fn idles(bench: &mut Bench<'_>) -> Result<(), Failure> {
    for is_held in [false, true] {
        bench.measure(&Idle {
            database: Database::of_numbers(bench.folder, Shape::of(1000, VALUE_BYTES))?,
            threads: usual_threads() as usize,
            is_held,
        })?;
    }
    Ok(())
}

impl Experiment for Idle {
    fn name(&self) -> (&'static str, String) {
        let what = if self.is_held { "held" } else { "not held" };
        ("idle", what.to_owned())
    }

    fn ways(&self) -> Vec<WayName> {
        vec![WayName::Ring]
    }

    fn work(&self) -> (u64, u64) {
        (0, 0)
    }

    fn open<'a>(&'a self, bench: &'a Bench<'_>, _: WayName) -> Result<Box<dyn Way + 'a>, Failure> {
        let settings = RingSettings {
            threads: self.threads,
            ..RingSettings::default()
        };
        let view = bench.view(&self.database, Some(settings))?;
        let held = self.is_held.then(|| bench.gpu.hold(&view)).transpose()?;
        Ok(Box::new(Waiting {
            threads: self.threads,
            _held: held,
            _view: view,
        }))
    }
}

struct Waiting {
    threads: usize,
    // Declared first, so that it ends before the view.
    _held: Option<Resident>,
    _view: View,
}

impl Way for Waiting {
    fn run(&mut self) -> Result<(), Failure> {
        thread::sleep(IDLE);
        Ok(())
    }

    fn check(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }

    fn threads(&self) -> Option<usize> {
        Some(self.threads)
    }
}

impl Experiment for Ring<'_> {
    fn name(&self) -> (&'static str, String) {
        let what = if self.is_put { "puts" } else { "gets" };
        ("ring", format!("{what} by {} threads", self.threads))
    }

    fn ways(&self) -> Vec<WayName> {
        vec![WayName::Multiget, WayName::Ring]
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
        let n = self.numbers.len();
        if way == WayName::Multiget {
            return Ok(Box::new(ByThemselves {
                of: self,
                rows: vec![0; n * VALUE_BYTES],
            }));
        }
        let gpu = &bench.gpu;
        let settings = RingSettings {
            threads: self.threads,
            ..RingSettings::default()
        };
        let view = bench.view(self.database, Some(settings))?;
        Ok(Box::new(ByKernels {
            of: self,
            bench,
            view,
            numbers: gpu.with(&self.numbers)?,
            rows: gpu.memory(n / self.each as usize * WORDS as usize)?,
            times_ns: gpu.memory(n)?,
        }))
    }
}

impl Ring<'_> {
    fn puts(&self) -> Option<u64> {
        self.is_put.then_some(VERSION)
    }

    /// Whether rows are the values of keys.
    fn check(&self, rows: &[u8]) -> Result<u64, Failure> {
        let mut value = [0; VALUE_BYTES];
        for (&number, row) in self.numbers.iter().zip(rows.chunks_exact(VALUE_BYTES)) {
            let version = u64::from_ne_bytes(row[..8].try_into().expect("eight bytes"));
            value_of(number, version, &mut value);
            if row != value || version > VERSION || self.puts().is_some_and(|put| put != version) {
                let what = format!("ring: the value of key {number} is wrong");
                return Err(Failure::Data(what));
            }
        }
        Ok(0)
    }

    /// Whether RocksDB has the values that were put.
    fn check_puts(&self) -> Result<u64, Failure> {
        let mut rows = vec![0; self.numbers.len() * VALUE_BYTES];
        let threads = usual_threads() as usize;
        (self.database).get_rows(&self.numbers, threads, &mut rows, VALUE_BYTES)?;
        self.check(&rows)
    }
}

/// Threads of the host, each of which calls RocksDB for its part of the keys.
struct ByThemselves<'a> {
    of: &'a Ring<'a>,
    rows: Vec<u8>,
}

impl Way for ByThemselves<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let Ring {
            database,
            threads,
            numbers,
            ..
        } = self.of;
        match self.of.puts() {
            Some(version) => database.put(numbers, *threads, version, VALUE_BYTES),
            None => database.get_rows(numbers, *threads, &mut self.rows, VALUE_BYTES),
        }
    }

    fn check(&mut self) -> Result<u64, Failure> {
        match self.of.is_put {
            true => self.of.check_puts(),
            false => self.of.check(&self.rows),
        }
    }

    fn threads(&self) -> Option<usize> {
        Some(self.of.threads)
    }
}

struct ByKernels<'a> {
    of: &'a Ring<'a>,
    bench: &'a Bench<'a>,
    view: View,
    numbers: Memory<u64>,
    rows: Memory<u64>,
    times_ns: Memory<u32>,
}

impl ByKernels<'_> {
    /// Sends `requests` requests, each tile at most one in `period_ns`.
    fn send(&self, requests: usize, each: u32, period_ns: u64) -> Result<(), Failure> {
        let gpu = &self.bench.gpu;
        let held: Resident = gpu.hold(&self.view)?;
        let wrong = gpu.request(
            &held,
            &Requests {
                numbers: self.numbers.part(0..requests),
                each,
                puts: self.of.puts(),
                words: WORDS,
                period_ns,
                rows: self.rows.all(),
                times_ns: self.times_ns.all(),
            },
        )?;
        if wrong == 0 {
            return Ok(());
        }
        let error = self.view.ring_counts().last_error.unwrap_or_default();
        let what = format!("ring: {wrong} requests were answered wrongly; {error}");
        Err(Failure::Data(what))
    }
}

impl Way for ByKernels<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        self.send(self.of.numbers.len(), self.of.each, 0)
    }

    fn check(&mut self) -> Result<u64, Failure> {
        // The kernel has checked the values that it got.
        if self.of.is_put {
            self.of.check_puts()
        } else {
            Ok(0)
        }
    }

    fn latencies(&mut self, wall_s: f64) -> Result<Vec<u64>, Failure> {
        /// Share of the maximum rate, and number of requests.
        const LOAD: f64 = 0.1;
        const PART: usize = 8;
        const TILES: usize = 32;
        let n = self.of.numbers.len();
        // On the host, tiles run one after another.
        let tiles = if self.bench.target == Target::Host {
            1
        } else {
            TILES
        };
        let tiles = tiles.min(n / self.of.each as usize);
        let each = (n / PART / tiles).max(1);
        let period_ns = tiles as f64 / (n as f64 / wall_s * LOAD) * 1e9;
        self.send(tiles * each, each as u32, period_ns as u64)?;
        let times = self.bench.gpu.read(self.times_ns.part(0..tiles * each))?;
        Ok(times.into_iter().map(u64::from).collect())
    }

    fn threads(&self) -> Option<usize> {
        Some(self.of.threads)
    }
}

//! Clients that fill a database, then read and write it, one operation after another.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rockmill_side_by_side::machine::{process_cpu, usual_threads};
use rockmill_side_by_side::run_config::check_failures;
use rockmill_side_by_side::running_system::{Consumption, RunningSystem};
use rockmill_side_by_side::{fill, rocksdb};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rust_rocksdb::{ColumnFamily, DB};

use super::cell::{Cell, Clients, Interval, Order, Outcome, Phase, Pick, Traffic};
use super::cpu_load::CpuLoad;
use super::database::Database;
use super::latency::{Kind, Recorder, Times};
use super::scatter::Scatter;

/// YCSB's constant.
const ZIPFIAN_EXPONENT: f64 = 0.99;
/// Every cell draws the same operations.
const SEED: u64 = 0x5379_7374_656d;
const PERCENT: u32 = 100;

/// Measures clients in a new folder.
///
/// # Errors
/// Environment or Data, depending on the cause of the failure.
pub fn run(
    cell: &Cell,
    work: &Clients,
    dir: &Path,
    running: &RunningSystem,
) -> Result<Outcome, Failure> {
    let database = Database::make(dir, cell, work, running)?;
    let cpu_load = CpuLoad::start(usual_threads(), work.cpu_load_percent);
    let bench = Bench {
        work,
        database: &database,
        cpu_load: &cpu_load,
        running,
    };
    let mut phases = vec![bench.phase("load", &Task::Fill)?];
    for (number, (name, count)) in [("warm-up", work.warm_up), ("run", work.operations)]
        .into_iter()
        .enumerate()
        .filter(|(_, (_, count))| *count > 0)
    {
        let seed = SEED.wrapping_add(number as u64);
        phases.push(bench.phase(name, &Task::Draw { count, seed })?);
    }
    if let Some(service) = &running.service {
        check_failures(&service.stats())?;
    }
    Ok(Outcome { phases })
}

/// Work of the clients in a phase.
enum Task {
    /// Writes each record once.
    Fill,
    /// Runs `count` operations.
    Draw { count: u64, seed: u64 },
}

/// State that all phases share.
struct Bench<'a> {
    work: &'a Clients,
    database: &'a Database,
    cpu_load: &'a CpuLoad,
    running: &'a RunningSystem,
}

impl Bench<'_> {
    fn phase(&self, name: &str, task: &Task) -> Result<Phase, Failure> {
        let (burnt, before) = (self.cpu_load.cpu(), self.database.traffic());
        let (done, taken) = self.running.measured(|| {
            let clients = self.clients(task)?;
            let settling = Instant::now();
            self.database.settle()?;
            Ok::<_, Failure>((clients, settling.elapsed()))
        });
        let (
            Timed {
                wall,
                times,
                timeline,
            },
            settled,
        ) = done?;
        let burnt_s = (self.cpu_load.cpu() - burnt).as_secs_f64();
        Ok(Phase {
            name: name.to_owned(),
            cores: usual_threads(),
            wall_s: wall.as_secs_f64(),
            settle_s: settled.as_secs_f64(),
            taken: Consumption {
                cpu_s: (taken.cpu_s - burnt_s).max(0.0),
                ..taken
            },
            burnt_s,
            reads: times.of(Kind::Read),
            writes: times.of(Kind::Write),
            traffic: self.traffic_since(&before, &times),
            timeline,
        })
    }

    fn traffic_since(&self, before: &Traffic, times: &Times) -> Traffic {
        let (now, writes) = (self.database.traffic(), times.of(Kind::Write));
        let user_bytes = writes.map_or(0, |w| w.count) * self.work.records.entry_bytes() as u64;
        Traffic {
            user_bytes,
            flushed_bytes: now.flushed_bytes - before.flushed_bytes,
            read_bytes: now.read_bytes - before.read_bytes,
            written_bytes: now.written_bytes - before.written_bytes,
            stalled_s: now.stalled_s - before.stalled_s,
            compacted_s: now.compacted_s - before.compacted_s,
        }
    }

    /// Runs all clients to their ends; the first failure stops the others.
    fn clients(&self, task: &Task) -> Result<Timed, Failure> {
        let count = match (task, self.work.fill) {
            (Task::Fill, Order::Sequential) => 1,
            _ => self.work.clients,
        };
        let recorders: Vec<_> = (0..count).map(|_| Recorder::default()).collect();
        let stop = AtomicBool::new(false);
        let (ended, ends) = channel();
        // Started before the clients, which may do much work until all have been started.
        let mut clock = Clock::start(self, &recorders);
        thread::scope(|scope| {
            for (number, recorder) in recorders.iter().enumerate() {
                let (ended, stop) = (ended.clone(), &stop);
                let client = Client {
                    number: number as u64,
                    clients: u64::from(count),
                    work: self.work,
                    db: self.database.db(),
                    families: self.database.families(),
                    recorder,
                    stop,
                };
                scope.spawn(move || {
                    let done = client.run(task);
                    stop.fetch_or(done.is_err(), Ordering::Relaxed);
                    // The receiver is gone only if it panicked.
                    let _ = ended.send(done);
                });
            }
            drop(ended);
            let limit = match task {
                Task::Fill => None,
                Task::Draw { .. } => self.work.phase_seconds.map(Duration::from_secs),
            };
            loop {
                let left = limit.map(|limit| limit.saturating_sub(clock.began.elapsed()));
                if left.is_some_and(|left| left.is_zero()) {
                    stop.store(true, Ordering::Relaxed);
                }
                let soon = left.filter(|left| !left.is_zero());
                match ends.recv_timeout(clock.rest().min(soon.unwrap_or(Duration::MAX))) {
                    Ok(done) => done?,
                    Err(RecvTimeoutError::Timeout) if clock.rest().is_zero() => clock.tick(),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return Ok(clock.end()),
                }
            }
        })
    }
}

/// Times of the clients.
struct Timed {
    wall: Duration,
    times: Times,
    timeline: Vec<Interval>,
}

/// Collects the times of clients, interval by interval.
struct Clock<'a> {
    bench: &'a Bench<'a>,
    recorders: &'a [Recorder],
    began: Instant,
    /// End of the last interval, and the totals until then.
    last: Instant,
    cpu: Duration,
    traffic: Traffic,
    all: Times,
    timeline: Vec<Interval>,
}

impl<'a> Clock<'a> {
    fn start(bench: &'a Bench<'a>, recorders: &'a [Recorder]) -> Self {
        let now = Instant::now();
        Self {
            bench,
            recorders,
            began: now,
            last: now,
            cpu: bench.cpu(),
            traffic: bench.database.traffic(),
            all: Times::default(),
            timeline: Vec::new(),
        }
    }

    /// Time until the interval ends.
    fn rest(&self) -> Duration {
        let interval = Duration::from_millis(self.bench.work.interval_ms);
        interval.saturating_sub(self.last.elapsed())
    }

    fn tick(&mut self) {
        let mut times = Times::default();
        for recorder in self.recorders {
            times.add(&recorder.take());
        }
        let (now, cpu) = (Instant::now(), self.bench.cpu());
        let seconds = (now - self.last).as_secs_f64();
        let cores_s = seconds * f64::from(usual_threads());
        self.timeline.push(Interval {
            seconds,
            until_s: (now - self.began).as_secs_f64(),
            reads: times.of(Kind::Read),
            writes: times.of(Kind::Write),
            cpu_use: cpu.saturating_sub(self.cpu).as_secs_f64() / cores_s,
            gpu_use: self.bench.running.gpu_use(),
            traffic: self.bench.traffic_since(&self.traffic, &times),
        });
        self.all.add(&times);
        (self.last, self.cpu) = (now, cpu);
        self.traffic = self.bench.database.traffic();
    }

    fn end(mut self) -> Timed {
        let wall = self.began.elapsed();
        self.tick();
        Timed {
            wall,
            times: self.all,
            timeline: self.timeline,
        }
    }
}

impl Bench<'_> {
    /// CPU time of this process without the CPU load's.
    fn cpu(&self) -> Duration {
        process_cpu().saturating_sub(self.cpu_load.cpu())
    }
}

/// One of the clients.
struct Client<'a> {
    number: u64,
    clients: u64,
    work: &'a Clients,
    db: &'a DB,
    families: Vec<&'a ColumnFamily>,
    recorder: &'a Recorder,
    stop: &'a AtomicBool,
}

impl Client<'_> {
    fn run(&self, task: &Task) -> Result<(), Failure> {
        let seed = match task {
            Task::Fill => SEED.wrapping_sub(1),
            Task::Draw { seed, .. } => *seed,
        };
        let mut hands = Hands {
            client: self,
            rng: SmallRng::seed_from_u64(seed.wrapping_mul(self.clients) ^ self.number),
            key: vec![0; self.work.records.key_bytes],
            value: vec![0; self.work.records.value_bytes],
        };
        match task {
            Task::Fill => self.fill(&mut hands),
            Task::Draw { count, .. } => self.draw(&mut hands, *count),
        }
    }

    /// Writes this client's share of the records, family after family.
    fn fill(&self, hands: &mut Hands<'_>) -> Result<(), Failure> {
        let families = self.families.len() as u64;
        let records = self.work.records.entries;
        let scatter = Scatter::new(records);
        let mut number = self.number;
        while number < records * families && !self.stop.load(Ordering::Relaxed) {
            let (family, place) = match self.work.fill {
                Order::Sequential => (number / records, number % records),
                Order::Random => (number % families, scatter.place(number / families)),
            };
            hands.operate(Kind::Write, family as usize, place)?;
            number += self.clients;
        }
        Ok(())
    }

    /// Runs this client's share of `count` operations.
    fn draw(&self, hands: &mut Hands<'_>, count: u64) -> Result<(), Failure> {
        let records = self.work.records.entries;
        let scatter = Scatter::new(records);
        let zipf = Zipf::new(records as f64, ZIPFIAN_EXPONENT).expect("there are records");
        let until = |number| count * number / self.clients;
        for _ in until(self.number)..until(self.number + 1) {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let rng = &mut hands.rng;
            let place = match self.work.pick {
                Pick::Uniform => rng.random_range(0..records),
                // Ranks start at 1.
                Pick::Zipfian => scatter.place((zipf.sample(rng) as u64 - 1).min(records - 1)),
            };
            let family = rng.random_range(0..self.families.len());
            let kind = match rng.random_ratio(self.work.update_percent, PERCENT) {
                true => Kind::Write,
                false => Kind::Read,
            };
            hands.operate(kind, family, place)?;
        }
        Ok(())
    }
}

/// State for a client's operations.
struct Hands<'a> {
    client: &'a Client<'a>,
    rng: SmallRng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Hands<'_> {
    /// Reads or writes the record at a position.
    fn operate(&mut self, kind: Kind, family: usize, place: u64) -> Result<(), Failure> {
        let Client {
            work,
            db,
            families,
            recorder,
            ..
        } = self.client;
        fill::write_key(work.keys, place, &mut self.key);
        if kind == Kind::Write {
            let random_bytes = work.records.random_value_bytes();
            self.rng.fill_bytes(&mut self.value[..random_bytes]);
        }
        let began = Instant::now();
        let found = match kind {
            Kind::Read => db
                .get_pinned_cf(families[family], &self.key)
                .map_err(|e| rocksdb::failed("read", &e))?
                .is_some(),
            Kind::Write => db
                .put_cf(families[family], &self.key, &self.value)
                .map(|()| true)
                .map_err(|e| rocksdb::failed("write", &e))?,
        };
        recorder.record(kind, began.elapsed());
        match found {
            true => Ok(()),
            false => {
                let key = output::escape(&self.key);
                Err(Failure::Data(format!(
                    "record {key} was written, but is missing"
                )))
            }
        }
    }
}

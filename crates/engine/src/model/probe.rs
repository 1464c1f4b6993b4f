//! Calibration: small slices of a few shapes through the real backends, a second of work or so, in pieces that give way to
//! jobs.

mod crowd;
mod pace;
mod rounds;
mod samples;
mod shapes;
mod storage;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::machine::Host;
use super::measure::{Measured, mean};
use super::rates::{self, CPU, CpuRates, GpuRates, Overlap, Rates};
use crate::idle::Idle;
use crowd::Crowd;
use rockmill_core::{Backend, Error, ErrorKind, Result};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, LinkRates};
use rounds::Rounds;
use samples::{Samples, make, tell};
use shapes::{BEFORE_GPU, CPU_SHAPES, CROWDED, GPU_CROWDED, GPU_SHAPES, Shape, TRIED, workload};

/// However long they take. Where there is time, more make it surer that a part of one was quick, which is what counts of
/// the CPU's.
const LEAST_ROUNDS: usize = 2;

/// Between rounds: what slows all of a host's processors often lasts as long as some of them.
const PAUSE: Duration = Duration::from_millis(150);

/// What counts of a slice on the CPU, whose files are in memory: other work may keep a thread from its processor, but
/// comes and goes; jobs' corrections follow it.
fn processor_time(measured: &Measured) -> f64 {
    measured.cpu_seconds
}

/// A GPU's slices, and what they took so far.
struct Gpu<'a> {
    backend: &'a CudaBackend,
    alone: Samples,
    /// Least seconds of [`GPU_CROWDED`] at once, and the host's processor seconds then.
    crowded: [(f64, f64); GPU_CROWDED.len()],
}

impl Gpu<'_> {
    fn crowd(&mut self, dir: &Path, at_once: u32, idle: &Idle) -> Result<()> {
        for (slice, least) in GPU_CROWDED.into_iter().zip(&mut self.crowded) {
            let made = &self.alone.slices[slice];
            let run = |cancel: &_| made.run_at_once(self.backend, dir, at_once, cancel);
            let all = idle.piece(run)?;
            let seconds = mean(&all, |m| m.seconds);
            if seconds < least.0 {
                *least = (seconds, mean(&all, |m| m.cpu_seconds));
            }
        }
        Ok(())
    }

    /// Sets what slices do to each other in place of nothing, by what is predicted without it.
    fn share(&self, rates: &mut Rates, at_once: u32) {
        let name = self.backend.name();
        let mut kinds = GPU_CROWDED.into_iter().zip(self.crowded);
        let mut next = || {
            let (slice, (seconds, cpu_seconds)) = kinds.next()?;
            Some(Crowd {
                alone: rates.predict(name, self.alone.slices[slice].shape(), 1)?,
                seconds,
                cpu_seconds,
            })
        };
        if let (Some(kernels), Some(host)) = (next(), next())
            && let Some(gpu) = rates.gpus.get_mut(name)
        {
            crowd::share(gpu, at_once, &[kernels, host]);
        }
    }
}

/// Slices of all devices, and what they took so far.
pub struct Probe<'a> {
    dir: &'a Path,
    cores: u32,
    cpu: Rounds,
    /// Least times of [`CROWDED`] with one on each processor.
    crowded: [f64; CROWDED.len()],
    gpus: Vec<Gpu<'a>>,
    /// Slices that were run by themselves on GPUs.
    turns: usize,
    idle: &'a Idle,
}

impl std::fmt::Debug for Probe<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl<'a> Probe<'a> {
    /// Makes the slices in `dir`, with a thread a processor.
    ///
    /// # Errors
    /// Storage, Device; Cancelled, as all that follows, once `idle` is stopped.
    pub fn new(
        dir: &'a Path,
        host: &Host,
        gpus: &[&'a CudaBackend],
        idle: &'a Idle,
    ) -> Result<Self> {
        let cores = host.cores;
        let for_cpu = make(&CPU_SHAPES, dir, "cpu", cores, idle)?;
        let cpu = Rounds::new(for_cpu, TRIED);
        // All GPUs have the same.
        let for_gpus = match gpus {
            [] => Vec::new(),
            _ => make(&GPU_SHAPES, dir, "gpu", cores, idle)?,
        };
        let with_slices = |&backend: &&'a CudaBackend| Gpu {
            backend,
            alone: Samples::new(&for_gpus),
            crowded: [(f64::INFINITY, 0.0); GPU_CROWDED.len()],
        };
        Ok(Self {
            dir,
            cores,
            cpu,
            crowded: [f64::INFINITY; CROWDED.len()],
            gpus: gpus.iter().map(with_slices).collect(),
            turns: 0,
            idle,
        })
    }

    /// Runs those that run at once, and each slice on its device. Before each slice of a GPU by itself goes one of the CPU
    /// on another processor than before: where slices of a GPU follow each other they find threads awake and buffers
    /// in caches, which the first of a job does not.
    ///
    /// # Errors
    /// Those of the backends.
    pub fn round(&mut self) -> Result<()> {
        let (dir, idle) = (self.dir, self.idle);
        // The first slices on a GPU make what is made once.
        self.gpus_crowds()?;
        self.cpu.round(dir, idle)?;
        for gpu in &mut self.gpus {
            let (cpu, turns) = (&self.cpu, &mut self.turns);
            gpu.alone.round(gpu.backend, dir, idle, || {
                *turns += 1;
                cpu.run(BEFORE_GPU, *turns, dir, idle).map(drop)
            })?;
        }
        self.cpu_crowd()?;
        idle.pause(PAUSE)
    }

    /// Runs slices on each GPU at once.
    fn gpus_crowds(&mut self) -> Result<()> {
        let at_once = self.at_once();
        let mut gpus = self.gpus.iter_mut();
        gpus.try_for_each(|gpu| gpu.crowd(self.dir, at_once, self.idle))
    }

    /// Rounds until so much time was spent, but some at least.
    fn rounds_until(&mut self, end: Duration) -> Result<()> {
        for _ in 1..LEAST_ROUNDS {
            self.round()?;
        }
        let idle = self.idle;
        repeat_until(end, idle, || self.round())
    }

    fn at_once(&self) -> u32 {
        at_once(self.cores)
    }

    /// The rates by what was measured; also measures what slices share.
    ///
    /// # Errors
    /// Those of the backends; Device if what came out cannot be.
    pub fn rates(&self) -> Result<Rates> {
        tell(CPU, &self.cpu.slices, self.cpu.times());
        let mut gpus = BTreeMap::new();
        for Gpu {
            backend,
            alone: samples,
            ..
        } in &self.gpus
        {
            tell(backend.name(), &samples.slices, &samples.seconds());
            let measure = |cancel: &_| LinkRates::measure(backend.device(), cancel);
            let link = self.idle.piece(measure)?;
            let rates = GpuRates {
                slice: samples.fit(|run| run.seconds),
                kernels: samples.fit_kernels(),
                host: samples.fit(|run| run.cpu_seconds),
                to_device: link.to_device,
                from_device: link.from_device,
                overlap: Overlap::NONE,
                crowded: 1.0,
                correction: 1.0,
                host_correction: 1.0,
            };
            gpus.insert(backend.name().to_owned(), rates);
        }
        let mut rates = Rates {
            cpu: CpuRates {
                slice: self.cpu.fit(),
                cores: self.cores,
                crowded: self.crowded(),
                correction: 1.0,
            },
            storage: storage::measure(self.dir, self.cores, self.idle)?,
            gpus,
        };
        for gpu in &self.gpus {
            gpu.share(&mut rates, self.at_once());
        }
        if rates.are_sound() {
            return Ok(rates);
        }
        let what = "calibration came to rates that no machine has; try again when less else runs";
        Err(Error::new(ErrorKind::Device, what))
    }

    /// Runs slices on all processors at once.
    fn cpu_crowd(&mut self) -> Result<()> {
        for (slice, least) in CROWDED.into_iter().zip(&mut self.crowded) {
            let made = &self.cpu.slices[slice];
            let run = |cancel: &_| made.run_at_once(&CpuBackend, self.dir, self.cores, cancel);
            let all = self.idle.piece(run)?;
            *least = least.min(mean(&all, processor_time));
        }
        Ok(())
    }

    /// How many times as long slices take with one on each processor.
    fn crowded(&self) -> f64 {
        let seconds = self.cpu.seconds();
        let alone = CROWDED.map(|slice| seconds[slice]);
        let times: f64 = self
            .crowded
            .iter()
            .zip(alone)
            .map(|(all, one)| all / one)
            .sum();
        clamp(times / CROWDED.len() as f64, &rates::CROWDED)
    }
}

/// Slices on a GPU at once: as many as a job usually has there, on a large host fewer.
fn at_once(cores: u32) -> u32 {
    const MOST: u32 = 16;
    cores.clamp(2, MOST)
}

/// Bytes that files of a probe on `host` take at most, with or without GPUs.
pub fn room(host: &Host, gpus: bool) -> u64 {
    let shapes = |shapes: &[Shape], crowded: &[usize], at_once: u32| {
        let inputs = shapes.iter().map(|shape| workload(shape).input_bytes());
        let alone = shapes.iter().map(|shape| workload(shape).output_bytes());
        let outputs = |&slice: &usize| u64::from(at_once) * workload(&shapes[slice]).output_bytes();
        let most = alone.chain(crowded.iter().map(outputs)).max();
        (inputs.sum::<u64>(), most.unwrap_or(0))
    };
    let (cpu, at_once_cpu) = shapes(&CPU_SHAPES, &CROWDED, host.cores);
    let (gpu, at_once_gpu) = match gpus {
        true => shapes(&GPU_SHAPES, &GPU_CROWDED, at_once(host.cores)),
        false => (0, 0),
    };
    let files = storage::room(host.cores);
    cpu + gpu + at_once_cpu.max(at_once_gpu).max(files)
}

fn clamp(value: f64, bounds: &RangeInclusive<f64>) -> f64 {
    value.clamp(*bounds.start(), *bounds.end())
}

/// Calls `each` once, and again as long as one more is likely to be done in time.
fn repeat_until(end: Duration, idle: &Idle, mut each: impl FnMut() -> Result<()>) -> Result<()> {
    loop {
        let started = idle.spent();
        each()?;
        let now = idle.spent();
        if now - started > end.saturating_sub(now) {
            return Ok(());
        }
    }
}

/// Finds the machine's rates with files in `dir`, within about `time` of work while it is `idle`, with pauses beside: each
/// slice is made once and run twice at least, more often as time allows. Of GPUs of a model one is measured; jobs tell what is different about
/// the others.
///
/// # Errors
/// Storage, Device, Cancelled.
pub fn calibrate(
    dir: &Path,
    host: &Host,
    gpus: &[&CudaBackend],
    time: Duration,
    idle: &Idle,
) -> Result<Rates> {
    let started = idle.spent();
    let names: Vec<(&str, String)> = { gpus.iter() }
        .map(|gpu| (gpu.name(), gpu.device().about().name.clone()))
        .collect();
    let measured = { gpus.iter().enumerate() }
        .filter(|(at, _)| is_first_of_model(&names, *at))
        .map(|(_, gpu)| *gpu);
    let mut probe = Probe::new(dir, host, &measured.collect::<Vec<_>>(), idle)?;
    probe.rounds_until(started + time)?;
    let mut rates = probe.rates()?;
    give_to_others_of_model(&mut rates, &names);
    let (seconds, rounds) = ((idle.spent() - started).as_secs_f64(), probe.cpu.count());
    tracing::info!(seconds, rounds, "calibrated");
    Ok(rates)
}

/// Whether none before this one of GPUs, each with its model, is of the same.
fn is_first_of_model(gpus: &[(&str, String)], at: usize) -> bool {
    gpus[..at].iter().all(|(_, model)| *model != gpus[at].1)
}

/// Gives the rates of a GPU to the others of its model that have none.
fn give_to_others_of_model(rates: &mut Rates, gpus: &[(&str, String)]) {
    for (gpu, model) in gpus {
        let same = gpus.iter().filter(|(_, of)| of == model);
        let measured = { same }
            .find_map(|(name, _)| rates.gpus.get(*name))
            .cloned();
        if let Some(measured) = measured {
            rates.gpus.entry((*gpu).to_owned()).or_insert(measured);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use rockmill_cuda::{CudaSettings, Target};

    #[test]
    fn of_gpus_of_a_model_one_is_measured() {
        let names = [
            ("cuda:0", "A"),
            ("cuda:1", "B"),
            ("cuda:2", "A"),
            ("cuda:3", "C"),
        ]
        .map(|(gpu, model)| (gpu, model.to_owned()));
        let first = [0, 1, 2, 3].map(|at| is_first_of_model(&names, at));
        assert_eq!(first, [true, true, false, true]);
        let mut all = crate::model::tests::rates();
        let of_a = all.gpus["cuda:0"].clone();
        let of_b = GpuRates {
            to_device: 1e9,
            ..of_a.clone()
        };
        all.gpus.insert("cuda:1".to_owned(), of_b.clone());
        give_to_others_of_model(&mut all, &names);
        let found: Vec<_> = all.gpus.into_iter().collect();
        let expected = [("cuda:0", &of_a), ("cuda:1", &of_b), ("cuda:2", &of_a)];
        let expected = expected.map(|(gpu, rates)| (gpu.to_owned(), rates.clone()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_gpu_without_clocks_has_rates_as_well() {
        let dir = tempfile::tempdir().expect("a folder");
        let gpu = CudaBackend::new(Target::Host, CudaSettings::default()).expect("the host");
        let idle = Idle::new(SystemClock::shared());
        let made = make(&GPU_SHAPES[..1], dir.path(), "gpu", 2, &idle);
        let mut samples = Samples::new(&made.expect("there is room"));
        assert!(samples.slices[0].is_for(&gpu));
        for _ in 0..2 {
            let round = samples.round(&gpu, dir.path(), &idle, || Ok(()));
            round.expect("it runs");
        }
        let (slice, kernels) = (samples.fit(|s| s.seconds), samples.fit_kernels());
        let host = samples.fit(|s| s.cpu_seconds);
        assert!(slice.is_sound() && !slice.is_nothing() && kernels.is_sound());
        let shape = samples.slices[0].shape();
        let seconds: Vec<f64> = samples.seconds().iter().map(|round| round[0]).collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let usual = seconds.iter().map(|s| s.min(2.0 * least)).sum::<f64>() / 2.0;
        assert!(
            (slice.seconds(shape) / usual - 1.0).abs() < 1e-3,
            "one slice is met exactly"
        );
        assert!(kernels.seconds(shape) < least);
        // Its kernels are the host's work as well.
        assert!(host.is_sound() && host.seconds(shape) > 0.0);
    }
}

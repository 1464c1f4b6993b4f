//! Measures ways.

use std::path::Path;
use std::time::Instant;

use rockmill::DeviceList;
use rockmill_side_by_side::energy::{self, EnergyMeter};
use rockmill_side_by_side::machine::{process_cpu, usual_threads};
use rockmill_side_by_side::progress;
use rockmill_terminal::outcome::Failure;
use rockmill_view::{RingSettings, Target, View};

use super::GpukvArgs;
use super::data::Database;
use super::gpu::Gpu;
use super::report::Row;

/// Ways to read values of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WayName {
    /// MultiGet on the best number of threads into pinned memory, and a copy to the device.
    Multiget,
    /// A launch for each step: MultiGet gets the values of the step, and they are copied to the device.
    Launch,
    /// Kernels read a copy of all values in pinned memory.
    Pinned,
    /// Kernels read a copy of all values in device memory, by row: as fast as the device reads rows.
    Dense,
    /// Kernels read all adjacency lists in device memory, by row.
    Csr,
    /// View::lookup, or kernels that find keys in a view.
    View,
    /// The kernel of View::lookup with 2 lanes for each key.
    #[value(name = "view-2")]
    View2,
    /// With 4 lanes.
    #[value(name = "view-4")]
    View4,
    /// With 8 lanes.
    #[value(name = "view-8")]
    View8,
    /// With 16 lanes.
    #[value(name = "view-16")]
    View16,
    /// kv.get in a kernel by a thread for each key.
    #[value(name = "kernel-1")]
    Kernel1,
    /// By 4 lanes.
    #[value(name = "kernel-4")]
    Kernel4,
    /// By 8 lanes.
    #[value(name = "kernel-8")]
    Kernel8,
    /// By 32 lanes.
    #[value(name = "kernel-32")]
    Kernel32,
    /// Kernels send requests to the host.
    Ring,
}

impl WayName {
    /// All ways that look numbered keys up.
    pub const LOOKUPS: [Self; 12] = [
        Self::Multiget,
        Self::Pinned,
        Self::Dense,
        Self::View,
        Self::View2,
        Self::View4,
        Self::View8,
        Self::View16,
        Self::Kernel1,
        Self::Kernel4,
        Self::Kernel8,
        Self::Kernel32,
    ];

    /// Lanes for each key, and whether a kernel calls kv.get.
    pub fn lanes(self) -> Option<(u32, bool)> {
        match self {
            Self::View2 => Some((2, false)),
            Self::View4 => Some((4, false)),
            Self::View8 => Some((8, false)),
            Self::View16 => Some((16, false)),
            Self::Kernel1 => Some((1, true)),
            Self::Kernel4 => Some((4, true)),
            Self::Kernel8 => Some((8, true)),
            Self::Kernel32 => Some((32, true)),
            _ => None,
        }
    }

    /// Name in results.
    pub fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// A task for several ways.
pub trait Experiment {
    /// Names of the experiment and of its parameter.
    fn name(&self) -> (&'static str, String);

    /// Ways that can do it.
    fn ways(&self) -> Vec<WayName>;

    /// Keys of a run, and bytes of their values.
    fn work(&self) -> (u64, u64);

    /// Opens a way, and loads its data.
    ///
    /// # Errors
    /// Data or Environment.
    fn open<'a>(&'a self, bench: &'a Bench<'_>, way: WayName)
    -> Result<Box<dyn Way + 'a>, Failure>;
}

/// A way to do a task.
pub trait Way {
    /// Does the task: once, or for some time.
    ///
    /// # Errors
    /// Data or Environment.
    fn run(&mut self) -> Result<(), Failure>;

    /// A digest of the answers of the last run, which is the same for all ways.
    ///
    /// # Errors
    /// Data if an answer is wrong; Environment.
    fn check(&mut self) -> Result<u64, Failure>;

    /// Nanoseconds of single gets or calls, if these are timed, after runs of `wall_s` seconds.
    ///
    /// # Errors
    /// Data or Environment.
    fn latencies(&mut self, _wall_s: f64) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    /// Number of times that the last run did the task.
    fn rounds(&self) -> u64 {
        1
    }

    /// Number of the host's working threads.
    fn threads(&self) -> Option<usize> {
        None
    }
}

/// State that all experiments share.
pub struct Bench<'a> {
    pub args: &'a GpukvArgs,
    pub gpu: Gpu,
    pub target: Target,
    pub folder: &'a Path,
    meter: Result<Option<EnergyMeter>, String>,
    pub rows: Vec<Row>,
}

impl<'a> Bench<'a> {
    /// Opens the device.
    ///
    /// # Errors
    /// Environment if it cannot be used.
    pub fn new(
        args: &'a GpukvArgs,
        target: Target,
        devices: DeviceList,
        folder: &'a Path,
    ) -> Result<Self, Failure> {
        Ok(Self {
            args,
            gpu: Gpu::open(target)?,
            target,
            folder,
            meter: EnergyMeter::new(devices),
            rows: Vec::new(),
        })
    }

    /// A number at this scale, `least` or more.
    pub fn scaled(&self, full: u64, least: u64) -> u64 {
        ((full as f64 * self.args.scale) as u64).max(least)
    }

    /// A view of a database.
    ///
    /// # Errors
    /// Environment if the device has no room.
    pub fn view(&self, database: &Database, ring: Option<RingSettings>) -> Result<View, Failure> {
        let builder = View::builder(database.live.clone(), "default").device(self.target);
        let builder = match ring {
            Some(settings) => builder.ring(settings),
            None => builder,
        };
        Ok(builder.open()?)
    }

    /// The number of threads with the shortest time.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn best_threads(
        &self,
        mut work: impl FnMut(usize) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let most = self.args.threads as usize;
        // After that, RocksDB's block cache has the values.
        work(most.min(usual_threads() as usize))?;
        let mut best = (f64::INFINITY, 1);
        for threads in (0..)
            .map(|power| 1 << power)
            .take_while(|&threads| threads <= most)
        {
            let began = Instant::now();
            work(threads)?;
            let wall_s = began.elapsed().as_secs_f64();
            if wall_s < best.0 {
                best = (wall_s, threads);
            }
        }
        Ok(best.1)
    }

    /// Measures all requested ways of an experiment.
    ///
    /// # Errors
    /// Data if answers are wrong or differ; Environment.
    pub fn measure(&mut self, experiment: &dyn Experiment) -> Result<(), Failure> {
        let asked = &self.args.ways;
        let ways = experiment.ways().into_iter();
        let ways = ways.filter(|way| asked.is_empty() || asked.contains(way));
        let mut first: Option<(WayName, u64)> = None;
        for way in ways.collect::<Vec<_>>() {
            let (name, point) = experiment.name();
            let spinner = progress::spinner(format!("{name} {point}: {}", way.name()));
            let (row, digest) = self.measure_way(experiment, way)?;
            spinner.finish_and_clear();
            self.rows.push(row);
            self.write()?;
            let &mut (other, expected) = first.get_or_insert((way, digest));
            if digest != expected {
                let (one, other) = (way.name(), other.name());
                let what = format!("{name} {point}: {one} has other answers than {other}");
                return Err(Failure::Data(what));
            }
        }
        Ok(())
    }

    fn measure_way(
        &self,
        experiment: &dyn Experiment,
        way: WayName,
    ) -> Result<(Row, u64), Failure> {
        let (began, cpu) = (Instant::now(), process_cpu());
        let mut open = experiment.open(self, way)?;
        let load_s = began.elapsed().as_secs_f64();
        let load_cpu_s = process_cpu().saturating_sub(cpu).as_secs_f64();
        // Fills caches, and allocates memory.
        open.run()?;
        let digest = open.check()?;
        let mut runs = Vec::new();
        for _ in 0..self.args.repeat {
            self.gpu.copied_bytes();
            // Reading the meter takes milliseconds.
            let (ran, energy) = energy::measured(&self.meter, || {
                let (began, cpu) = (Instant::now(), process_cpu());
                open.run()?;
                let wall_s = began.elapsed().as_secs_f64();
                Ok::<_, Failure>((wall_s, process_cpu().saturating_sub(cpu).as_secs_f64()))
            });
            let (wall_s, cpu_s) = ran?;
            runs.push((
                wall_s,
                cpu_s,
                energy,
                self.gpu.copied_bytes(),
                open.rounds(),
            ));
            if open.check()? != digest {
                let (name, point) = experiment.name();
                let what = format!("{name} {point}: {} has answers that change", way.name());
                return Err(Failure::Data(what));
            }
        }
        let walls_s = runs.iter().map(|run| run.0).collect();
        runs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (wall_s, cpu_s, energy, copied, rounds) = runs.swap_remove(runs.len() / 2);
        let mut latencies = open.latencies(wall_s)?;
        latencies.sort_unstable();
        let at = |share: f64| {
            let last = latencies.len().checked_sub(1)?;
            Some(latencies[(last as f64 * share) as usize] as f64 / 1e3)
        };
        let (keys, bytes) = experiment.work();
        let (keys, bytes) = (keys * rounds, bytes * rounds);
        let (name, point) = experiment.name();
        let row = Row {
            experiment: name,
            point,
            way: way.name(),
            scale: self.args.scale,
            threads: open.threads(),
            load_s,
            load_cpu_s,
            wall_s,
            walls_s,
            cpu_s,
            gpu_energy: energy,
            copied_gb: copied as f64 / 1e9,
            keys,
            gb: bytes as f64 / 1e9,
            keys_per_s: keys as f64 / wall_s,
            gb_per_s: bytes as f64 / 1e9 / wall_s,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
        };
        Ok((row, digest))
    }
}

//! The experiments and their cells.

use rockmill_side_by_side::machine::usual_threads;
use rockmill_side_by_side::spec::{DatabaseSpec, Keys};
use rockmill_side_by_side::system::System;
use rockmill_side_by_side::workload::{Compression, Workload};
use rockmill_terminal::outcome::Failure;

use super::args::{Experiment, SystemArgs};
use super::cell::{Cell, Clients, Jobs, Order, Pick, Work};
use super::ways::{check_names, systems};
use crate::devices::profiles;

/// Names of axes.
const VALUE_BYTES: &str = "value B";
const COMPRESSION: &str = "compression";
const CPU_LOAD: &str = "CPU load %";
const JOB_MB: &str = "job MB";
const AT_ONCE: &str = "at once";
const FILL: &str = "fill";
const UPDATES: &str = "updates %";
const PICK: &str = "keys";
const CACHE: &str = "cache %";

/// Numbers at full scale. These are LUDA's own load and run, write buffer and number of cores.
const CONTENTION_RECORDS: f64 = 10e6;
const CONTENTION_BUFFER_BYTES: u64 = 4 << 20;
const CONTENTION_CORES: u32 = 4;
/// A hundredth of X-Engine's records, in the same number of tables.
const INDEX_FAMILIES: u32 = 32;
const INDEX_RECORDS: f64 = 2e6;
/// Three reads per write.
const INDEX_UPDATE_PERCENT: u32 = 25;
/// A quarter of Co-KV's load.
const RATIO_RECORDS: f64 = 5e6;
/// 20 GB of keys and values.
const STEADY_RECORDS: f64 = 20e9 / 272.0;
/// Maximum size of the first level, as a part of the data. RocksDB gives it a hundredth, so there are three levels below level 0.
/// With a smaller maximum it would add a level, since files have a little more bytes than their records.
const STEADY_BASE: u64 = 50;
/// A smaller database has no file to compact.
const MIN_RECORDS: u64 = 1000;

/// Number of write buffers that a family's records fill, within the usual buffer sizes, so that a small scale has
/// compactions as well.
const BUFFERS_OF_RECORDS: u64 = 64;
const WRITE_BUFFER_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;

/// As in `rockmill-bench compaction`.
const JOB_VERSIONS: u64 = 4;
const JOB_RUNS: u64 = 8;
const JOB_WRITERS: u64 = 16;
const JOB_FILE_BYTES: u64 = 64 << 20;
const MEGABYTE: f64 = 1e6;
const KIB: u64 = 1024;

const PERCENT: f64 = 100.0;

impl Experiment {
    /// Returns all cells, those of a point next to each other.
    ///
    /// # Errors
    /// Usage if an argument belongs to another experiment, or is not a device.
    pub fn cells(self, args: &SystemArgs) -> Result<Vec<Cell>, Failure> {
        self.check_axes(args)?;
        let systems = systems(args)?;
        let points = match self {
            Self::Contention => contention(args),
            Self::Scaling => scaling(args),
            Self::SecondaryIndex => secondary_index(args),
            Self::UpdateRatio => update_ratio(args),
            Self::Steady => steady(args),
        };
        let mut cells = Vec::new();
        for (point, work) in points {
            let cell = |system, work| Cell {
                point: point.clone(),
                system,
                threads: args.threads.unwrap_or_else(|| self.usual_threads()),
                tuning: args.tuning.clone(),
                profiles: profiles(system.device()),
                work,
            };
            if let (true, Work::Clients(clients)) = (args.bound, &work) {
                let without = Clients {
                    compacts: false,
                    ..clients.clone()
                };
                cells.push(cell(System::Rocksdb, Work::Clients(without)));
            }
            let of_point = systems.iter().map(|&system| cell(system, work.clone()));
            match self {
                Self::Steady => cells.extend(of_point.filter_map(Cell::with_cache_of_point)),
                _ => cells.extend(of_point),
            }
        }
        check_names(&cells)?;
        Ok(cells)
    }

    /// Returns the number of threads if no argument states it.
    fn usual_threads(self) -> u32 {
        match self {
            Self::Contention => usual_threads().min(CONTENTION_CORES),
            _ => usual_threads(),
        }
    }

    fn check_axes(self, args: &SystemArgs) -> Result<(), Failure> {
        let axes = [
            ("--value-bytes", args.value_bytes.len(), Self::Contention),
            ("--compression", args.compression.len(), Self::Contention),
            ("--cpu-load", args.cpu_load.len(), Self::Contention),
            ("--job-mb", args.job_mb.len(), Self::Scaling),
            ("--at-once", args.at_once.len(), Self::Scaling),
            ("--updates", args.updates.len(), Self::UpdateRatio),
            ("--cache-percent", args.cache_percent.len(), Self::Steady),
        ];
        let for_clients = [
            ("--bound", args.bound),
            ("--clients", args.clients.is_some()),
            ("--phase-seconds", args.phase_seconds.is_some()),
            ("--write-buffer-kib", args.write_buffer_kib.is_some()),
        ];
        if let (Self::Scaling, Some((argument, _))) =
            (self, for_clients.iter().find(|(_, is_given)| *is_given))
        {
            let what = format!("{argument} is for experiments with clients; scaling has none");
            return Err(Failure::Usage(what));
        }
        match axes.iter().find(|axis| axis.1 > 0 && axis.2 != self) {
            None => Ok(()),
            Some((argument, _, of)) => {
                let (of, name) = (of.name(), self.name());
                let what =
                    format!("{argument} is for the experiment {of}; {name} does not take it");
                Err(Failure::Usage(what))
            }
        }
    }
}

type Point = (Vec<(String, String)>, Work);

fn axis(name: &str, value: impl ToString) -> (String, String) {
    (name.to_owned(), value.to_string())
}

/// Returns the requested values, each once, or the default ones.
fn or_usual<T: Copy + PartialEq>(asked: &[T], usual: &[T]) -> Vec<T> {
    let mut values = Vec::new();
    for value in if asked.is_empty() { usual } else { asked } {
        if !values.contains(value) {
            values.push(*value);
        }
    }
    values
}

fn contention(args: &SystemArgs) -> Vec<Point> {
    let mut points = Vec::new();
    let compressions = or_usual(&args.compression, &[Compression::None]);
    let cpu_loads = or_usual(&args.cpu_load, &[0, 40, 80]);
    for value_bytes in or_usual(&args.value_bytes, &[128, 256, 512, 1024]) {
        for &compression in &compressions {
            for &cpu_load_percent in &cpu_loads {
                let records = Workload {
                    compression,
                    ..records(args, 16, value_bytes as usize, CONTENTION_RECORDS)
                };
                let usual = clients(args, records, 1);
                let work = Clients {
                    operations: records.entries,
                    update_percent: 50,
                    clients: (args.clients)
                        .unwrap_or_else(|| Experiment::Contention.usual_threads()),
                    cpu_load_percent,
                    write_buffer_bytes: match args.write_buffer_kib {
                        Some(_) => usual.write_buffer_bytes,
                        None => usual.write_buffer_bytes.min(CONTENTION_BUFFER_BYTES),
                    },
                    ..usual
                };
                let mut point = vec![axis(VALUE_BYTES, value_bytes)];
                if !args.compression.is_empty() {
                    point.push(axis(COMPRESSION, compression.name()));
                }
                point.push(axis(CPU_LOAD, cpu_load_percent));
                points.push((point, Work::Clients(work)));
            }
        }
    }
    points
}

fn scaling(args: &SystemArgs) -> Vec<Point> {
    let mut points = Vec::new();
    for megabytes in or_usual(&args.job_mb, &[64, 256, 1024, 4096, 16384, 32768]) {
        for at_once in or_usual(&args.at_once, &[1, 2, 4, 8]) {
            let mut workload = records(args, 16, 256, 1.0);
            let bytes = megabytes as f64 * MEGABYTE * args.scale / PERCENT;
            let entries = (bytes / workload.entry_bytes() as f64) as u64;
            workload.entries = entries.max(MIN_RECORDS);
            let spec = DatabaseSpec {
                workload,
                versions: JOB_VERSIONS,
                runs: JOB_RUNS,
                delete_every: None,
                delete_range_every: None,
                operands: false,
                filtered: false,
                above_older: false,
                direct_io: false,
                paranoid: false,
                keys: Keys::Mixed,
                writers: JOB_WRITERS,
                target_file_bytes: JOB_FILE_BYTES,
            };
            let point = vec![axis(JOB_MB, megabytes), axis(AT_ONCE, at_once)];
            points.push((point, Work::Jobs(Jobs { spec, at_once })));
        }
    }
    points
}

fn secondary_index(args: &SystemArgs) -> Vec<Point> {
    let records = records(args, 8, 32, INDEX_RECORDS);
    let operations = u64::from(INDEX_FAMILIES) * records.entries;
    let work = Clients {
        warm_up: operations,
        operations,
        update_percent: INDEX_UPDATE_PERCENT,
        pick: Pick::Uniform,
        ..clients(args, records, INDEX_FAMILIES)
    };
    vec![(Vec::new(), Work::Clients(work))]
}

fn update_ratio(args: &SystemArgs) -> Vec<Point> {
    let mut points = Vec::new();
    for (name, fill) in [("sequential", Order::Sequential), ("random", Order::Random)] {
        for update_percent in or_usual(&args.updates, &[10, 30, 50, 70, 90]) {
            let records = records(args, 16, 1024, RATIO_RECORDS);
            let work = Clients {
                // Clients support only this order of keys.
                keys: Keys::Decimal,
                fill,
                operations: records.entries,
                update_percent,
                ..clients(args, records, 1)
            };
            let point = vec![axis(FILL, name), axis(UPDATES, update_percent)];
            points.push((point, Work::Clients(work)));
        }
    }
    points
}

/// Each pick of keys first without a cache, for all systems, then with each cache for GPUs alone: others have none.
fn steady(args: &SystemArgs) -> Vec<Point> {
    let mut points = Vec::new();
    for (name, pick) in [("uniform", Pick::Uniform), ("zipfian", Pick::Zipfian)] {
        let caches = or_usual(&args.cache_percent, &[10, 40, 100]);
        for percent in std::iter::once(0).chain(caches) {
            let records = records(args, 16, 256, STEADY_RECORDS);
            let data = records.entries * records.entry_bytes() as u64;
            let work = Clients {
                warm_up: records.entries,
                operations: records.entries,
                update_percent: 100,
                pick,
                level_base_bytes: Some(data / STEADY_BASE),
                ..clients(args, records, 1)
            };
            let point = vec![axis(PICK, name), axis(CACHE, percent)];
            points.push((point, Work::Clients(work)));
        }
    }
    points
}

impl Cell {
    /// The cell with the cache that its point states, in percent of the data. `None` for a system without a GPU at a point
    /// with a cache.
    fn with_cache_of_point(self) -> Option<Self> {
        let percent = self.point.iter().find(|(axis, _)| axis == CACHE);
        let percent: u64 = percent?.1.parse().ok()?;
        let Work::Clients(work) = &self.work else {
            return None;
        };
        let data = work.records.entries * work.records.entry_bytes() as u64;
        let tuning = self.tuning.with_device_cache(data * percent / 100);
        (percent == 0 || self.uses_gpu()).then_some(Self { tuning, ..self })
    }
}

/// Returns records for a full-scale number of `full`.
fn records(args: &SystemArgs, key_bytes: usize, value_bytes: usize, full: f64) -> Workload {
    Workload {
        key_bytes,
        value_bytes,
        compression: Compression::None,
        entries: ((full * args.scale / PERCENT) as u64).max(MIN_RECORDS),
    }
}

/// Returns clients that fill at random and do nothing else.
fn clients(args: &SystemArgs, records: Workload, families: u32) -> Clients {
    let usual_bytes = records.entries * records.entry_bytes() as u64 / BUFFERS_OF_RECORDS;
    let usual_bytes = usual_bytes.clamp(*WRITE_BUFFER_BYTES.start(), *WRITE_BUFFER_BYTES.end());
    Clients {
        families,
        records,
        keys: Keys::Mixed,
        fill: Order::Random,
        warm_up: 0,
        operations: 0,
        phase_seconds: args.phase_seconds,
        update_percent: 0,
        pick: Pick::Zipfian,
        clients: args.clients.unwrap_or_else(usual_threads),
        cpu_load_percent: 0,
        interval_ms: args.interval_ms,
        write_buffer_bytes: args.write_buffer_kib.map_or(usual_bytes, |kib| kib * KIB),
        level_base_bytes: None,
        compacts: true,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::system::tests::args;

    #[test]
    fn each_point_has_every_system_side_by_side() {
        let args = args(&["--device", "cpu,cuda:1,cpu,auto"]);
        for (experiment, points) in [
            (Experiment::Contention, 12),
            (Experiment::Scaling, 24),
            (Experiment::SecondaryIndex, 1),
            (Experiment::UpdateRatio, 10),
        ] {
            let cells = experiment.cells(&args).expect("cells");
            let names: BTreeSet<_> = cells.iter().map(Cell::file_stem).collect();
            assert_eq!((cells.len(), names.len()), (4 * points, 4 * points));
            for point in cells.chunks(4) {
                let series: Vec<_> = point.iter().map(Cell::series).collect();
                let expected = [
                    "rocksdb",
                    "rockmill cpu",
                    "rockmill cuda:1",
                    "rockmill auto",
                ];
                assert_eq!(series, expected);
                assert!(point.iter().all(|cell| cell.point == point[0].point));
            }
        }
    }

    #[test]
    fn a_cache_is_measured_only_where_there_is_a_gpu() {
        let args = args(&["--device", "cpu,cuda:1", "--cache-percent", "10,40"]);
        let cells = Experiment::Steady.cells(&args).expect("cells");
        let measured: Vec<_> = cells
            .iter()
            .map(|cell| (cell.point[1].1.as_str(), cell.series()))
            .collect();
        let of_pick = [
            ("0", "rocksdb"),
            ("0", "rockmill cpu"),
            ("0", "rockmill cuda:1"),
            ("10", "rockmill cuda:1"),
            ("40", "rockmill cuda:1"),
        ];
        let of_pick = of_pick.map(|(percent, series)| (percent, series.to_owned()));
        assert_eq!(measured, [of_pick.clone(), of_pick].concat());
        let shares: Vec<_> = cells.iter().map(Cell::simulated_hit_share).collect();
        assert_eq!(shares[2], Some(0.0));
        assert!(shares[3] > Some(0.1) && shares[4] > shares[3], "{shares:?}");
        assert!(shares[5..].iter().all(Option::is_none), "zipfian");
    }

    #[test]
    fn what_is_named_twice_is_measured_once() {
        let twice = args(&["--device", "cpu,cpu", "--updates", "10,90,10"]);
        let cells = Experiment::UpdateRatio.cells(&twice).expect("cells");
        let names: BTreeSet<_> = cells.iter().map(Cell::file_stem).collect();
        assert_eq!((cells.len(), names.len()), (8, 8));
    }

    #[test]
    fn a_bound_is_a_system_of_its_own() {
        let args = args(&["--bound"]);
        let cells = Experiment::Contention.cells(&args).expect("cells");
        let series: Vec<_> = cells[..3].iter().map(Cell::series).collect();
        assert_eq!(series, ["no compaction", "rocksdb", "rockmill cpu"]);
        assert_eq!(cells.len(), 3 * 12);
        let error = Experiment::Scaling.cells(&args).expect_err("no clients");
        assert!(matches!(error, Failure::Usage(what) if what.contains("--bound")));
    }

    #[test]
    fn what_is_asked_for_clients_is_a_setting_of_their_cells() {
        let more = ["--phase-seconds", "7", "--write-buffer-kib", "1024"];
        let (usual, asked) = (args(&[]), args(&more));
        for experiment in [Experiment::SecondaryIndex, Experiment::UpdateRatio] {
            let settings = |args| {
                let cells = experiment.cells(args).expect("cells");
                serde_json::to_value(&cells[0]).expect("JSON")
            };
            let (usual, asked) = (settings(&usual), settings(&asked));
            let of = |cell: &serde_json::Value, name| cell["work"]["clients"][name].as_u64();
            assert_eq!(of(&usual, "phase_seconds"), None);
            assert_eq!(of(&asked, "phase_seconds"), Some(7));
            assert_eq!(of(&asked, "write_buffer_bytes"), Some(1 << 20));
            assert_ne!(usual, asked);
        }
        let error = Experiment::Scaling.cells(&asked).expect_err("no clients");
        assert!(matches!(error, Failure::Usage(what) if what.contains("--phase-seconds")));
    }

    #[test]
    fn a_scale_is_of_records_and_operations_alike() {
        let work = |scale| {
            let args = args(&["--scale", scale, "--rocksdb", "no", "--value-bytes", "1024"]);
            let cells = Experiment::Contention.cells(&args).expect("cells");
            match cells[0].work.clone() {
                Work::Clients(work) => work,
                Work::Jobs(_) => panic!("clients"),
            }
        };
        for (scale, records, buffer_bytes) in [
            ("100", 10_000_000, 4 << 20),
            ("1", 100_000, 100_000 * 1040 / 64),
            ("0.0001", 1000, 64 << 10),
        ] {
            let work = work(scale);
            assert_eq!((work.records.entries, work.operations), (records, records));
            assert_eq!(work.write_buffer_bytes, buffer_bytes, "{scale}");
        }
    }
}

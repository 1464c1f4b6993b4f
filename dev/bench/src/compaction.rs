//! `rockmill-bench compaction`: one manual compaction, by each system with each number of threads.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ArgAction;
use clap::builder::BoolishValueParser;
use rockmill::{DeviceList, OutputCache};
use rockmill_side_by_side::compare::{self, Compared};
use rockmill_side_by_side::database::Origin;
use rockmill_side_by_side::device::Tuning;
use rockmill_side_by_side::energy::Energy;
use rockmill_side_by_side::jobs::JobTimes;
use rockmill_side_by_side::machine::usual_threads;
use rockmill_side_by_side::measure::Measured;
use rockmill_side_by_side::row::{self, Row};
use rockmill_side_by_side::run_config::RunConfig;
use rockmill_side_by_side::scratch;
use rockmill_side_by_side::spec::{DatabaseSpec, Keys};
use rockmill_side_by_side::stages::{self, Stage};
use rockmill_side_by_side::system::System;
use rockmill_side_by_side::worker::Worker;
use rockmill_side_by_side::workload::Workload;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::{output, signals};
use serde::Serialize;

use crate::devices;
use crate::floor::DiskFloor;

/// Threads that fill a database.
const WRITERS: u64 = 16;

/// Arguments of `rockmill-bench compaction`.
#[derive(Debug, clap::Args)]
pub struct CompactionArgs {
    /// Entries to compact: KEYxVALUE[:none|lz4|lz4hc|zstd|snappy][:ENTRIES], such as 16x256:lz4:40M. The default is no
    /// compression and 1 GB in total. May be repeated.
    #[arg(long, required = true, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Mean number of entries per key; with 1, no key is written twice.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    versions: u64,
    /// Files of level 0 to merge.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// One entry in N is a Delete [default: none].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    delete_every: Option<u32>,
    /// One entry in N is a range tombstone over some neighbouring keys [default: none].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    delete_range_every: Option<u32>,
    /// Write values as merge operands of RocksDB's operator uint64add, which adds those of 8 bytes.
    #[arg(long)]
    operands: bool,
    /// Let both systems call a compaction filter that keeps every entry. Jobs then have one subcompaction.
    #[arg(long)]
    filter: bool,
    /// Compact level 0 with older entries in the last level, so that Deletes and sequence numbers stay.
    #[arg(long)]
    not_bottommost: bool,
    /// Compact everything once more in one job, and measure that: its input is what the first compaction has written. A GPU
    /// may have that in its memory.
    #[arg(long, conflicts_with = "not_bottommost")]
    again: bool,
    /// Use direct I/O (use_direct_reads, use_direct_io_for_flush_and_compaction).
    #[arg(long)]
    direct: bool,
    /// Let both systems hash each file entry by entry while writing it, and compare the hash after reading the file
    /// back (paranoid_file_checks).
    #[arg(long)]
    paranoid: bool,
    /// Also measure how long the disk alone takes to make the same number of bytes durable as the first system wrote.
    /// One measurement per repetition; the shortest counts.
    #[arg(long)]
    floor: bool,
    /// Threads of each system: subcompactions in flight for Rockmill, subcompactions for RocksDB [default: all cores].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Devices that Rockmill computes on: cpu, cuda, cuda:N, sim:NAME or sim:FILE.json (no + or , in its name), several
    /// joined by +, or auto.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    device: Vec<String>,
    #[command(flatten)]
    tuning: Tuning,
    /// Also let each of Rockmill's devices compact with the other --output-cache.
    #[arg(long, value_name = "database|bypass", value_delimiter = ',')]
    also: Vec<OutputCache>,
    /// Show the time by stage of Rockmill's median run, the bytes copied over PCIe, and its number of jobs and their times.
    #[arg(long)]
    profile: bool,
    /// Sizes in MiB of the files to write.
    #[arg(long, default_value = "64", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=65536))]
    target_file_mib: Vec<u64>,
    /// Folder for the databases, which are removed at the end [default: the system's folder for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Compactions per row, which shows the run with the median time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Whether RocksDB compacts too; without it, results are not compared.
    #[arg(long, value_name = "yes|no", default_value = "yes", action = ArgAction::Set,
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    rocksdb: bool,
    /// Do not compare the results.
    #[arg(long)]
    no_compare: bool,
    /// Print rows as JSON.
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct BenchRow {
    #[serde(flatten)]
    row: Row,
    versions: u64,
    runs: u64,
    delete_every: Option<u32>,
    delete_range_every: Option<u32>,
    operands: bool,
    filter: bool,
    not_bottommost: bool,
    direct_io: bool,
    paranoid: bool,
    /// Whether output goes through the page cache; `null` for RocksDB, where only its options decide.
    output_cache: Option<String>,
    /// Whether a GPU may compress by Rockmill's own code; `null` for RocksDB.
    device_compression: Option<bool>,
    cpu_s_per_gb: f64,
    /// Times of all repetitions, in order. The row shows the median run with the highest peak memory. The first time
    /// includes the one-time setup of a service.
    walls_s: Vec<f64>,
    /// Stages of the median run.
    stages: Vec<Stage>,
    #[serde(flatten)]
    jobs: JobTimes,
    pcie_to_device_bytes: u64,
    pcie_from_device_bytes: u64,
    /// Energy of the GPU; `null` without a GPU, or if it does not report its energy.
    gpu_joules: Option<f64>,
    /// Times of the disk alone for the same number of bytes, if measured.
    floor: Option<DiskFloor>,
    #[serde(skip)]
    energy: Option<Energy>,
}

/// A config and its results so far.
#[derive(Debug)]
struct Cell {
    config: RunConfig,
    worker: Worker,
    measured: Vec<Measured>,
    /// Whether the first repetition's result equals RocksDB's.
    identical: Option<bool>,
    /// Times of the disk alone.
    floor: Option<DiskFloor>,
    /// Output cache, if it differs between cells.
    way: Option<OutputCache>,
}

/// Runs the measurements.
pub fn run(args: &CompactionArgs) -> Result<(), Failure> {
    let devices = args
        .device
        .iter()
        .map(|device| devices::parse(device))
        .collect::<Result<Vec<DeviceList>, Failure>>()?;
    signals::catch()?;
    let mut rows = output::Rows::new(args.json);
    let measured = measure_all(args, &devices, &mut rows);
    let measured = signals::or_stopped(measured, "its databases are removed");
    rows.finish()?;
    measured?.map_or(Ok(()), |what| Err(Failure::Data(what)))
}

/// Measures all workloads and returns the first difference between results.
fn measure_all(
    args: &CompactionArgs,
    devices: &[DeviceList],
    rows: &mut output::Rows,
) -> Result<Option<String>, Failure> {
    let mut first_difference = None;
    for &workload in &args.workload {
        let spec = DatabaseSpec {
            workload,
            versions: args.versions,
            runs: args.runs,
            delete_every: args.delete_every,
            delete_range_every: args.delete_range_every,
            operands: args.operands,
            filtered: args.filter,
            above_older: args.not_bottommost,
            direct_io: args.direct,
            paranoid: args.paranoid,
            keys: Keys::Mixed,
            writers: WRITERS,
            target_file_bytes: args.target_file_mib[0] << 20,
        };
        let mut cells = cells(args, &spec, devices)?;
        let difference = scratch::in_scratch(args.dir.as_deref(), |scratch| {
            measure(args, scratch, &spec, &mut cells, rows)
        })?;
        first_difference = first_difference.or(difference);
        if !args.json {
            let of_workload: Vec<_> = cells.iter().map(Cell::row).collect();
            print_table(&spec, &of_workload, args.profile)?;
        }
    }
    Ok(first_difference)
}

/// Returns every system with every number of threads and file size, RocksDB first.
fn cells(
    args: &CompactionArgs,
    spec: &DatabaseSpec,
    devices: &[DeviceList],
) -> Result<Vec<Cell>, Failure> {
    let threads = match args.threads.as_slice() {
        [] => vec![usual_threads()],
        threads => threads.to_vec(),
    };
    let mut systems = Vec::new();
    if args.rocksdb {
        systems.push((System::Rocksdb, None));
    }
    for &device in devices {
        let way = args.tuning.output_cache;
        let other = args.also.iter().copied().find(|&other| other != way);
        let ways = [Some(way), other].into_iter().flatten();
        systems.extend(ways.map(|way| (System::Rockmill(device), Some(way))));
    }
    let mut cells = Vec::new();
    for mib in &args.target_file_mib {
        for &threads in &threads {
            for &(system, way) in &systems {
                let config = RunConfig {
                    system,
                    spec: DatabaseSpec {
                        target_file_bytes: mib << 20,
                        ..spec.clone()
                    },
                    threads,
                    tuning: way.map_or_else(|| args.tuning.clone(), |way| args.tuning.with(way)),
                    again: args.again,
                };
                cells.push(Cell {
                    worker: Worker::start(&config)?,
                    config,
                    measured: Vec::new(),
                    identical: None,
                    floor: None,
                    way: way.filter(|_| !args.also.is_empty()),
                });
            }
        }
    }
    Ok(cells)
}

/// Measures all cells of a workload and returns the first difference between their results. Each repetition measures
/// all cells, so that a machine that becomes slower affects all of them. The last repetition prints each row as soon as
/// it is measured.
fn measure(
    args: &CompactionArgs,
    scratch: &Path,
    spec: &DatabaseSpec,
    cells: &mut [Cell],
    rows: &mut output::Rows,
) -> Result<Option<String>, Failure> {
    let origin = Origin::make(scratch.join("origin"), spec)?;
    origin.warm()?;
    let mut reference: Option<PathBuf> = None;
    let mut first_difference = None;
    let mut floor = None;
    for repetition in 0..args.repeat {
        for (number, cell) in cells.iter_mut().enumerate() {
            let copy = scratch.join(format!("{repetition}-{number}"));
            origin.copy_to(&copy)?;
            let measured = cell.worker.compact(&copy)?;
            if args.floor && number == 0 {
                let (bytes_in, bytes_out) = (measured.bytes_in, measured.bytes_out);
                let threads = cell.config.threads;
                let now = DiskFloor::measure(scratch, bytes_in, bytes_out, threads)?;
                floor = Some(floor.map_or(now, |before: DiskFloor| before.least(now)));
            }
            cell.floor = floor;
            cell.measured.push(measured);
            let is_rocksdb = cell.config.system == System::Rocksdb;
            let mut keeps = false;
            if is_rocksdb && reference.is_none() && !args.no_compare {
                reference = Some(copy.clone());
                keeps = true;
            } else if let (Some(rocksdb), 0, false) = (&reference, repetition, is_rocksdb) {
                let difference = cell.compare(rocksdb, &copy)?;
                first_difference = first_difference.or(difference);
            }
            if repetition + 1 == args.repeat {
                rows.print(&cell.row())?;
            }
            if !keeps {
                // Keeps on disk only the two results that are compared.
                fs::remove_dir_all(&copy)
                    .map_err(|e| Failure::Environment(format!("{}: {e}", copy.display())))?;
            }
        }
    }
    Ok(first_difference)
}

impl Cell {
    /// Returns how this cell's result differs from RocksDB's.
    fn compare(&mut self, rocksdb: &Path, ours: &Path) -> Result<Option<String>, Failure> {
        let difference = match compare::databases(rocksdb, ours)? {
            Compared::Same(_) => None,
            Compared::Different(how) => Some(how),
        };
        self.identical = Some(difference.is_none());
        let RunConfig {
            system,
            spec,
            threads,
            ..
        } = &self.config;
        Ok(difference.map(|difference| {
            let (workload, device) = (spec.name(), system.device());
            format!(
                "{workload}: the results differ on {device} with {threads} threads: {difference}"
            )
        }))
    }

    fn row(&self) -> BenchRow {
        let RunConfig {
            system,
            spec,
            tuning,
            ..
        } = &self.config;
        let (is_rockmill, median) = (*system != System::Rocksdb, median(&self.measured));
        let peaks = self.measured.iter().map(|m| m.peak_memory_bytes);
        let measured = Measured {
            peak_memory_bytes: peaks.max().unwrap_or_default(),
            ..median.clone()
        };
        let mut row = Row::new(&self.config, &measured, self.identical);
        row.way = self.way.map(|way| way.to_string()).unwrap_or_default();
        let (pcie_to_device_bytes, pcie_from_device_bytes) = stages::link_bytes(&measured.stages);
        BenchRow {
            versions: spec.versions,
            runs: spec.runs,
            delete_every: spec.delete_every,
            delete_range_every: spec.delete_range_every,
            operands: spec.operands,
            filter: spec.filtered,
            not_bottommost: spec.above_older,
            direct_io: spec.direct_io,
            paranoid: spec.paranoid,
            output_cache: is_rockmill.then(|| tuning.output_cache.to_string()),
            device_compression: is_rockmill.then_some(tuning.device_compression),
            cpu_s_per_gb: row.cpu_s_per_gb(),
            walls_s: self.measured.iter().map(|m| m.wall_s).collect(),
            stages: measured.stages,
            jobs: measured.jobs,
            pcie_to_device_bytes,
            pcie_from_device_bytes,
            floor: self.floor,
            gpu_joules: measured.energy.as_ref().and_then(Energy::joules),
            energy: measured.energy,
            row,
        }
    }
}

/// Returns the run with the median time; for an even number of runs, the faster of the two in the middle.
fn median(measured: &[Measured]) -> &Measured {
    let mut sorted: Vec<_> = measured.iter().collect();
    sorted.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    sorted[(sorted.len() - 1) / 2]
}

fn print_table(spec: &DatabaseSpec, rows: &[BenchRow], profile: bool) -> Result<(), Failure> {
    output::to_stdout(|out| {
        let mut without = vec![row::DROPPED];
        if rows.iter().all(|row| row.row.way.is_empty()) {
            without.push(row::WAY);
        }
        let shown: Vec<_> = rows.iter().map(|row| &row.row).collect();
        let table = row::table(&shown, &without);
        writeln!(out, "{}\n{table}", spec.name())?;
        for note in rows.iter().filter_map(|row| row.row.note()) {
            writeln!(out, "{note}")?;
        }
        if let Some(floor) = rows.iter().find_map(|row| row.floor) {
            writeln!(out, "{}", floor.summary())?;
        }
        for row in rows.iter().filter(|row| profile && !row.stages.is_empty()) {
            let (device, threads) = (&row.row.device, row.row.threads);
            let stages = stages::table(&row.stages, row.row.wall_s);
            let (cpu_s, energy) = (row.row.cpu_s, row.energy.as_ref());
            let summary = stages::summary(&row.stages, cpu_s, row.cpu_s_per_gb, energy);
            writeln!(
                out,
                "{device}, {threads} subcompactions at once\n{stages}\n{summary}\n{}",
                row.jobs
            )?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_repetitions() {
        let median_of = |walls: &[f64]| {
            let measured = |&wall_s: &f64| Measured {
                wall_s,
                ..Measured::default()
            };
            let all: Vec<_> = walls.iter().map(measured).collect();
            median(&all).wall_s
        };
        assert_eq!(median_of(&[7.0]), 7.0);
        assert_eq!(median_of(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median_of(&[4.0, 1.0, 3.0, 2.0]), 2.0);
    }
}

//! `rockmill-bench scan`: queries over a database, by each system that can answer them.

mod data;
mod queries;
mod systems;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use rockmill_side_by_side::energy::{self, Energy, EnergyMeter};
use rockmill_side_by_side::machine::{process_cpu, processor, usual_threads};
use rockmill_side_by_side::progress;
use rockmill_side_by_side::scratch;
use rockmill_side_by_side::workload::Compression;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;
use rust_rocksdb::DB;
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::devices;
use crate::system::plot::{Bars, bars_svg};
use data::State;
use queries::Experiment;
use systems::{Limits, System};

/// Arguments of `rockmill-bench scan`.
#[derive(Debug, clap::Args)]
pub struct ScanArgs {
    /// Queries to run [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    experiment: Vec<Experiment>,
    /// Scale of TPC-H; `ycsb` has 5 M rows for each unit of it.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// State of the rows.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "settled")]
    state: Vec<State>,
    /// Compression of the files: none, lz4, snappy or zstd.
    #[arg(long, default_value = "none")]
    compression: Compression,
    /// Read files with direct I/O (use_direct_reads).
    #[arg(long)]
    direct: bool,
    /// Devices that Rockmill computes on: cpu, cuda, cuda:N or auto.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    device: Vec<String>,
    /// Threads of each system [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Maximum host memory of Rockmill's scans, in MiB.
    #[arg(long, default_value_t = 4096)]
    memory_mib: u64,
    /// GPU memory for files and what scans decode, in MiB; 0 caches nothing.
    #[arg(long, default_value_t = 0)]
    device_cache_mib: u64,
    /// Runs of each query by each system, after one that does not count. The row shows the run with the median time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Also export the tables to Parquet files, and let DataFusion query these.
    #[arg(long)]
    parquet: bool,
    /// Folder for the databases, which are removed at the end [default: the system's folder for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Folder for `scan.json`, and for the plot `scan.svg`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print rows as JSON.
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct ScanRow {
    experiment: &'static str,
    state: &'static str,
    compression: &'static str,
    direct_reads: bool,
    scale: f64,
    threads: usize,
    processor: String,
    system: String,
    /// Wall time of the run with the median time.
    wall_s: f64,
    cpu_s: f64,
    gpu_energy: Option<Energy>,
    /// Wall times of all runs that count, in their order, and that of the run before.
    walls_s: Vec<f64>,
    first_run_s: f64,
    device_cache_mib: u64,
    /// Seconds to export the tables, if the system needs that.
    export_s: Option<f64>,
    /// Stored bytes of the database's files that the query needs, even if the system reads fewer or more.
    gb: f64,
    gb_per_s: f64,
    cpu_s_per_gb: f64,
    /// Wall time of the first system divided by this one's.
    times: f64,
    /// Whether the rows are those of the first system.
    same: bool,
}

/// A run of a query.
struct Run {
    wall_s: f64,
    cpu_s: f64,
    energy: Option<Energy>,
}

/// Runs `rockmill-bench scan`.
///
/// # Errors
/// Data if results differ, Usage for an invalid argument, Environment if the machine refuses.
pub fn run(args: &ScanArgs) -> Result<(), Failure> {
    let experiments = match &args.experiment[..] {
        [] => Experiment::ALL.to_vec(),
        some => some.to_vec(),
    };
    let runtime = Runtime::new().map_err(|e| Failure::Environment(format!("no threads: {e}")))?;
    let mut rows = Vec::new();
    scratch::in_scratch(args.dir.as_deref(), |folder| {
        let mut datasets: Vec<_> = experiments.iter().map(|e| e.dataset()).collect();
        datasets.sort_unstable();
        datasets.dedup();
        for dataset in datasets {
            let of_dataset = experiments.iter().copied();
            let of_dataset: Vec<_> = of_dataset.filter(|e| e.dataset() == dataset).collect();
            let path = folder.join("database");
            let db = data::make(&path, dataset, args.scale, args.compression, args.direct)?;
            for &state in &args.state {
                if state == State::Live {
                    data::write_again(&db, &tables(&of_dataset))?;
                }
                let parquet = folder.join("parquet");
                measure_all(args, &runtime, &db, state, &of_dataset, &parquet, &mut rows)?;
            }
            drop(db);
            let removed = fs::remove_dir_all(&path);
            removed.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
        }
        Ok(())
    })?;
    print(args, &rows)?;
    match rows.iter().find(|row| !row.same) {
        None => Ok(()),
        Some(row) => Err(Failure::Data(format!(
            "{} answers {} with other rows",
            row.system, row.experiment
        ))),
    }
}

/// The tables that some queries read.
fn tables(experiments: &[Experiment]) -> Vec<&'static str> {
    let mut tables: Vec<_> = experiments
        .iter()
        .flat_map(|e| e.tables())
        .copied()
        .collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

fn measure_all(
    args: &ScanArgs,
    runtime: &Runtime,
    db: &Arc<DB>,
    state: State,
    experiments: &[Experiment],
    parquet: &Path,
    rows: &mut Vec<ScanRow>,
) -> Result<(), Failure> {
    let limits = Limits {
        threads: args.threads.unwrap_or_else(usual_threads) as usize,
        memory_bytes: args.memory_mib << 20,
        device_cache_bytes: args.device_cache_mib << 20,
    };
    let named = args.device.iter().map(|name| devices::parse(name));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let mut systems = runtime.block_on(systems::of_rocksdb(db, &named, limits))?;
    let mut export_s = None;
    if args.parquet {
        let from = systems
            .last()
            .expect("RocksDB's iterators are always there");
        let began = Instant::now();
        let exported = runtime.block_on(from.export(parquet, &tables(experiments), limits));
        systems.push(exported?);
        export_s = Some(began.elapsed().as_secs_f64());
    }
    for &experiment in experiments {
        let gb = runtime.block_on(systems[0].bytes(experiment))? as f64 / 1e9;
        let mut first: Option<(f64, String)> = None;
        for system in &systems {
            let spinner = progress::spinner(format!("{}: {}", experiment.name(), system.name));
            let (run, mut walls_s, answer) = measure(system, runtime, experiment, args.repeat)?;
            let first_run_s = walls_s.remove(0);
            spinner.finish_and_clear();
            let (first_wall_s, expected) = first.get_or_insert((run.wall_s, answer.clone()));
            rows.push(ScanRow {
                experiment: experiment.name(),
                state: state.name(),
                compression: args.compression.name(),
                direct_reads: args.direct,
                scale: args.scale,
                threads: limits.threads,
                processor: processor(),
                system: system.name.clone(),
                wall_s: run.wall_s,
                cpu_s: run.cpu_s,
                gpu_energy: run.energy,
                walls_s,
                first_run_s,
                device_cache_mib: args.device_cache_mib,
                export_s: export_s.filter(|_| system.reads_export),
                gb,
                gb_per_s: gb / run.wall_s,
                cpu_s_per_gb: run.cpu_s / gb,
                times: *first_wall_s / run.wall_s,
                same: *expected == answer,
            });
        }
    }
    drop(systems);
    if args.parquet {
        let removed = fs::remove_dir_all(parquet);
        removed.map_err(|e| Failure::Environment(format!("{}: {e}", parquet.display())))?;
    }
    Ok(())
}

/// The run with the median time; the times of all, that of the one that does not count first; and the rows as text.
fn measure(
    system: &System,
    runtime: &Runtime,
    experiment: Experiment,
    repeat: u32,
) -> Result<(Run, Vec<f64>, String), Failure> {
    let meter = EnergyMeter::new(system.device);
    let answer = || runtime.block_on(system.answer(experiment));
    // Opens files, warms up devices, and allocates memory.
    let began = Instant::now();
    let first = answer()?;
    let first_s = began.elapsed().as_secs_f64();
    let expected = text(&first)?;
    let mut runs = Vec::new();
    for _ in 0..repeat {
        let (began, cpu) = (Instant::now(), process_cpu());
        let (answered, energy) = energy::measured(&meter, answer);
        answered?;
        runs.push(Run {
            wall_s: began.elapsed().as_secs_f64(),
            cpu_s: process_cpu().saturating_sub(cpu).as_secs_f64(),
            energy,
        });
    }
    let walls_s = std::iter::once(first_s).chain(runs.iter().map(|run| run.wall_s));
    let walls_s = walls_s.collect();
    runs.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
    Ok((runs.swap_remove(runs.len() / 2), walls_s, expected))
}

fn text(batches: &[RecordBatch]) -> Result<String, Failure> {
    let text = pretty_format_batches(batches);
    let text = text.map_err(|e| Failure::Data(format!("cannot compare rows: {e}")))?;
    Ok(text.to_string())
}

fn print(args: &ScanArgs, rows: &[ScanRow]) -> Result<(), Failure> {
    if let Some(folder) = &args.out {
        let text = serde_json::to_string_pretty(rows)
            .map_err(|e| Failure::Environment(format!("cannot print: {e}")))?;
        let plot = plot(rows).map_err(Failure::Environment)?;
        for (name, text) in [("scan.json", text + "\n"), ("scan.svg", plot)] {
            let path = folder.join(name);
            let written = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
            written.map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
        }
    }
    output::document_or_text(args.json, rows, |out| {
        let header = [
            "query", "state", "system", "wall s", "GB/s", "CPU s/GB", "times", "rows",
        ];
        let mut table = output::table(header);
        for row in rows {
            table.add_row([
                row.experiment.to_owned(),
                row.state.to_owned(),
                row.system.clone(),
                format!("{:.3}", row.wall_s),
                format!("{:.2}", row.gb_per_s),
                format!("{:.2}", row.cpu_s_per_gb),
                format!("{:.1}", row.times),
                if row.same { "same" } else { "DIFFER" }.to_owned(),
            ]);
        }
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    })
}

/// The speed of each system, a chart for each query and state.
fn plot(rows: &[ScanRow]) -> Result<String, String> {
    const COLUMNS: usize = 2;
    let charts = rows.chunk_by(|a, b| (a.experiment, a.state) == (b.experiment, b.state));
    let charts = charts.map(|rows| Bars {
        title: format!("{}, {}", rows[0].experiment, rows[0].state),
        x: "GB/s of the database's files".to_owned(),
        bars: rows
            .iter()
            .map(|row| (row.system.clone(), row.gb_per_s))
            .collect(),
    });
    bars_svg(&charts.collect::<Vec<_>>(), COLUMNS)
}

//! `rockmill-bench scan`: queries over a database, by each system that can answer them.

mod data;
mod duckdb;
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
    /// Queries to run: filter-int, filter-string, ycsb, q1 to q22 of TPC-H, or tpch for all of these [default: the first
    /// three, and q1, q4, q6, q14 and q15].
    #[arg(long = "experiment", value_name = "NAME", value_delimiter = ',')]
    experiments: Vec<String>,
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
    /// Host memory for columns that scans on the CPU have parsed, in MiB; 0 keeps none.
    #[arg(long, default_value_t = 0)]
    cache_mib: u64,
    /// Runs of each query by each system, after one that does not count. The row shows the run with the median time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Also export the tables to Parquet files, and let DataFusion query these.
    #[arg(long)]
    parquet: bool,
    /// Also let DataFusion query the tables as batches in memory.
    #[arg(long)]
    in_memory: bool,
    /// Python with the package duckdb, which also queries the files of --parquet. Its number of rows is compared.
    #[arg(long, value_name = "PYTHON", requires = "parquet")]
    duckdb: Option<PathBuf>,
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
    experiment: String,
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
    cache_mib: u64,
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

/// The runs of a query by a system.
struct Runs {
    /// The one with the median time.
    median: Run,
    first_wall_s: f64,
    /// Wall times of those that count, in their order.
    walls_s: Vec<f64>,
}

/// Runs `rockmill-bench scan`.
///
/// # Errors
/// Data if results differ, Usage for an invalid argument, Environment if the machine refuses.
pub fn run(args: &ScanArgs) -> Result<(), Failure> {
    let named = args.experiments.iter().map(|name| Experiment::named(name));
    let named = named.collect::<Result<Vec<_>, _>>();
    let named = named.map_err(Failure::Usage)?.concat();
    let experiments = match &named[..] {
        [] => Experiment::USUAL.to_vec(),
        _ => named,
    };
    // Before minutes of work.
    if let Some(out) = &args.out {
        fs::create_dir_all(out).map_err(|e| Failure::of_path(out, &e))?;
    }
    args.duckdb.as_deref().map_or(Ok(()), duckdb::check)?;
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
    let mut tables: Vec<_> = experiments.iter().flat_map(|e| e.tables()).collect();
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
        cache_bytes: args.cache_mib << 20,
        device_cache_bytes: args.device_cache_mib << 20,
    };
    let named = args.device.iter().map(|name| devices::parse(name));
    let named = named.collect::<Result<Vec<_>, _>>()?;
    let mut systems = runtime.block_on(systems::of_rocksdb(db, &named, limits))?;
    let from = systems
        .last()
        .expect("RocksDB's iterators are always there");
    let mut others = Vec::new();
    let mut export_s = None;
    if args.parquet {
        let began = Instant::now();
        others.push(runtime.block_on(from.export(parquet, &tables(experiments), limits))?);
        export_s = Some(began.elapsed().as_secs_f64());
    }
    if args.in_memory {
        others.push(runtime.block_on(from.in_memory(&tables(experiments), limits))?);
    }
    systems.append(&mut others);
    for &experiment in experiments {
        let gb = runtime.block_on(systems[0].bytes(experiment))? as f64 / 1e9;
        let statements = experiment.statements(args.scale);
        let mut first: Option<(f64, Vec<RecordBatch>)> = None;
        let mut add = |system: &str, reads_export: bool, runs: Runs, same: bool, first_s: f64| {
            rows.push(ScanRow {
                experiment: experiment.name(),
                state: state.name(),
                compression: args.compression.name(),
                direct_reads: args.direct,
                scale: args.scale,
                threads: limits.threads,
                processor: processor(),
                system: system.to_owned(),
                wall_s: runs.median.wall_s,
                cpu_s: runs.median.cpu_s,
                gpu_energy: runs.median.energy,
                walls_s: runs.walls_s,
                first_run_s: runs.first_wall_s,
                cache_mib: args.cache_mib,
                device_cache_mib: args.device_cache_mib,
                export_s: export_s.filter(|_| reads_export),
                gb,
                gb_per_s: gb / runs.median.wall_s,
                cpu_s_per_gb: runs.median.cpu_s / gb,
                times: first_s / runs.median.wall_s,
                same,
            });
        };
        for system in &systems {
            let spinner = progress::spinner(format!("{}: {}", experiment.name(), system.name));
            let (runs, answer) = measure(system, runtime, &statements, args.repeat)?;
            spinner.finish_and_clear();
            let (first_s, expected) =
                first.get_or_insert_with(|| (runs.median.wall_s, answer.clone()));
            let same = text(expected)? == text(&answer)?;
            add(&system.name, system.reads_export, runs, same, *first_s);
        }
        if let (Some(python), Some((first_s, expected))) = (&args.duckdb, first) {
            let (runs, found) = duckdb::run(python, parquet, &statements, limits, args.repeat)?;
            let same = found == expected.iter().map(RecordBatch::num_rows).sum::<usize>();
            add("DuckDB", true, runs, same, first_s);
        }
    }
    drop(systems);
    if args.parquet {
        let removed = fs::remove_dir_all(parquet);
        removed.map_err(|e| Failure::Environment(format!("{}: {e}", parquet.display())))?;
    }
    Ok(())
}

/// The runs of a query, and its rows.
fn measure(
    system: &System,
    runtime: &Runtime,
    statements: &[String],
    repeat: u32,
) -> Result<(Runs, Vec<RecordBatch>), Failure> {
    let meter = EnergyMeter::new(system.device);
    let answer = || runtime.block_on(system.answer(statements));
    // Opens files, warms up devices, and allocates memory.
    let began = Instant::now();
    let rows = answer()?;
    let first_wall_s = began.elapsed().as_secs_f64();
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
    Ok((Runs::new(first_wall_s, runs), rows))
}

impl Runs {
    fn new(first_wall_s: f64, mut runs: Vec<Run>) -> Self {
        let walls_s = runs.iter().map(|run| run.wall_s).collect();
        runs.sort_by(|a, b| a.wall_s.total_cmp(&b.wall_s));
        Self {
            median: runs.swap_remove(runs.len() / 2),
            first_wall_s,
            walls_s,
        }
    }
}

/// The rows, in an order of their own: a query may leave it open.
fn text(batches: &[RecordBatch]) -> Result<String, Failure> {
    let text = pretty_format_batches(batches);
    let text = text.map_err(|e| Failure::Data(format!("cannot compare rows: {e}")))?;
    let text = text.to_string();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

fn print(args: &ScanArgs, rows: &[ScanRow]) -> Result<(), Failure> {
    if let Some(folder) = &args.out {
        let text = serde_json::to_string_pretty(rows)
            .map_err(|e| Failure::Environment(format!("cannot print: {e}")))?;
        let plot = plot(rows).map_err(Failure::Environment)?;
        for (name, text) in [("scan.json", text + "\n"), ("scan.svg", plot)] {
            let path = folder.join(name);
            fs::write(&path, text).map_err(|e| Failure::of_path(&path, &e))?;
        }
    }
    output::document_or_text(args.json, rows, |out| {
        let header = [
            "query", "state", "system", "wall s", "GB/s", "CPU s/GB", "times", "rows",
        ];
        let mut table = output::table(header);
        for row in rows {
            table.add_row([
                row.experiment.clone(),
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
    let charts = rows.chunk_by(|a, b| (&a.experiment, a.state) == (&b.experiment, b.state));
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

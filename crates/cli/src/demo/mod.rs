//! `rockmill demo`: the same files compacted twice, side by side.

mod compare;
mod database;
mod measure;

use std::path::PathBuf;

use comfy_table::{CellAlignment, Table, presets};
use rust_rocksdb::DB;
use serde::Serialize;

use crate::outcome::Failure;
use crate::output;
use measure::Measured;

/// What `rockmill demo` takes.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Puts and Deletes to write.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    entries: u64,
    /// Threads of each system: slices in flight for Rockmill, subcompactions for RocksDB
    /// [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Folder for the databases, which are removed at the end [default: the system's for temporary
    /// files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print rows for machines.
    #[arg(long)]
    json: bool,
}

/// One line of the result.
#[derive(Debug, Serialize)]
struct Row {
    workload: String,
    system: &'static str,
    device: &'static str,
    threads: u32,
    wall_s: f64,
    cpu_s: f64,
    bytes_in: u64,
    bytes_out: u64,
    gb_per_s: f64,
    /// Growth of the process's resident memory while compacting.
    peak_memory_bytes: u64,
    identical: bool,
    #[serde(skip)]
    entries_dropped: u64,
}

/// Runs the demo.
pub fn run(args: DemoArgs) -> Result<(), Failure> {
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get() as u32));
    let parent = args.dir.unwrap_or_else(std::env::temp_dir);
    let scratch = tempfile::Builder::new()
        .prefix("rockmill-demo-")
        .tempdir_in(&parent)
        .map_err(|e| {
            Failure::Environment(format!(
                "cannot make a folder in {}: {e}; name another with --dir",
                parent.display()
            ))
        })?;
    let origin = scratch.path().join("origin");
    let copies = database::make(&origin, scratch.path(), args.entries)?;
    let service = rockmill::Service::builder()
        .threads(threads as usize)
        .filter_bits_per_key(database::BLOOM_BITS_PER_KEY)
        .build()
        .map_err(|e| Failure::Usage(e.to_string()))?;
    let local = measure::compact(&copies.rocksdb, &database::options(threads), "RocksDB")?;
    if local.files_in_level_0 > 0 {
        let what = "RocksDB could not compact: is the disk full?";
        return Err(Failure::Environment(what.to_owned()));
    }
    let mut offloaded = database::options(1);
    offloaded.set_compaction_service(service.clone());
    let ours = measure::compact(&copies.rockmill, &offloaded, "Rockmill")?;
    check_stats(&service.stats())?;
    let difference = compare::databases(&copies.rocksdb, &copies.rockmill)?;
    let identical = difference.is_none();
    let workload = database::workload_name(args.entries);
    let row = |system, threads, measured: Measured| Row {
        workload: workload.clone(),
        system,
        device: "cpu",
        threads,
        wall_s: measured.wall_s,
        cpu_s: measured.cpu_s,
        bytes_in: measured.bytes_in,
        bytes_out: measured.bytes_out,
        gb_per_s: (measured.bytes_in + measured.bytes_out) as f64 / measured.wall_s / 1e9,
        peak_memory_bytes: measured.peak_memory_bytes,
        identical,
        entries_dropped: measured.entries_in.saturating_sub(measured.entries_out),
    };
    let rows = [
        row("rocksdb", threads, local),
        row("rockmill", threads, ours),
    ];
    print(&rows, args.json)?;
    match difference {
        None => Ok(()),
        Some(difference) => Err(Failure::Data(format!("the results differ: {difference}"))),
    }
}

/// Looks whether Rockmill did all of the work.
fn check_stats(stats: &rockmill::Stats) -> Result<(), Failure> {
    if stats.jobs_failed > 0 {
        let error = stats.last_error.as_deref().unwrap_or("no reason is known");
        let what = format!("Rockmill could not compact: {error}");
        let is_storage = ["cannot make", "cannot write", "cannot sync"]
            .iter()
            .any(|doing| error.contains(doing));
        return Err(match is_storage {
            true => Failure::Environment(what),
            false => Failure::Data(what),
        });
    }
    if stats.jobs_done == 0 || stats.jobs_done != stats.jobs_scheduled {
        return Err(Failure::Data(format!(
            "RocksDB did not take Rockmill's work:\n{stats}"
        )));
    }
    Ok(())
}

fn print(rows: &[Row], json: bool) -> Result<(), Failure> {
    output::to_stdout(|out| {
        if json {
            serde_json::to_writer_pretty(&mut *out, rows)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{}\n{}", rows[0].workload, table(rows))?;
        }
        Ok(())
    })
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "system",
        "threads",
        "wall s",
        "CPU s",
        "MB in",
        "MB out",
        "GB/s",
        "peak MB",
        "dropped",
        "identical",
    ]);
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for row in rows {
        table.add_row([
            row.system.to_owned(),
            row.threads.to_string(),
            format!("{:.2}", row.wall_s),
            format!("{:.2}", row.cpu_s),
            mb(row.bytes_in),
            mb(row.bytes_out),
            format!("{:.3}", row.gb_per_s),
            mb(row.peak_memory_bytes),
            row.entries_dropped.to_string(),
            if row.identical { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// RocksDB's errors are those of the machine, unless they speak of corruption.
fn rocksdb_failed(doing: &str, error: &rust_rocksdb::Error) -> Failure {
    let text = format!("RocksDB cannot {doing}: {error}");
    match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => Failure::Data(text),
        _ => Failure::Environment(text),
    }
}

/// Opens a database that exists.
fn open(path: &std::path::Path, options: &rust_rocksdb::Options) -> Result<DB, Failure> {
    DB::open(options, path).map_err(|e| rocksdb_failed("open a database", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_fault_of_the_data() {
        let failed = |error: &str| {
            let mut stats = rockmill::Service::builder().build().expect("good").stats();
            stats.jobs_scheduled = 1;
            stats.jobs_failed = 1;
            stats.last_error = Some(error.to_owned());
            check_stats(&stats).expect_err("failed").exit_code()
        };
        assert_eq!(failed("000001.sst: cannot write it: no space left"), 3);
        assert_eq!(failed("000007.sst: bad block (at offset 7)"), 1);
    }
}

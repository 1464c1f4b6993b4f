//! `rockmill job`: keeping and repeating compactions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::CancelToken;
use rockmill_engine::record::{self, OutputSums};
use rockmill_engine::storage::LocalStorage;
use rockmill_engine::{Engine, Settings};
use serde::Serialize;

use crate::outcome::Failure;

/// What `rockmill job` takes.
#[derive(Debug, clap::Subcommand)]
pub enum JobCommand {
    /// Keeps, as a job, the compaction of everything in a closed database to its last level. The
    /// database is not changed. (A running one keeps its jobs with `Service::builder().record_jobs`.)
    Record(RecordArgs),
    /// Repeats a kept job and compares with what came out when it was kept.
    Run(RunArgs),
}

/// What `rockmill job record` takes.
#[derive(Debug, clap::Args)]
pub struct RecordArgs {
    /// Folder for the jobs.
    dir: PathBuf,
    /// The database.
    #[arg(long)]
    db: PathBuf,
    /// Column family.
    #[arg(long, default_value = "default")]
    column_family: String,
}

/// What `rockmill job run` takes.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The job: `job.json`, with its inputs beside it.
    file: PathBuf,
    /// Keep the output files in this folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Slices in flight at most [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Memory budget in MiB.
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Transactions are WriteCommitted.
    #[arg(long)]
    write_committed: bool,
    /// Print a document for machines.
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand.
pub fn run(command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Record(args) => record_job(&args),
        JobCommand::Run(args) => run_job(&args),
    }
}

fn engine(settings: Settings) -> Result<Engine, Failure> {
    Engine::new(settings, Arc::new(LocalStorage)).map_err(Failure::Usage)
}

fn record_job(args: &RecordArgs) -> Result<(), Failure> {
    let engine = engine(Settings::default())?;
    let job = engine.full_compaction(&args.db, args.column_family.as_bytes())?;
    let dir = record::keep(&LocalStorage, &args.dir, &args.db, &job)?;
    println!("{}", dir.join(record::JOB_FILE).display());
    Ok(())
}

/// What a repeated job came to.
#[derive(Debug, Serialize)]
struct Report {
    entries_in: u64,
    entries_out: u64,
    slices: usize,
    wall_s: f64,
    cpu_s: f64,
    /// Size and CRC-32C of each output file.
    files: OutputSums,
    /// Whether they are those of the first time; absent if these were not kept.
    identical: Option<bool>,
}

fn run_job(args: &RunArgs) -> Result<(), Failure> {
    let mut settings = Settings {
        write_committed: args.write_committed,
        ..Settings::default()
    };
    if let Some(threads) = args.threads {
        settings.threads = threads as usize;
    }
    if let Some(mib) = args.memory_mib {
        settings.memory_budget_bytes = mib.saturating_mul(1 << 20);
    }
    let engine = engine(settings)?;
    let job = record::load(&LocalStorage, &args.file)?;
    let inputs = args.file.parent().unwrap_or(Path::new("."));
    let scratch;
    let root = match &args.out {
        Some(out) => out.as_path(),
        None => {
            scratch = tempfile::tempdir().map_err(|e| {
                Failure::Environment(format!("cannot make a folder for the output: {e}"))
            })?;
            scratch.path()
        }
    };
    let finished = engine.run(&job, inputs, root, &CancelToken::new())?;
    let files = record::sum_outputs(&LocalStorage, &finished.staging, &finished.outcome.files)?;
    if let Some(out) = &args.out {
        for name in files.keys() {
            let to = out.join(name);
            std::fs::rename(finished.staging.path().join(name), &to).map_err(|e| {
                Failure::Environment(format!("cannot move output to {}: {e}", to.display()))
            })?;
        }
    }
    let first = record::load_outputs(&LocalStorage, inputs)?;
    let report = Report {
        entries_in: finished.outcome.entries_read,
        entries_out: finished.outcome.totals.entries_written,
        slices: finished.outcome.slices,
        wall_s: finished.outcome.elapsed.as_secs_f64(),
        cpu_s: finished.outcome.cpu.as_secs_f64(),
        identical: first.map(|first| first == files),
        files,
    };
    print(&report, args.json)?;
    match report.identical {
        Some(false) => Err(Failure::Data(
            "the output differs from the first time".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn print(report: &Report, json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(report)
            .map_err(|e| Failure::Environment(format!("cannot print: {e}")))?;
        println!("{text}");
        return Ok(());
    }
    println!(
        "{} entries in, {} out, {} slices, {:.3} s, {:.3} CPU-s",
        report.entries_in, report.entries_out, report.slices, report.wall_s, report.cpu_s
    );
    for (name, (size, crc)) in &report.files {
        println!("{name} {size} bytes crc32c {crc:08x}");
    }
    match report.identical {
        Some(true) => println!("identical to the first time"),
        Some(false) => println!("NOT identical to the first time"),
        None => println!("nothing to compare with"),
    }
    Ok(())
}

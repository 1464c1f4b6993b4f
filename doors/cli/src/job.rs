//! `rockmill job`: records and repeats compactions.

mod many;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use rockmill::{OutputCache, Verification};
use rockmill_compaction::record::{self, Comparison, FileSums, OutputSums};
use rockmill_compaction::{Engine, Settings};
use rockmill_core::{Error, Job};
use rockmill_format::compression::Implementation;
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_side_by_side::device::tell;
use rockmill_side_by_side::energy::{self, Energy, EnergyMeter};
use rockmill_side_by_side::machine::process_cpu;
use rockmill_side_by_side::stages::{self, Stage};
use rockmill_storage::{LocalStorage, base_name};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::{output, signals};
use serde::Serialize;

use crate::service_args::ServiceArgs;
use crate::{database_dir, device, lock};

/// Arguments of `rockmill job`.
#[derive(Debug, clap::Subcommand)]
pub enum JobCommand {
    /// Records the compaction of a closed database to its last level as a job. The database is not changed. (A running
    /// service records its jobs with `Service::builder().record_jobs`.)
    Record(RecordArgs),
    /// Repeats a recorded job and compares the output with the first run's. The first result is kept beside the job.
    Run(RunArgs),
}

/// Arguments of `rockmill job record`.
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
    #[command(flatten)]
    service: ServiceArgs,
}

/// Arguments of `rockmill job run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// The job: `job.json`, with its inputs beside it. A folder stands for all jobs in it.
    file: PathBuf,
    /// More jobs. With several jobs, only those are shown that end differently from the first time.
    #[arg(value_name = "FILE")]
    more: Vec<PathBuf>,
    /// Keep the output files in this folder.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Maximum subcompactions in flight [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Memory budget in MiB.
    #[arg(long)]
    memory_mib: Option<u64>,
    /// Maximum MiB to read and write per second [default: no limit].
    #[arg(long, value_parser = clap::value_parser!(u64).range(..=1_048_576))]
    io_mib_per_s: Option<u64>,
    /// How thoroughly the output is checked: default, sampled, sampled:N or full.
    #[arg(long, default_value_t = Verification::Default, value_name = "LEVEL")]
    verification: Verification,
    /// Whether output goes through the page cache: database (as the job's options say) or bypass.
    #[arg(long, default_value_t = OutputCache::Database, value_name = "database|bypass")]
    output_cache: OutputCache,
    /// Devices that compute: cpu, cuda, cuda:N, several joined by +, or auto (a GPU if the job is large enough).
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Show the time by stage, and the bytes copied over PCIe and into the GPU.
    #[arg(long)]
    profile: bool,
    /// Transactions are WriteCommitted.
    #[arg(long)]
    write_committed: bool,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand.
pub fn run(command: JobCommand) -> Result<(), Failure> {
    match command {
        JobCommand::Record(args) => {
            signals::catch()?;
            signals::or_stopped(record_job(&args), "no job is recorded")
        }
        JobCommand::Run(args) => {
            signals::catch()?;
            signals::or_stopped(run_jobs(&args), "no more output is kept")
        }
    }
}

fn run_jobs(args: &RunArgs) -> Result<(), Failure> {
    let is_file = args.more.is_empty() && !args.file.is_dir();
    let is_of_one = args.out.is_some() || args.profile || args.json;
    if !is_file && !is_of_one {
        return run_many(args);
    }
    let mut jobs = Vec::new();
    for path in [&args.file].into_iter().chain(&args.more) {
        jobs.append(&mut many::kept(path)?);
    }
    match jobs.as_slice() {
        [only] => run_job(args, &only.file),
        _ => {
            let found = output::count(jobs.len(), "job", "jobs");
            let what = format!(
                "--out, --profile and --json take one job, and there are {found}: name one job.json"
            );
            Err(Failure::Usage(what))
        }
    }
}

fn run_many(args: &RunArgs) -> Result<(), Failure> {
    let engine = engine(settings(args)?)?;
    engine.wait_for_device().map_err(Failure::Environment)?;
    tell(engine.device_choice());
    let paths: Vec<&Path> = [&args.file]
        .into_iter()
        .chain(&args.more)
        .map(PathBuf::as_path)
        .collect();
    many::run(&engine, &paths)
}

fn engine(settings: Settings) -> Result<Engine, Failure> {
    Engine::new(settings, Arc::new(LocalStorage)).map_err(Failure::Usage)
}

fn record_job(args: &RecordArgs) -> Result<(), Failure> {
    database_dir::require_for_jobs(&args.db)?;
    let tree = database_dir::read_tree(&args.db)?;
    let family = names::unescape(&args.column_family);
    database_dir::require_family(&args.db, &tree, &family)?;
    require_files(&args.db, &tree, &family)?;
    require_closed(&args.db)?;
    let engine = engine(args.service.settings())?;
    let job = engine.full_compaction(&args.db, &family);
    let job = job.map_err(|error| match error.file.clone() {
        Some(name) => at(&args.db.join(name), error),
        None => error.into(),
    })?;
    let (root, inputs, job) = (&args.dir, &args.db, job.job);
    let kept = record::keep(&LocalStorage, root, inputs, &job, signals::token());
    let dir = kept.map_err(|error| match input_of(&job, &error) {
        Some(name) => at(&inputs.join(name), error),
        None => at(root, error),
    })?;
    output::to_stdout(|out| {
        writeln!(out, "{}", dir.join(record::JOB_FILE).display())?;
        Ok(())
    })
}

/// Refuses a database that a process has open: it may remove files while they are copied, and keeps its last entries in
/// memory.
fn require_closed(dir: &Path) -> Result<(), Failure> {
    let db = dir.display();
    match lock::in_use(dir) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Failure::Environment(format!(
            "{db}: {}: close it there, or let its service record jobs with the setting record_jobs",
            lock::IN_USE
        ))),
        Err(e) => Err(Failure::Environment(format!("{db}: cannot open LOCK: {e}"))),
    }
}

/// Makes a failure at a path as the user gave it; the engine names files without their folders.
fn at(path: &Path, error: Error) -> Failure {
    let file = Some(path.display().to_string());
    Error { file, ..error }.into()
}

/// Checks that a column family has files to compact.
fn require_files(dir: &Path, tree: &Tree, family: &[u8]) -> Result<(), Failure> {
    let has_files = |family: &&ColumnFamily| family.levels.values().any(|files| !files.is_empty());
    let families = tree.column_families.values();
    let with_files: Vec<_> = families.filter(has_files).collect();
    if with_files.iter().any(|found| found.name == family) {
        return Ok(());
    }
    let (dir, family) = (dir.display(), names::escape(family));
    let names: Vec<_> = with_files
        .iter()
        .map(|found| names::escape(&found.name))
        .collect();
    let others = match names.is_empty() {
        true => "and no other has; use the database first, and flush it".to_owned(),
        false => format!("name another with --column-family: {}", names.join(", ")),
    };
    Err(Failure::Usage(format!(
        "{dir}: column family {family} has no SST files; {others}"
    )))
}

/// Returns the input that an error names.
fn input_of(job: &Job, error: &Error) -> Option<String> {
    let named = error.file.as_ref()?;
    let mut inputs = job.tree.inputs.iter();
    inputs
        .any(|input| input.name == *named)
        .then(|| named.clone())
}

/// Result of a repeated job.
#[derive(Debug, Serialize)]
struct Report {
    entries_in: u64,
    entries_out: u64,
    subcompactions: usize,
    /// The devices that did the job.
    device: String,
    wall_s: f64,
    cpu_s: f64,
    /// CPU time of the whole process.
    process_cpu_s: f64,
    /// CPU time of the whole process per gigabyte of input and output.
    process_cpu_s_per_gb: f64,
    stages: Vec<Stage>,
    pcie_to_device_bytes: u64,
    pcie_from_device_bytes: u64,
    /// Energy of the GPU in joules; `null` without a GPU, or if it does not report its energy.
    gpu_joules: Option<f64>,
    #[serde(skip)]
    energy: Option<Energy>,
    /// The code that compressed the output, with the library's version; `null` without compression.
    compressor: Option<String>,
    /// Sums of each output file.
    files: BTreeMap<String, FileSums>,
    /// Whether the files equal those of the first run; `null` if this is the first run, whose sums are stored now.
    identical: Option<bool>,
    /// Reason why only the entries were compared with those of the first run, which are the same; else `null`.
    same_entries: Option<String>,
}

fn run_job(args: &RunArgs, file: &Path) -> Result<(), Failure> {
    let settings = settings(args)?;
    let meter = EnergyMeter::new(settings.device);
    let engine = engine(settings)?;
    engine.wait_for_device().map_err(Failure::Environment)?;
    tell(engine.device_choice());
    let job = record::load(&LocalStorage, file).map_err(|e| at(file, e))?;
    let beside = file.parent().filter(|p| !p.as_os_str().is_empty());
    let inputs = beside.unwrap_or(Path::new("."));
    let first = record::load_outputs(&LocalStorage, inputs)
        .map_err(|e| at(&inputs.join(record::OUTPUTS_FILE), e))?;
    let scratch;
    let root = match &args.out {
        Some(out) => {
            require_room(out, &first.clone().unwrap_or_default())?;
            out.as_path()
        }
        None => {
            scratch = tempfile::tempdir().map_err(|e| {
                Failure::Environment(format!("cannot make a folder for the output: {e}"))
            })?;
            scratch.path()
        }
    };
    let cpu = process_cpu();
    let job = engine.eligible(job)?;
    let run = || engine.run(&job, inputs, root, signals::token());
    let (finished, energy) = energy::measured(&meter, run);
    let process_cpu_s = (process_cpu() - cpu).as_secs_f64();
    let finished = finished.map_err(|error| match input_of(&job.job, &error) {
        Some(name) => at(&inputs.join(name), error),
        None => error.into(),
    })?;
    let sums = record::sum_outputs(
        &LocalStorage,
        &finished.staging,
        &finished.outcome,
        signals::token(),
    )?;
    if let Some(out) = &args.out {
        move_files(finished.staging.path(), out, &sums)?;
    }
    if first.is_none() {
        let compressed_by = finished.outcome.compressed_by;
        keep_first(inputs, file, &job.job, compressed_by, &sums)?;
    }
    let comparison = first.map(|first| sums.compare(&first));
    let outcome = &finished.outcome;
    let stages: Vec<_> = outcome.totals.stages.iter().map(Stage::from).collect();
    let (pcie_to_device_bytes, pcie_from_device_bytes) = stages::link_bytes(&stages);
    let gigabytes = (outcome.totals.read.bytes + outcome.bytes_written()) as f64 / 1e9;
    let report = Report {
        entries_in: outcome.entries_read,
        entries_out: outcome.totals.read.rows(),
        subcompactions: outcome.subcompactions,
        device: outcome.device.clone(),
        stages,
        wall_s: outcome.elapsed.as_secs_f64(),
        cpu_s: outcome.cpu.as_secs_f64(),
        process_cpu_s,
        process_cpu_s_per_gb: process_cpu_s / gigabytes,
        pcie_to_device_bytes,
        pcie_from_device_bytes,
        gpu_joules: energy.as_ref().and_then(Energy::joules),
        energy,
        identical: comparison.as_ref().map(|c| *c == Comparison::SameBytes),
        same_entries: match comparison {
            Some(Comparison::SameEntries(why)) => Some(why),
            _ => None,
        },
        compressor: sums.compressor,
        files: sums.files,
    };
    if let Some(why) = &outcome.device_refused {
        eprintln!("rockmill: the CPU did some or all of the job: {why}");
    }
    print(&report, args)?;
    match report.identical {
        Some(false) if report.same_entries.is_none() => Err(Failure::Data(
            "the output differs from the first run's".to_owned(),
        )),
        _ => Ok(()),
    }
}

fn settings(args: &RunArgs) -> Result<Settings, Failure> {
    let mut settings = Settings {
        write_committed: args.write_committed,
        device: device::parse(&args.device)?,
        ..Settings::default()
    };
    settings.mutable.io_bytes_per_second = args.io_mib_per_s.unwrap_or(0) << 20;
    settings.mutable.verification = args.verification;
    settings.mutable.output_cache = args.output_cache;
    // No database takes the files of a repeated job, so no later job would find them.
    settings.mutable.device_cache_bytes = Some(0);
    if let Some(threads) = args.threads {
        settings.mutable.threads = threads as usize;
    }
    if let Some(mib) = args.memory_mib {
        settings.mutable.memory_budget_bytes = mib.saturating_mul(1 << 20);
    }
    Ok(settings)
}

/// Checks that `out` is a folder without any of the names in `files`.
fn require_room(out: &Path, files: &OutputSums) -> Result<(), Failure> {
    let refused = |e| Failure::Environment(format!("--out {}: {e}", out.display()));
    if !fs::metadata(out).map_err(refused)?.is_dir() {
        let what = format!("--out {}: it is not a folder", out.display());
        return Err(Failure::Usage(what));
    }
    for name in files.files.keys() {
        match fs::symlink_metadata(out.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(refused(e)),
            Ok(_) => {
                let what = format!("--out {}: there is a {name} already", out.display());
                return Err(Failure::Usage(what));
            }
        }
    }
    Ok(())
}

/// Checks again: if the job was never run before, the names are known only now.
fn move_files(from: &Path, out: &Path, files: &OutputSums) -> Result<(), Failure> {
    require_room(out, files)?;
    for name in files.files.keys() {
        let to = out.join(name);
        fs::rename(from.join(name), &to).map_err(|e| {
            Failure::Environment(format!("cannot move output to {}: {e}", to.display()))
        })?;
    }
    Ok(())
}

/// Stores the sums with which later runs are compared, and adds the output's compressor to the job's file. A partial
/// file would look like damage, so it is removed.
fn keep_first(
    dir: &Path,
    file: &Path,
    job: &Job,
    compressed_by: Implementation,
    files: &OutputSums,
) -> Result<(), Failure> {
    record::keep_compressor(&LocalStorage, dir, &base_name(file), job, compressed_by)?;
    record::keep_outputs(&LocalStorage, dir, files).map_err(|error| {
        // The file did not exist before this run.
        let _ = fs::remove_file(dir.join(record::OUTPUTS_FILE));
        Failure::from(error)
    })
}

fn print(report: &Report, args: &RunArgs) -> Result<(), Failure> {
    output::document_or_text(args.json, report, |out| {
        let line = format!(
            "{}, {} out, {}, {:.3} s, {:.3} CPU-s",
            output::count(report.entries_in as usize, "entry in", "entries in"),
            report.entries_out,
            output::count(report.subcompactions, "subcompaction", "subcompactions"),
            report.wall_s,
            report.cpu_s
        );
        writeln!(out, "{}", output::wrapped(&line))?;
        if args.profile {
            writeln!(out, "{}", stages::table(&report.stages, report.wall_s))?;
            let (cpu_s, per_gb) = (report.process_cpu_s, report.process_cpu_s_per_gb);
            let energy = report.energy.as_ref();
            let summary = stages::summary(&report.stages, cpu_s, per_gb, energy);
            writeln!(out, "{}", output::wrapped(&summary))?;
        }
        for (name, FileSums(size, crc, _)) in &report.files {
            writeln!(out, "{name} {size} bytes crc32c {crc:08x}")?;
        }
        match (report.identical, &report.same_entries) {
            (_, Some(why)) => writeln!(out, "the same entries as the first time: {why}"),
            (Some(true), None) => writeln!(out, "identical to the first time"),
            (Some(false), None) => writeln!(out, "NOT identical to the first time"),
            (None, None) => writeln!(out, "kept as the first result"),
        }?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn settings_of(options: &[&str]) -> Settings {
        let words = ["run", "job.json"].iter().chain(options);
        let matches = RunArgs::augment_args(Command::new("run")).get_matches_from(words);
        let args = RunArgs::from_arg_matches(&matches).expect("they were parsed");
        settings(&args).expect("they make sense")
    }

    #[test]
    fn output_passes_by_the_page_cache_only_if_told_so() {
        let cache = |options: &[&str]| settings_of(options).mutable.output_cache;
        assert_eq!(cache(&[]), OutputCache::Database);
        assert_eq!(cache(&["--output-cache", "bypass"]), OutputCache::Bypass);
    }
}

//! Repeats many recorded jobs, and checks that each ends like the first time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rockmill_compaction::Engine;
use rockmill_compaction::record::{self, Comparison, JOB_FILE};
use rockmill_core::{Error, ErrorKind};
use rockmill_storage::LocalStorage;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::{output, signals};

use super::{at, keep_first};

/// How a job ended.
enum Ended {
    AsBefore,
    /// As before, compared by its entries for the reason in this sentence.
    WithSameEntries(String),
    /// The difference, as a clause.
    Otherwise(String),
    First,
}

/// A recorded job.
pub struct RecordedJob {
    pub file: PathBuf,
    /// Folder of its inputs and its first result.
    dir: PathBuf,
}

impl RecordedJob {
    fn in_dir(dir: PathBuf) -> Self {
        let file = dir.join(JOB_FILE);
        Self { file, dir }
    }
}

/// Repeats the jobs that `paths` name: job files, their folders, or folders of such folders. Prints a line about each
/// job that ends differently from the first time, and a summary.
///
/// # Errors
/// Data if a job ends differently from the first time; Usage if there is no job; Stopped if a signal came.
pub fn run(engine: &Engine, paths: &[&Path]) -> Result<(), Failure> {
    let mut jobs = Vec::new();
    for path in paths {
        jobs.append(&mut kept(path)?);
    }
    let (mut as_before, mut otherwise, mut first) = (0, 0, 0);
    for job in &jobs {
        let ended = repeat(engine, job)?;
        signals::check("no more output is kept")?;
        match ended {
            Ended::AsBefore => as_before += 1,
            Ended::WithSameEntries(why) => {
                as_before += 1;
                output::to_stdout(|out| {
                    let dir = job.dir.display();
                    Ok(writeln!(out, "{dir}: the same entries: {why}")?)
                })?;
            }
            Ended::First => first += 1,
            Ended::Otherwise(how) => {
                otherwise += 1;
                output::to_stdout(|out| Ok(writeln!(out, "{}: {how}", job.dir.display())?))?;
            }
        }
    }
    output::to_stdout(|out| {
        let jobs = output::count(jobs.len(), "job", "jobs");
        let kept = "kept as the first result";
        writeln!(
            out,
            "{jobs}: {as_before} as the first time, {otherwise} not, {first} {kept}"
        )?;
        Ok(())
    })?;
    match otherwise {
        0 => Ok(()),
        _ => Err(Failure::Data(format!(
            "{otherwise} of {} did not end as the first time",
            output::count(jobs.len(), "job", "jobs")
        ))),
    }
}

/// Returns the jobs that `path` names, in order.
pub fn kept(path: &Path) -> Result<Vec<RecordedJob>, Failure> {
    let failed = |e: io::Error| Failure::of_path(path, &e);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        let beside = path.parent().filter(|p| !p.as_os_str().is_empty());
        let dir = beside.unwrap_or(Path::new(".")).to_owned();
        let file = path.to_owned();
        return Ok(vec![RecordedJob { file, dir }]);
    }
    if path.join(JOB_FILE).exists() {
        return Ok(vec![RecordedJob::in_dir(path.to_owned())]);
    }
    let mut dirs = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let dir = entry.map_err(failed)?.path();
        if dir.join(JOB_FILE).exists() {
            dirs.push(dir);
        }
    }
    dirs.sort();
    match dirs.is_empty() {
        true => Err(Failure::Usage(format!(
            "{}: no folder in it has a {JOB_FILE}",
            path.display()
        ))),
        false => Ok(dirs.into_iter().map(RecordedJob::in_dir).collect()),
    }
}

/// Repeats a job, and keeps its result if it was never run before.
fn repeat(engine: &Engine, RecordedJob { file, dir }: &RecordedJob) -> Result<Ended, Failure> {
    let in_dir = |error: Error| Failure::Data(format!("{}: {error}", dir.display()));
    let job = record::load(&LocalStorage, file).map_err(|e| at(file, e))?;
    let first = record::load_outputs(&LocalStorage, dir).map_err(in_dir)?;
    let declined = record::load_declined(&LocalStorage, dir).map_err(in_dir)?;
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::Environment(format!("cannot make a folder for the output: {e}")))?;
    let cancel = signals::token();
    let ran = (engine.eligible(job.clone()))
        .and_then(|job| engine.run(&job, dir, scratch.path(), cancel));
    let finished = match ran {
        Ok(finished) => finished,
        Err(error) => {
            let as_before = declined.as_deref() == Some(error.kind.code());
            return Ok(match error.kind {
                ErrorKind::Declined(_) if as_before => Ended::AsBefore,
                _ => Ended::Otherwise(error.to_string()),
            });
        }
    };
    if let Some(code) = declined {
        return Ok(Ended::Otherwise(format!(
            "done, and not declined as {code}"
        )));
    }
    let outcome = &finished.outcome;
    let sums = record::sum_outputs(&LocalStorage, &finished.staging, outcome, cancel)?;
    match first.map(|first| sums.compare(&first)) {
        Some(Comparison::SameBytes) => Ok(Ended::AsBefore),
        Some(Comparison::SameEntries(why)) => Ok(Ended::WithSameEntries(why)),
        Some(Comparison::Different) => Ok(Ended::Otherwise(
            "the output differs from the first run's".to_owned(),
        )),
        None => {
            let compressed_by = outcome.compressed_by;
            keep_first(dir, file, &job, compressed_by, &sums).map(|()| Ended::First)
        }
    }
}

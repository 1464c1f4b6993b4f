//! Many kept jobs: whether each ends as the first time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rockmill_core::{CancelToken, Error, ErrorKind};
use rockmill_engine::Engine;
use rockmill_engine::record::{self, JOB_FILE};
use rockmill_engine::storage::LocalStorage;

use super::keep_first;
use crate::outcome::Failure;
use crate::output;

/// How a job ended.
enum Ended {
    AsBefore,
    /// In a clause.
    Otherwise(String),
    First,
}

/// Repeats the jobs that `paths` name: files, their folders, or folders of such folders. Prints a line about each
/// that does not end as the first time, and a summary.
///
/// # Errors
/// Data if a job does not end as the first time; Usage if there is no job.
pub fn run(engine: &Engine, paths: &[&Path]) -> Result<(), Failure> {
    let mut dirs = Vec::new();
    for path in paths {
        dirs.append(&mut folders(path)?);
    }
    let (mut as_before, mut otherwise, mut first) = (0, 0, 0);
    for dir in &dirs {
        match repeat(engine, dir)? {
            Ended::AsBefore => as_before += 1,
            Ended::First => first += 1,
            Ended::Otherwise(how) => {
                otherwise += 1;
                output::to_stdout(|out| Ok(writeln!(out, "{}: {how}", dir.display())?))?;
            }
        }
    }
    output::to_stdout(|out| {
        let jobs = dirs.len();
        let kept = "kept as the first result";
        writeln!(
            out,
            "{jobs} jobs: {as_before} as the first time, {otherwise} not, {first} {kept}"
        )?;
        Ok(())
    })?;
    match otherwise {
        0 => Ok(()),
        _ => Err(Failure::Data(format!(
            "{otherwise} of {} jobs do not end as the first time",
            dirs.len()
        ))),
    }
}

/// The folders of the jobs that `path` names, in order.
fn folders(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |e: io::Error| Failure::Environment(format!("{}: {e}", path.display()));
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        let beside = path.parent().filter(|p| !p.as_os_str().is_empty());
        return Ok(vec![beside.unwrap_or(Path::new(".")).to_owned()]);
    }
    if path.join(JOB_FILE).exists() {
        return Ok(vec![path.to_owned()]);
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
        false => Ok(dirs),
    }
}

/// Repeats the job in `dir`, and keeps what comes out if it was never run before.
fn repeat(engine: &Engine, dir: &Path) -> Result<Ended, Failure> {
    let in_dir = |error: Error| Failure::Data(format!("{}: {error}", dir.display()));
    let job = record::load(&LocalStorage, &dir.join(JOB_FILE)).map_err(in_dir)?;
    let first = record::load_outputs(&LocalStorage, dir).map_err(in_dir)?;
    let declined = record::load_declined(&LocalStorage, dir).map_err(in_dir)?;
    let scratch = tempfile::tempdir()
        .map_err(|e| Failure::Environment(format!("cannot make a folder for the output: {e}")))?;
    let cancel = CancelToken::new();
    let finished = match engine.run(&job, dir, scratch.path(), &cancel) {
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
    let files = &finished.outcome.files;
    let sums = record::sum_outputs(&LocalStorage, &finished.staging, files, &cancel)?;
    match first {
        Some(first) if first == sums => Ok(Ended::AsBefore),
        Some(_) => Ok(Ended::Otherwise(
            "the output differs from the first time".to_owned(),
        )),
        None => keep_first(dir, &sums).map(|()| Ended::First),
    }
}

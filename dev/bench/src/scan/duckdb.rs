//! DuckDB over Parquet files, in a process of Python.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rockmill_terminal::outcome::Failure;
use serde::Deserialize;

use super::systems::Limits;
use super::{Run, Runs};

/// What the process prints.
#[derive(Deserialize)]
struct Measured {
    /// The first is of the run that does not count.
    walls_s: Vec<f64>,
    cpus_s: Vec<f64>,
    rows: usize,
}

/// Succeeds if this is a Python with DuckDB.
///
/// # Errors
/// Usage if not.
pub fn check(python: &Path) -> Result<(), Failure> {
    let ended = Command::new(python).args(["-c", "import duckdb"]).output();
    let why = match ended {
        Ok(ended) if ended.status.success() => return Ok(()),
        Ok(_) => "it has no package duckdb: install it with pip".to_owned(),
        Err(e) => e.to_string(),
    };
    let what = format!("--duckdb {}: {why}", python.display());
    Err(Failure::Usage(what))
}

/// Runs the statements of a query over the files in `folder`, and returns the number of rows too.
///
/// # Errors
/// Environment if Python or DuckDB fails.
pub fn run(
    python: &Path,
    folder: &Path,
    statements: &[String],
    limits: Limits,
    repeat: u32,
) -> Result<(Runs, usize), Failure> {
    let failed = |what: String| Failure::Environment(format!("{}: {what}", python.display()));
    let child = Command::new(python)
        .args(["-c", include_str!("duckdb.py")])
        .arg(folder)
        .args([limits.threads.to_string(), repeat.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| failed(e.to_string()))?;
    let text = serde_json::to_vec(statements).map_err(|e| failed(e.to_string()))?;
    // The process reads all before it writes. Its exit code says whether it could.
    let _ = child.stdin.take().map(|mut input| input.write_all(&text));
    let output = child
        .wait_with_output()
        .map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("DuckDB ended with {}", output.status)));
    }
    let measured: Measured =
        serde_json::from_slice(&output.stdout).map_err(|e| failed(e.to_string()))?;
    let first_s = measured.walls_s.first().copied().unwrap_or_default();
    let runs = measured.walls_s.iter().zip(&measured.cpus_s).skip(1);
    let runs: Vec<_> = runs
        .map(|(&wall_s, &cpu_s)| Run {
            wall_s,
            cpu_s,
            energy: None,
        })
        .collect();
    match runs.is_empty() {
        true => Err(failed("DuckDB measured nothing".to_owned())),
        false => Ok((Runs::new(first_s, runs), measured.rows)),
    }
}

//! Each cell is measured in its own process, so that none reuses memory, threads or caches of another.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rockmill_side_by_side::device::Jobs;
use rockmill_side_by_side::process::{Process, failed, receive, send};
use rockmill_side_by_side::running_system::RunningSystem;
use rockmill_terminal::outcome::Failure;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Outcome, Work};
use super::{clients, jobs};
use crate::devices;

/// Request to the process.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    cell: Cell,
    /// Folder in which its databases are or will be made; without it, the process only prepares the cell's system.
    dir: Option<PathBuf>,
}

/// Checks that a cell can be measured here.
///
/// # Errors
/// The errors of [`RunningSystem::new`]; Environment if the process cannot be started.
pub fn check(cell: &Cell) -> Result<(), Failure> {
    ask(cell, None).map(drop)
}

/// Measures a cell in a folder.
///
/// # Errors
/// Environment or Data, depending on the cause of the failure.
pub fn measure(cell: &Cell, dir: &Path) -> Result<Outcome, Failure> {
    let outcome = ask(cell, Some(dir.to_owned()))?;
    outcome.ok_or_else(|| failed(&io::ErrorKind::InvalidData.into()))
}

fn ask(cell: &Cell, dir: Option<PathBuf>) -> Result<Option<Outcome>, Failure> {
    let cell = cell.clone();
    Process::start("cell")?.ask(&Request { cell, dir })
}

/// Runs the process's side: answers one request.
///
/// # Errors
/// Environment if the parent is gone; errors of a measurement are sent as the answer.
pub fn serve() -> Result<(), Failure> {
    let request = receive::<Request>(&mut io::stdin().lock()).map_err(|e| failed(&e))?;
    let Some(request) = request else {
        return Ok(());
    };
    thread::spawn(end_with_the_asker);
    let answer = measure_here(&request);
    send(&mut io::stdout().lock(), &answer).map_err(|e| failed(&e))
}

/// Ends this process when its parent ends: a measurement may take hours, and its result would be lost. The process
/// kills itself, because an orderly end could take long while other threads work.
fn end_with_the_asker() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let _ = kill_process(getpid(), Signal::KILL);
}

fn measure_here(Request { cell, dir }: &Request) -> Result<Option<Outcome>, Failure> {
    let jobs = match cell.work {
        Work::Clients(_) => Jobs::Usual,
        // Jobs that are too small for a user's database are measured as well.
        Work::Jobs(_) => Jobs::All,
    };
    let running = RunningSystem::new(cell.system, cell.threads, &cell.tuning, jobs, devices::give)?;
    let Some(dir) = dir else {
        return Ok(None);
    };
    match &cell.work {
        Work::Clients(work) => clients::run(cell, work, dir, &running),
        Work::Jobs(work) => jobs::run(cell, work, dir, &running),
    }
    .map(Some)
}

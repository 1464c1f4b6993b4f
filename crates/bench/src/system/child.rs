//! Each cell is measured in a process of its own, so that none finds memory, threads or caches that another has
//! left.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use rockmill_side_by_side::device::Jobs;
use rockmill_side_by_side::plane::Plane;
use rockmill_side_by_side::process::{Process, failed, receive, send};
use rockmill_terminal::outcome::Failure;
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

use super::cell::{Cell, Outcome, Work};
use super::{clients, jobs};
use crate::devices;

/// What the process is asked for.
#[derive(Debug, Serialize, Deserialize)]
struct Request {
    cell: Cell,
    /// Where its databases lie or are to be made; without it, the cell's system gets ready and that is all.
    dir: Option<PathBuf>,
}

/// Looks whether a cell could be measured here.
///
/// # Errors
/// Those of [`Plane::new`]; Environment if there can be no process.
pub fn check(cell: &Cell) -> Result<(), Failure> {
    ask(cell, None).map(drop)
}

/// Measures a cell in a folder.
///
/// # Errors
/// Environment or Data, by whose fault it could not be measured.
pub fn measure(cell: &Cell, dir: &Path) -> Result<Outcome, Failure> {
    let outcome = ask(cell, Some(dir.to_owned()))?;
    outcome.ok_or_else(|| failed(&io::ErrorKind::InvalidData.into()))
}

fn ask(cell: &Cell, dir: Option<PathBuf>) -> Result<Option<Outcome>, Failure> {
    let cell = cell.clone();
    Process::start("cell")?.ask(&Request { cell, dir })
}

/// What the process does: it answers one request.
///
/// # Errors
/// Environment if nobody listens; what is wrong with a measurement is an answer.
pub fn serve() -> Result<(), Failure> {
    let request = receive::<Request>(&mut io::stdin().lock()).map_err(|e| failed(&e))?;
    let Some(request) = request else {
        return Ok(());
    };
    thread::spawn(end_with_the_asker);
    let answer = measure_here(&request);
    send(&mut io::stdout().lock(), &answer).map_err(|e| failed(&e))
}

/// A measurement may take hours, and nobody would want it any more. What runs beside could make an orderly end
/// take its time.
fn end_with_the_asker() {
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    let _ = kill_process(getpid(), Signal::KILL);
}

fn measure_here(Request { cell, dir }: &Request) -> Result<Option<Outcome>, Failure> {
    let jobs = match cell.work {
        Work::Clients(_) => Jobs::Usual,
        // What is too small is measured, too.
        Work::Jobs(_) => Jobs::All,
    };
    let plane = Plane::new(cell.system, cell.threads, &cell.tuning, jobs, devices::give)?;
    let Some(dir) = dir else {
        return Ok(None);
    };
    match &cell.work {
        Work::Clients(work) => clients::run(cell, work, dir, &plane),
        Work::Jobs(work) => jobs::run(cell, work, dir, &plane),
    }
    .map(Some)
}

//! Each contender compacts in a process of its own, so that none finds memory, threads or caches that another
//! has left.
//!
//! ```text
//!   to the process     a Contender      a path     a path ..      a line of JSON each
//!   from it            ready, or why    what the compaction took
//!                      not
//! ```

use std::io;
use std::path::{Path, PathBuf};

use rockmill_terminal::outcome::Failure;

use crate::contender::{Contender, Ready};
use crate::device::GiveDevices;
use crate::measure::Measured;
use crate::process::{Process, failed, receive, send};

/// A process that compacts. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker(Process);

impl Worker {
    /// Starts a process, in which the contender gets ready.
    ///
    /// # Errors
    /// Environment if there can be no process; those of [`Ready::new`].
    pub fn start(contender: &Contender) -> Result<Self, Failure> {
        let mut process = Process::start("worker")?;
        process.ask::<()>(contender)?;
        Ok(Self(process))
    }

    /// Compacts everything in the database at `path`.
    ///
    /// # Errors
    /// Those of [`Ready::compact`]; Environment if the process has ended.
    pub fn compact(&mut self, path: &Path) -> Result<Measured, Failure> {
        self.0.ask(path)
    }
}

/// What the process does: it compacts until its input ends. Services get their devices by `give`.
///
/// # Errors
/// Environment if nobody listens; what is wrong with a compaction is an answer.
pub fn serve(give: GiveDevices) -> Result<(), Failure> {
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let Some(contender) = receive(&mut from).map_err(|e| failed(&e))? else {
        return Ok(());
    };
    let (mut ready, answer) = match Ready::new(contender, give) {
        Ok(ready) => (Some(ready), Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    send(&mut to, &answer).map_err(|e| failed(&e))?;
    while let Some(ready) = &mut ready
        && let Some(path) = receive::<PathBuf>(&mut from).map_err(|e| failed(&e))?
    {
        send(&mut to, &ready.compact(&path)).map_err(|e| failed(&e))?;
    }
    Ok(())
}

//! Each system compacts in its own process, so that none reuses memory, threads or caches of another.
//!
//! Protocol, one line of JSON per message:
//!
//! * The parent sends a `RunConfig`. The worker answers that it is ready, or why not.
//! * The parent sends a path. The worker compacts the database there and answers with the measurement. This repeats.

use std::io;
use std::path::{Path, PathBuf};

use rockmill_terminal::outcome::Failure;

use crate::device::GiveDevices;
use crate::measure::Measured;
use crate::process::{Process, failed, receive, send};
use crate::run_config::{Ready, RunConfig};

/// A process that compacts. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker(Process);

impl Worker {
    /// Starts a process and prepares the system in it.
    ///
    /// # Errors
    /// Environment if the process cannot be started; the errors of [`Ready::new`].
    pub fn start(config: &RunConfig) -> Result<Self, Failure> {
        let mut process = Process::start("compaction-process")?;
        process.ask::<()>(config)?;
        Ok(Self(process))
    }

    /// Compacts everything in the database at `path`.
    ///
    /// # Errors
    /// The errors of [`Ready::compact`]; Environment if the process has ended.
    pub fn compact(&mut self, path: &Path) -> Result<Measured, Failure> {
        self.0.ask(path)
    }
}

/// Runs the worker's side: compacts until its input ends. `give` sets the devices of services.
///
/// # Errors
/// Environment if the parent is gone; errors of a compaction are sent as answers.
pub fn serve(give: GiveDevices) -> Result<(), Failure> {
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let Some(config) = receive(&mut from).map_err(|e| failed(&e))? else {
        return Ok(());
    };
    let (mut ready, answer) = match Ready::new(config, give) {
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

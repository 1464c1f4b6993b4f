//! Each contender compacts in a process of its own, so that none finds memory, threads or caches that another
//! has left.
//!
//! ```text
//!   to the process     a Contender      a path     a path ..      a line of JSON each
//!   from it            ready, or why    what the compaction took
//!                      not
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Measured;
use super::contender::{Contender, Ready};
use crate::outcome::Failure;

/// A process that compacts. It ends when this is dropped.
#[derive(Debug)]
pub struct Worker {
    process: Child,
    /// Closed to end it.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a process, in which the contender gets ready.
    ///
    /// # Errors
    /// Environment if there can be no process; those of [`Ready::new`].
    pub fn start(contender: &Contender) -> Result<Self, Failure> {
        let mut process = std::env::current_exe()
            .and_then(|program| {
                Command::new(program)
                    .args(["bench", "worker"])
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
            })
            .map_err(|e| failed(&e))?;
        let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(&io::ErrorKind::BrokenPipe.into()));
        };
        let mut worker = Self {
            process,
            to: Some(to),
            from: BufReader::new(from),
        };
        worker.ask::<()>(contender)?;
        Ok(worker)
    }

    /// Compacts everything in the database at `path`.
    ///
    /// # Errors
    /// Those of [`Ready::compact`]; Environment if the process has ended.
    pub fn compact(&mut self, path: &Path) -> Result<Measured, Failure> {
        self.ask(path)
    }

    fn ask<T: DeserializeOwned>(&mut self, what: &(impl Serialize + ?Sized)) -> Result<T, Failure> {
        let answer = self.to.as_mut().and_then(|to| {
            send(to, what).ok()?;
            receive(&mut self.from).ok()?
        });
        answer.unwrap_or_else(|| {
            let what =
                "the process that compacts has ended; did the system end it for want of memory?";
            Err(Failure::Environment(what.to_owned()))
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.process.wait();
    }
}

/// What the process does: it compacts until its input ends.
///
/// # Errors
/// Environment if nobody listens; what is wrong with a compaction is an answer.
pub fn serve() -> Result<(), Failure> {
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let Some(contender) = receive(&mut from).map_err(|e| failed(&e))? else {
        return Ok(());
    };
    let (mut ready, answer) = match Ready::new(contender) {
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

fn send(to: &mut impl Write, what: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// `None` at the end.
fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot compact in a process of its own: {error}"))
}

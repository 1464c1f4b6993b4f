//! A child process of this program that answers each line of JSON with a line of JSON.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals::{self, OnStop};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The process. It ends when this is dropped.
#[derive(Debug)]
pub struct Process {
    process: Child,
    /// Closed to end the process.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    /// Kills the process when a signal ends this one, which then does not wait for a compaction.
    killer: Option<OnStop>,
}

impl Process {
    /// Starts this program with a hidden subcommand.
    ///
    /// # Errors
    /// Environment if the process cannot be started.
    pub fn start(subcommand: &str) -> Result<Self, Failure> {
        let mut process = std::env::current_exe()
            .and_then(|program| {
                Command::new(program)
                    .arg(subcommand)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
            })
            .map_err(|e| failed(&e))?;
        let (Some(to), Some(from)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(&io::ErrorKind::BrokenPipe.into()));
        };
        let id = Pid::from_child(&process);
        let killer = signals::on_stop(move || {
            let _ = kill_process(id, Signal::KILL);
        });
        Ok(Self {
            killer: Some(killer),
            process,
            to: Some(to),
            from: BufReader::new(from),
        })
    }

    /// Sends `what` and waits for the answer.
    ///
    /// # Errors
    /// The answer's own error; Environment if the process has ended.
    pub fn ask<T: DeserializeOwned>(
        &mut self,
        what: &(impl Serialize + ?Sized),
    ) -> Result<T, Failure> {
        let answer = self.to.as_mut().and_then(|to| {
            send(to, what).ok()?;
            receive(&mut self.from).ok()?
        });
        answer.unwrap_or_else(|| {
            let what =
                "the process that compacts has ended; did the system kill it because memory was short?";
            Err(Failure::Environment(what.to_owned()))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.to.take());
        if signals::token().is_cancelled() {
            let _ = self.process.kill();
        }
        // After the process was waited for, another process may get its number.
        self.killer = None;
        let _ = self.process.wait();
    }
}

/// Writes a line.
pub fn send(to: &mut impl Write, what: &(impl Serialize + ?Sized)) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads a line; `None` at the end.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

/// Converts an error of the communication between the processes.
pub fn failed(error: &io::Error) -> Failure {
    Failure::Environment(format!("cannot compact in a process of its own: {error}"))
}

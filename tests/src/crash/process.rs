//! A process that writes until it is killed, seen from its parent.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::moment::Moment;
use super::watch::REACHED;
use super::writer::{Arguments, DOOR, OPEN};

/// A GPU that other processes use as well takes seconds to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after opening within which the step must come.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// `kill -9`.
const SIGKILL: i32 = 9;

/// A running process and its output.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    started: Instant,
    /// Time in which it opened database and device, once known.
    pub opening: Option<Duration>,
}

impl Process {
    /// Starts `program` as a writer.
    ///
    /// # Errors
    ///
    /// The operating system's error, as text.
    pub fn start(program: &Path, arguments: &Arguments) -> Result<Self, String> {
        let started = Instant::now();
        let child = Command::new(program)
            .arg(DOOR)
            .args(arguments.to_strings())
            // The process ends when its standard input closes, and so does the child.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.map_err(|e| format!("start {}: {e}", program.display()))?;
        let out = child.stdout.take().ok_or("no standard output")?;
        Ok(Self {
            child,
            lines: lines_of(out),
            started,
            opening: None,
        })
    }

    /// Waits until the moment to kill; `opening` is the shortest opening time. Returns false if a step did not come.
    ///
    /// # Errors
    ///
    /// An error if the process neither opens database and device nor ends.
    pub fn await_moment(&mut self, moment: Moment, opening: Duration) -> Result<bool, String> {
        let (reached, delay) = match moment {
            Moment::Opening(part) => (false, opening.mul_f64(part)),
            Moment::Time(delay) => (self.await_line(OPEN)?, delay),
            Moment::Step(_, delay) => (self.await_line(REACHED)?, delay),
        };
        std::thread::sleep(delay);
        Ok(reached)
    }

    /// Waits for a line and returns whether it came. A job of existing files may take a step before everything is open.
    fn await_line(&mut self, awaited: &str) -> Result<bool, String> {
        let mut until = self.started + OPEN_TIMEOUT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if line == OPEN {
                        self.opening = Some(self.started.elapsed());
                        until = Instant::now() + STEP_TIMEOUT;
                    }
                    if line == awaited {
                        return Ok(true);
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.opening.is_none() => {
                    let seconds = OPEN_TIMEOUT.as_secs();
                    return Err(format!(
                        "database and device are not open after {seconds} s"
                    ));
                }
                // The exit status shows whether it has ended by itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(false);
                }
            }
        }
    }

    /// Kills the process.
    ///
    /// # Errors
    ///
    /// An error if it had ended by itself.
    pub fn kill(mut self) -> Result<(), String> {
        // If the process has ended already, this does nothing, and its status shows it.
        self.child.kill().map_err(|e| format!("kill it: {e}"))?;
        let status = self.child.wait().map_err(|e| format!("await it: {e}"))?;
        match status.signal() {
            Some(SIGKILL) => Ok(()),
            _ => Err(format!("the process ended by itself: {status}")),
        }
    }
}

/// Kills the process after any error, so that it no longer writes to the database.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the process's output, read by a thread that ends with the process.
fn lines_of(out: ChildStdout) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

//! A process that writes until it is killed, seen from outside.

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
/// A step that has not come so long after that will not come.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// `kill -9`.
const SIGKILL: i32 = 9;

/// A running process, and what it prints.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    started: Instant,
    /// How long it took to open database and device, once it has.
    pub opening: Option<Duration>,
}

impl Process {
    /// Starts `program` as a writer.
    ///
    /// # Errors
    ///
    /// The system's, as text.
    pub fn start(program: &Path, arguments: &Arguments) -> Result<Self, String> {
        let started = Instant::now();
        let child = Command::new(program)
            .arg(DOOR)
            .args(arguments.to_strings())
            // Ends with this process, and the child with it.
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

    /// Waits until it is time to kill, where the quickest process took so long to open; false if a step did
    /// not come.
    ///
    /// # Errors
    ///
    /// If the process neither opens what it works with nor ends.
    pub fn await_moment(&mut self, moment: Moment, opening: Duration) -> Result<bool, String> {
        let (reached, delay) = match moment {
            Moment::Opening(part) => (false, opening.mul_f64(part)),
            Moment::Time(delay) => (self.await_line(OPEN)?, delay),
            Moment::Step(_, delay) => (self.await_line(REACHED)?, delay),
        };
        std::thread::sleep(delay);
        Ok(reached)
    }

    /// Whether the line came. A job of files that were there may take a step before all is open.
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
                // Its status will say if it has ended by itself.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Ok(false);
                }
            }
        }
    }

    /// Kills it.
    ///
    /// # Errors
    ///
    /// If it had ended by itself.
    pub fn kill(mut self) -> Result<(), String> {
        // Does nothing if the process has ended, which its status then says.
        self.child.kill().map_err(|e| format!("kill it: {e}"))?;
        let status = self.child.wait().map_err(|e| format!("await it: {e}"))?;
        match status.signal() {
            Some(SIGKILL) => Ok(()),
            _ => Err(format!("the process ended by itself: {status}")),
        }
    }
}

/// Nobody writes to the database any more, whatever went wrong.
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process prints, read by a thread that ends with the process.
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

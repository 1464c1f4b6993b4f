//! SIGINT (Control-C) and SIGTERM, for commands that have something to clean up.
//!
//! [`catch`] comes before the first thread. From then on, the first signal sets [`token`] and runs the actions of
//! [`on_stop`]. The command ends its work, removes unfinished files, and returns with [`or_stopped`]. The second signal
//! ends the process at once. Commands that write nothing do not call `catch`; a signal ends them as usual.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};
use std::{fs, thread};

use nix::sys::signal::{SigSet, Signal, raise};
use rockmill_core::{CancelToken, Lock};

use crate::outcome::Failure;

/// The first signal that came.
static CAUGHT: OnceLock<Signal> = OnceLock::new();

/// Set when a signal has come.
static TOKEN: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Actions by their number, with the next number.
type Actions = (u64, BTreeMap<u64, Box<dyn Fn() + Send>>);

static ACTIONS: Lock<Actions> = Lock::new((0, BTreeMap::new()));

/// Catches both signals from now on, except those that the process was started to ignore, as those behind a shell's `&`.
/// Call it before other threads are started: they must not take the signals.
///
/// # Errors
/// Environment if the system refuses.
pub fn catch() -> Result<(), Failure> {
    wait_for(&[Signal::SIGINT, Signal::SIGTERM], received)
}

/// Runs `action` when SIGTERM or SIGHUP (the end of the terminal) comes. Then the system ends the process. A signal that the
/// process was started to ignore stays ignored. Call it before other threads are started, as [`catch`].
///
/// # Errors
/// Environment if the system refuses.
pub fn before_the_end(action: impl Fn() + Send + 'static) -> Result<(), Failure> {
    wait_for(
        &[Signal::SIGTERM, Signal::SIGHUP],
        move |signal, signals| {
            action();
            end(signal, signals);
        },
    )
}

/// Blocks those signals that the process does not ignore, and lets `action` have each of them on a thread of its own.
fn wait_for(
    signals: &[Signal],
    action: impl Fn(Signal, &SigSet) + Send + 'static,
) -> Result<(), Failure> {
    let refused = |e: std::io::Error| Failure::Environment(format!("cannot catch signals: {e}"));
    let ignored = ignored();
    let signals = signals.iter().copied();
    let signals: SigSet = signals
        .filter(|&signal| ignored >> (signal as u32 - 1) & 1 == 0)
        .collect();
    signals.thread_block().map_err(|e| refused(e.into()))?;
    let waiter = thread::Builder::new().name("signals".to_owned());
    let waiter = waiter.spawn(move || {
        while let Ok(signal) = signals.wait() {
            action(signal, &signals);
        }
    });
    waiter.map(|_| ()).map_err(refused)
}

/// Lets `signal` have its default effect. Exit handlers would interfere with running threads.
fn end(signal: Signal, signals: &SigSet) {
    let _ = signals.thread_unblock();
    let _ = raise(signal);
}

/// The signals that the process ignores, one bit for each (`man 5 proc_pid_status`, SigIgn).
fn ignored() -> u64 {
    const HEX: u32 = 16;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|mask| u64::from_str_radix(mask.trim(), HEX).ok())
        .unwrap_or(0)
}

fn received(signal: Signal, signals: &SigSet) {
    if CAUGHT.set(signal).is_err() {
        // The second signal has its default effect.
        end(signal, signals);
    }
    TOKEN.cancel();
    ACTIONS.lock().1.values().for_each(|action| action());
}

/// The token that is set when a signal has come.
#[must_use]
pub fn token() -> &'static CancelToken {
    &TOKEN
}

/// An action for the first signal. Dropping it removes the action, which then does not run any more.
#[derive(Debug)]
pub struct OnStop(u64);

/// Runs `action` on a thread of its own when a signal comes, or now if one has come.
#[must_use]
pub fn on_stop(action: impl Fn() + Send + 'static) -> OnStop {
    let mut actions = ACTIONS.lock();
    // A signal that comes from now on waits for the lock.
    if TOKEN.is_cancelled() {
        action();
    }
    let number = actions.0;
    actions.0 += 1;
    actions.1.insert(number, Box::new(action));
    OnStop(number)
}

impl Drop for OnStop {
    fn drop(&mut self) {
        ACTIONS.lock().1.remove(&self.0);
    }
}

/// Nothing, or the failure of a command that a signal has ended. `what` names what is left.
///
/// # Errors
/// Stopped once a signal has come.
pub fn check(what: &str) -> Result<(), Failure> {
    match CAUGHT.get() {
        None => Ok(()),
        Some(&signal) => Err(Failure::Stopped {
            what: format!("stopped: {what}"),
            signal: signal as u8,
        }),
    }
}

/// Replaces the failure of work that a signal has ended. `what` names what is left.
///
/// # Errors
/// Stopped, or the work's own failure if no signal came.
pub fn or_stopped<T>(done: Result<T, Failure>, what: &str) -> Result<T, Failure> {
    done.map_err(|failure| check(what).err().unwrap_or(failure))
}

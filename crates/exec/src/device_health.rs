//! Circuit breakers of devices. A device that fails repeatedly gets no tasks for a while, then one small task as a
//! trial. All engines of a process share the record of a device's errors. Each engine has its own record of calls that
//! do not return in time, because the storage of one engine may be slow.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use rockmill_core::{Error, Lock};

/// Number of consecutive failures after which a device is quarantined.
pub const FAILURES_IN_A_ROW: u32 = 3;

/// Duration of a quarantine. Then one task tries the device, and the device is quarantined again if that fails.
pub const QUARANTINE: Duration = Duration::from_secs(60);

/// Health of a device.
#[derive(Debug, Clone, Default)]
pub struct DeviceHealth(Arc<Lock<History>>);

#[derive(Debug, Default)]
struct History {
    /// Number of quarantines so far. Results of tasks that began in an earlier generation are ignored.
    generation: u64,
    failures_in_a_row: u32,
    quarantine: Option<Quarantine>,
    /// Number of abandoned calls that have not returned.
    abandoned: u32,
}

#[derive(Debug)]
struct Quarantine {
    until: Duration,
    /// The device's last error.
    error: String,
    /// Whether a trial is in progress.
    is_tried: bool,
}

/// Tasks that a device may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Circuit {
    /// Any number of tasks.
    Closed,
    /// One small task as a trial.
    HalfOpen,
    /// None, with the reason.
    Open(String),
}

/// A task on a device. Its results count until the device is quarantined. If it is dropped without a result, another
/// task may try the device instead.
#[derive(Debug)]
pub struct Attempt {
    health: DeviceHealth,
    generation: u64,
    is_trial: bool,
}

impl History {
    fn circuit(&self, now: Duration) -> Circuit {
        match &self.quarantine {
            None => Circuit::Closed,
            Some(Quarantine { error, .. }) if self.abandoned > 0 => {
                Circuit::Open(format!("quarantined until it answers: {error}"))
            }
            Some(Quarantine {
                error, is_tried, ..
            }) if *is_tried => {
                Circuit::Open(format!("quarantined until one task has tried it: {error}"))
            }
            Some(quarantine) if now >= quarantine.until => Circuit::HalfOpen,
            Some(Quarantine { until, error, .. }) => {
                let seconds = until.saturating_sub(now).as_secs();
                Circuit::Open(format!("quarantined for another {seconds} s: {error}"))
            }
        }
    }

    fn quarantine(&mut self, until: Duration, error: &Error) {
        self.generation += 1;
        self.failures_in_a_row = 0;
        self.quarantine = Some(Quarantine {
            until,
            error: error.to_string(),
            is_tried: false,
        });
    }

    /// Lets another task try a quarantined device at once.
    fn allow_trial(&mut self) {
        self.generation += 1;
        if let Some(quarantine) = &mut self.quarantine {
            quarantine.until = Duration::ZERO;
            quarantine.is_tried = false;
        }
    }
}

impl DeviceHealth {
    /// Returns the tasks that the device may get at `now`.
    pub fn circuit(&self, now: Duration) -> Circuit {
        self.0.lock().circuit(now)
    }

    /// Begins a task at `now`, if the device may get one.
    pub fn begin(&self, now: Duration) -> Option<Attempt> {
        let mut history = self.0.lock();
        let is_trial = match history.circuit(now) {
            Circuit::Closed => false,
            Circuit::HalfOpen => true,
            Circuit::Open(_) => return None,
        };
        if let Some(quarantine) = &mut history.quarantine {
            quarantine.is_tried = true;
        }
        Some(Attempt {
            health: self.clone(),
            generation: history.generation,
            is_trial,
        })
    }

    /// Records that an abandoned call has returned.
    pub fn returned(&self) {
        self.0.lock().abandoned -= 1;
    }
}

impl Attempt {
    /// Whether this task is the trial after a quarantine.
    pub fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Returns the device's history if this task's results still count.
    fn history(&self) -> Option<MutexGuard<'_, History>> {
        let history = self.health.0.lock();
        (history.generation == self.generation).then_some(history)
    }

    /// Records that the task succeeded.
    pub fn worked(&self) {
        if let Some(mut history) = self.history() {
            history.failures_in_a_row = 0;
            // Only the trial has begun since the quarantine.
            match history.abandoned {
                0 => history.quarantine = None,
                // A call that was abandoned with its job has to return first; then another task tries the device at
                // once.
                _ => history.allow_trial(),
            }
        }
    }

    /// Records that the task failed at `now`, not because of its input. Returns whether this quarantines the device.
    pub fn failed(&self, now: Duration, error: &Error) -> bool {
        let Some(mut history) = self.history() else {
            return false;
        };
        history.failures_in_a_row += 1;
        let is_enough = self.is_trial || history.failures_in_a_row >= FAILURES_IN_A_ROW;
        if is_enough {
            history.quarantine(now + QUARANTINE, error);
        }
        is_enough
    }

    /// Records that the task was abandoned at `now`. The device is quarantined until it returns and, if the task
    /// `is_late`, for at least [`QUARANTINE`]. Returns whether the device was not quarantined before, or was being
    /// tried by this task.
    pub fn abandoned(&self, now: Duration, is_late: bool, error: &Error) -> bool {
        let mut history = self.health.0.lock();
        let is_news = history.quarantine.is_none() || history.generation == self.generation;
        history.abandoned += 1;
        match &history.quarantine {
            // A cancelled job does not change the device's existing quarantine.
            Some(_) if !is_late => {}
            None if !is_late => history.quarantine(now, error),
            quarantine => {
                let until = quarantine
                    .as_ref()
                    .map_or(now, |quarantine| quarantine.until);
                history.quarantine(until.max(now + QUARANTINE), error);
            }
        }
        is_news
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(mut history) = self.history()
            && let Some(quarantine) = &mut history.quarantine
        {
            quarantine.is_tried = false;
        }
    }
}

/// Health of a device as one engine sees it.
#[derive(Debug, Clone, Default)]
pub struct EngineHealth {
    /// Errors of the device, in all engines.
    errors: DeviceHealth,
    /// Calls of this engine that did not return in time.
    calls: DeviceHealth,
}

/// A task of an engine on a device, as [`Attempt`].
#[derive(Debug)]
pub struct EngineAttempt {
    errors: Attempt,
    calls: Attempt,
}

impl EngineHealth {
    /// The health of a device with this record of errors, and with this engine's record of calls.
    pub fn new(errors: &DeviceHealth, calls: &DeviceHealth) -> Self {
        Self {
            errors: errors.clone(),
            calls: calls.clone(),
        }
    }

    /// Returns the tasks that the device may get at `now`.
    pub fn circuit(&self, now: Duration) -> Circuit {
        match (self.errors.circuit(now), self.calls.circuit(now)) {
            (Circuit::Open(why), _) | (_, Circuit::Open(why)) => Circuit::Open(why),
            (Circuit::Closed, Circuit::Closed) => Circuit::Closed,
            _ => Circuit::HalfOpen,
        }
    }

    /// Begins a task at `now`, if the device may get one.
    pub fn begin(&self, now: Duration) -> Option<EngineAttempt> {
        let calls = self.calls.begin(now)?;
        let errors = self.errors.begin(now)?;
        Some(EngineAttempt { errors, calls })
    }

    /// Records that a call was abandoned that had begun although the device was quarantined.
    pub fn abandoned_in_quarantine(&self) {
        self.calls.0.lock().abandoned += 1;
    }

    /// Records that an abandoned call has returned.
    pub fn returned(&self) {
        self.calls.returned();
    }
}

impl EngineAttempt {
    /// Whether this task is the trial after a quarantine.
    pub fn is_trial(&self) -> bool {
        self.errors.is_trial || self.calls.is_trial
    }

    /// Records that the task succeeded.
    pub fn worked(&self) {
        self.errors.worked();
        self.calls.worked();
    }

    /// Records that the task failed at `now`, as [`Attempt::failed`].
    pub fn failed(&self, now: Duration, error: &Error) -> bool {
        let is_trial_of_calls = self.calls.is_trial && self.calls.failed(now, error);
        self.errors.failed(now, error) || is_trial_of_calls
    }

    /// Records that the task was abandoned at `now`, as [`Attempt::abandoned`]. If it was the trial of a device that had
    /// failed, the trial has failed for all engines.
    pub fn abandoned(&self, now: Duration, is_late: bool, error: &Error) -> bool {
        if is_late && self.errors.is_trial {
            self.errors.failed(now, error);
        }
        self.calls.abandoned(now, is_late, error)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use rockmill_core::ErrorKind;

    use super::*;

    const START: Duration = Duration::from_secs(1);

    fn error() -> Error {
        Error::new(ErrorKind::Device, "it burns")
    }

    fn why(health: &DeviceHealth, now: Duration) -> String {
        match health.circuit(now) {
            Circuit::Open(why) => why,
            trust => panic!("{trust:?}"),
        }
    }

    fn begin(health: &DeviceHealth, now: Duration) -> Attempt {
        health.begin(now).expect("it is trusted")
    }

    /// A device that is quarantined from the start.
    fn quarantine() -> DeviceHealth {
        let health = DeviceHealth::default();
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&health, START).failed(START, &error());
        }
        health
    }

    #[test]
    fn failures_in_a_row_quarantine_a_device_for_a_while() {
        let health = DeviceHealth::default();
        let fails = || begin(&health, START).failed(START, &error());
        for _ in 0..5 {
            assert!(!fails() && !fails());
            assert_eq!(health.circuit(START), Circuit::Closed);
            begin(&health, START).worked();
        }
        let before = begin(&health, START);
        assert!(!fails() && !fails());
        assert!(fails());
        let why = why(&health, START);
        assert!(why.contains("60 s") && why.contains("it burns"), "{why}");
        assert!(health.begin(START).is_none());
        assert!(!before.failed(START, &error()), "it is quarantined already");
    }

    #[test]
    fn a_device_that_has_not_come_back_is_not_trusted() {
        let health = DeviceHealth::default();
        let (first, second, third) = (
            begin(&health, START),
            begin(&health, START),
            begin(&health, START),
        );
        assert!(first.abandoned(START, true, &error()), "once is enough");
        assert!(!second.abandoned(START, true, &error()));
        third.worked();
        health.returned();
        assert!(why(&health, START + 2 * QUARANTINE).contains("until it answers"));
        health.returned();
        why(&health, START);
        assert_eq!(health.circuit(START + QUARANTINE), Circuit::HalfOpen);
        let trial = begin(&health, START + QUARANTINE);
        assert!(trial.abandoned(START + QUARANTINE, true, &error()));
        health.returned();
        why(&health, START + QUARANTINE);
    }

    #[test]
    fn one_task_tries_a_device_that_was_quarantined() {
        let health = quarantine();
        let later = START + QUARANTINE;
        assert_eq!(health.circuit(later), Circuit::HalfOpen, "a look is no try");
        let trial = begin(&health, later);
        assert!(trial.is_trial() && health.begin(later).is_none());
        why(&health, later + 2 * QUARANTINE);
        drop(trial);
        let trial = begin(&health, later);
        assert!(trial.failed(later, &error()), "one more is enough");
        drop(trial);
        why(&health, later + QUARANTINE / 2);
        begin(&health, later + QUARANTINE).worked();
        assert_eq!(health.circuit(later + QUARANTINE), Circuit::Closed);
        assert!(!begin(&health, later + QUARANTINE).is_trial());
    }

    #[test]
    fn tasks_that_began_before_it_was_quarantined_say_nothing_of_it() {
        let health = DeviceHealth::default();
        let [worked, failed, dropped, late] = [(); 4].map(|()| begin(&health, START));
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&health, START).failed(START, &error());
        }
        worked.worked();
        why(&health, START);
        let later = START + QUARANTINE;
        let trial = begin(&health, later);
        drop(dropped);
        assert!(health.begin(later).is_none(), "one tries it already");
        assert!(!failed.failed(later, &error()));
        trial.worked();
        assert!(late.abandoned(later, true, &error()));
        trial.worked();
        why(&health, later);
    }

    #[test]
    fn a_call_that_was_given_up_with_its_job_says_nothing_else_of_the_device() {
        let health = DeviceHealth::default();
        let [early, later, last] = [(); 3].map(|()| begin(&health, START));
        assert!(last.abandoned(START, false, &error()));
        why(&health, START + 2 * QUARANTINE);
        health.returned();
        assert_eq!(health.circuit(START), Circuit::HalfOpen);
        begin(&health, START).failed(START, &error());
        early.abandoned(START, false, &error());
        health.returned();
        why(&health, START + QUARANTINE / 2);
        let trial = begin(&health, START + QUARANTINE);
        later.abandoned(START + QUARANTINE, false, &error());
        health.returned();
        assert!(health.begin(START + QUARANTINE).is_none(), "one tries it");
        trial.worked();
        assert_eq!(health.circuit(START + QUARANTINE), Circuit::Closed);
    }

    #[test]
    fn a_call_that_was_given_up_is_waited_for_although_a_trial_has_worked() {
        let health = DeviceHealth::default();
        let early = begin(&health, START);
        for _ in 0..FAILURES_IN_A_ROW {
            begin(&health, START).failed(START, &error());
        }
        let later = START + QUARANTINE;
        let trial = begin(&health, later);
        early.abandoned(later, false, &error());
        trial.worked();
        assert!(why(&health, later).contains("until it answers"));
        health.returned();
        let next = begin(&health, later);
        drop(trial);
        assert!(health.begin(later).is_none(), "one tries it");
        next.worked();
        assert_eq!(health.circuit(later), Circuit::Closed);
    }

    /// Two engines with one device.
    fn engines() -> [EngineHealth; 2] {
        let errors = DeviceHealth::default();
        [(); 2].map(|()| EngineHealth::new(&errors, &DeviceHealth::default()))
    }

    #[test]
    fn a_late_call_of_one_engine_quarantines_the_device_for_that_engine_alone() {
        let [slow, other] = engines();
        let late = slow.begin(START).expect("it is trusted");
        assert!(late.abandoned(START, true, &error()));
        assert!(matches!(slow.circuit(START), Circuit::Open(_)));
        assert!(slow.begin(START).is_none());
        assert_eq!(other.circuit(START), Circuit::Closed);
        other.begin(START).expect("it is trusted").worked();
        slow.returned();
        let later = START + QUARANTINE;
        let trial = slow.begin(later).expect("one task tries it");
        assert!(trial.is_trial() && slow.begin(later).is_none());
        assert!(
            trial.failed(later, &error()),
            "a trial that fails is enough"
        );
        assert!(matches!(slow.circuit(later), Circuit::Open(_)));
        assert_eq!(other.circuit(later), Circuit::Closed);
    }

    #[test]
    fn errors_of_a_device_quarantine_it_for_all_engines() {
        let [one, other] = engines();
        for engine in [&one, &other, &one] {
            let attempt = engine.begin(START).expect("it is trusted");
            attempt.failed(START, &error());
        }
        for engine in [&one, &other] {
            assert!(matches!(engine.circuit(START), Circuit::Open(_)));
        }
        let later = START + QUARANTINE;
        let trial = one.begin(later).expect("one task tries it");
        assert!(
            other.begin(later).is_none(),
            "the trial is that of all engines"
        );
        assert!(trial.abandoned(later, true, &error()));
        assert!(matches!(other.circuit(later), Circuit::Open(_)));
        one.returned();
        let last = later + QUARANTINE;
        one.begin(last).expect("one task tries it").worked();
        assert_eq!(other.circuit(last), Circuit::Closed);
    }

    #[test]
    fn calls_that_were_abandoned_in_a_quarantine_are_waited_for_too() {
        let [engine, _] = engines();
        let late = engine.begin(START).expect("it is trusted");
        assert!(late.abandoned(START, true, &error()));
        engine.abandoned_in_quarantine();
        engine.returned();
        let later = START + QUARANTINE;
        assert!(matches!(engine.circuit(later), Circuit::Open(_)));
        engine.returned();
        assert_eq!(engine.circuit(later), Circuit::HalfOpen);
    }

    #[test]
    fn of_many_threads_one_tries_it() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 200;
        let health = quarantine();
        for _ in 0..ROUNDS {
            let at_once = Barrier::new(THREADS);
            let begins = || {
                at_once.wait();
                health.begin(START + QUARANTINE)
            };
            let trials = std::thread::scope(|scope| {
                let threads = [(); THREADS].map(|()| scope.spawn(begins));
                threads.map(|thread| thread.join().expect("no panic"))
            });
            assert_eq!(trials.iter().flatten().count(), 1);
        }
    }
}

//! Which device a thread's next subcompaction goes to, and which subcompaction that is.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::Shared;
use rockmill_exec::budget::{Candidate, HOST};
use rockmill_exec::device_health::{Attempt, Circuit};
use rockmill_exec::device_registry::DeviceEntry;

/// The subcompactions that have not begun.
#[derive(Debug)]
pub struct Left(Mutex<BTreeSet<usize>>);

impl Left {
    /// All of so many.
    pub fn all(subcompactions: usize) -> Self {
        Self(Mutex::new((0..subcompactions).collect()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the first, or the one with the fewest bytes.
    fn take(&self, fewest_of: Option<&[u64]>) -> Option<usize> {
        let mut left = self.lock();
        let Some(bytes) = fewest_of else {
            return left.pop_first();
        };
        let smallest = left
            .iter()
            .copied()
            .min_by_key(|&subcompaction| bytes[subcompaction])?;
        left.take(&smallest)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl<'a> Shared<'a> {
    /// The device of that number, unless it is the CPU.
    pub(super) fn entry(&self, number: usize) -> Option<DeviceEntry<'a>> {
        let mut devices = self.devices.iter().copied();
        devices.find(|device| device.number == number)
    }

    /// The devices that may take a subcompaction now, with what one takes there.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let now = self.context.clock.now();
        let mut candidates = Vec::new();
        for entry in &self.devices {
            let name = entry.device.backend.name();
            match entry.device.health.circuit(now) {
                Circuit::Open(why) => self.refused(format!("{name}: {why}")),
                Circuit::Closed | Circuit::HalfOpen => {
                    candidates.push(self.candidate(entry.number, name))
                }
            }
        }
        if self.context.host_shares || candidates.is_empty() {
            candidates.push(self.candidate(HOST, self.cpu_name()));
        }
        candidates
    }

    pub(super) fn candidate(&self, device: usize, name: &str) -> Candidate {
        Candidate {
            device,
            seconds: self.context.paces.expected(name, &self.size.mean()),
        }
    }

    /// Takes a subcompaction that has not begun for a device, if that is still trusted: the smallest one if it has to
    /// show first that it works again.
    pub(super) fn take(&self, device: Option<DeviceEntry<'a>>) -> Taken {
        let now = self.context.clock.now();
        let attempt = device.and_then(|entry| entry.device.health.begin(now));
        if attempt.is_none() && device.is_some() {
            return Taken::Distrusted;
        }
        let is_trial = attempt.as_ref().is_some_and(Attempt::is_trial);
        let Some(subcompaction) = self.left.take(is_trial.then_some(self.subcompaction_bytes))
        else {
            return Taken::Nothing;
        };
        if let Some(attempt) = attempt {
            self.attempts[subcompaction].get_or_init(|| attempt);
        }
        Taken::Subcompaction(subcompaction)
    }
}

/// What a thread got for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// That subcompaction.
    Subcompaction(usize),
    /// The device has failed meanwhile, or another subcompaction tries it.
    Distrusted,
    /// There is none.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcompactions_begin_in_order_or_the_smallest_first() {
        let left = Left::all(4);
        let bytes = [5, 9, 2, 7];
        assert_eq!(left.take(None), Some(0));
        assert_eq!(left.take(Some(&bytes)), Some(2));
        assert_eq!(
            (left.take(None), left.take(Some(&bytes))),
            (Some(1), Some(3))
        );
        assert!(left.is_empty() && left.take(None).is_none() && left.take(Some(&bytes)).is_none());
    }
}

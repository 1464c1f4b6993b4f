//! Which device a thread's next slice goes to, and which slice that is.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use super::Shared;
use rockmill_exec::budget::{Candidate, HOST};
use rockmill_exec::device_health::{Attempt, Trust};
use rockmill_exec::device_registry::Offload;

/// The slices that have not begun.
#[derive(Debug)]
pub struct Left(Mutex<BTreeSet<usize>>);

impl Left {
    /// All of so many.
    pub fn all(slices: usize) -> Self {
        Self(Mutex::new((0..slices).collect()))
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
        let smallest = left.iter().copied().min_by_key(|&slice| bytes[slice])?;
        left.take(&smallest)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl<'a> Shared<'a> {
    /// The device of that number, unless it is the CPU.
    pub(super) fn offload(&self, number: usize) -> Option<Offload<'a>> {
        let mut devices = self.devices.iter().copied();
        devices.find(|device| device.number == number)
    }

    /// The devices that may take a slice now, with what one takes there.
    pub(super) fn candidates(&self) -> Vec<Candidate> {
        let now = self.context.clock.now();
        let mut candidates = Vec::new();
        for offload in &self.devices {
            let name = offload.device.backend.name();
            match offload.device.standing.trust(now) {
                Trust::Aside(why) => self.refused(format!("{name}: {why}")),
                Trust::Full | Trust::Once => candidates.push(self.candidate(offload.number, name)),
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

    /// Takes a slice that has not begun for a device, if that is still trusted: the smallest one if it has to
    /// show first that it works again.
    pub(super) fn take(&self, device: Option<Offload<'a>>) -> Taken {
        let now = self.context.clock.now();
        let attempt = device.and_then(|offload| offload.device.standing.begin(now));
        if attempt.is_none() && device.is_some() {
            return Taken::Distrusted;
        }
        let is_trial = attempt.as_ref().is_some_and(Attempt::is_trial);
        let Some(slice) = self.left.take(is_trial.then_some(self.slice_bytes)) else {
            return Taken::Nothing;
        };
        if let Some(attempt) = attempt {
            self.attempts[slice].get_or_init(|| attempt);
        }
        Taken::Slice(slice)
    }
}

/// What a thread got for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// That slice.
    Slice(usize),
    /// The device has failed meanwhile, or another slice tries it.
    Distrusted,
    /// There is none.
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_begin_in_order_or_the_smallest_first() {
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

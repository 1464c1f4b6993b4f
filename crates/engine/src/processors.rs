//! Moving a thread from processor to processor, so that what it measures is the machine and not the one processor that
//! it happens to run on.

use std::marker::PhantomData;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that a thread may use, in an order in which those that follow each other lie apart.
#[derive(Debug, Clone)]
pub struct Processors(Vec<usize>);

impl Processors {
    /// Those of the calling thread; none if the system does not tell.
    pub fn here() -> Self {
        let all = sched_getaffinity(None).map_or(Vec::new(), |mask| {
            let is_in = |&processor: &usize| mask.is_set(processor);
            (0..CpuSet::MAX_CPU).filter(is_in).collect()
        });
        Self(spread(&all))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Keeps the calling thread, and those that it starts meanwhile, on one of them until what this returns is dropped.
    /// Processors are counted over and over again. Where the system refuses, the thread goes on where it is.
    pub fn pin(&self, nth: usize) -> Pinned {
        let pin = || {
            let processor = self.0[nth.checked_rem(self.0.len())?];
            let before = sched_getaffinity(None).ok()?;
            let mut one = CpuSet::new();
            one.set(processor);
            sched_setaffinity(None, &one).ok()?;
            Some(before)
        };
        Pinned {
            before: pin(),
            of_this_thread: PhantomData,
        }
    }
}

/// A thread that is kept on one processor; dropped there, it may go where it could before.
#[derive(Debug)]
#[must_use]
pub struct Pinned {
    before: Option<CpuSet>,
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = sched_setaffinity(None, before)
        {
            tracing::warn!(%error, "a thread stays on one processor");
        }
    }
}

/// Steps of about the golden ratio meet all, and leave no large gap at any time.
fn spread(all: &[usize]) -> Vec<usize> {
    const STEP: f64 = 0.618;
    let mut steps = (1..=(all.len() as f64 * STEP) as usize).rev();
    let step = steps.find(|&step| gcd(step, all.len()) == 1).unwrap_or(1);
    let nth = |i| all[i * step % all.len()];
    (0..all.len()).map(nth).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    fn mask() -> CpuSet {
        sched_getaffinity(None).expect("every thread has one")
    }

    #[test]
    fn a_thread_is_on_one_processor_until_it_is_let_go() {
        let before = mask();
        let processors = Processors::here();
        assert_eq!(processors.count(), before.count() as usize);
        for nth in 0..2 * processors.count() {
            let _pinned = processors.pin(nth);
            let now = mask();
            assert!(now.count() == 1 && now.is_set(processors.0[nth % processors.count()]));
        }
        assert_eq!(mask(), before);
        let panicked = catch_unwind(|| {
            let _pinned = Processors::here().pin(0);
            panic!("on purpose");
        });
        assert!(panicked.is_err() && mask() == before);
    }

    #[test]
    fn who_may_not_choose_stays() {
        let before = mask();
        for processors in [
            Processors(Vec::new()),
            Processors(vec![CpuSet::MAX_CPU - 1]),
        ] {
            let _pinned = processors.pin(7);
            assert_eq!(mask(), before);
        }
        assert_eq!(mask(), before);
    }

    #[test]
    fn all_processors_have_their_turn_and_the_first_lie_apart() {
        for count in 0..130 {
            let all: Vec<usize> = (0..count).map(|i| 3 * i).collect();
            let mut spread = spread(&all);
            spread.sort_unstable();
            assert_eq!(spread, all);
        }
        let mut first = spread(&(0..64).collect::<Vec<_>>());
        first.truncate(4);
        first.sort_unstable();
        assert!(
            first.windows(2).all(|two| two[1] - two[0] >= 8),
            "{first:?}"
        );
    }
}

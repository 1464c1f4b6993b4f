//! Which jobs go first.

use rockmill_core::JobInfo;

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// It makes room in level 0, where writers stall.
    First,
    /// Any other.
    Usual,
    /// RocksDB runs it where it runs what can wait, in the pool of bottommost compactions.
    Last,
}

/// Of what is given out while all wait, each urgency gets so many times as much as the next lower one.
const SHARE: u64 = 8;

/// Urgencies.
const KINDS: usize = 3;

impl Urgency {
    /// Of a job, as RocksDB describes it.
    pub fn of(info: &JobInfo) -> Self {
        match (info.base_input_level == 0, info.is_in_bottom_pool) {
            (true, false) => Self::First,
            (true, true) | (false, false) => Self::Usual,
            (false, true) => Self::Last,
        }
    }
}

/// Places in the queue, by weighted fair queueing: who waits goes before all that are less urgent, however many they are,
/// but for one of them every so often. So all get their turn.
#[derive(Debug, Default)]
pub struct Ranks {
    /// The highest that was served.
    served: u64,
    /// The last that a wish of each urgency got.
    last: [u64; KINDS],
}

impl Ranks {
    /// The place of a wish that comes now; the lowest is served first, and of the same the one that came first.
    pub fn next(&mut self, urgency: Urgency) -> u64 {
        let last = &mut self.last[urgency as usize];
        let step = SHARE.pow(urgency as u32);
        *last = (*last).max(self.served).saturating_add(step);
        *last
    }

    /// A wish was served.
    pub fn served(&mut self, rank: u64) {
        self.served = self.served.max(rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who is served of so many of each urgency that wait, the most urgent having come last.
    fn order(waiting: [usize; KINDS]) -> Vec<Urgency> {
        let mut ranks = Ranks::default();
        let kinds = [Urgency::Last, Urgency::Usual, Urgency::First];
        let counted = kinds.into_iter().zip(waiting.into_iter().rev());
        let mut queue: Vec<_> = counted
            .flat_map(|(urgency, count)| std::iter::repeat_n(urgency, count))
            .map(|urgency| (ranks.next(urgency), urgency))
            .collect();
        queue.sort_by_key(|(rank, _)| *rank);
        queue.into_iter().map(|(_, urgency)| urgency).collect()
    }

    #[test]
    fn the_urgent_wait_for_one_in_nine_however_many_came_before() {
        for usual in [20, 1000] {
            let order = order([64, usual, 0]);
            let urgent = |all: &[Urgency]| all.iter().filter(|u| **u == Urgency::First).count();
            assert_eq!(urgent(&order[..8]), 7, "the eighth came later");
            assert_eq!(urgent(&order[..72]), 64);
        }
    }

    #[test]
    fn what_can_wait_gets_its_turn_and_no_more() {
        let order = order([1000, 1000, 1000]);
        let last = |all: &[Urgency]| all.iter().filter(|u| **u == Urgency::Last).count();
        assert_eq!((last(&order[..73]), last(&order[..730])), (1, 10));
    }

    #[test]
    fn who_did_not_wait_has_nothing_saved() {
        let mut ranks = Ranks::default();
        for _ in 0..1000 {
            let rank = ranks.next(Urgency::Usual);
            ranks.served(rank);
        }
        let usual = ranks.next(Urgency::Usual);
        let urgent: Vec<_> = (0..9).map(|_| ranks.next(Urgency::First)).collect();
        assert!(urgent[6] < usual && urgent[8] > usual);
    }
}

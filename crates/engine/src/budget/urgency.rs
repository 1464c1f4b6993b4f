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

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The lowest is served first, and of the same the one that came first.
    pub ends: u64,
    /// Where its turn begins, by which the place is found of who comes while it waits.
    begins: u64,
}

/// Places in the queue, by weighted fair queueing: who comes goes before all that are less urgent, however many wait,
/// but for one of them every so often. So all get their turn.
#[derive(Debug, Default)]
pub struct Ranks {
    /// The highest that was served.
    served: u64,
    /// The last that a wish of each urgency got.
    last: [u64; KINDS],
}

impl Ranks {
    /// The place of a wish that comes while `first` is the next of its kind to be served, if such wait.
    pub fn next(&mut self, urgency: Urgency, first: Option<Rank>) -> Rank {
        // Some are served out of turn, since they wait for something else than those before them.
        let now = first.map_or(self.served, |first| first.begins.min(self.served));
        let begins = self.last[urgency as usize].max(now);
        let ends = begins.saturating_add(SHARE.pow(urgency as u32));
        self.last[urgency as usize] = ends;
        Rank { ends, begins }
    }

    /// A wish was served.
    pub fn served(&mut self, rank: Rank) {
        self.served = self.served.max(rank.ends);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who waits, and who is next.
    #[derive(Default)]
    struct Queue {
        ranks: Ranks,
        waiting: Vec<(Rank, Urgency)>,
    }

    impl Queue {
        fn comes(&mut self, urgency: Urgency) {
            let first = self.waiting.first().map(|(rank, _)| *rank);
            let rank = self.ranks.next(urgency, first);
            let place = self
                .waiting
                .partition_point(|(other, _)| other.ends <= rank.ends);
            self.waiting.insert(place, (rank, urgency));
        }

        fn serve(&mut self, place: usize) -> Urgency {
            let (rank, urgency) = self.waiting.remove(place);
            self.ranks.served(rank);
            urgency
        }

        /// How many of the next so many are of an urgency.
        fn next(&mut self, served: usize, of: Urgency) -> usize {
            (0..served).filter(|_| self.serve(0) == of).count()
        }
    }

    /// So many of each urgency, the most urgent of whom have come last.
    fn queue(waiting: [(Urgency, usize); KINDS]) -> Queue {
        let mut queue = Queue::default();
        for (urgency, count) in waiting.into_iter().rev() {
            (0..count).for_each(|_| queue.comes(urgency));
        }
        queue
    }

    #[test]
    fn the_urgent_wait_for_one_in_nine_however_many_came_before() {
        for usual in [20, 1000] {
            let all = [
                (Urgency::First, 64),
                (Urgency::Usual, usual),
                (Urgency::Last, 0),
            ];
            assert_eq!(
                queue(all).next(8, Urgency::First),
                7,
                "the eighth came later"
            );
            assert_eq!(queue(all).next(72, Urgency::First), 64);
        }
    }

    #[test]
    fn what_can_wait_gets_its_turn_and_no_more() {
        let mut all = queue([Urgency::First, Urgency::Usual, Urgency::Last].map(|u| (u, 1000)));
        assert_eq!(all.next(73, Urgency::Last), 1);
        assert_eq!(all.next(730 - 73, Urgency::Last), 9);
    }

    #[test]
    fn who_did_not_wait_has_nothing_saved() {
        let mut queue = Queue::default();
        for _ in 0..1000 {
            queue.comes(Urgency::Usual);
            queue.serve(0);
        }
        queue.comes(Urgency::Usual);
        (0..9).for_each(|_| queue.comes(Urgency::First));
        assert_eq!(queue.next(7, Urgency::First), 7);
        assert_eq!(queue.serve(0), Urgency::Usual);
    }

    #[test]
    fn the_urgent_go_first_although_others_were_served_out_of_turn() {
        let mut queue = queue([
            (Urgency::First, 0),
            (Urgency::Usual, 0),
            (Urgency::Last, 20),
        ]);
        for _ in 0..10 {
            queue.serve(10);
        }
        queue.comes(Urgency::First);
        assert_eq!(queue.serve(0), Urgency::First);
    }
}

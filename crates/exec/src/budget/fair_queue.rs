//! Which jobs go first.

use std::collections::VecDeque;

/// How urgent a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It makes room in level 0, where writers stall.
    High,
    /// Any other.
    Normal,
    /// RocksDB runs it where it runs what can wait, in the pool of bottommost compactions.
    Low,
}

/// So many that are more urgent go before the first of those that are less, which then counts as more urgent itself.
const TURN: u32 = 8;

impl Priority {
    /// The next more urgent.
    fn next(self) -> Self {
        match self {
            Self::High | Self::Normal => Self::High,
            Self::Low => Self::Normal,
        }
    }
}

/// How somebody stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// What it counts as.
    priority: Priority,
    /// How many went before it since it was the first of its priority.
    passed: u32,
}

/// Who waits, the most urgent first and of each priority in the order in which they came to it.
#[derive(Debug)]
pub struct FairQueue<T>(VecDeque<(Position, T)>);

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> FairQueue<T> {
    /// Somebody comes, and goes before all that are less urgent, however many wait, but for one of them every so often.
    pub fn come(&mut self, priority: Priority, who: T) {
        self.join(priority, who);
        for less in [Priority::Normal, Priority::Low] {
            if less > priority {
                self.pass(less);
            }
        }
    }

    /// Somebody went before the first of this priority.
    fn pass(&mut self, less: Priority) {
        let place = self.first_of(less);
        let Some((position, _)) = self.0.get_mut(place) else {
            return;
        };
        if position.priority != less {
            return;
        }
        position.passed += 1;
        if position.passed >= TURN
            && let Some((_, who)) = self.0.remove(place)
        {
            self.join(less.next(), who);
        }
    }

    /// Where those of a priority begin.
    fn first_of(&self, priority: Priority) -> usize {
        self.0
            .partition_point(|(other, _)| other.priority < priority)
    }

    fn join(&mut self, priority: Priority, who: T) {
        let behind = self
            .0
            .partition_point(|(other, _)| other.priority <= priority);
        let position = Position {
            priority,
            passed: 0,
        };
        self.0.insert(behind, (position, who));
    }

    /// Takes out those whom `keep` does not want to wait on, asked in their order.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.0.retain_mut(|(_, who)| keep(who));
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many of each priority, the most urgent of whom have come last.
    fn queue(waiting: [(Priority, usize); 3]) -> FairQueue<Priority> {
        let mut queue = FairQueue::default();
        for (priority, count) in waiting.into_iter().rev() {
            (0..count).for_each(|_| queue.come(priority, priority));
        }
        queue
    }

    /// How many of the first so many are of a priority.
    fn count(queue: &FairQueue<Priority>, first: usize, of: Priority) -> usize {
        let first = queue.0.iter().take(first);
        first.filter(|(_, priority)| *priority == of).count()
    }

    #[test]
    fn the_urgent_wait_for_one_in_nine_however_many_came_before() {
        for usual in [20, 1000] {
            let queue = queue([
                (Priority::High, 64),
                (Priority::Normal, usual),
                (Priority::Low, 0),
            ]);
            assert_eq!(count(&queue, 8, Priority::High), 8);
            assert_eq!(count(&queue, 72, Priority::High), 64);
            assert_eq!(queue.len(), 64 + usual);
        }
    }

    #[test]
    fn what_can_wait_gets_its_turn_and_no_more() {
        let mut queue = queue([Priority::High, Priority::Normal, Priority::Low].map(|u| (u, 20)));
        let mut served = 0;
        // An urgent one comes whenever somebody was served.
        while count(&queue, 1, Priority::Low) == 0 && served < 200 {
            queue.0.pop_front();
            queue.come(Priority::High, Priority::High);
            served += 1;
        }
        assert!((20..200).contains(&served), "{served}");
    }

    #[test]
    fn who_waits_for_long_gives_those_behind_no_more_than_their_turn() {
        let mut queue = FairQueue::default();
        queue.come(Priority::Normal, Priority::Normal);
        for _ in 0..300 {
            queue.come(Priority::Normal, Priority::Normal);
            queue.0.remove(1);
        }
        queue.come(Priority::Low, Priority::Low);
        for _ in 0..4 {
            queue.come(Priority::Normal, Priority::Normal);
        }
        queue.come(Priority::High, Priority::High);
        let order: Vec<_> = queue.0.iter().map(|(_, priority)| *priority).collect();
        let usual = [Priority::Normal; 5];
        assert_eq!(
            order,
            [&[Priority::High], &usual[..], &[Priority::Low]].concat()
        );
    }
}

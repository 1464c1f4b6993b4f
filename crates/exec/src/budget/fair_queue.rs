//! The order in which waiters are served.

use std::collections::VecDeque;

/// Priority of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Compaction of level 0: writers stall if it is late.
    High,
    /// Any other job.
    Normal,
    /// A job from RocksDB's bottom-priority pool.
    Low,
}

/// Number of waiters with a higher priority that may overtake the first one of a priority. Then its priority is raised
/// by one.
const MAX_OVERTAKES: u32 = 8;

impl Priority {
    /// Returns the next higher priority.
    fn raised(self) -> Self {
        match self {
            Self::High | Self::Normal => Self::High,
            Self::Low => Self::Normal,
        }
    }
}

/// Position of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// Its current priority.
    priority: Priority,
    /// Number of waiters that were queued ahead of it since it became the first of its priority.
    overtakes: u32,
}

/// Waiters by priority, and in order of arrival within a priority.
#[derive(Debug)]
pub struct FairQueue<T>(VecDeque<(Position, T)>);

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> FairQueue<T> {
    /// Queues a waiter ahead of all waiters with a lower priority, and counts this as an overtake of each priority's
    /// first one.
    pub fn push(&mut self, priority: Priority, waiter: T) {
        self.insert(priority, waiter);
        for lower in [Priority::Normal, Priority::Low] {
            if lower > priority {
                self.overtaken(lower);
            }
        }
    }

    /// Counts an overtake of the first waiter with priority `lower`.
    fn overtaken(&mut self, lower: Priority) {
        let place = self.first_of(lower);
        let Some((position, _)) = self.0.get_mut(place) else {
            return;
        };
        if position.priority != lower {
            return;
        }
        position.overtakes += 1;
        if position.overtakes >= MAX_OVERTAKES
            && let Some((_, waiter)) = self.0.remove(place)
        {
            self.insert(lower.raised(), waiter);
        }
    }

    /// Returns the index of the first waiter with this priority.
    fn first_of(&self, priority: Priority) -> usize {
        self.0
            .partition_point(|(other, _)| other.priority < priority)
    }

    fn insert(&mut self, priority: Priority, waiter: T) {
        let place = self
            .0
            .partition_point(|(other, _)| other.priority <= priority);
        let position = Position {
            priority,
            overtakes: 0,
        };
        self.0.insert(place, (position, waiter));
    }

    /// Removes the waiters for which `reserve` returns false. Calls it in order.
    pub fn retain(&mut self, mut reserve: impl FnMut(&mut T) -> bool) {
        self.0.retain_mut(|(_, waiter)| reserve(waiter));
    }

    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a queue with that many waiters of each priority, of which those with the highest priority were queued
    /// last.
    fn queue(waiting: [(Priority, usize); 3]) -> FairQueue<Priority> {
        let mut queue = FairQueue::default();
        for (priority, count) in waiting.into_iter().rev() {
            (0..count).for_each(|_| queue.push(priority, priority));
        }
        queue
    }

    /// Counts the waiters of a priority among the `first` ones.
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
        // A waiter with high priority arrives whenever one was served.
        while count(&queue, 1, Priority::Low) == 0 && served < 200 {
            queue.0.pop_front();
            queue.push(Priority::High, Priority::High);
            served += 1;
        }
        assert!((20..200).contains(&served), "{served}");
    }

    #[test]
    fn who_waits_for_long_gives_those_behind_no_more_than_their_turn() {
        let mut queue = FairQueue::default();
        queue.push(Priority::Normal, Priority::Normal);
        for _ in 0..300 {
            queue.push(Priority::Normal, Priority::Normal);
            queue.0.remove(1);
        }
        queue.push(Priority::Low, Priority::Low);
        for _ in 0..4 {
            queue.push(Priority::Normal, Priority::Normal);
        }
        queue.push(Priority::High, Priority::High);
        let order: Vec<_> = queue.0.iter().map(|(_, priority)| *priority).collect();
        let usual = [Priority::Normal; 5];
        assert_eq!(
            order,
            [&[Priority::High], &usual[..], &[Priority::Low]].concat()
        );
    }
}

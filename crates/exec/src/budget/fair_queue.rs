//! Which jobs go first.

use std::collections::VecDeque;

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

/// So many that are more urgent go before the first of those that are less, which then counts as more urgent itself.
const TURN: u32 = 8;

impl Urgency {
    /// The next more urgent.
    fn next(self) -> Self {
        match self {
            Self::First | Self::Usual => Self::First,
            Self::Last => Self::Usual,
        }
    }
}

/// How somebody stands in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// What it counts as.
    urgency: Urgency,
    /// How many went before it since it was the first of its urgency.
    passed: u32,
}

/// Who waits, the most urgent first and of each urgency in the order in which they came to it.
#[derive(Debug)]
pub struct Line<T>(VecDeque<(Position, T)>);

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Line<T> {
    /// Somebody comes, and goes before all that are less urgent, however many wait, but for one of them every so often.
    pub fn come(&mut self, urgency: Urgency, who: T) {
        self.join(urgency, who);
        for less in [Urgency::Usual, Urgency::Last] {
            if less > urgency {
                self.pass(less);
            }
        }
    }

    /// Somebody went before the first of this urgency.
    fn pass(&mut self, less: Urgency) {
        let place = self.first_of(less);
        let Some((position, _)) = self.0.get_mut(place) else {
            return;
        };
        if position.urgency != less {
            return;
        }
        position.passed += 1;
        if position.passed >= TURN
            && let Some((_, who)) = self.0.remove(place)
        {
            self.join(less.next(), who);
        }
    }

    /// Where those of an urgency begin.
    fn first_of(&self, urgency: Urgency) -> usize {
        self.0.partition_point(|(other, _)| other.urgency < urgency)
    }

    fn join(&mut self, urgency: Urgency, who: T) {
        let behind = self
            .0
            .partition_point(|(other, _)| other.urgency <= urgency);
        let position = Position { urgency, passed: 0 };
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

    /// So many of each urgency, the most urgent of whom have come last.
    fn line(waiting: [(Urgency, usize); 3]) -> Line<Urgency> {
        let mut line = Line::default();
        for (urgency, count) in waiting.into_iter().rev() {
            (0..count).for_each(|_| line.come(urgency, urgency));
        }
        line
    }

    /// How many of the first so many are of an urgency.
    fn count(line: &Line<Urgency>, first: usize, of: Urgency) -> usize {
        let first = line.0.iter().take(first);
        first.filter(|(_, urgency)| *urgency == of).count()
    }

    #[test]
    fn the_urgent_wait_for_one_in_nine_however_many_came_before() {
        for usual in [20, 1000] {
            let line = line([
                (Urgency::First, 64),
                (Urgency::Usual, usual),
                (Urgency::Last, 0),
            ]);
            assert_eq!(count(&line, 8, Urgency::First), 8);
            assert_eq!(count(&line, 72, Urgency::First), 64);
            assert_eq!(line.len(), 64 + usual);
        }
    }

    #[test]
    fn what_can_wait_gets_its_turn_and_no_more() {
        let mut line = line([Urgency::First, Urgency::Usual, Urgency::Last].map(|u| (u, 20)));
        let mut served = 0;
        // An urgent one comes whenever somebody was served.
        while count(&line, 1, Urgency::Last) == 0 && served < 200 {
            line.0.pop_front();
            line.come(Urgency::First, Urgency::First);
            served += 1;
        }
        assert!((20..200).contains(&served), "{served}");
    }

    #[test]
    fn who_waits_for_long_gives_those_behind_no_more_than_their_turn() {
        let mut line = Line::default();
        line.come(Urgency::Usual, Urgency::Usual);
        for _ in 0..300 {
            line.come(Urgency::Usual, Urgency::Usual);
            line.0.remove(1);
        }
        line.come(Urgency::Last, Urgency::Last);
        for _ in 0..4 {
            line.come(Urgency::Usual, Urgency::Usual);
        }
        line.come(Urgency::First, Urgency::First);
        let order: Vec<_> = line.0.iter().map(|(_, urgency)| *urgency).collect();
        let usual = [Urgency::Usual; 5];
        assert_eq!(
            order,
            [&[Urgency::First], &usual[..], &[Urgency::Last]].concat()
        );
    }
}

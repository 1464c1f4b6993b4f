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

/// A wish goes before those of the next lower urgency that came up to so many wishes earlier, and before no
/// others: so all get their turn.
const HEAD_START: u64 = 64;

impl Urgency {
    /// Of a job, as RocksDB describes it.
    pub fn of(info: &JobInfo) -> Self {
        match (info.base_input_level == 0, info.is_in_bottom_pool) {
            (true, false) => Self::First,
            (true, true) | (false, false) => Self::Usual,
            (false, true) => Self::Last,
        }
    }

    /// A place in the queue, of a wish that comes as the `ticket`th.
    pub fn rank(self, ticket: u64) -> u64 {
        ticket.saturating_add(self as u64 * HEAD_START)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_urgent_are_overtaken_for_a_while() {
        let now = 1000;
        assert!(Urgency::First.rank(now) < Urgency::Usual.rank(now - 1));
        assert!(Urgency::Usual.rank(now) < Urgency::Last.rank(now - HEAD_START + 1));
        assert!(Urgency::First.rank(now) > Urgency::Last.rank(now - 2 * HEAD_START - 1));
    }
}

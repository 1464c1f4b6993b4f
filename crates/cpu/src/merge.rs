//! One order over many runs: user key ascending, newest first.

use std::cmp::Ordering;

use rockmill_core::Result;

use crate::decode::{Head, RunReader};

/// A tournament of losers: the leaf of the smallest head is the winner, and each inner node keeps the
/// run that lost there, so that advancing the winner replays one path of `log2(runs)` comparisons.
#[derive(Debug)]
pub struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// Prefix of each run's head, `None` once the run is exhausted.
    prefixes: Vec<Option<u128>>,
    /// `losers[0]` is the winner; node `n` has children `2n` and `2n + 1`, leaves begin at
    /// `runs.len()`.
    losers: Vec<usize>,
}

impl<'a> Merge<'a> {
    /// Merges `runs`, each of which stands at its first entry.
    pub fn new(runs: Vec<RunReader<'a>>) -> Self {
        let prefixes = runs
            .iter()
            .map(|run| run.head().map(|h| h.prefix))
            .collect();
        let mut merge = Self {
            losers: vec![0; runs.len().max(1)],
            prefixes,
            runs,
        };
        if merge.runs.len() > 1 {
            let winner = merge.play(1);
            merge.losers[0] = winner;
        }
        merge
    }

    /// Plays the subtree below `node`; returns its winner.
    fn play(&mut self, node: usize) -> usize {
        if node >= self.runs.len() {
            return node - self.runs.len();
        }
        let (a, b) = (self.play(2 * node), self.play(2 * node + 1));
        let (winner, loser) = if self.before(a, b) { (a, b) } else { (b, a) };
        self.losers[node] = loser;
        winner
    }

    /// Whether run `a`'s head comes before run `b`'s. Equal internal keys, which only damaged trees
    /// have, go by the runs' order, so that the result stays a function of the job.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        match (self.prefixes[a], self.prefixes[b]) {
            (Some(x), Some(y)) if x != y => x < y,
            (Some(_), Some(_)) => self.full_order(a, b).is_lt(),
            (x, y) => x.is_some() || (y.is_none() && a < b),
        }
    }

    #[cold]
    fn full_order(&self, a: usize, b: usize) -> Ordering {
        match (self.runs[a].head(), self.runs[b].head()) {
            (Some(x), Some(y)) => x
                .user_key
                .cmp(y.user_key)
                .then(y.tag.cmp(&x.tag))
                .then(a.cmp(&b)),
            _ => a.cmp(&b),
        }
    }

    /// The first entry not taken yet.
    #[inline]
    pub fn head(&self) -> Option<Head<'_>> {
        self.runs.get(self.losers[0])?.head()
    }

    /// Takes the head.
    ///
    /// # Errors
    /// Those of [`RunReader::advance`].
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let mut winner = self.losers[0];
        self.runs[winner].advance()?;
        self.prefixes[winner] = self.runs[winner].head().map(|h| h.prefix);
        let mut node = (winner + self.runs.len()) / 2;
        while node > 0 {
            if self.before(self.losers[node], winner) {
                std::mem::swap(&mut self.losers[node], &mut winner);
            }
            node /= 2;
        }
        self.losers[0] = winner;
        Ok(())
    }

    /// The runs.
    pub fn runs(&self) -> &[RunReader<'a>] {
        &self.runs
    }
}

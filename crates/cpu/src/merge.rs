//! One order over many runs: user key ascending, newest first.

use std::hint::select_unpredictable;

use rockmill_core::{RestoredKey, Result};

use crate::decode::{Head, RunReader};

/// Where a run's head stands in the order, as numbers: all of it for keys of up to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    prefix: u128,
    /// Key length, or [`LONG`]; then the newest tag first, then the run. Two short keys of one prefix
    /// differ in trailing zeros, so that the longer one is the larger. Equal internal keys, which only
    /// damaged trees have, go by the runs' order, so that the result stays a function of the job.
    rest: u128,
}

/// Stands in [`Rank::rest`] for all lengths beyond the prefix.
const LONG: usize = 17;
const LEN_SHIFT: u32 = 96;
const TAG_SHIFT: u32 = 32;

impl Rank {
    /// Behind all others: the run is exhausted.
    const LAST: Self = Self {
        prefix: u128::MAX,
        rest: u128::MAX,
    };

    #[inline]
    fn new(key: Option<&RestoredKey>, run: usize) -> Self {
        let Some(key) = key else { return Self::LAST };
        let len = key.user_len().min(LONG) as u128;
        Self {
            prefix: key.prefix(),
            rest: len << LEN_SHIFT | u128::from(!key.tag) << TAG_SHIFT | run as u128,
        }
    }

    #[inline]
    fn is_long(self) -> bool {
        (self.rest >> LEN_SHIFT) as usize == LONG
    }
}

/// A tournament of losers: the leaf of the smallest head is the winner, and each inner node keeps the
/// run that lost there, so that advancing the winner replays one path of `log2(runs)` comparisons.
#[derive(Debug)]
pub struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// Of each run's head.
    ranks: Vec<Rank>,
    /// `losers[0]` is the winner; node `n` has children `2n` and `2n + 1`, leaves begin at
    /// `runs.len()`.
    losers: Vec<usize>,
}

impl<'a> Merge<'a> {
    /// Merges `runs`, each of which stands at its first entry.
    pub fn new(runs: Vec<RunReader<'a>>) -> Self {
        let heads = runs.iter().enumerate();
        let mut merge = Self {
            losers: vec![0; runs.len().max(1)],
            ranks: heads.map(|(i, run)| Rank::new(run.key(), i)).collect(),
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

    /// Whether run `a`'s head comes before run `b`'s.
    #[inline]
    fn before(&self, a: usize, b: usize) -> bool {
        let (x, y) = (self.ranks[a], self.ranks[b]);
        if x.is_long() & y.is_long() & (x.prefix == y.prefix) {
            return self.long_before(a, b);
        }
        x < y
    }

    #[inline(never)]
    fn long_before(&self, a: usize, b: usize) -> bool {
        self.runs[a]
            .user_key()
            .cmp(&self.runs[b].user_key())
            .then(self.ranks[a].cmp(&self.ranks[b]))
            .is_lt()
    }

    /// The first entry not taken yet.
    // Callers look at one or two of its parts.
    #[inline(always)]
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
        self.ranks[winner] = Rank::new(self.runs[winner].key(), winner);
        let mut node = (winner + self.runs.len()) / 2;
        while node > 0 {
            // Which of two runs goes first is as good as random.
            let loser = self.losers[node];
            let exchange = self.before(loser, winner);
            self.losers[node] = select_unpredictable(exchange, winner, loser);
            winner = select_unpredictable(exchange, loser, winner);
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

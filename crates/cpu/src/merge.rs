//! One order over many runs: user key ascending, newest first.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use rockmill_core::{RestoredKey, Result};

use crate::decode::{Head, RunReader};

/// A run that takes part in the tournament, and [`rockmill_core::key_prefix`] of its head. What decides between
/// equal prefixes is looked up in the runs: it is rare where keys differ, and comparing less is what makes
/// the path of a winner short.
#[derive(Debug, Clone, Copy)]
struct Player {
    prefix: u128,
    run: usize,
}

/// Stands for an exhausted run, behind nearly all others.
const EXHAUSTED: u128 = u128::MAX;

impl Player {
    /// The two with the winner first. All of it stays in registers, and without a jump as long as prefixes
    /// differ: which of two runs goes first is as good as random.
    #[inline(always)]
    fn play(self, other: Self, runs: &[RunReader<'_>]) -> (Self, Self) {
        let mut first = self.prefix < other.prefix;
        if self.prefix == other.prefix {
            first =
                tied_is_before(&runs[self.run], &runs[other.run]).unwrap_or(self.run < other.run);
        }
        let select = |yes: Self, no: Self| Self {
            prefix: select_unpredictable(first, yes.prefix, no.prefix),
            run: select_unpredictable(first, yes.run, no.run),
        };
        (select(self, other), select(other, self))
    }
}

/// Whether the head of `run`, which has the prefix of that of `other`, comes before it. `None` for equal internal
/// keys, which only damaged trees have, and for exhausted runs: these go by the runs' order, so that the
/// result stays a function of the job.
fn tied_is_before(run: &RunReader<'_>, other: &RunReader<'_>) -> Option<bool> {
    let (Some(key), Some(other_key)) = (run.key(), other.key()) else {
        return (run.key().is_some() != other.key().is_some()).then(|| run.key().is_some());
    };
    let order = match key.fits_prefix() && other_key.fits_prefix() {
        // The shorter one is the other's beginning.
        true => key.user_len().cmp(&other_key.user_len()),
        false => run.user_key().cmp(&other.user_key()),
    };
    match order.then(other_key.tag.cmp(&key.tag)) {
        Ordering::Equal => None,
        order => Some(order.is_lt()),
    }
}

/// A tournament of losers: the leaf of the smallest head is the winner, and each inner node keeps the
/// player that lost there, so that advancing the winner replays one path of `log2(runs)` comparisons.
#[derive(Debug)]
pub struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// The run whose head is the smallest.
    winner: usize,
    /// Node `n` has children `2n` and `2n + 1`, leaves begin at `runs.len()`; node 0 is not used.
    losers: Vec<Player>,
}

impl<'a> Merge<'a> {
    /// Merges `runs`, each of which stands at its first entry.
    pub fn new(runs: Vec<RunReader<'a>>) -> Self {
        let nobody = Player {
            prefix: EXHAUSTED,
            run: 0,
        };
        let mut merge = Self {
            losers: vec![nobody; runs.len()],
            winner: 0,
            runs,
        };
        if merge.runs.len() > 1 {
            merge.winner = merge.play_below(1).run;
        }
        merge
    }

    /// Plays the subtree below `node`; returns its winner.
    fn play_below(&mut self, node: usize) -> Player {
        if node >= self.runs.len() {
            return self.player(node - self.runs.len());
        }
        let (a, b) = (self.play_below(2 * node), self.play_below(2 * node + 1));
        let (winner, loser) = a.play(b, &self.runs);
        self.losers[node] = loser;
        winner
    }

    /// A run with its head's prefix.
    #[inline(always)]
    fn player(&self, run: usize) -> Player {
        Player {
            prefix: self.runs[run].key().map_or(EXHAUSTED, RestoredKey::prefix),
            run,
        }
    }

    /// The first entry not taken yet.
    // Callers look at one or two of its parts.
    #[inline(always)]
    pub fn head(&self) -> Option<Head<'_>> {
        self.runs.get(self.winner)?.head()
    }

    /// Takes the head.
    ///
    /// # Errors
    /// Those of [`RunReader::advance`].
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let run = self.winner;
        self.runs[run].advance()?;
        let mut winner = self.player(run);
        let mut node = (run + self.runs.len()) / 2;
        while node > 0 {
            let loser = &mut self.losers[node];
            (winner, *loser) = winner.play(*loser, &self.runs);
            node /= 2;
        }
        self.winner = winner.run;
        Ok(())
    }

    /// The runs.
    pub fn runs(&self) -> &[RunReader<'a>] {
        &self.runs
    }
}

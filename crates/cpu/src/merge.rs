//! One order over many runs: user key ascending, newest first.

use std::hint::select_unpredictable;

use rockmill_core::{RestoredKey, Result};
use rockmill_format::key;

use crate::decode::{Head, RunReader};

/// Where a run's head stands in the order, as a number of 192 bits: the key's first 16 bytes, then, from the
/// top of the last word,
///
/// ```text
/// bits  63..59           58..3                            2..0
///       key length       complement of the sequence       complement of the type
/// ```
///
/// Two short keys of one prefix differ in trailing zeros, so that the longer one is the larger. Keys beyond
/// the prefix have [`LONG`] for their length and nothing below it: where two such ranks are equal, the keys
/// decide.
type Rank = (u128, u64);

/// Stands for all lengths beyond the prefix.
const LONG: usize = 17;
/// Stands for the length of an exhausted run, behind all others; below it is the run's number.
const EXHAUSTED: u64 = 31;
const LEN_SHIFT: u32 = 59;
const TYPE_BITS: u32 = 3;

#[inline]
fn rank(key: Option<&RestoredKey>, run: usize) -> Rank {
    let Some(key) = key else {
        return (u128::MAX, EXHAUSTED << LEN_SHIFT | run as u64);
    };
    let rest = if key.user_len() < LONG {
        // The types that are handled fit their bits.
        let kind = u64::from(key::tag_type(key.tag));
        let newness = key::tag_sequence(key.tag) << TYPE_BITS | kind;
        (key.user_len() as u64) << LEN_SHIFT | (newness ^ ((1 << LEN_SHIFT) - 1))
    } else {
        (LONG as u64) << LEN_SHIFT
    };
    (key.prefix(), rest)
}

/// A run that takes part in the tournament, and the rank of its head.
#[derive(Debug, Clone, Copy)]
struct Player {
    rank: Rank,
    run: usize,
}

impl Player {
    /// The two with the winner first. All of it stays in registers, without a jump: which of two runs goes
    /// first is as good as random.
    #[inline(always)]
    fn play(self, other: Self, runs: &[RunReader<'_>]) -> (Self, Self) {
        let first = self.is_before(other, runs);
        let select = |yes: Self, no: Self| Self {
            rank: (
                select_unpredictable(first, yes.rank.0, no.rank.0),
                select_unpredictable(first, yes.rank.1, no.rank.1),
            ),
            run: select_unpredictable(first, yes.run, no.run),
        };
        (select(self, other), select(other, self))
    }

    /// Whether this player's head comes before that of `other`. Equal internal keys, which only damaged
    /// trees have, go by the runs' order, so that the result stays a function of the job.
    #[inline(always)]
    fn is_before(self, other: Self, runs: &[RunReader<'_>]) -> bool {
        let ((prefix, rest), (other_prefix, other_rest)) = (self.rank, other.rank);
        if rest >= (LONG as u64) << LEN_SHIFT {
            return long_is_before(self.rank, other.rank, [self.run, other.run], runs);
        }
        let low = |rest: u64, run: usize| u128::from(rest) << u64::BITS | run as u128;
        let (low, other_low) = (low(rest, self.run), low(other_rest, other.run));
        // Two subtractions of 128 bits; no operator that jumps.
        (prefix < other_prefix) | ((prefix == other_prefix) & (low < other_low))
    }
}

/// [`Player::is_before`] where the first of `pair` has a long key or is exhausted.
#[inline(never)]
fn long_is_before(rank: Rank, other: Rank, pair: [usize; 2], runs: &[RunReader<'_>]) -> bool {
    let user_key = |run: usize| runs[run].user_key();
    let tag = |run: usize| runs[run].key().map(|key| key.tag);
    let [a, b] = pair;
    rank.cmp(&other)
        .then_with(|| user_key(a).cmp(&user_key(b)))
        .then_with(|| tag(b).cmp(&tag(a)))
        .then_with(|| a.cmp(&b))
        .is_lt()
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
            rank: rank(None, 0),
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

    /// A run with its head's rank.
    #[inline(always)]
    fn player(&self, run: usize) -> Player {
        Player {
            rank: rank(self.runs[run].key(), run),
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

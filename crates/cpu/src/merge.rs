//! One order over many runs: user key ascending, newest first.

use rockmill_core::{RestoredKey, Result};
use rockmill_format::key;

use crate::decode::{Head, RunReader};

/// Where a run's head stands in the order, as a number of 192 bits, most significant first: the key's
/// first 16 bytes, then, from the top of the last word,
///
/// ```text
/// bits  63..59           58..3                            2..0
///       key length       complement of the sequence       complement of the type
/// ```
///
/// Two short keys of one prefix differ in trailing zeros, so that the longer one is the larger. Keys beyond
/// the prefix have [`LONG`] for their length and nothing below it: where two such ranks are equal, the keys
/// decide.
type Rank = [u64; 3];

/// Stands for all lengths beyond the prefix.
const LONG: usize = 17;
/// Stands for the length of an exhausted run, behind all others; below it is the run's number.
const EXHAUSTED: u64 = 31;
const LEN_SHIFT: u32 = 59;
const TYPE_BITS: u32 = 3;

#[inline]
fn rank(key: Option<&RestoredKey>, run: usize) -> Rank {
    let Some(key) = key else {
        return [u64::MAX, u64::MAX, EXHAUSTED << LEN_SHIFT | run as u64];
    };
    let prefix = key.prefix();
    let rest = if key.user_len() < LONG {
        // The types that are handled fit their bits.
        let kind = u64::from(key::tag_type(key.tag));
        let newness = key::tag_sequence(key.tag) << TYPE_BITS | kind;
        (key.user_len() as u64) << LEN_SHIFT | (newness ^ ((1 << LEN_SHIFT) - 1))
    } else {
        (LONG as u64) << LEN_SHIFT
    };
    [(prefix >> u64::BITS) as u64, prefix as u64, rest]
}

/// A run that takes part in the tournament, and the rank of its head.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Player {
    rank: Rank,
    run: usize,
}

impl Player {
    /// Exchanges the two if `exchange`, without a jump: which of two runs goes first is as good as random.
    #[inline]
    fn swap_if(&mut self, other: &mut Self, exchange: bool) {
        let mask = 0u64.wrapping_sub(u64::from(exchange));
        for (a, b) in self.rank.iter_mut().zip(&mut other.rank) {
            let difference = (*a ^ *b) & mask;
            *a ^= difference;
            *b ^= difference;
        }
        let difference = (self.run ^ other.run) & mask as usize;
        self.run ^= difference;
        other.run ^= difference;
    }

    /// Whether this player's head comes before that of `other`.
    #[inline]
    fn is_before(&self, other: &Self, runs: &[RunReader<'_>]) -> bool {
        let ([a, b, c], [x, y, z]) = (self.rank, other.rank);
        if (a ^ x) | (b ^ y) | (c ^ z) == 0 {
            return self.wins_tie(other, runs);
        }
        let (_, borrow) = c.overflowing_sub(z);
        let (_, borrow) = b.borrowing_sub(y, borrow);
        let (_, borrow) = a.borrowing_sub(x, borrow);
        borrow
    }

    /// Long keys of one prefix; and equal internal keys, which only damaged trees have: they go by the runs'
    /// order, so that the result stays a function of the job.
    #[inline(never)]
    fn wins_tie(&self, other: &Self, runs: &[RunReader<'_>]) -> bool {
        let (a, b) = (&runs[self.run], &runs[other.run]);
        let tag = |run: &RunReader<'_>| run.key().map(|key| key.tag);
        a.user_key()
            .cmp(&b.user_key())
            .then_with(|| tag(b).cmp(&tag(a)))
            .then_with(|| self.run.cmp(&other.run))
            .is_lt()
    }
}

/// A tournament of losers: the leaf of the smallest head is the winner, and each inner node keeps the
/// player that lost there, so that advancing the winner replays one path of `log2(runs)` comparisons.
#[derive(Debug)]
pub struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// `players[0]` is the winner; node `n` has children `2n` and `2n + 1`, leaves begin at
    /// `runs.len()`.
    players: Vec<Player>,
}

impl<'a> Merge<'a> {
    /// Merges `runs`, each of which stands at its first entry.
    pub fn new(runs: Vec<RunReader<'a>>) -> Self {
        let nobody = Player {
            rank: rank(None, 0),
            run: 0,
        };
        let mut merge = Self {
            players: vec![nobody; runs.len().max(1)],
            runs,
        };
        if merge.runs.len() > 1 {
            merge.players[0] = merge.play(1);
        }
        merge
    }

    /// Plays the subtree below `node`; returns its winner.
    fn play(&mut self, node: usize) -> Player {
        if node >= self.runs.len() {
            return self.player(node - self.runs.len());
        }
        let (mut winner, mut loser) = (self.play(2 * node), self.play(2 * node + 1));
        let exchange = loser.is_before(&winner, &self.runs);
        winner.swap_if(&mut loser, exchange);
        self.players[node] = loser;
        winner
    }

    /// A run with its head's rank.
    #[inline]
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
        self.runs.get(self.players[0].run)?.head()
    }

    /// Takes the head.
    ///
    /// # Errors
    /// Those of [`RunReader::advance`].
    #[inline]
    pub fn advance(&mut self) -> Result<()> {
        let run = self.players[0].run;
        self.runs[run].advance()?;
        let mut winner = self.player(run);
        let mut node = (run + self.runs.len()) / 2;
        while node > 0 {
            let loser = &mut self.players[node];
            let exchange = loser.is_before(&winner, &self.runs);
            winner.swap_if(loser, exchange);
            node /= 2;
        }
        self.players[0] = winner;
        Ok(())
    }

    /// The runs.
    pub fn runs(&self) -> &[RunReader<'a>] {
        &self.runs
    }
}

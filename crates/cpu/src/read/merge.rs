//! One order over many runs: user key ascending, newest first.

use std::cmp::Ordering;
use std::hint::select_unpredictable;

use rockmill_core::{Result, key_prefix, prefix_mask};
use rockmill_format::block::common_prefix_len;
use rockmill_format::key::KeyOrder;

use super::decode::{Head, RunReader};

/// A run in the tournament, and [`key_prefix`] of its head's key behind the common beginning of all heads, with the
/// [`prefix_mask`] of their order. Equal prefixes are rare if keys differ; then the keys in the runs decide. Comparing few
/// bytes keeps the winner's path short.
#[derive(Debug, Clone, Copy)]
struct Player {
    prefix: u128,
    run: usize,
}

/// An exhausted run, behind nearly all others.
const EXHAUSTED: u128 = u128::MAX;

impl Player {
    /// The two with the winner first. All values stay in registers, and there is no jump as long as prefixes differ,
    /// because the order of two runs is as good as random.
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

/// Whether the head of `run` comes before that of `other`, which has the same prefix. `None` for equal internal keys,
/// which only damaged trees have, and for exhausted runs: then the runs' order decides, so that the result stays a
/// function of the job.
fn tied_is_before(run: &RunReader<'_>, other: &RunReader<'_>) -> Option<bool> {
    let (Some(key), Some(other_key)) = (run.key(), other.key()) else {
        return (run.key().is_some() != other.key().is_some()).then(|| run.key().is_some());
    };
    let bytewise = match key.fits_prefix() && other_key.fits_prefix() {
        // The shorter one is the other's beginning.
        true => key.user_len().cmp(&other_key.user_len()),
        false => match (run.user_key(), other.user_key()) {
            (Some(key), Some(other_key)) => key.cmp(other_key),
            _ => Ordering::Equal,
        },
    };
    let order = match run.order() {
        KeyOrder::Bytewise => bytewise,
        KeyOrder::ReverseBytewise => bytewise.reverse(),
    };
    match order.then(other_key.tag.cmp(&key.tag)) {
        Ordering::Equal => None,
        order => Some(order.is_lt()),
    }
}

/// Number of heads taken before the common beginning is computed again.
const HEADS_BETWEEN: u32 = 1024;

/// A tournament of losers: the leaf of the smallest head is the winner, and each inner node stores the player that lost
/// there. So advancing the winner replays one path of `log2(runs)` comparisons.
#[derive(Debug)]
pub struct Merge<'a> {
    runs: Vec<RunReader<'a>>,
    /// The run with the smallest head.
    winner: usize,
    /// Node `n` has children `2n` and `2n + 1`, leaves begin at `runs.len()`; node 0 is not used.
    losers: Vec<Player>,
    /// The common beginning of all heads' keys, if at least two of them are longer than a prefix. A head with another
    /// beginning shortens it; it is computed again from time to time.
    common: Vec<u8>,
    /// Heads until then.
    heads_left: u32,
    /// [`prefix_mask`] of the keys' order.
    mask: u128,
}

impl<'a> Merge<'a> {
    /// Merges `runs`, each at its first entry. All are in one order.
    pub fn new(runs: Vec<RunReader<'a>>) -> Self {
        let nobody = Player {
            prefix: EXHAUSTED,
            run: 0,
        };
        let mut merge = Self {
            losers: vec![nobody; runs.len()],
            winner: 0,
            common: Vec::new(),
            heads_left: HEADS_BETWEEN,
            mask: prefix_mask(runs.first().map(RunReader::order).unwrap_or_default()),
            runs,
        };
        merge.find_common();
        merge.play_all();
        merge
    }

    /// Computes the common beginning of all heads.
    fn find_common(&mut self) {
        self.heads_left = HEADS_BETWEEN;
        self.common.clear();
        let is_long = |run: &&RunReader<'_>| run.key().is_some_and(|key| !key.fits_prefix());
        let mut keys = self.runs.iter().filter_map(RunReader::user_key);
        if self.runs.iter().filter(is_long).count() > 1
            && let Some(first) = keys.next()
        {
            let len = keys.fold(first.len(), |len, key| {
                common_prefix_len(&first[..len], key)
            });
            self.common.extend_from_slice(&first[..len]);
        }
    }

    /// Shortens the common beginning to the part that a run's head has too.
    fn shorten_common(&mut self, run: usize) {
        let user_key = self.runs[run].user_key().unwrap_or_default();
        let len = common_prefix_len(&self.common, user_key);
        self.common.truncate(len);
    }

    /// Plays the whole tournament.
    #[cold]
    fn play_all(&mut self) {
        if self.runs.len() > 1 {
            self.winner = self.play_below(1).run;
        }
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
        let prefix = match self.runs[run].key() {
            None => EXHAUSTED,
            Some(key) if self.common.is_empty() => key.prefix() ^ self.mask,
            Some(_) => self.prefix_behind_common(run),
        };
        Player { prefix, run }
    }

    fn prefix_behind_common(&self, run: usize) -> u128 {
        let user_key = self.runs[run].user_key().unwrap_or_default();
        key_prefix(user_key.get(self.common.len()..).unwrap_or_default()) ^ self.mask
    }

    /// Whether a run's head has the common beginning.
    #[inline]
    fn has_common(&self, run: usize) -> bool {
        let begins_so = |user_key: &[u8]| user_key.starts_with(&self.common);
        self.common.is_empty() || self.runs[run].user_key().is_none_or(begins_so)
    }

    /// The first entry not taken yet. Callers use one or two of its fields.
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
        self.heads_left -= 1;
        if self.heads_left == 0 {
            self.find_common();
            self.play_all();
            return Ok(());
        }
        if !self.has_common(run) {
            self.shorten_common(run);
            self.play_all();
            return Ok(());
        }
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

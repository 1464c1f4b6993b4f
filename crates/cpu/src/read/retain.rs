//! Which entries survive (`db/compaction/compaction_iterator.cc`, `NextFromInput` and
//! `PrepareOutput`).
//!
//! A snapshot list cuts the versions of a key into stripes: a reader at any snapshot sees only the newest entry of a
//! stripe. The newest entry of each stripe is kept. Tombstones are dropped when nothing is left for them to hide. At
//! the bottom, an entry that every snapshot sees gets sequence number 0.

use rockmill_core::{
    CompactionRules, DeclineReason, Error, ErrorKind, Result, entry_hash, kv_hash,
};
use rockmill_format::coding::put_bytes;
use rockmill_format::key::{self, MAX_SEQUENCE, ValueType};

use super::decode::Head;

/// Entries in internal-key order.
pub trait Source {
    /// The first entry not taken yet.
    fn head(&self) -> Option<Head<'_>>;

    /// Takes the head.
    ///
    /// # Errors
    /// Whatever reading on may give.
    fn advance(&mut self) -> Result<()>;
}

impl Source for super::merge::Merge<'_> {
    #[inline(always)]
    fn head(&self) -> Option<Head<'_>> {
        self.head()
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.advance()
    }
}

/// Takes the survivors, in order.
pub trait Sink {
    /// One survivor with its final tag. `first_of_key` says that no version of its user key came
    /// before it.
    ///
    /// # Errors
    /// Whatever writing may give.
    fn emit(
        &mut self,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
        kv_hash: u64,
        first_of_key: bool,
    ) -> Result<()>;
}

/// What happened to the entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RetainTotals {
    /// Dropped because a newer entry hides them.
    pub replaced: u64,
    /// Tombstones dropped because nothing is left for them to hide, as far as RocksDB counts them.
    pub tombstones_dropped: u64,
    /// Passed over because a snapshot does not see them.
    pub above: u64,
    /// Kept.
    pub kept: u64,
    /// Dropped for any reason.
    pub dropped: u64,
    /// Consumed by what was made of them.
    pub consumed: u64,
    /// Made of those consumed.
    pub made: u64,
    /// Sum of [`entry_hash`] of those kept, as they were read.
    pub hash_kept: u64,
    /// Sum over those dropped.
    pub hash_dropped: u64,
    /// Sum over those consumed.
    pub hash_consumed: u64,
}

const PUT: u8 = ValueType::Value as u8;
const DELETE: u8 = ValueType::Deletion as u8;
const SINGLE_DELETE: u8 = ValueType::SingleDeletion as u8;
const MERGE: u8 = ValueType::Merge as u8;
const TIMED_PUT: u8 = ValueType::ValuePreferredSeqno as u8;

/// Passes the survivors of `source` on to `sink`.
///
/// # Errors
/// Those of source and sink; Declined if a SingleDelete meets a Delete against its contract.
pub fn retain(
    rules: &CompactionRules,
    source: &mut impl Source,
    sink: &mut impl Sink,
) -> Result<RetainTotals> {
    let mut state = Retain {
        rules,
        source,
        sink,
        totals: RetainTotals::default(),
        prefix: 0,
        user_key: Vec::new(),
        any_key: false,
        fragment: 0,
        group: Group::default(),
    };
    while state.step()? {}
    Ok(state.totals)
}

pub(super) struct Retain<'r, S, T> {
    pub(super) rules: &'r CompactionRules,
    pub(super) source: &'r mut S,
    pub(super) sink: &'r mut T,
    pub(super) totals: RetainTotals,
    /// Prefix of the group's user key.
    prefix: u128,
    /// User key of the group at hand, once there is one.
    pub(super) user_key: Vec<u8>,
    any_key: bool,
    /// Position of the first fragment of range tombstones that ends behind the group's key, once a key was looked for.
    pub(super) fragment: usize,
    pub(super) group: Group,
}

/// What is known of the versions of a user key so far.
#[derive(Default)]
pub(super) struct Group {
    /// Snapshot that sees the entry before, within the group.
    pub(super) visible_to_last: Option<u64>,
    /// Whether the group has a survivor.
    pub(super) emitted: bool,
    /// Whether the group has merge operands.
    pub(super) merges: bool,
    /// Whether the group has an entry with sequence number 0.
    pub(super) zeroed: bool,
    /// The next entry is the Put of a SingleDelete that was kept; its value is not needed.
    clear_next: bool,
    /// Whether no deeper level can hold the group's key, once asked for.
    absent_in_deeper_levels: Option<bool>,
}

impl Group {
    fn absent_in_deeper_levels(&mut self, rules: &CompactionRules, user_key: &[u8]) -> bool {
        *self
            .absent_in_deeper_levels
            .get_or_insert_with(|| rules.deeper.absent(user_key))
    }
}

impl<S: Source, T: Sink> Retain<'_, S, T> {
    /// Handles the head. False when there is none.
    fn step(&mut self) -> Result<bool> {
        let Some(head) = self.source.head() else {
            return Ok(false);
        };
        let (tag, hash) = (head.tag, head.kv_hash);
        if !self.any_key || !self.is_of_group(&head) {
            self.prefix = head.prefix;
            self.user_key.clear();
            put_bytes(&mut self.user_key, head.user_key);
            self.any_key = true;
            self.group = Group::default();
        }
        let sequence = key::tag_sequence(tag);
        let visible_to = self.rules.visible_to(sequence);
        let visible_to_last = self.group.visible_to_last.replace(visible_to);
        let kind = key::tag_type(tag);
        if self.group.clear_next {
            self.group.clear_next = false;
            self.emit_cleared()?;
        } else if kind == SINGLE_DELETE {
            self.single_delete(tag)?;
        } else if visible_to_last == Some(visible_to) {
            self.drop_entry(tag, hash)?;
            self.totals.replaced += 1;
        } else if kind == DELETE
            && sequence <= self.rules.earliest()
            && self
                .group
                .absent_in_deeper_levels(self.rules, &self.user_key)
        {
            self.drop_head()?;
            self.totals.tombstones_dropped += 1;
        } else if kind == DELETE && self.rules.bottommost {
            self.delete_at_bottom(tag)?;
        } else if kind == TIMED_PUT
            && sequence <= self.rules.earliest()
            && (self.rules.bottommost
                || self
                    .group
                    .absent_in_deeper_levels(self.rules, &self.user_key))
        {
            self.timed_put(tag, hash)?;
        } else if kind == MERGE {
            self.merge(sequence)?;
        } else if is_covered(self.rules, &self.user_key, &mut self.fragment, sequence) {
            // RocksDB counts it as hidden as well.
            self.drop_entry(tag, hash)?;
            self.totals.replaced += 1;
        } else {
            let (first, tag) = (!self.group.emitted, final_tag(self.rules, tag));
            self.sink
                .emit(&self.user_key, tag, head.value, hash, first)?;
            let read = entry_hash(hash, head.tag);
            self.group.zeroed |= key::tag_sequence(tag) == 0;
            self.count_kept(read);
            self.source.advance()?;
        }
        Ok(true)
    }

    /// Whether an entry has the group's key. Keys that are not longer than the prefix are equal if their prefixes and
    /// lengths are, and need not be read.
    #[inline]
    pub(super) fn is_of_group(&self, head: &Head<'_>) -> bool {
        let len = self.user_key.len();
        head.prefix == self.prefix
            && head.user_key.len() == len
            && (len <= size_of_val(&self.prefix) || head.user_key == self.user_key)
    }

    /// Tag of the next entry if it has the group's key.
    fn next_of_key(&self) -> Option<u64> {
        let head = self.source.head()?;
        self.is_of_group(&head).then_some(head.tag)
    }

    fn drop_head(&mut self) -> Result<()> {
        match self.source.head() {
            Some(head) => {
                let (tag, hash) = (head.tag, head.kv_hash);
                self.drop_entry(tag, hash)
            }
            None => Err(Error::internal("no entry to drop")),
        }
    }

    /// Drops the head, of which this is the tag and the hash of key and value.
    fn drop_entry(&mut self, tag: u64, hash: u64) -> Result<()> {
        self.sum_dropped(tag, hash);
        self.source.advance()
    }

    /// Emits the head as a Put without a value: the pair of a SingleDelete that stays.
    fn emit_cleared(&mut self) -> Result<()> {
        let first = !self.group.emitted;
        if let Some(head) = self.source.head() {
            let put = key::pack_tag(key::tag_sequence(head.tag), PUT);
            let tag = final_tag(self.rules, put);
            let hash = kv_hash(&self.user_key, &[]);
            self.sink.emit(&self.user_key, tag, &[], hash, first)?;
            self.group.zeroed |= key::tag_sequence(tag) == 0;
            self.count_kept(entry_hash(head.kv_hash, head.tag));
        }
        self.source.advance()
    }

    /// A timed put that every snapshot sees and that hides nothing elsewhere: it becomes a Put, unless a range tombstone
    /// deletes it, or would delete the Put alone.
    fn timed_put(&mut self, tag: u64, hash: u64) -> Result<()> {
        if is_covered(
            self.rules,
            &self.user_key,
            &mut self.fragment,
            key::tag_sequence(tag),
        ) {
            self.totals.replaced += 1;
            return self.drop_entry(tag, hash);
        }
        self.emit_timed_put()
    }

    /// Emits the head, a timed put, as a Put with the sequence number that stands behind its value.
    fn emit_timed_put(&mut self) -> Result<()> {
        let first = !self.group.emitted;
        if let Some(head) = self.source.head() {
            let parts = head.value.split_last_chunk();
            let (value, preferred) = parts.ok_or_else(|| {
                Error::new(
                    ErrorKind::Corruption,
                    "a timed put without its sequence number",
                )
            })?;
            let (own, preferred) = (key::tag_sequence(head.tag), u64::from_le_bytes(*preferred));
            if preferred > MAX_SEQUENCE {
                let what = "a timed put whose sequence number is too large";
                return Err(Error::new(ErrorKind::Corruption, what));
            }
            let sequence = if own == 0 { 0 } else { preferred };
            let newest = preferred.min(own);
            if is_covered(self.rules, &self.user_key, &mut self.fragment, newest) {
                let (tag, hash) = (final_tag(self.rules, head.tag), head.kv_hash);
                self.sink
                    .emit(&self.user_key, tag, head.value, hash, first)?;
            } else {
                let tag = final_tag(self.rules, key::pack_tag(sequence, PUT));
                let hash = kv_hash(&self.user_key, value);
                self.sink.emit(&self.user_key, tag, value, hash, first)?;
            }
            self.group.zeroed |= self.rules.bottommost;
            self.count_kept(entry_hash(head.kv_hash, head.tag));
        }
        self.source.advance()
    }

    /// Emits a tombstone that was taken from the source already.
    fn emit_taken(&mut self, tag: u64, value: &[u8], hash: u64) -> Result<()> {
        let first = !self.group.emitted;
        self.sink.emit(&self.user_key, tag, value, hash, first)?;
        self.count_kept(entry_hash(hash, tag));
        Ok(())
    }

    pub(super) fn count_kept(&mut self, hash: u64) {
        self.group.emitted = true;
        self.totals.kept += 1;
        self.totals.hash_kept = self.totals.hash_kept.wrapping_add(hash);
    }

    /// Counts and drops a tombstone that was already taken from the source.
    fn count_dropped(&mut self, tag: u64, hash: u64) {
        self.totals.tombstones_dropped += 1;
        self.sum_dropped(tag, hash);
    }

    pub(super) fn sum_dropped(&mut self, tag: u64, hash: u64) {
        let hash = entry_hash(hash, tag);
        self.totals.dropped += 1;
        self.totals.hash_dropped = self.totals.hash_dropped.wrapping_add(hash);
    }

    pub(super) fn sum_consumed(&mut self, tag: u64, hash: u64) {
        let hash = entry_hash(hash, tag);
        self.totals.consumed += 1;
        self.totals.hash_consumed = self.totals.hash_consumed.wrapping_add(hash);
    }

    /// Takes the head, a tombstone, from the source. Its value is empty as RocksDB writes it, but
    /// bytes of others are kept as they are.
    fn take_tombstone(&mut self) -> Result<(Vec<u8>, u64)> {
        let taken = match self.source.head() {
            Some(head) => (head.value.to_vec(), head.kv_hash),
            None => return Err(Error::internal("no entry to take")),
        };
        self.source.advance()?;
        Ok(taken)
    }

    /// A Delete at the bottom that is too new to go at once: what it hides in its own stripe goes;
    /// it stays only if an older stripe still has an entry of the key. RocksDB counts neither what it hides
    /// nor the Delete itself.
    fn delete_at_bottom(&mut self, tag: u64) -> Result<()> {
        let below = self.rules.snapshot_below(key::tag_sequence(tag));
        let (value, hash) = self.take_tombstone()?;
        while let Some(next) = self.next_of_key() {
            if below != 0 && key::tag_sequence(next) <= below {
                return self.emit_taken(tag, &value, hash);
            }
            self.drop_head()?;
        }
        self.sum_dropped(tag, hash);
        Ok(())
    }

    /// A SingleDelete cancels against the next older entry of its key. What RocksDB's write-conflict
    /// snapshot would forbid is not known here, so a pair above the earliest snapshot is kept, the
    /// Put without its value.
    fn single_delete(&mut self, tag: u64) -> Result<()> {
        if self.group.merges {
            return Err(super::operands::single_delete());
        }
        let sequence = key::tag_sequence(tag);
        let below = self.rules.snapshot_below(sequence);
        let (value, hash) = self.take_tombstone()?;
        let Some(next) = self.next_of_key() else {
            let obsolete = sequence <= self.rules.earliest()
                && self
                    .group
                    .absent_in_deeper_levels(self.rules, &self.user_key);
            if obsolete || self.group.zeroed {
                self.count_dropped(tag, hash);
                return Ok(());
            }
            return self.emit_taken(tag, &value, hash);
        };
        let same_stripe = below == 0 || key::tag_sequence(next) > below;
        if self.group.zeroed {
            self.count_dropped(tag, hash);
            self.totals.replaced += 1;
            return self.drop_head();
        }
        if !same_stripe {
            return self.emit_taken(tag, &value, hash);
        }
        match key::tag_type(next) {
            MERGE => return Err(super::operands::single_delete()),
            SINGLE_DELETE => self.count_dropped(tag, hash),
            DELETE if self.rules.enforce_single_del_contracts => {
                return Err(Error::declined(
                    DeclineReason::SingleDeleteContract,
                    "a SingleDelete and a Delete of the same key",
                ));
            }
            DELETE => self.count_dropped(tag, hash),
            _ if self.group.emitted || sequence <= self.rules.earliest() => {
                self.count_dropped(tag, hash);
                self.totals.replaced += 1;
                return self.drop_head();
            }
            _ => {
                self.emit_taken(tag, &value, hash)?;
                self.group.clear_next = true;
            }
        }
        Ok(())
    }
}

/// Whether a range tombstone deletes an entry of a user key. `fragment` is the position of the first fragment that ends behind
/// the key before, and then that of this key.
#[inline]
pub(super) fn is_covered(
    rules: &CompactionRules,
    user_key: &[u8],
    fragment: &mut usize,
    sequence: u64,
) -> bool {
    let tombstones = &rules.tombstones;
    if tombstones.is_empty() {
        return false;
    }
    *fragment = tombstones.ending_behind(user_key, *fragment);
    let found = tombstones.all().get(*fragment);
    let found = found.filter(|found| found.begin.as_slice() <= user_key);
    found.is_some_and(|found| found.deletes(sequence, rules))
}

/// The tag with which an entry is written: sequence number 0 where every reader sees it and nothing
/// older exists (`PrepareOutput`).
pub(super) fn final_tag(rules: &CompactionRules, tag: u64) -> u64 {
    let sequence = key::tag_sequence(tag);
    if rules.bottommost && sequence <= rules.earliest() && sequence < MAX_SEQUENCE {
        key::pack_tag(0, key::tag_type(tag))
    } else {
        tag
    }
}

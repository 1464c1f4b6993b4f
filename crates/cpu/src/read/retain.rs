//! The entries that a compaction keeps (`db/compaction/compaction_iterator.cc`, `NextFromInput` and
//! `PrepareOutput`).
//!
//! The snapshots divide the versions of a key into stripes: a reader at any snapshot sees only the newest entry of a
//! stripe. The newest entry of each stripe is kept. Tombstones are dropped if nothing is left for them to hide. At the
//! bottom, an entry that every snapshot sees gets sequence number 0.

use rockmill_core::{
    CompactionFilter, CompactionRules, DeclineReason, Error, ErrorKind, JobFilter, Result,
    entry_hash, kv_hash,
};
use rockmill_format::coding::put_bytes;
use rockmill_format::key::{self, MAX_SEQUENCE, ValueType};

use super::decode::Head;
use super::filter::Filtered;

/// Entries in internal-key order.
pub trait Source {
    /// The first entry not taken yet.
    fn head(&self) -> Option<Head<'_>>;

    /// Takes the head.
    ///
    /// # Errors
    /// Any error of reading on.
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

/// Receives the surviving entries, in order.
pub trait Sink {
    /// Receives a surviving entry with its final tag. `first_of_key`: no version of its user key survived before it.
    ///
    /// # Errors
    /// Any error of writing.
    fn emit(
        &mut self,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
        kv_hash: u64,
        first_of_key: bool,
    ) -> Result<()>;
}

/// Totals of the entries.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RetainTotals {
    /// Dropped because a newer entry hides them.
    pub replaced: u64,
    /// Tombstones dropped because they no longer hide anything, as far as RocksDB counts them.
    pub tombstones_dropped: u64,
    /// Skipped because a snapshot does not see them.
    pub above: u64,
    /// Kept.
    pub kept: u64,
    /// Dropped for any reason.
    pub dropped: u64,
    /// Consumed by merging.
    pub consumed: u64,
    /// Results of merging.
    pub made: u64,
    /// Sum of [`entry_hash`] over kept entries, as they were read.
    pub hash_kept: u64,
    /// Sum over dropped entries.
    pub hash_dropped: u64,
    /// Sum over consumed entries.
    pub hash_consumed: u64,
}

const PUT: u8 = ValueType::Value as u8;
const DELETE: u8 = ValueType::Deletion as u8;
const SINGLE_DELETE: u8 = ValueType::SingleDeletion as u8;
const MERGE: u8 = ValueType::Merge as u8;
const TIMED_PUT: u8 = ValueType::ValuePreferredSeqno as u8;

/// Passes the surviving entries of `source` on to `sink`.
///
/// # Errors
/// Those of source and sink; Declined if a SingleDelete meets a Delete against its contract, or an operator or a filter of the
/// application fails.
pub fn retain(
    rules: &CompactionRules,
    source: &mut impl Source,
    sink: &mut impl Sink,
) -> Result<RetainTotals> {
    let mut state = Retain {
        rules,
        source,
        sink,
        filter: rules
            .filter
            .as_ref()
            .map(JobFilter::begin)
            .transpose()?
            .flatten(),
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
    /// The application's compaction filter.
    pub(super) filter: Option<Box<dyn CompactionFilter>>,
    pub(super) totals: RetainTotals,
    /// Prefix of the group's user key.
    prefix: u128,
    /// User key of the current group, once there is one.
    pub(super) user_key: Vec<u8>,
    any_key: bool,
    /// Position of the first fragment of range tombstones that ends behind the group's key, once one was searched for.
    pub(super) fragment: usize,
    pub(super) group: Group,
}

/// State of the versions of a user key so far.
#[derive(Default)]
pub(super) struct Group {
    /// Whether RocksDB takes the next entry for one of a key that it has seen before.
    pub(super) is_known: bool,
    /// Snapshot that sees the entry before, within the group.
    pub(super) visible_to_last: Option<u64>,
    /// Whether an entry of the group has survived.
    pub(super) emitted: bool,
    /// Whether the group has merge operands.
    pub(super) merges: bool,
    /// Whether the group has an entry with sequence number 0.
    pub(super) zeroed: bool,
    /// The next entry is the Put of a SingleDelete that was kept; its value is not needed.
    clear_next: bool,
    /// Whether no deeper level can have the group's key, once computed.
    absent_in_deeper_levels: Option<bool>,
}

/// A tombstone that was taken from the source.
struct ReadTombstone {
    tag: u64,
    value: Vec<u8>,
    kv_hash: u64,
    /// [`entry_hash`] of what was read.
    read: u64,
    /// Whether a filter has made it.
    is_made: bool,
}

impl Group {
    fn absent_in_deeper_levels(&mut self, rules: &CompactionRules, user_key: &[u8]) -> bool {
        *self
            .absent_in_deeper_levels
            .get_or_insert_with(|| rules.deeper.absent(rules.order, user_key))
    }
}

impl<S: Source, T: Sink> Retain<'_, S, T> {
    /// Handles the head. Returns false if there is none.
    fn step(&mut self) -> Result<bool> {
        let Some(mut head) = self.source.head() else {
            return Ok(false);
        };
        let (read_tag, hash) = (head.tag, head.kv_hash);
        if !self.any_key || !self.is_of_group(&head) {
            self.prefix = head.prefix;
            self.user_key.clear();
            put_bytes(&mut self.user_key, head.user_key);
            self.any_key = true;
            self.group = Group::default();
        }
        let (mut tag, mut made) = (read_tag, None);
        if self.filter.is_some() && !self.group.is_known {
            match self.filter_head()? {
                Filtered::No => {}
                Filtered::Made { tag: own, value } => (tag, made) = (own, Some(value)),
                Filtered::Skipped => return Ok(true),
            }
            let asked = self.source.head();
            head = asked.ok_or_else(|| Error::internal("no entry is left of a filter"))?;
        }
        self.group.is_known = true;
        let sequence = key::tag_sequence(tag);
        let visible_to = self.rules.visible_to(sequence);
        let visible_to_last = self.group.visible_to_last.replace(visible_to);
        let kind = key::tag_type(tag);
        if self.group.clear_next {
            // The pair of a SingleDelete that stays.
            self.group.clear_next = false;
            self.emit_cleared(sequence)?;
        } else if kind == SINGLE_DELETE {
            self.single_delete(tag)?;
        } else if visible_to_last == Some(visible_to) {
            self.drop_entry(read_tag, hash)?;
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
            self.drop_entry(read_tag, hash)?;
            self.totals.replaced += 1;
        } else if let Some(value) = made {
            self.emit_changed(tag, &value)?;
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

    /// Emits the head with another tag and another value, which a filter has made.
    fn emit_changed(&mut self, tag: u64, value: &[u8]) -> Result<()> {
        let read = self.emit_as(tag, value)?;
        self.sum_consumed_as_read(read);
        self.totals.made += 1;
        self.source.advance()
    }

    /// Emits the head as a Put without a value: the pair of a SingleDelete that stays.
    fn emit_cleared(&mut self, sequence: u64) -> Result<()> {
        let read = self.emit_as(key::pack_tag(sequence, PUT), &[])?;
        self.count_kept(read);
        self.source.advance()
    }

    /// Emits another entry in place of the head, and returns the hash of the head.
    fn emit_as(&mut self, tag: u64, value: &[u8]) -> Result<u64> {
        let Some(head) = self.source.head() else {
            return Err(Error::internal("no entry to replace"));
        };
        let (first, tag) = (!self.group.emitted, final_tag(self.rules, tag));
        let hash = kv_hash(&self.user_key, value);
        self.sink.emit(&self.user_key, tag, value, hash, first)?;
        self.group.emitted = true;
        self.group.zeroed |= key::tag_sequence(tag) == 0;
        Ok(entry_hash(head.kv_hash, head.tag))
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

    pub(super) fn drop_head(&mut self) -> Result<()> {
        match self.source.head() {
            Some(head) => {
                let (tag, hash) = (head.tag, head.kv_hash);
                self.drop_entry(tag, hash)
            }
            None => Err(Error::internal("no entry to drop")),
        }
    }

    /// Takes the head, of which a row was made with others.
    pub(super) fn consume_head(&mut self) -> Result<()> {
        if let Some(head) = self.source.head() {
            let (tag, hash) = (head.tag, head.kv_hash);
            self.sum_consumed(tag, hash);
        }
        self.source.advance()
    }

    /// Drops the head, of which this is the tag and the hash of key and value.
    fn drop_entry(&mut self, tag: u64, hash: u64) -> Result<()> {
        self.sum_dropped(tag, hash);
        self.source.advance()
    }

    /// A timed put that every snapshot sees and that hides nothing in deeper levels. It becomes a Put, unless a range
    /// tombstone deletes it, or would delete only the Put.
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

    /// Emits the head, a timed put, as a Put with the sequence number stored behind its value.
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
    fn emit_taken(&mut self, taken: &ReadTombstone) -> Result<()> {
        let first = !self.group.emitted;
        let (tag, value, hash) = (taken.tag, &taken.value, taken.kv_hash);
        self.sink.emit(&self.user_key, tag, value, hash, first)?;
        match taken.is_made {
            true => {
                self.group.emitted = true;
                self.sum_consumed_as_read(taken.read);
                self.totals.made += 1;
            }
            false => self.count_kept(taken.read),
        }
        Ok(())
    }

    pub(super) fn count_kept(&mut self, hash: u64) {
        self.group.emitted = true;
        self.totals.kept += 1;
        self.totals.hash_kept = self.totals.hash_kept.wrapping_add(hash);
    }

    /// Counts and drops a tombstone that was already taken from the source.
    fn count_dropped(&mut self, taken: &ReadTombstone) {
        self.totals.tombstones_dropped += 1;
        self.sum_dropped_as_read(taken.read);
    }

    pub(super) fn sum_dropped(&mut self, tag: u64, hash: u64) {
        self.sum_dropped_as_read(entry_hash(hash, tag));
    }

    fn sum_dropped_as_read(&mut self, read: u64) {
        self.totals.dropped += 1;
        self.totals.hash_dropped = self.totals.hash_dropped.wrapping_add(read);
    }

    pub(super) fn sum_consumed(&mut self, tag: u64, hash: u64) {
        self.sum_consumed_as_read(entry_hash(hash, tag));
    }

    fn sum_consumed_as_read(&mut self, read: u64) {
        self.totals.consumed += 1;
        self.totals.hash_consumed = self.totals.hash_consumed.wrapping_add(read);
    }

    /// Takes the head from the source: a tombstone with this tag, or a value of which a filter has made one. The value of a
    /// tombstone is empty as RocksDB writes it, but bytes of others are kept as they are.
    fn take_tombstone(&mut self, tag: u64) -> Result<ReadTombstone> {
        let Some(head) = self.source.head() else {
            return Err(Error::internal("no entry to take"));
        };
        let is_made = head.tag != tag;
        let (value, hash) = match is_made {
            true => (Vec::new(), kv_hash(&self.user_key, &[])),
            false => (head.value.to_vec(), head.kv_hash),
        };
        let taken = ReadTombstone {
            tag,
            value,
            kv_hash: hash,
            read: entry_hash(head.kv_hash, head.tag),
            is_made,
        };
        self.source.advance()?;
        Ok(taken)
    }

    /// A Delete at the bottom that is too new to be dropped at once. The entries that it hides in its own stripe are
    /// dropped; it stays only if an older stripe still has an entry of the key. RocksDB counts neither the hidden
    /// entries nor the Delete.
    fn delete_at_bottom(&mut self, tag: u64) -> Result<()> {
        let below = self.rules.snapshot_below(key::tag_sequence(tag));
        let taken = self.take_tombstone(tag)?;
        while let Some(next) = self.next_of_key() {
            if below.is_some_and(|below| key::tag_sequence(next) <= below) {
                return self.emit_taken(&taken);
            }
            self.drop_head()?;
        }
        self.sum_dropped_as_read(taken.read);
        Ok(())
    }

    /// A SingleDelete cancels the next older entry of its key. The restrictions of RocksDB's write-conflict snapshot
    /// are not known here, so a pair above the earliest snapshot is kept, the Put without its value.
    fn single_delete(&mut self, tag: u64) -> Result<()> {
        if self.group.merges {
            return Err(super::operands::single_delete());
        }
        let sequence = key::tag_sequence(tag);
        let below = self.rules.snapshot_below(sequence);
        let taken = self.take_tombstone(tag)?;
        let Some(next) = self.next_of_key() else {
            let obsolete = sequence <= self.rules.earliest()
                && self
                    .group
                    .absent_in_deeper_levels(self.rules, &self.user_key);
            if obsolete || self.group.zeroed {
                self.count_dropped(&taken);
                return Ok(());
            }
            return self.emit_taken(&taken);
        };
        let same_stripe = below.is_none_or(|below| key::tag_sequence(next) > below);
        if self.group.zeroed {
            self.count_dropped(&taken);
            self.totals.replaced += 1;
            return self.drop_head();
        }
        if !same_stripe {
            return self.emit_taken(&taken);
        }
        match key::tag_type(next) {
            MERGE => return Err(super::operands::single_delete()),
            SINGLE_DELETE => self.count_dropped(&taken),
            DELETE if self.rules.enforce_single_del_contracts => {
                return Err(Error::declined(
                    DeclineReason::SingleDeleteContract,
                    "a SingleDelete and a Delete of the same key",
                ));
            }
            DELETE => self.count_dropped(&taken),
            _ if self.group.emitted || sequence <= self.rules.earliest() => {
                self.count_dropped(&taken);
                self.totals.replaced += 1;
                return self.drop_head();
            }
            _ => {
                self.emit_taken(&taken)?;
                self.group.clear_next = true;
            }
        }
        Ok(())
    }
}

/// Whether a range tombstone deletes an entry of a user key. `fragment` is the position of the first fragment that ends
/// behind the previous key; the call moves it to that of this key.
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
    let found = tombstones.covering(user_key, fragment);
    found.is_some_and(|found| found.deletes(sequence, rules))
}

/// The tag with which an entry is written: sequence number 0 if every reader sees it and nothing older exists
/// (`PrepareOutput`).
pub(super) fn final_tag(rules: &CompactionRules, tag: u64) -> u64 {
    let sequence = key::tag_sequence(tag);
    if rules.bottommost && sequence <= rules.earliest() && sequence < MAX_SEQUENCE {
        key::pack_tag(0, key::tag_type(tag))
    } else {
        tag
    }
}

//! Merge operands of a user key: merged with each other and with the value beneath them
//! (`db/merge_helper.cc:MergeUntil`).

use rockmill_core::{
    Decision, DeclineReason, Error, ErrorKind, MAX_MADE_BYTES, Merging, Result, entry_hash, kv_hash,
};
use rockmill_format::key::{self, ValueType};

use super::retain::{Retain, Sink, Source, final_tag, is_covered};

/// Memory of a value beside its bytes: the allocator's, and its place in the list that is merged.
const OPERAND_OVERHEAD: usize = 16 + size_of::<&[u8]>();
/// Operands, what is made of them, and what is written of that.
pub const MERGING_BYTES: u64 = 3 * MAX_MADE_BYTES as u64;

/// An operand that was taken from the source.
struct Operand {
    tag: u64,
    value: Vec<u8>,
    /// As it was read: a filter may have changed the value.
    kv_hash: u64,
    is_changed: bool,
}

/// The entry beneath the operands of a stripe.
enum Beneath {
    /// Nothing in the inputs.
    Nothing,
    /// Entries that an older snapshot sees.
    OlderStripe,
    /// A value, or a tombstone: `None`. It is the head.
    Base(Option<Vec<u8>>),
    /// A filter drops the operands, and all entries before this key.
    Skipped(Vec<u8>),
}

/// The error for a SingleDelete and a merge operand of the same key.
pub(super) fn single_delete() -> Error {
    let what = "a SingleDelete and a merge operand of the same key";
    Error::declined(DeclineReason::SingleDeleteContract, what)
}

impl<S: Source, T: Sink> Retain<'_, S, T> {
    /// Handles the head, a merge operand with this sequence number, and all entries that are merged with it.
    pub(super) fn merge(&mut self, sequence: u64) -> Result<()> {
        let rules = self.rules;
        let Some(merging) = &rules.merging else {
            return Err(Error::declined_type(ValueType::Merge));
        };
        self.group.merges = true;
        let mut operands = Vec::new();
        let beneath = self.take_operands(sequence, &mut operands)?;
        if let Beneath::Skipped(end) = &beneath {
            for operand in &operands {
                self.sum_dropped(operand.tag, operand.kv_hash);
            }
            return self.skip_until(end);
        }
        let Some(newest) = operands.first() else {
            // Range tombstones or a filter delete all of them, so they hide nothing.
            self.begin_again();
            return Ok(());
        };
        let newest = key::tag_sequence(newest.tag);
        let oldest_first: Vec<_> = operands.iter().rev().map(|one| &*one.value).collect();
        let key = self.user_key.as_slice();
        let (kind, made) = match &beneath {
            Beneath::Base(base) => {
                let made = merging.full(key, base.as_deref(), &oldest_first)?;
                (ValueType::Value, made)
            }
            Beneath::Nothing if rules.bottommost => {
                (ValueType::Value, merging.full(key, None, &oldest_first)?)
            }
            Beneath::Nothing | Beneath::OlderStripe
                if oldest_first.len() > 1 || merging.takes_single_operand() =>
            {
                (ValueType::Merge, merging.partial(key, &oldest_first)?)
            }
            _ => (ValueType::Merge, None),
        };
        let is_value = made.is_some() && kind == ValueType::Value;
        match made {
            Some(value) => self.emit_made(newest, kind, &value, &operands)?,
            None => self.emit_operands(&operands)?,
        }
        if !is_value {
            // A base that was not merged is the next entry.
            self.begin_again();
            self.group.is_known = !rules.filters_beneath_operands;
            return Ok(());
        }
        match beneath {
            Beneath::Base(Some(_)) => self.consume_head(),
            Beneath::Base(None) => self.drop_head(),
            _ => Ok(()),
        }
    }

    /// Takes the operands of the head's stripe, newest first, and copies the value beneath them, if there is one. Those that a
    /// range tombstone deletes are dropped.
    fn take_operands(&mut self, sequence: u64, operands: &mut Vec<Operand>) -> Result<Beneath> {
        let below = self.rules.snapshot_below(sequence);
        let delimiter = self
            .rules
            .merging
            .as_ref()
            .map_or(0, Merging::delimiter_len);
        let beside = size_of::<Operand>() + OPERAND_OVERHEAD + delimiter;
        let mut bytes = 0_usize;
        loop {
            let Some(head) = self.source.head().filter(|head| self.is_of_group(head)) else {
                return Ok(Beneath::Nothing);
            };
            let (tag, kv_hash) = (head.tag, head.kv_hash);
            let own = key::tag_sequence(tag);
            if below.is_some_and(|below| own <= below) {
                return Ok(Beneath::OlderStripe);
            }
            let kind = key::tag_type(tag);
            let is_operand = kind == ValueType::Merge as u8;
            if !is_operand && operands.is_empty() {
                return Ok(Beneath::OlderStripe);
            }
            // It also sees operands that a range tombstone deletes.
            let decision = match is_operand && self.filter.is_some() {
                true => self.filter_operand(own)?,
                false => Decision::Keep,
            };
            let (is_removed, changed) = match decision {
                Decision::Keep => (false, None),
                Decision::ChangeValue(value) => (false, Some(value)),
                Decision::Remove | Decision::Purge => (true, None),
                Decision::SkipUntil(end) => return Ok(Beneath::Skipped(end)),
            };
            let Some(head) = self.source.head() else {
                return Err(Error::internal("no entry to merge"));
            };
            let is_removed =
                is_removed || is_covered(self.rules, &self.user_key, &mut self.fragment, own);
            let value = match (is_removed, &changed) {
                (true, _) => None,
                (false, Some(value)) => Some(value.as_slice()),
                (false, None) => value_of(kind, head.value)?,
            };
            if kind == ValueType::SingleDeletion as u8 {
                return Err(single_delete());
            }
            bytes = bytes.saturating_add(value.map_or(0, |value| value.len() + beside));
            if bytes > MAX_MADE_BYTES {
                return Err(Error::declined(
                    DeclineReason::MemoryBudget,
                    "the merge operands of a key take more than 8 MiB",
                ));
            }
            let is_changed = changed.is_some();
            let value = value.map(<[u8]>::to_vec);
            if !is_operand {
                return Ok(Beneath::Base(value));
            }
            match value {
                Some(value) => operands.push(Operand {
                    tag,
                    value,
                    kv_hash,
                    is_changed,
                }),
                None => self.sum_dropped(tag, kv_hash),
            }
            self.source.advance()?;
        }
    }

    /// Emits the result of merging operands, which are consumed.
    fn emit_made(
        &mut self,
        sequence: u64,
        kind: ValueType,
        value: &[u8],
        operands: &[Operand],
    ) -> Result<()> {
        let tag = key::pack_tag(sequence, kind as u8);
        let tag = match kind {
            ValueType::Merge => tag,
            _ => final_tag(self.rules, tag),
        };
        let first = !self.group.emitted;
        let hash = kv_hash(&self.user_key, value);
        self.sink.emit(&self.user_key, tag, value, hash, first)?;
        self.group.emitted = true;
        self.group.zeroed |= key::tag_sequence(tag) == 0;
        self.totals.made += 1;
        for operand in operands {
            self.sum_consumed(operand.tag, operand.kv_hash);
        }
        Ok(())
    }

    fn emit_operands(&mut self, operands: &[Operand]) -> Result<()> {
        for operand in operands {
            let first = !self.group.emitted;
            let (tag, value) = (operand.tag, &operand.value);
            if operand.is_changed {
                let hash = kv_hash(&self.user_key, value);
                self.sink.emit(&self.user_key, tag, value, hash, first)?;
                self.group.emitted = true;
                self.sum_consumed(tag, operand.kv_hash);
                self.totals.made += 1;
                continue;
            }
            let hash = operand.kv_hash;
            self.sink.emit(&self.user_key, tag, value, hash, first)?;
            self.count_kept(entry_hash(hash, tag));
        }
        Ok(())
    }

    /// Earlier entries of the key hide no older ones.
    fn begin_again(&mut self) {
        self.group.visible_to_last = None;
        self.group.zeroed = false;
        self.group.is_known = false;
    }
}

/// The value or operand of an entry; `None` for a tombstone.
fn value_of(kind: u8, value: &[u8]) -> Result<Option<&[u8]>> {
    match ValueType::from_code(kind) {
        Some(ValueType::Merge | ValueType::Value) => Ok(Some(value)),
        Some(ValueType::ValuePreferredSeqno) => {
            let parts = value.split_last_chunk::<8>();
            let what = "a timed put without its sequence number";
            let parts = parts.ok_or_else(|| Error::new(ErrorKind::Corruption, what))?;
            Ok(Some(parts.0))
        }
        Some(ValueType::WideColumnEntity) => Err(Error::declined(
            DeclineReason::MergeOperands,
            "a merge operand above a wide-column entity",
        )),
        _ => Ok(None),
    }
}

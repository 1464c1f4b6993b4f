//! Compaction filters of the application (`db/compaction/compaction_iterator.cc:InvokeFilterIfNeeded`, and `FilterMerge` of
//! `db/merge_helper.cc`).

use rockmill_core::{Decision, DeclineReason, Error, FilteredKind, Result};
use rockmill_format::key::{self, ValueType};

use super::retain::{Retain, Sink, Source};

/// The decision of a filter about the head.
pub(super) enum Filtered {
    /// The head is as it was read.
    No,
    /// It has another tag and another value.
    Made { tag: u64, value: Vec<u8> },
    /// The head and what follows it were dropped.
    Skipped,
}

impl<S: Source, T: Sink> Retain<'_, S, T> {
    /// Asks the filter about the head, the first entry of its user key. Snapshots do not matter.
    pub(super) fn filter_head(&mut self) -> Result<Filtered> {
        let (Some(head), Some(filter)) = (self.source.head(), &mut self.filter) else {
            return Ok(Filtered::No);
        };
        match ValueType::from_code(key::tag_type(head.tag)) {
            Some(ValueType::Value) => {}
            Some(ValueType::WideColumnEntity) => {
                let what = "a compaction filter would see a wide-column entity";
                return Err(Error::declined(DeclineReason::CompactionFilter, what));
            }
            _ => return Ok(Filtered::No),
        }
        let sequence = key::tag_sequence(head.tag);
        let made = |kind: ValueType, value| {
            let tag = key::pack_tag(sequence, kind as u8);
            Ok(Filtered::Made { tag, value })
        };
        match filter.filter(&self.user_key, FilteredKind::Value, head.value)? {
            Decision::Keep => Ok(Filtered::No),
            Decision::Remove => made(ValueType::Deletion, Vec::new()),
            Decision::Purge => made(ValueType::SingleDeletion, Vec::new()),
            Decision::ChangeValue(value) => made(ValueType::Value, value),
            Decision::SkipUntil(end) if !self.is_later(&end)? => Ok(Filtered::No),
            Decision::SkipUntil(end) => {
                self.skip_until(&end)?;
                Ok(Filtered::Skipped)
            }
        }
    }

    /// Asks the filter about a merge operand, if no snapshot sees it.
    pub(super) fn filter_operand(&mut self, sequence: u64) -> Result<Decision> {
        let newest = self.rules.snapshots.last().copied().unwrap_or(0);
        let (Some(head), Some(filter)) = (self.source.head(), &mut self.filter) else {
            return Ok(Decision::Keep);
        };
        if sequence <= newest {
            return Ok(Decision::Keep);
        }
        let decision = filter.filter(&self.user_key, FilteredKind::MergeOperand, head.value)?;
        Ok(match decision {
            Decision::SkipUntil(end) if !self.is_later(&end)? => Decision::Keep,
            decision => decision,
        })
    }

    /// Whether a key that a filter has named comes behind the current one.
    fn is_later(&self, key: &[u8]) -> Result<bool> {
        let (rules, own) = (self.rules, self.user_key.as_slice());
        let is_later = rules.order.is_before(own, key);
        if let Some(checked) = &rules.checked_order {
            match is_later {
                true => checked.require(own, key)?,
                false => checked.require_not_behind(key, own)?,
            }
        }
        Ok(is_later)
    }

    /// Drops all entries of keys before `end`.
    pub(super) fn skip_until(&mut self, end: &[u8]) -> Result<()> {
        let rules = self.rules;
        while let Some(head) = self.source.head() {
            let is_skipped = rules.order.is_before(head.user_key, end);
            if let Some(checked) = &rules.checked_order {
                match is_skipped {
                    true => checked.require(head.user_key, end)?,
                    false => checked.require_not_behind(end, head.user_key)?,
                }
            }
            if !is_skipped {
                break;
            }
            self.drop_head()?;
        }
        Ok(())
    }
}

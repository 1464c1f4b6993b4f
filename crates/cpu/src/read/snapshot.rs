//! The entries that a snapshot sees: the newest one of each user key at or below its sequence number.

use rockmill_core::{Error, NeedsMerge, Result, SnapshotRules, Tombstones, entry_hash};
use rockmill_format::coding::put_bytes;
use rockmill_format::key::{self, ValueType};

use super::retain::{RetainTotals, Sink, Source};

/// Passes the entries of `source` that the snapshot sees on to `sink`.
///
/// # Errors
/// The errors of source and sink; Declined for an entry that does not determine the value alone, if that is an error.
pub fn see(
    rules: &SnapshotRules<'_>,
    source: &mut impl Source,
    sink: &mut impl Sink,
) -> Result<RetainTotals> {
    let mut totals = RetainTotals::default();
    // Prefix of the last decided user key, once there is one.
    let mut decided: Option<u128> = None;
    let mut decided_key = Vec::new();
    let mut fragment = 0;
    while let Some(head) = source.head() {
        let hash = entry_hash(head.kv_hash, head.tag);
        let is_hidden = decided == Some(head.prefix) && decided_key == head.user_key;
        let kept = if key::tag_sequence(head.tag) > rules.sequence {
            totals.above += 1;
            false
        } else if is_hidden {
            totals.replaced += 1;
            false
        } else {
            decided = Some(head.prefix);
            decided_key.clear();
            put_bytes(&mut decided_key, head.user_key);
            decide(rules, head.user_key, head.tag, &mut fragment, &mut totals)?
        };
        if kept {
            totals.kept += 1;
            totals.hash_kept = totals.hash_kept.wrapping_add(hash);
            sink.emit(head.user_key, head.tag, head.value, head.kv_hash, true)?;
        } else {
            totals.dropped += 1;
            totals.hash_dropped = totals.hash_dropped.wrapping_add(hash);
        }
        source.advance()?;
    }
    Ok(totals)
}

/// Whether an entry that decides over its user key is a row. `fragment` is for [`SnapshotRules::deletes`].
pub fn decide(
    rules: &SnapshotRules<'_>,
    user_key: &[u8],
    tag: u64,
    fragment: &mut usize,
    totals: &mut RetainTotals,
) -> Result<bool> {
    if rules.deletes(user_key, key::tag_sequence(tag), fragment) {
        totals.replaced += 1;
        return Ok(false);
    }
    let code = key::tag_type(tag);
    let kind = ValueType::from_code(code)
        .ok_or_else(|| Error::internal(format!("an entry of type {code} was let through")))?;
    if kind == ValueType::Value {
        return Ok(true);
    }
    if !kind.needs_merge() {
        let is_dropped = rules.tombstones == Tombstones::Drop;
        totals.tombstones_dropped += u64::from(is_dropped);
        return Ok(!is_dropped);
    }
    match rules.needs_merge {
        NeedsMerge::Mark => Ok(true),
        NeedsMerge::Error => Err(Error::declined_type(kind)),
    }
}

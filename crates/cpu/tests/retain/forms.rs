//! RocksDB's rules, written twice: for a whole key, and for one entry after another.

use rockmill_core::{CompactionRules, DeeperLevels};
use rockmill_format::key::{MAX_SEQUENCE, pack_tag};

use crate::common::{DELETE, Entry, PUT, SINGLE_DELETE};

/// The oldest snapshot at or above `seq`.
fn vis(rules: &CompactionRules, seq: u64) -> u64 {
    let seeing = rules.snapshots.iter().filter(|&&s| s >= seq).min();
    seeing.copied().unwrap_or(MAX_SEQUENCE)
}

/// The newest snapshot below `seq`.
fn below(rules: &CompactionRules, seq: u64) -> Option<u64> {
    rules.snapshots.iter().filter(|&&s| s < seq).max().copied()
}

fn earliest(rules: &CompactionRules) -> u64 {
    rules
        .snapshots
        .iter()
        .min()
        .copied()
        .unwrap_or(MAX_SEQUENCE)
}

fn absent(rules: &CompactionRules, key: &[u8]) -> bool {
    match &rules.deeper {
        DeeperLevels::Nothing => true,
        DeeperLevels::Unknown => false,
        DeeperLevels::Files(levels) => !levels
            .iter()
            .flatten()
            .any(|(from, to)| !rules.order.is_before(key, from) && !rules.order.is_before(to, key)),
    }
}

/// Whether an emitted entry gets sequence number 0.
fn zeroes(rules: &CompactionRules, seq: u64) -> bool {
    rules.bottommost && seq <= earliest(rules) && seq < MAX_SEQUENCE
}

/// The closed form for keys without SingleDelete.
pub fn closed_form(entries: &[Entry], rules: &CompactionRules) -> Vec<Entry> {
    let mut out = Vec::new();
    for group in entries.chunk_by(|a, b| a.key == b.key) {
        let stripes: Vec<_> = group
            .chunk_by(|a, b| vis(rules, a.seq()) == vis(rules, b.seq()))
            .collect();
        for (i, stripe) in stripes.iter().enumerate() {
            let newest = &stripe[0];
            let oldest_stripe = i + 1 == stripes.len();
            let unneeded = newest.seq() <= earliest(rules) && absent(rules, &newest.key);
            if newest.kind() == DELETE && (unneeded || rules.bottommost && oldest_stripe) {
                continue;
            }
            let seq = if newest.kind() == PUT && zeroes(rules, newest.seq()) {
                0
            } else {
                newest.seq()
            };
            out.push(Entry::new(&newest.key, seq, newest.kind(), &newest.value));
        }
    }
    out
}

/// Result of the sequential form.
#[derive(Debug, Default, PartialEq)]
pub struct Sequential {
    pub out: Vec<Entry>,
    /// Positions in the input of the entries in `out`.
    pub kept: Vec<usize>,
    pub replaced: u64,
    pub tombstones_dropped: u64,
}

/// The sequential rules with the oldest snapshot as the write-conflict snapshot. `None` if a
/// SingleDelete meets a Delete and that is an error.
pub fn sequential(entries: &[Entry], rules: &CompactionRules) -> Option<Sequential> {
    let mut result = Sequential::default();
    let (mut prev_vis, mut emitted, mut zeroed, mut clear_next) = (None, false, false, false);
    let mut i = 0;
    let emit =
        |i: usize, empty: bool, emitted: &mut bool, zeroed: &mut bool, r: &mut Sequential| {
            let mut entry = entries[i].clone();
            if empty {
                entry = Entry::new(&entry.key, entry.seq(), PUT, b"");
            }
            if zeroes(rules, entry.seq()) {
                entry.tag = pack_tag(0, entry.kind());
                *zeroed = true;
            }
            *emitted = true;
            r.out.push(entry);
            r.kept.push(i);
        };
    while i < entries.len() {
        let e = &entries[i];
        let s = e.seq();
        if i == 0 || entries[i - 1].key != e.key {
            (prev_vis, emitted, zeroed) = (None, false, false);
        }
        let pv = prev_vis.replace(vis(rules, s));
        let next = entries.get(i + 1).filter(|f| f.key == e.key);
        let in_stripe = |f: &Entry| below(rules, s).is_none_or(|below| f.seq() > below);
        if clear_next {
            clear_next = false;
            emit(i, true, &mut emitted, &mut zeroed, &mut result);
            i += 1;
        } else if e.kind() == SINGLE_DELETE {
            let Some(f) = next else {
                if s <= earliest(rules) && absent(rules, &e.key) || zeroed {
                    result.tombstones_dropped += 1;
                } else {
                    emit(i, false, &mut emitted, &mut zeroed, &mut result);
                }
                i += 1;
                continue;
            };
            if zeroed {
                result.tombstones_dropped += 1;
                result.replaced += 1;
                i += 2;
            } else if !in_stripe(f) {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
                i += 1;
            } else if f.kind() == SINGLE_DELETE || f.kind() == DELETE {
                if f.kind() == DELETE && rules.enforce_single_del_contracts {
                    return None;
                }
                result.tombstones_dropped += 1;
                i += 1;
            } else if emitted || s <= earliest(rules) {
                result.tombstones_dropped += 1;
                result.replaced += 1;
                i += 2;
            } else {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
                clear_next = true;
                i += 1;
            }
        } else if pv.is_some_and(|pv| pv <= vis(rules, s)) {
            result.replaced += 1;
            i += 1;
        } else if e.kind() == DELETE && s <= earliest(rules) && absent(rules, &e.key) {
            result.tombstones_dropped += 1;
            i += 1;
        } else if e.kind() == DELETE && rules.bottommost {
            let rest = &entries[i + 1..];
            let skipped = rest
                .iter()
                .take_while(|f| f.key == e.key && in_stripe(f))
                .count();
            if rest.get(skipped).is_some_and(|f| f.key == e.key) {
                emit(i, false, &mut emitted, &mut zeroed, &mut result);
            }
            i += 1 + skipped;
        } else {
            emit(i, false, &mut emitted, &mut zeroed, &mut result);
            i += 1;
        }
    }
    Some(result)
}

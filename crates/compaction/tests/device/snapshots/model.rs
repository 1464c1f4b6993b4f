//! The entries that a snapshot sees, computed in another way: all entries in one list, sorted, one user key at a time.

use rockmill_core::{Error, KeyRange, NeedsMerge, ReadReport, Result, SnapshotRules, Tombstones};
use rockmill_format::key::{self, ValueType};
use rockmill_format::range_tombstone::RangeTombstone;

use super::drawn::Run;
use crate::common::Entry;

/// Rows and report of reading the runs' entries in a range, without the bytes read.
pub fn read(
    runs: &[Run],
    range: &KeyRange,
    rules: &SnapshotRules,
) -> Result<(Vec<Entry>, ReadReport)> {
    read_under(runs, range, rules, &[])
}

/// The same with range tombstones, of which the snapshot may see some.
pub fn read_under(
    runs: &[Run],
    range: &KeyRange,
    rules: &SnapshotRules,
    tombstones: &[RangeTombstone],
) -> Result<(Vec<Entry>, ReadReport)> {
    let is_deleted = |entry: &Entry| {
        tombstones.iter().any(|one| {
            let is_seen = one.sequence <= rules.sequence && one.sequence > entry.seq();
            is_seen && one.begin <= entry.key && entry.key < one.end
        })
    };
    let mut report = ReadReport::default();
    let mut all: Vec<Entry> = Vec::new();
    for run in runs {
        let inside = run.entries().filter(|entry| range.contains(&entry.key));
        let inside: Vec<_> = inside.collect();
        report.entries.push(inside.len() as u64);
        all.extend(inside);
    }
    for entry in &all {
        report.tombstones += u64::from(matches!(entry.kind(), 0x00 | 0x07 | 0x14));
        report.key_bytes += entry.key.len() as u64 + 8;
        report.value_bytes += entry.value.len() as u64;
        report.hash_in = report.hash_in.wrapping_add(entry.hash());
    }
    // Equal internal keys keep the order of the runs.
    all.sort_by_key(Entry::order);
    let mut rows = Vec::new();
    for versions in all.chunk_by(|a, b| a.key == b.key) {
        let (above, seen): (Vec<_>, Vec<_>) =
            (versions.iter()).partition(|entry| entry.seq() > rules.sequence);
        report.above_snapshot += above.len() as u64;
        report.replaced += seen.len().saturating_sub(1) as u64;
        let newest = seen.first();
        if newest.is_some_and(|newest| is_deleted(newest)) {
            report.replaced += 1;
        } else if let Some(newest) = newest
            && is_row(newest.kind(), rules, &mut report)?
        {
            report.kept += 1;
            report.hash_kept = report.hash_kept.wrapping_add(newest.hash());
            rows.push((*newest).clone());
        }
    }
    report.dropped = report.entries.iter().sum::<u64>() - report.kept;
    report.hash_dropped = report.hash_in.wrapping_sub(report.hash_kept);
    Ok((rows, report))
}

fn is_row(kind: u8, rules: &SnapshotRules, report: &mut ReadReport) -> Result<bool> {
    match (kind, rules.tombstones, rules.needs_merge) {
        (0x01, ..) | (0x00 | 0x07, Tombstones::Keep, _) => Ok(true),
        (0x00 | 0x07, Tombstones::Drop, _) => {
            report.tombstones_dropped += 1;
            Ok(false)
        }
        (_, _, NeedsMerge::Mark) => Ok(true),
        (_, _, NeedsMerge::Error) => {
            let kind = ValueType::from_code(key::tag_type(u64::from(kind)));
            Err(Error::declined_type(kind.expect("it was drawn")))
        }
    }
}

//! Cutting a job into subcompactions.
//!
//! The cut is a function of job and inputs alone: it looks at the inputs' index blocks, which say how
//! many stored bytes lie up to each separator, and never at threads or memory.

use std::time::Duration;

use rockmill_core::{
    CancelToken, InputTable, KeyRange, OutputSplitting, Plan, Result, Subcompaction,
};

use rockmill_exec::parallel;

/// Input bytes of a subcompaction, in output files. RocksDB's subcompactions are at least one file; two keep
/// the last, shorter file of a subcompaction from becoming the rule.
const FILES_PER_SUBCOMPACTION: u64 = 2;

/// Cuts the job, looking at several tables at once. Subcompactions cover the job's range without gap or overlap, in key
/// order. Also gives the processor time that other threads than the caller's took.
///
/// # Errors
/// Cancelled: indexes of large jobs take their time.
pub fn cut(
    plan: &Plan,
    tables: &[InputTable],
    threads: usize,
    cancel: &CancelToken,
) -> Result<(Vec<Subcompaction>, Duration)> {
    let (borders, elsewhere) = if plan.output.splitting.single_file {
        Default::default()
    } else {
        let subcompaction_bytes = subcompaction_bytes(&plan.output.splitting);
        let (grains, elsewhere) = parallel::map(tables, threads, |table| {
            cancel.check()?;
            Ok(grains(
                table,
                &plan.range,
                subcompaction_bytes / GRAINS_PER_SUBCOMPACTION,
            ))
        })?;
        (
            borders(&plan.range, subcompaction_bytes, grains.concat()),
            elsewhere,
        )
    };
    let begins = std::iter::once(plan.range.begin.clone()).chain(borders.iter().cloned().map(Some));
    let ends = borders
        .iter()
        .cloned()
        .map(Some)
        .chain(std::iter::once(plan.range.end.clone()));
    let subcompactions = begins.zip(ends).enumerate();
    let subcompactions = subcompactions
        .map(|(index, (begin, end))| Subcompaction {
            index,
            range: KeyRange { begin, end },
        })
        .collect();
    Ok((subcompactions, elsewhere))
}

fn subcompaction_bytes(cutting: &OutputSplitting) -> u64 {
    cutting
        .max_output_file_size
        .saturating_mul(FILES_PER_SUBCOMPACTION)
}

/// Positions of the inputs that may hold keys of a range.
pub fn inputs(range: &KeyRange, tables: &[InputTable]) -> impl Iterator<Item = usize> {
    let tables = tables.iter().enumerate();
    let overlapping = tables.filter(|(_, table)| table.overlaps(range));
    overlapping.map(|(position, _)| position)
}

/// Stored bytes of the data blocks that may hold keys of a range.
pub fn stored_bytes(range: &KeyRange, tables: &[InputTable]) -> u64 {
    tables.iter().map(|table| table.stored_bytes(range)).sum()
}

/// Borders are looked for among so many places a subcompaction in each table: indexes have a million entries.
const GRAINS_PER_SUBCOMPACTION: u64 = 128;

/// A table's blocks in the range, put together to `grain_bytes` or a little more: the last separator and
/// the stored bytes of each.
fn grains<'a>(table: &'a InputTable, range: &KeyRange, grain_bytes: u64) -> Vec<(&'a [u8], u64)> {
    let mut grains = Vec::new();
    let mut bytes = 0;
    let mut last = None;
    for block in &table.meta.index[table.blocks_in_range(range)] {
        bytes += block.handle.size;
        if !range.contains(&block.separator) {
            continue;
        }
        if bytes >= grain_bytes {
            grains.push((block.separator.as_slice(), bytes));
            (bytes, last) = (0, None);
        } else {
            last = Some(block.separator.as_slice());
        }
    }
    // Small tables have no whole grain, and there may be thousands of them.
    grains.extend(last.map(|separator| (separator, bytes)));
    grains
}

/// The first keys of all subcompactions but the first, strictly ascending and inside the range.
fn borders(range: &KeyRange, subcompaction_bytes: u64, mut all: Vec<(&[u8], u64)>) -> Vec<Vec<u8>> {
    all.sort_unstable();
    let total: u64 = all.iter().map(|(_, size)| size).sum();
    let subcompactions = total.div_ceil(subcompaction_bytes.max(1)).max(1);
    let mut borders: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0;
    for (separator, size) in all {
        passed += size;
        let next = borders.len() as u64 + 1;
        // Border `next` belongs at next/subcompactions of the bytes.
        let due =
            u128::from(passed) * u128::from(subcompactions) >= u128::from(total) * u128::from(next);
        let first = range.begin.as_deref().unwrap_or_default();
        let before = borders.last().map_or(first, Vec::as_slice);
        if next < subcompactions && due && separator > before {
            borders.push(separator.to_vec());
        }
    }
    borders
}

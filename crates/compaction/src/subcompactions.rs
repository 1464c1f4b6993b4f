//! Splits a job into subcompactions.
//!
//! The result depends only on the job and its inputs: on the inputs' index blocks, which give the stored bytes up to
//! each separator, and not on threads or memory.

use std::time::Duration;

use rockmill_core::{
    CancelToken, InputTable, KeyRange, OutputSplitting, Plan, Result, Subcompaction,
};

use rockmill_exec::parallel;

/// Input bytes of a subcompaction, in output files. RocksDB's subcompactions have at least one file. With one, the
/// shorter last file of a subcompaction would become the rule.
const FILES_PER_SUBCOMPACTION: u64 = 2;

/// Splits the job, reading several tables in parallel. The subcompactions cover the job's range without gap or overlap,
/// in key order. Also returns the CPU time of threads other than the caller's.
///
/// # Errors
/// Cancelled: indexes of large jobs take long.
pub fn split(
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

fn subcompaction_bytes(splitting: &OutputSplitting) -> u64 {
    splitting
        .max_output_file_size
        .saturating_mul(FILES_PER_SUBCOMPACTION)
}

/// Returns the positions of the inputs that may contain keys of a range.
pub fn inputs(range: &KeyRange, tables: &[InputTable]) -> impl Iterator<Item = usize> {
    let tables = tables.iter().enumerate();
    let overlapping = tables.filter(|(_, table)| table.overlaps(range));
    overlapping.map(|(position, _)| position)
}

/// Returns the stored bytes of the data blocks that may contain keys of a range.
pub fn stored_bytes(range: &KeyRange, tables: &[InputTable]) -> u64 {
    tables.iter().map(|table| table.stored_bytes(range)).sum()
}

/// Number of candidate borders per subcompaction in each table. Indexes have up to a million entries, so not every one
/// is a candidate.
const GRAINS_PER_SUBCOMPACTION: u64 = 128;

/// Groups a table's blocks in the range into grains of `grain_bytes` or slightly more. Returns the last separator and
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
    // Small tables have less than one grain, and there may be thousands of them.
    grains.extend(last.map(|separator| (separator, bytes)));
    grains
}

/// Returns the first keys of all subcompactions except the first one, strictly ascending and inside the range.
fn borders(range: &KeyRange, subcompaction_bytes: u64, mut all: Vec<(&[u8], u64)>) -> Vec<Vec<u8>> {
    all.sort_unstable();
    let total: u64 = all.iter().map(|(_, size)| size).sum();
    let subcompactions = total.div_ceil(subcompaction_bytes.max(1)).max(1);
    let mut borders: Vec<Vec<u8>> = Vec::new();
    let mut passed = 0;
    for (separator, size) in all {
        passed += size;
        let next = borders.len() as u64 + 1;
        // Border `next` is due at next/subcompactions of the bytes.
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

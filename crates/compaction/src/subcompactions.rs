//! Splits a job into subcompactions.
//!
//! The result depends only on the job and its inputs: on the inputs' index blocks, which give the stored bytes up to
//! each separator, and not on threads or memory.

use std::time::Duration;

use rockmill_core::borders::{borders, grains};
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
    // A compaction filter may remember keys and skip any number of them, so it sees all keys in order.
    let is_single = plan.output.splitting.single_file || plan.rules.filter.is_some();
    let (borders, elsewhere) = if is_single {
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
            borders(
                plan.rules.order,
                &plan.range,
                subcompaction_bytes,
                grains.concat(),
            ),
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

/// Number of candidate borders per subcompaction in each table. Indexes have up to a million entries, so not every one
/// is a candidate.
const GRAINS_PER_SUBCOMPACTION: u64 = 128;

//! Sums over the subcompactions of a job, and checks of these sums.

use rockmill_core::{Error, ErrorKind, InputTable, Job, Plan, Result, StageTime};
use rockmill_format::key;
use rockmill_format::range_tombstone::END_TAG;

use crate::outcome::Outcome;
use rockmill_exec::executor::FinishedTask;

/// First version whose property `rocksdb.num.entries` RocksDB trusts
/// (`compaction_job.cc:UpdateInternalStatsFromInputFiles`).
const FIRST_COUNTED_VERSION: u64 = 5;

/// Returns the number of entries read from each input.
pub fn entries_by_input(made: &[FinishedTask], inputs: usize) -> Vec<u64> {
    let mut sums = vec![0; inputs];
    for task in made {
        for (sum, entries) in sums.iter_mut().zip(&task.report.read.entries) {
            *sum += entries;
        }
    }
    sums
}

/// Combines the subcompactions' reports, which are in key order.
pub fn gather(made: Vec<FinishedTask>) -> Outcome {
    let mut outcome = Outcome::default();
    for FinishedTask { mut report, .. } in made {
        let totals = &mut outcome.totals;
        outcome.entries_read += report.read.entries.iter().sum::<u64>();
        if let Some(ssts) = report.output.ssts_mut() {
            outcome.files.append(&mut ssts.files);
            outcome.size_sample.add(ssts.size_sample);
            outcome.cached.outputs.append(&mut ssts.cached);
        }
        totals.read.add(&report.read);
        totals.cpu_elsewhere += report.cpu_elsewhere;
        StageTime::add_all(&mut totals.stages, &report.stages);
    }
    outcome
}

/// Returns the error for a report that contradicts itself or the inputs.
pub fn unbalanced(what: &str) -> Error {
    Error::new(ErrorKind::Verification, what)
}

/// Checks the sums that RocksDB verifies too, where an error would stop the database: every entry of every input was
/// read, and the files are in order.
pub fn check_accounts(
    outcome: &Outcome,
    entries_by_input: &[u64],
    plan: &Plan,
    job: &Job,
    tables: &[InputTable],
) -> Result<()> {
    let inside = |internal_key: &[u8]| {
        key::split(internal_key)
            .is_some_and(|(user_key, _)| plan.range.contains_in(plan.rules.order, user_key))
    };
    for ((input, table), &read) in job.tree.inputs.iter().zip(tables).zip(entries_by_input) {
        let properties = &table.meta.properties;
        // Range tombstones are no entries of data blocks (`compaction_job.cc:VerifyInputRecordCount`).
        let expected = properties
            .num_entries
            .saturating_sub(properties.num_range_deletions);
        // RocksDB does not trust the counts of older files either.
        if properties.format_version < FIRST_COUNTED_VERSION {
            continue;
        }
        if inside(&input.smallest) && inside(&input.largest) && read != expected {
            return Err(Error::corruption(
                &input.name,
                table.meta.file_size,
                format!("{read} entries were read where the properties say {expected}"),
            ));
        }
    }
    let written: u64 = outcome.files.iter().map(|f| f.content.entries()).sum();
    let in_order = outcome.files.windows(2).all(|pair| {
        let keys = (key::split(&pair[0].largest), key::split(&pair[1].smallest));
        // A range tombstone may end where the next file begins.
        matches!(keys, (Some((a, tag)), Some((b, _))) if plan.rules.order.is_before(a, b) || (a == b && tag == END_TAG))
    });
    if written != outcome.totals.read.rows() || !in_order {
        return Err(unbalanced("output files do not add up"));
    }
    Ok(())
}

//! The order of keys of a column family.

use rockmill_core::{
    Attached, CheckedOrder, CustomComparator, DeclineReason, Hints, InputTable, Job, JobInfo,
    Result, TIMESTAMP_SUFFIX,
};
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE};
use rockmill_format::options_file::Options;

use super::plugins::because;
use super::{EligibleJob, require_object};
use rockmill_snapshot::tree::user_key;

/// The option that names the comparator.
pub const COMPARATOR: &str = "comparator";

/// The attached comparator with its name, if a job may have to call it: it is none of RocksDB's, and no order is stated for
/// it.
pub fn attached<'a>(info: &'a JobInfo, hints: &Hints) -> Option<(&'a str, &'a CustomComparator)> {
    let Attached::Named(name, comparator) = &info.plugins.as_ref()?.comparator else {
        return None;
    };
    let is_known = KeyOrder::from_comparator(name.as_bytes()).is_some()
        || hints.comparators.order(name).is_some()
        || name.ends_with(TIMESTAMP_SUFFIX);
    (!is_known).then_some((name, comparator))
}

/// Asks the attached comparator about the bounds of files and of the job, if OPTIONS name it.
///
/// # Errors
/// Declined if it orders them neither by their bytes nor in reverse, or fails.
pub fn ask(eligible: &EligibleJob, cf: &Options) -> Result<Option<CheckedOrder>> {
    let (job, input) = (&eligible.job, &eligible.input);
    let attached = attached(&job.info, &job.hints);
    let Some((_, comparator)) = attached.filter(|&(name, _)| cf.str(COMPARATOR) == Some(name))
    else {
        return Ok(None);
    };
    let inputs = job.tree.inputs.iter();
    let inputs = inputs.flat_map(|file| [&file.smallest, &file.largest]);
    let inputs = inputs.map(|key| user_key(key).to_vec());
    let of_job = input.begin.iter().chain(&input.end).cloned();
    let deeper = job.tree.deeper_bounds.iter().cloned();
    let bounds = inputs.chain(of_job).chain(deeper).collect();
    CheckedOrder::find(comparator.clone(), bounds).map(Some)
}

/// The same order, checked with the range tombstones of the inputs as well.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_about_tombstones(checked: &CheckedOrder, tables: &[InputTable]) -> Result<CheckedOrder> {
    let tables = tables.iter();
    let tombstones = tables.filter_map(|table| table.range_tombstones(MAX_SEQUENCE));
    let bounds = tombstones.flatten();
    let bounds = bounds.flat_map(|one| [one.begin.clone(), one.end.clone()]);
    let mut bounds = bounds.peekable();
    match bounds.peek() {
        Some(_) => checked.with(bounds),
        None => Ok(checked.clone()),
    }
}

/// The order of keys in a column family with these options: that of RocksDB's comparator which they name, or the one that the
/// user states for this name.
///
/// # Errors
/// Declined if it is not known.
pub fn order(job: &Job, cf: &Options, written_by: [u32; 3]) -> Result<KeyOrder> {
    let named = cf.str(COMPARATOR);
    let known = named.and_then(|name| {
        KeyOrder::from_comparator(name.as_bytes()).or_else(|| job.hints.comparators.order(name))
    });
    if let Some(order) = known {
        return Ok(order);
    }
    let reason = match named.is_some_and(|name| name.ends_with(TIMESTAMP_SUFFIX)) {
        true => DeclineReason::UserTimestamps,
        false => DeclineReason::Comparator,
    };
    let required = require_object(cf, COMPARATOR, &[], written_by, reason);
    let required = required.map_err(|error| match (reason, job.info.plugins.as_deref()) {
        (DeclineReason::Comparator, Some(plugins)) => because(error, plugins),
        _ => error,
    });
    required.map(|()| KeyOrder::Bytewise)
}

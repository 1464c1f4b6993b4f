//! Checks of the objects that the application has attached to a job.

use rockmill_core::{DeclineReason, Error, JobInfo, MergeOperator, Result};
use rockmill_format::options_file::Options;

use super::{Merges, malformed};
use rockmill_snapshot::Findings;

/// Declines a job if an attached object is not the one that the column family's options name.
pub fn check(info: &JobInfo, cf: &Options, found: &mut Findings) {
    let Some(plugins) = info
        .plugins
        .as_ref()
        .filter(|known| known.missing.is_none())
    else {
        return;
    };
    let merge = plugins.merge_operator.as_ref().map(|(name, _)| &**name);
    found.note(agree(
        cf,
        "merge_operator",
        merge,
        MergeOperator::is_named_alike,
    ));
}

/// Requires that OPTIONS name the attached object, or none if none is attached.
fn agree(
    cf: &Options,
    key: &str,
    attached: Option<&str>,
    is_alike: impl Fn(&str, &str) -> bool,
) -> Result<()> {
    let object = cf.nested(key).map_err(malformed)?;
    let named = object.id().filter(|_| !cf.is_null(key));
    let agrees = match (named, attached) {
        (Some(named), Some(attached)) => is_alike(named, attached),
        (named, attached) => named == attached,
    };
    if agrees {
        return Ok(());
    }
    let [named, attached] = [named, attached].map(|name| name.unwrap_or("none"));
    let what = format!("{key} is {named} in OPTIONS, and {attached} was attached");
    Err(Error::declined(DeclineReason::PluginMismatch, what))
}

/// The attached operator for merge operands.
///
/// # Errors
/// Why there is none, if nothing is attached to the job.
pub fn merges(info: &JobInfo) -> std::result::Result<Merges, &str> {
    let Some(plugins) = &info.plugins else {
        return Err("the file says so");
    };
    if let Some(why) = &plugins.missing {
        return Err(why);
    }
    let merging = plugins.merge_operator.as_ref().map(|(_, merging)| merging);
    let none = "the attached options have no merge operator";
    Ok(merging.cloned().ok_or_else(|| none.to_owned()))
}

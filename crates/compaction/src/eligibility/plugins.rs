//! Checks of the objects that the application has attached to a job.

use rockmill_core::{
    Attached, CustomCollectors, DeclineReason, Error, JobFilter, JobInfo, MergeOperator, Merging,
    Plugins, Result,
};
use rockmill_format::options_file::Options;

use super::{Merges, NULL, malformed, options, require_object};
use rockmill_snapshot::Findings;

const FILTER: &str = "compaction_filter";
const FILTER_FACTORY: &str = "compaction_filter_factory";

/// Declines a job if an attached object is not the one that the column family's options name, or if it needs one that is not
/// attached.
pub fn check(info: &JobInfo, cf: &Options, written_by: [u32; 3], found: &mut Findings) {
    let none = Plugins::default();
    let plugins = info.plugins.as_deref().unwrap_or(&none);
    let operator = &plugins.merge_operator;
    found.note(agree(
        cf,
        "merge_operator",
        operator,
        MergeOperator::is_named_alike,
    ));
    found.note(same_delimiter(cf, operator));
    let collected = options::collectors(cf, plugins.collectors.as_deref()).map(drop);
    found.note(collected.map_err(|error| because(error, plugins)));
    let (filter, factory) = (
        &plugins.compaction_filter,
        &plugins.compaction_filter_factory,
    );
    for (key, attached) in [(FILTER, filter), (FILTER_FACTORY, factory)] {
        found.note(agree(cf, key, attached, str::eq));
        let is_used = key == FILTER || !matches!(filter, Attached::Named(..));
        if *attached == Attached::Unknown && is_used {
            let reason = DeclineReason::CompactionFilter;
            let required = require_object(cf, key, &[NULL], written_by, reason);
            found.note(required.map_err(|error| because(error, plugins)));
        }
    }
}

/// The attached collectors with their names, in order, if they are known.
pub fn collectors(info: &JobInfo) -> Option<&[(String, Option<CustomCollectors>)]> {
    info.plugins.as_ref()?.collectors.as_deref()
}

/// Adds why no objects are known to an error about one that the job needs.
pub fn because(error: Error, plugins: &Plugins) -> Error {
    match &plugins.missing {
        Some(why) => Error {
            what: format!("{}: {why}", error.what),
            ..error
        },
        None => error,
    }
}

/// Requires that OPTIONS name the attached object, or none if none is attached.
fn agree<T>(
    cf: &Options,
    key: &str,
    attached: &Attached<T>,
    is_alike: impl Fn(&str, &str) -> bool,
) -> Result<()> {
    let attached = match attached {
        Attached::Unknown => return Ok(()),
        Attached::Nothing => None,
        Attached::Named(name, _) => Some(name.as_str()),
    };
    let named = named(cf, key)?;
    let named = named.as_deref();
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

/// Requires that the delimiter of an attached operator is the one in OPTIONS. RocksDB escapes some characters and trims white
/// space, so only delimiters that it writes and reads alike are compared.
fn same_delimiter(cf: &Options, attached: &Attached<Merging>) -> Result<()> {
    let Attached::Named(_, Merging::Append { delimiter, .. }) = attached else {
        return Ok(());
    };
    let attached = String::from_utf8_lossy(delimiter);
    let object = cf.nested("merge_operator").map_err(malformed)?;
    let (Some(written), false) = (
        object.str("delimiter"),
        attached.contains(['\\', ';', '{', '}', char::REPLACEMENT_CHARACTER]),
    ) else {
        return Ok(());
    };
    // One or two escapes are undone here, and white space is trimmed behind the first.
    let written = written.replace("\\n", "\n").replace("\\r", "\r");
    if written.replace('\\', "").trim() == attached.trim() {
        return Ok(());
    }
    let what = format!(
        "the merge operator's delimiter is {written:?} in OPTIONS, and one with {attached:?} was attached"
    );
    Err(Error::declined(DeclineReason::PluginMismatch, what))
}

/// The name of an object in OPTIONS, if there is one.
pub fn named(cf: &Options, key: &str) -> Result<Option<String>> {
    let object = cf.nested(key).map_err(malformed)?;
    let name = object.id().filter(|_| !cf.is_null(key));
    Ok(name.map(str::to_owned))
}

/// The filter of a job, if one is attached.
pub fn filter(info: &JobInfo) -> Option<JobFilter> {
    info.plugins.as_ref()?.filter().cloned()
}

/// The attached operator for merge operands.
///
/// # Errors
/// Why none is known.
pub fn merges(info: &JobInfo) -> std::result::Result<Merges, &str> {
    const FILE: &str = "it has merge operands";
    let plugins = info.plugins.as_ref().ok_or(FILE)?;
    match &plugins.merge_operator {
        Attached::Unknown => Err(plugins.missing.as_deref().unwrap_or(FILE)),
        Attached::Nothing => Ok(Err("the attached options have no merge operator".to_owned())),
        Attached::Named(_, merging) => Ok(Ok(merging.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attached_delimiter_is_the_one_in_options() {
        let differs = |options: &str, delimiter: &str| {
            let cf = Options::from_value(&format!("a=1;merge_operator={options}"));
            let merging = Merging::Append {
                delimiter: delimiter.as_bytes().to_vec(),
                partial: true,
            };
            let attached = Attached::Named("StringAppendOperator".to_owned(), merging);
            same_delimiter(&cf.expect("they can be read"), &attached).is_err()
        };
        let written = |text: &str| format!("{{id=StringAppendOperator;delimiter={text};}}");
        for (text, delimiter) in [
            ("|", "|"),
            (",", ","),
            ("", " "),
            ("\\n", "\n"),
            ("\\:", ":"),
            ("\\\\\\:", ":"),
        ] {
            assert!(!differs(&written(text), delimiter), "{text:?}");
        }
        for (text, delimiter) in [("|", ","), ("", ","), (",", ""), ("\\n", "n")] {
            assert!(differs(&written(text), delimiter), "{text:?}");
        }
        // RocksDB before 7 writes the name alone.
        assert!(!differs("StringAppendOperator", "|"));
    }
}

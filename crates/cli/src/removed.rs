//! Removed subcommands, and what to use instead.

use std::ffi::OsString;

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::removed;

/// Subcommands of `rockmill bench`, each with a sentence that names the replacement.
const OF_BENCH: [(&str, &str); 4] = [
    (
        "compaction",
        "`rockmill bench compaction` was moved: use `rockmill-bench compaction`",
    ),
    (
        "system",
        "`rockmill bench system` was moved: use `rockmill-bench system`",
    ),
    (
        "close",
        "`rockmill bench close` was removed: the metric rockmill_job_seconds and `stats()` show how long jobs take",
    ),
    (
        "input",
        "`rockmill bench input` was removed: `rockmill devices` shows the rates of a GPU's link, and `rockmill-bench \
         compaction --profile` the time of each GPU stage",
    ),
];

/// Returns Usage if an argument error is about something that was removed.
pub fn explain(error: &clap::Error, arguments: &[OsString]) -> Option<Failure> {
    let named = removed::unknown(error)?;
    let mut arguments = arguments.iter().skip(1).filter_map(|text| text.to_str());
    let instead = match arguments.next().filter(|&first| first == named) {
        Some("bench") => {
            let subcommand = arguments.next().unwrap_or_default();
            let known = OF_BENCH.iter().find(|(name, _)| *name == subcommand);
            known.map_or(
                "`rockmill bench` was moved: use `rockmill-bench`",
                |(_, instead)| instead,
            )
        }
        Some("model") => "`rockmill model` was moved: use `rockmill-bench model`",
        _ => return removed::explain_option(error),
    };
    Some(Failure::Usage(instead.to_owned()))
}

//! What an older version of the command took, and what to use instead.

use clap::error::{ContextKind, ContextValue};

use crate::outcome::Failure;

/// For `rockmill model` without a profile, or with options that it had when it measured this machine.
pub const MODEL: &str = "`rockmill model` no longer measures this machine: name an accelerator with --profile, or \
                         compare devices with `rockmill bench compaction --device cpu,cuda`";

/// Subcommands and options that are gone, each with a sentence that names what to use instead.
const REMOVED: [(&str, &str); 6] = [
    (
        "close",
        "`rockmill bench close` was removed: the metric rockmill_job_seconds and `stats()` tell how long jobs take",
    ),
    (
        "input",
        "`rockmill bench input` was removed: `rockmill devices` shows the rates of a GPU's link, and `rockmill bench \
         compaction --profile` where a GPU's time goes",
    ),
    (
        "--gpu-input",
        "--gpu-input was removed: input is always read, so leave the option out",
    ),
    (
        "--gpu-mapped-mib",
        "--gpu-mapped-mib was removed: input is always read, so leave the option out",
    ),
    (
        "--gpu-unmap-early",
        "--gpu-unmap-early was removed: input is always read, so leave the option out",
    ),
    (
        "--calibration",
        "--calibration was removed: how long slices take is learned from those that run, so leave the option out",
    ),
];

/// Options of `rockmill model` when it measured this machine.
const OF_MODEL: [&str; 5] = ["--device", "--dir", "--repeat", "--quick", "--interleave"];

/// Usage, if an error of the arguments is about something that is gone.
pub fn explain(error: &clap::Error) -> Option<Failure> {
    let named = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let named = named.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(named)) => Some(named.as_str()),
        _ => None,
    })?;
    let is_model = std::env::args().nth(1).is_some_and(|name| name == "model");
    let instead = match is_model && OF_MODEL.contains(&named) {
        true => MODEL,
        false => REMOVED.iter().find(|(removed, _)| *removed == named)?.1,
    };
    Some(Failure::Usage(instead.to_owned()))
}

//! Removed options of the commands, and what to use instead.

use clap::error::{ContextKind, ContextValue};

use crate::outcome::Failure;

/// Removed options, each with a sentence that names the replacement.
const OPTIONS: [(&str, &str); 5] = [
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
        "--calibration was removed: how long subcompactions take is learned from those that run, so leave the option out",
    ),
    (
        "--trust-operator-names",
        "--trust-operator-names was removed: state each merge operator with --merge-operator [FAMILY=]NAME",
    ),
];

/// Returns the unknown subcommand or option that an argument error names.
pub fn unknown(error: &clap::Error) -> Option<&str> {
    let kinds = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    kinds.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(named)) => Some(named.as_str()),
        _ => None,
    })
}

/// Returns Usage if an argument error is about a removed option.
pub fn explain_option(error: &clap::Error) -> Option<Failure> {
    let named = unknown(error)?;
    let (_, instead) = OPTIONS.iter().find(|(removed, _)| *removed == named)?;
    Some(Failure::Usage((*instead).to_owned()))
}

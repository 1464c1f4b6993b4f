//! Start and end of a command.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};

use clap::Parser;
use tracing_subscriber::EnvFilter;

use crate::outcome::Failure;

/// Parses the arguments, of which the first names the program, starts the log, runs `work` and prints its failure to standard
/// error. Returns the exit code.
///
/// The log goes to standard error; `ROCKMILL_LOG` sets its level.
pub fn run<Arguments: Parser>(
    name: &str,
    arguments: &[OsString],
    work: impl FnOnce(Arguments) -> Result<(), Failure>,
) -> u8 {
    let arguments = Arguments::parse_from(arguments);
    let asked = std::env::var("ROCKMILL_LOG");
    let log = asked.map_or_else(|_| EnvFilter::new("error"), EnvFilter::new);
    tracing_subscriber::fmt()
        .with_env_filter(log)
        .with_writer(std::io::stderr)
        .with_ansi(has_colors(
            std::io::stderr().is_terminal(),
            std::env::var_os("NO_COLOR").as_deref(),
        ))
        .init();
    match work(arguments) {
        Ok(()) => 0,
        Err(failure) => fail(name, &failure),
    }
}

fn fail(name: &str, failure: &Failure) -> u8 {
    // If standard error cannot be written, the exit code still reports the failure.
    let _ = writeln!(std::io::stderr(), "{name}: {failure}");
    failure.exit_code()
}

/// Whether log lines have colours; see <https://no-color.org>.
fn has_colors(is_terminal: bool, no_color: Option<&OsStr>) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_for_terminals_and_can_be_refused() {
        let said = OsStr::new("1");
        assert!(has_colors(true, None) && has_colors(true, Some(OsStr::new(""))));
        assert!(!has_colors(false, None) && !has_colors(true, Some(said)));
    }
}

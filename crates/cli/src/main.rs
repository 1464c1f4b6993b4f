//! The `rockmill` command.
//!
//! Exit codes: 0 done, 1 the data is bad or, to `doctor`, not all of it would be accepted, 2 wrong usage,
//! 3 the environment refused, 4 what could be read is sound, and some could not be.

#![forbid(unsafe_code)]

mod advice;
mod bench;
mod compact;
mod database_dir;
mod demo;
mod devices;
mod doctor;
mod inspect;
mod job;
mod model;
mod outcome;
mod output;
mod removed;
mod service_args;
mod side_by_side;
mod sst;
#[cfg(test)]
mod test_tables;
mod verify;

use std::ffi::OsStr;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::outcome::Failure;

/// Rockmill compacts for stock RocksDB; this command shows, checks and repeats its work.
#[derive(Debug, Parser)]
#[command(name = "rockmill", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a database, lets RocksDB and Rockmill compact the same files, and compares.
    Demo(demo::DemoArgs),
    /// Measures RocksDB and Rockmill on the same files.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Lists what can compute here, with the rates of GPUs' links, or says why a GPU cannot.
    Devices(devices::DevicesArgs),
    /// Shows how fast an accelerator is by its published formulas.
    Model(model::ModelArgs),
    /// Compacts a closed database, or a range of its keys.
    Compact(compact::CompactArgs),
    /// Says whether a database's compactions would be accepted, and what to change if not.
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(doctor::DoctorArgs),
    /// Shows what is in an SST file.
    #[command(after_help = outcome::EXIT_CODES)]
    Inspect(inspect::InspectArgs),
    /// Checks every block, key and count of an SST file or of a database.
    #[command(after_help = outcome::EXIT_CODES)]
    Verify(verify::VerifyArgs),
    /// Keeps and repeats compaction jobs.
    #[command(subcommand)]
    Job(job::JobCommand),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => match removed::explain(&error) {
            Some(removed) => return fail(&removed),
            None => error.exit(),
        },
    };
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
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Model(args) => model::run(&args),
        Command::Bench(command) => bench::run(command),
        Command::Compact(args) => compact::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Job(command) => job::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    // Where standard error takes nothing, the exit code still tells.
    let _ = writeln!(std::io::stderr(), "rockmill: {failure}");
    ExitCode::from(failure.exit_code())
}

/// Whether what is logged has colours; see <https://no-color.org>.
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

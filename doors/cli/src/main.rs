//! The `rockmill` command.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    rockmill_cli::main(std::env::args_os().collect()).into()
}

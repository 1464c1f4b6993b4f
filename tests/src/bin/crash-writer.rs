//! Writes to a database until it is killed; see `rockmill_tests::crash`.

use std::process::ExitCode;

use rockmill_tests::crash::writer::{self, Arguments};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Arguments::parse(&arguments).and_then(|arguments| writer::run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash-writer: {error}");
            ExitCode::FAILURE
        }
    }
}

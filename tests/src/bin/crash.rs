//! `crash kill` kills processes according to environment variables; `crash write ..` is such a process. See
//! `rockmill_tests::crash`.

use std::process::ExitCode;

use rockmill_tests::crash::campaign::Campaign;
use rockmill_tests::crash::writer::{self, Arguments};

const USAGE: &str = "say crash kill, with ROCKMILL_SEED and the like in the environment";

fn kill() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| format!("where this program is: {e}"))?;
    Campaign::from_environment(&program)?.run()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ended = match arguments.split_first() {
        Some((door, [])) if door == "kill" => kill(),
        Some((door, rest)) if door == writer::DOOR => {
            Arguments::parse(rest).and_then(|arguments| writer::run(&arguments))
        }
        _ => Err(USAGE.to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crash: {error}");
            ExitCode::FAILURE
        }
    }
}

//! `record_jobs FOLDER` makes small jobs in an empty folder; see `scripts/recorded-jobs.sh`.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(root) = std::env::args_os().nth(1) else {
        eprintln!("record_jobs: say record_jobs FOLDER, where the folder is empty");
        return ExitCode::from(2);
    };
    match rockmill_tests::recording::make(Path::new(&root)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("record_jobs: {error}");
            ExitCode::FAILURE
        }
    }
}

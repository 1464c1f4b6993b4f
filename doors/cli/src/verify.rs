//! `rockmill verify`: checks every checksum, the order of keys, counts, and filters.

mod database;
mod filter;
mod progress;
mod report;
mod table;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

use crate::database_dir;
use crate::sst::Sst;
use progress::Progress;
use report::Row;

/// Arguments of `rockmill verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// An SST file, or the folder of a database that no process is changing. For a database, the SST files and the
    /// MANIFEST that names them are checked; WAL and blob files are not read.
    pub path: PathBuf,
    /// Print the rows as a JSON array.
    #[arg(long)]
    pub json: bool,
}

/// Checks a file, or all files of a database. Goes on after a bad file.
///
/// # Errors
/// Data if something is damaged, naming file and offset; Incomplete if something could not be checked; Environment if
/// something cannot be read; Usage if the path is a folder without a database.
pub fn run(args: VerifyArgs) -> Result<(), Failure> {
    let rows = check(&args.path)?;
    output::document_or_text(args.json, &rows, |out| Ok(report::print(out, &rows)?))?;
    report::failure(&rows).map_or(Ok(()), Err)
}

fn check(path: &Path) -> Result<Vec<Row>, Failure> {
    let found = std::fs::metadata(path).map_err(|e| Failure::of_path(path, &e))?;
    if !found.is_dir() {
        let progress = Progress::over(found.len());
        let checked = table::check_opened(Sst::open(path, progress.bar()));
        let row = Row::new(&path.display().to_string(), found.len());
        return Ok(vec![row.with(checked.map(|(_, checked)| checked))]);
    }
    database_dir::require(path)?;
    database::check(path)
}

//! `rockmill doctor`: would a database's compactions be accepted?

mod hints;
mod report;

use std::path::PathBuf;
use std::sync::Arc;

use rockmill_compaction::Engine;
use rockmill_storage::LocalStorage;
use rockmill_terminal::outcome::Failure;

use crate::database_dir;
use crate::service_args::ServiceArgs;
use report::Report;

/// How the command ends; hints alone, which `--json` has as well, change nothing about that.
pub const EXIT_CODES: &str = "Exit code: 0 if all compactions would be accepted, 1 if some would be \
    left to RocksDB or the database's own files are damaged, 2 on wrong usage, 3 if something cannot be \
    read.";

/// What `rockmill doctor` takes.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// The folder of a database, which may be open, or of a copy. OPTIONS, MANIFEST and the properties of
    /// the SST files are read, and nothing is written.
    db: PathBuf,
    #[command(flatten)]
    service: ServiceArgs,
    /// Print a document for machines.
    #[arg(long)]
    json: bool,
}

/// Looks through a database.
///
/// # Errors
/// Data if compactions of some column family would be left to RocksDB, or OPTIONS or MANIFEST are
/// damaged; Usage if there is no database; Environment if something cannot be read.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    database_dir::require_with_options(&args.db)?;
    database_dir::read_tree(&args.db)?;
    let settings = args.service.settings();
    let engine = Engine::new(settings, Arc::new(LocalStorage)).map_err(Failure::Environment)?;
    let diagnosis = engine.diagnose(&args.db);
    let diagnosis = diagnosis.map_err(|error| database_dir::failure(&args.db, error))?;
    let report = Report::new(&diagnosis, &args.service);
    report.print(args.json)?;
    report.failure(&args.db).map_or(Ok(()), Err)
}

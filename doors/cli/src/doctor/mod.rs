//! `rockmill doctor`: reports whether a database's compactions would be accepted.

mod doors;
mod hints;
mod report;

use std::path::PathBuf;
use std::sync::Arc;

use rockmill_compaction::{Engine, Settings};
use rockmill_snapshot::closed_database::options_name;
use rockmill_storage::LocalStorage;
use rockmill_terminal::outcome::Failure;

use crate::database_dir;
use crate::merge_args::MergeArgs;
use crate::service_args::ServiceArgs;
use report::Report;

/// Exit codes of the command. Hints do not change them and are part of `--json` as well.
pub const EXIT_CODES: &str = "Exit code: 0 if all compactions would be accepted, 1 if some would be \
    left to RocksDB or the database's own files are damaged, 2 on wrong usage, 3 if something cannot be \
    read.";

/// Arguments of `rockmill doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// The folder of a database, which may be open, or of a copy. Reads OPTIONS, MANIFEST and the properties of the SST
    /// files; writes nothing.
    db: PathBuf,
    #[command(flatten)]
    service: ServiceArgs,
    #[command(flatten)]
    merge: MergeArgs,
    /// Order of a comparator of the application; the option can be repeated.
    #[arg(long = "comparator", value_name = "NAME=bytewise|reverse")]
    comparators: Vec<String>,
    /// Print a JSON document.
    #[arg(long)]
    json: bool,
}

/// Diagnoses a database.
///
/// # Errors
/// Data if compactions of a column family would be left to RocksDB, or OPTIONS or MANIFEST are damaged; Usage if there
/// is no database; Environment if something cannot be read.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    database_dir::require_with_options(&args.db)?;
    let tree = database_dir::read_tree(&args.db)?;
    let families = tree.column_families.values();
    let families = families.map(|family| String::from_utf8_lossy(&family.name).into_owned());
    let operators = args
        .merge
        .operators(&args.db, &families.collect::<Vec<_>>())?;
    let mut settings = Settings {
        merge_operators: operators,
        ..args.service.settings()
    };
    let mut comparators = args.comparators.iter();
    let stated = comparators.try_for_each(|stated| settings.state_comparator(stated));
    stated.map_err(|why| Failure::Usage(format!("--comparator: {why}")))?;
    let engine = Engine::new(settings, Arc::new(LocalStorage)).map_err(Failure::Environment)?;
    let diagnosis = engine.diagnose(&args.db);
    let diagnosis = diagnosis.map_err(|error| database_dir::failure(&args.db, error))?;
    if let Some(cut) = diagnosis.cut_options {
        let [cut, older] = [cut, diagnosis.options_number].map(options_name);
        let dir = args.db.display();
        eprintln!("rockmill: {dir}: {cut} is empty or cut, so {older} counts");
    }
    let report = Report::new(&args.db, &diagnosis, &args.service);
    report.print(args.json)?;
    report.failure(&args.db).map_or(Ok(()), Err)
}

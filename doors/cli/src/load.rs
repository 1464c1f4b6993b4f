//! `rockmill load`: databases to try `rockmill sql` on.

use std::path::PathBuf;

use rockmill_side_by_side::dataset::{self, Dataset};
use rockmill_side_by_side::workload::Compression;
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::signals;

/// Arguments of `rockmill load`.
#[derive(Debug, clap::Args)]
pub struct LoadArgs {
    /// What the database contains.
    #[arg(value_enum)]
    dataset: Dataset,
    /// Number of rows: TPC-H's scale factor; 1 is some 1 GB.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Folder of the new database.
    #[arg(long)]
    db: PathBuf,
    /// Compression of the files: none, lz4, snappy or zstd.
    #[arg(long, default_value = "lz4")]
    compression: Compression,
}

/// Help below the arguments.
pub const EXAMPLES: &str = "Example:
  rockmill load tpch --scale 0.1 --db ./tpch
  rockmill sql ./tpch \"select l_returnflag, count(*) from lineitem group by 1\"";

/// Runs `rockmill load`.
///
/// # Errors
/// Usage if the folder has contents; Stopped if a signal came; else Environment.
pub fn run(args: &LoadArgs) -> Result<(), Failure> {
    signals::catch()?;
    dataset::load(&args.db, args.dataset, args.scale, args.compression)?;
    let (names, db) = (args.dataset.names().join(", "), args.db.display());
    println!("{db} has the tables {names}; query them with: rockmill sql {db}");
    Ok(())
}

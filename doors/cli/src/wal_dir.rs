//! The folder of a database's write-ahead logs, for commands that read them.

use std::path::{Path, PathBuf};

use rockmill_scan::{Directory, LogFolder, LogSource};
use rockmill_terminal::outcome::Failure;

use crate::database_dir;

/// Argument of commands that read the write-ahead logs.
#[derive(Debug, Clone, clap::Args)]
pub struct WalDirArgs {
    /// Folder of the write-ahead logs [default: the one that has the logs that the MANIFEST names: the database's own or,
    /// except for compact, the wal_dir of its OPTIONS].
    #[arg(long, value_name = "DIR")]
    wal_dir: Option<PathBuf>,
}

impl WalDirArgs {
    /// The folder that the user names.
    pub fn stated(&self) -> Option<&Path> {
        self.wal_dir.as_deref()
    }

    /// The argument with a value.
    pub fn of(wal_dir: Option<PathBuf>) -> Self {
        Self { wal_dir }
    }

    /// Opens the database in `dir`. A sentence says which folder its logs are read from if that is not its own. If the
    /// folder is missing, the sentence says so, and no log is read.
    ///
    /// # Errors
    /// Those of [`WalDirArgs::directory`].
    pub fn open(&self, dir: &Path) -> Result<(Directory, Option<String>), Failure> {
        let (database, logs) = self.directory(dir)?;
        let database = match logs.source {
            LogSource::Missing { .. } => database.may_lack_logs(),
            _ => database,
        };
        Ok((database, sentence(dir, &logs)))
    }

    /// The database in `dir`, and the folder of its logs. Snapshots are an error while that is missing.
    ///
    /// # Errors
    /// Environment if a folder cannot be read; Data if OPTIONS or MANIFEST are damaged.
    pub fn directory(&self, dir: &Path) -> Result<(Directory, LogFolder), Failure> {
        let of_database = |error| database_dir::failure(dir, error);
        let mut database = Directory::open(dir).map_err(of_database)?;
        if let Some(stated) = self.stated() {
            database = database.with_log_folder(stated);
        }
        let logs = database.log_folder().map_err(of_database)?;
        Ok((database, logs))
    }
}

/// Says which folder has the logs of the database in `dir`, or which one is missing, unless it is the database's own.
pub fn sentence(dir: &Path, logs: &LogFolder) -> Option<String> {
    let sentence = logs.sentence()?;
    let advice = match logs.source {
        LogSource::Missing { .. } => "; name the folder with --wal-dir if it is elsewhere",
        _ => "",
    };
    Some(format!("{}: {sentence}{advice}", dir.display()))
}

//! Opens a database as its OPTIONS file says, with Rockmill as its compaction service.

use std::fs;
use std::path::{self, Path, PathBuf};

use rockmill::Service;
use rockmill_compaction::Diagnosis;
use rockmill_format::options_file::OptionsFile;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::properties::{
    BACKGROUND_ERRORS, NUM_ENTRIES_ACTIVE_MEM_TABLE, NUM_IMMUTABLE_MEM_TABLE,
};
use rust_rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, Options,
    WaitForCompactOptions,
};

use super::options_text::{self, Written};
use super::task::{SelectedFamily, Task};
use crate::lock;

/// How a database is opened. Creating it writes nothing.
pub struct Opening {
    /// Text of the OPTIONS file, completed.
    text: String,
    /// Folder of the logs; empty for the database's own.
    logs: PathBuf,
    /// The database's own options.
    own: OptionsFile,
    own_number: u64,
    /// Values of `merge_operator` in its file, in the file's order.
    own_operators: Vec<String>,
}

impl Opening {
    /// Lets RocksDB read the newest OPTIONS file, completed with the missing bits per key, and with these values of
    /// `merge_operator`. With these options it creates no database or column family, and replays only the WAL in
    /// `logs`.
    ///
    /// # Errors
    /// Environment or Data if RocksDB fails.
    pub fn new(
        dir: &Path,
        logs: &Path,
        diagnosis: &Diagnosis,
        bits: Vec<Option<u32>>,
        operators: Vec<String>,
    ) -> Result<Self, Failure> {
        let name = format!("OPTIONS-{:06}", diagnosis.options_number);
        let text = fs::read_to_string(dir.join(&name))
            .map_err(|e| Failure::Environment(format!("{name}: {e}")))?;
        let opening = Self {
            own_operators: options_text::merge_operators(&text),
            text: options_text::for_opening(&text, &bits, &operators),
            logs: match logs == dir {
                true => PathBuf::new(),
                // If this process is killed, the OPTIONS file that stays must not depend on the working directory.
                false => path::absolute(logs).unwrap_or_else(|_| logs.to_owned()),
            },
            own: diagnosis.options.clone(),
            own_number: diagnosis.options_number,
        };
        opening.options()?;
        Ok(opening)
    }

    fn options(&self) -> Result<(Options, Vec<ColumnFamilyDescriptor>), Failure> {
        let (mut options, families) = options_text::load(&self.text)?;
        options.create_if_missing(false);
        options.create_missing_column_families(false);
        options.set_error_if_exists(false);
        options.set_wal_dir(&self.logs);
        // The folder in OPTIONS may belong to another machine.
        options.set_db_log_dir("");
        Ok((options, families))
    }

    /// Opens the database, which replays its WAL. If that fails, the newest OPTIONS file stays the database's own.
    ///
    /// # Errors
    /// Environment if the system refuses; Data if the database is damaged.
    pub fn open(&self, task: &Task, service: &Service) -> Result<Database, Failure> {
        let (mut options, families) = self.options()?;
        options.set_compaction_service(service.clone());
        let (dir, own_number) = (&task.dir, self.own_number);
        let opened = DB::open_cf_descriptors(&options, dir, families);
        let opened = opened.map_err(|e| task.failed("open the database", &e));
        let opened = opened.and_then(|db| {
            let written = Written::find(dir, &self.own, &self.own_operators, own_number)?;
            Ok(Database { db, written })
        });
        opened.map_err(|failure| {
            // Another process may have opened the database meanwhile; its files must stay.
            if !matches!(lock::in_use(dir), Ok(false)) {
                return failure;
            }
            match options_text::remove_newer(dir, own_number) {
                Ok(()) => failure,
                Err(left) => Failure::Environment(format!("{failure}; {left}")),
            }
        })
    }
}

/// An open database.
pub struct Database {
    db: DB,
    written: Written,
}

impl Database {
    /// Whether opening the database has left entries of a column family in memory, which are still in its logs.
    pub fn has_unflushed(&self, family: &str) -> bool {
        let family = self.db.cf_handle(family);
        let number = |property| {
            let found = family.map(|family| self.db.property_int_value_cf(family, property));
            matches!(found, Some(Ok(Some(number))) if number > 0)
        };
        number(NUM_ENTRIES_ACTIVE_MEM_TABLE) || number(NUM_IMMUTABLE_MEM_TABLE)
    }

    /// Compacts the keys of a column family to the bottommost level.
    ///
    /// # Errors
    /// Environment or Data if RocksDB fails; any error once the database [`stop`](Self::stop)s.
    pub fn compact(&self, task: &Task, selected: &SelectedFamily) -> Result<(), Failure> {
        let name = &selected.name;
        let family = self
            .db
            .cf_handle(name)
            .ok_or_else(|| Failure::Usage(format!("no column family {name:?}")))?;
        let mut compaction = CompactOptions::default();
        compaction.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        // Rockmill splits its own jobs. A job that RocksDB does alone gets `threads` subcompactions.
        let parts = if selected.forecast.is_accepted() {
            1
        } else {
            task.threads
        };
        compaction.set_max_subcompactions(parts as i32);
        let (from, to) = match selected.is_reverse {
            true => (&task.keys.to, &task.keys.from),
            false => (&task.keys.from, &task.keys.to),
        };
        let (from, to) = (from.as_deref(), to.as_deref());
        self.db.compact_range_cf_opt(family, from, to, &compaction);
        self.db
            .wait_for_compact(&WaitForCompactOptions::default())
            .map_err(|e| task.failed("compact", &e))?;
        match self.db.property_int_value(BACKGROUND_ERRORS) {
            Ok(Some(0) | None) => Ok(()),
            Ok(Some(_)) => Err(Failure::Environment(format!(
                "{}: RocksDB cannot compact; see its LOG",
                task.dir.display()
            ))),
            Err(e) => Err(task.failed("compact", &e)),
        }
    }

    /// Ends the running compaction and each that follows. Its files are removed when the database closes
    /// (`db_impl.cc:DBImpl::CloseHelper`).
    pub fn stop(&self) {
        let wait = false;
        self.db.cancel_all_background_work(wait);
    }

    /// Closes the database. Its newest OPTIONS file is then the same as before.
    ///
    /// # Errors
    /// Environment if the written OPTIONS file cannot be removed.
    pub fn close(self) -> Result<(), Failure> {
        drop(self.db);
        self.written.remove()
    }
}

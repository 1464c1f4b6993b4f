//! Opens a database as its OPTIONS file says, with Rockmill as its compaction service.

use std::fs;
use std::path::Path;

use rockmill::Service;
use rockmill_compaction::{Diagnosis, Forecast};
use rockmill_format::options_file::OptionsFile;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::properties::BACKGROUND_ERRORS;
use rust_rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB, Options,
    WaitForCompactOptions,
};

use super::lock;
use super::options_text::{self, Written};
use super::task::Task;

/// Options for opening a database. Creating them writes nothing.
pub struct Opening {
    options: Options,
    families: Vec<ColumnFamilyDescriptor>,
    /// The database's own options.
    own: OptionsFile,
    own_number: u64,
}

impl Opening {
    /// Lets RocksDB read the newest OPTIONS file, completed with the missing bits per key. With these options it creates
    /// no database or column family, and replays no WAL outside of the database's folder.
    ///
    /// # Errors
    /// Environment or Data if RocksDB fails.
    pub fn new(dir: &Path, diagnosis: &Diagnosis, bits: &[Option<u32>]) -> Result<Self, Failure> {
        let name = format!("OPTIONS-{:06}", diagnosis.options_number);
        let text = fs::read_to_string(dir.join(&name))
            .map_err(|e| Failure::Environment(format!("{name}: {e}")))?;
        let text = options_text::for_opening(&text, bits);
        let (mut options, families) = options_text::load(&text)?;
        options.create_if_missing(false);
        options.create_missing_column_families(false);
        options.set_error_if_exists(false);
        // The decision has checked that the WAL is in the database's own folder.
        options.set_wal_dir("");
        let own = diagnosis.options.clone();
        Ok(Self {
            options,
            families,
            own,
            own_number: diagnosis.options_number,
        })
    }

    /// Opens the database, which replays its WAL. If that fails, the newest OPTIONS file stays the database's own.
    ///
    /// # Errors
    /// Environment if the system refuses; Data if the database is damaged.
    pub fn open(mut self, task: &Task, service: &Service) -> Result<Database, Failure> {
        self.options.set_compaction_service(service.clone());
        let (dir, own_number) = (&task.dir, self.own_number);
        let opened = DB::open_cf_descriptors(&self.options, dir, self.families);
        let opened = opened.map_err(|e| task.failed("open the database", &e));
        let opened = opened.and_then(|db| {
            let written = Written::find(dir, &self.own, own_number)?;
            Ok(Database { db, written })
        });
        opened.map_err(|failure| {
            // Another process may have opened the database meanwhile; its files must stay.
            if lock::in_use(dir).is_some() {
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
    /// Compacts the keys to the bottommost level.
    ///
    /// # Errors
    /// Environment or Data if RocksDB fails.
    pub fn compact(&self, task: &Task, forecast: &Forecast) -> Result<(), Failure> {
        let family = self
            .db
            .cf_handle(&task.column_family)
            .ok_or_else(|| Failure::Usage(format!("no column family {:?}", task.column_family)))?;
        let mut compaction = CompactOptions::default();
        compaction.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        // Rockmill splits its own jobs. A job that RocksDB does alone gets `threads` subcompactions.
        let parts = if forecast.is_accepted() {
            1
        } else {
            task.threads
        };
        compaction.set_max_subcompactions(parts as i32);
        let (from, to) = (task.keys.from.as_deref(), task.keys.to.as_deref());
        self.db.compact_range_cf_opt(family, from, to, &compaction);
        self.db
            .wait_for_compact(&WaitForCompactOptions::default())
            .map_err(|e| task.failed("compact", &e))?;
        match self.db.property_int_value(BACKGROUND_ERRORS) {
            Ok(Some(0) | None) => Ok(()),
            Ok(Some(_)) => Err(Failure::Environment(format!(
                "{}: RocksDB cannot compact: its LOG says why",
                task.dir.display()
            ))),
            Err(e) => Err(task.failed("compact", &e)),
        }
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

//! Tables that jobs have written and read back, kept while devices cache their files: so a job whose input is on a device
//! reads little of it.
//!
//! A table is kept for the session of its database. A job compares some bytes of the file with those that were read back, so it
//! notices a file that was replaced.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{FileIdentity, InputFile, InputTable, ReadAt, Result};
use rockmill_exec::budget::{Budget, Reservation};
use rockmill_format::table::names;

/// The tables of all databases together take at most 1/`SHARE` of the memory budget.
const SHARE: u64 = 8;

/// The tables, oldest first.
#[derive(Debug, Default)]
pub struct KnownTables(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    /// The session of its database.
    session: String,
    unique_id: [u64; 2],
    table: WrittenTable,
    /// Whether a version has listed it.
    is_listed: bool,
    bytes: u64,
    _reserved: Reservation,
}

/// A table that a job has written, without its file.
#[derive(Debug, Clone)]
pub struct WrittenTable {
    table: InputTable,
    marks: Vec<u8>,
}

impl WrittenTable {
    /// A table that was read back.
    ///
    /// # Errors
    /// Storage.
    pub fn new(table: &InputTable) -> Result<Self> {
        Ok(Self {
            table: table.without_file(),
            marks: table.marks(&*table.file)?,
        })
    }

    /// What it says of its contents.
    pub fn table(&self) -> &InputTable {
        &self.table
    }

    /// The table, if `file` is still the one that was read back.
    ///
    /// # Errors
    /// Storage.
    pub fn of(self, file: &dyn ReadAt) -> Result<Option<InputTable>> {
        Ok((self.table.marks(file)? == self.marks).then_some(self.table))
    }
}

impl KnownTables {
    fn tables(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a table of a session if there is memory for it. The oldest ones make room.
    pub fn keep(&self, budget: &Arc<Budget>, session: &str, table: &WrittenTable) {
        // Their range tombstones are read from the file.
        let metaindex = &table.table.meta.metaindex;
        let Some(identity) = FileIdentity::own(&table.table) else {
            return;
        };
        if metaindex.contains_key(names::RANGE_DELETIONS) {
            return;
        }
        let bytes = table.table.index_memory_bytes();
        let most = budget.all_bytes() / SHARE;
        let mut tables = self.tables();
        let held = |tables: &VecDeque<Known>| tables.iter().map(|known| known.bytes).sum::<u64>();
        while held(&tables) + bytes > most {
            if tables.pop_front().is_none() {
                return;
            }
        }
        if let Some(reserved) = budget.try_reserve(bytes) {
            tables.push_back(Known {
                session: session.to_owned(),
                unique_id: identity.unique_id(),
                table: table.clone(),
                is_listed: false,
                bytes,
                _reserved: reserved,
            });
        }
    }

    /// The table of an input of a session.
    pub fn get(&self, session: &str, input: &InputFile) -> Option<WrittenTable> {
        let id = input.unique_id?;
        let tables = self.tables();
        let mut of_session = tables.iter().filter(|known| known.session == session);
        let known = of_session.find(|known| known.unique_id == id)?;
        let has_size = known.table.table.meta.file_size == input.size;
        has_size.then(|| known.table.clone())
    }

    /// Drops the tables of files that leave the database.
    pub fn forget(&self, session: &str, ids: &[[u64; 2]]) {
        (self.tables()).retain(|known| known.session != session || !ids.contains(&known.unique_id));
    }

    /// Drops the tables that a database no longer has. `has` are the unique ids of its files.
    pub fn look(&self, session: &str, has: impl Iterator<Item = [u64; 2]>) {
        let mut tables = self.tables();
        if tables.is_empty() {
            return;
        }
        let has: HashSet<_> = has.collect();
        tables.retain_mut(|known| {
            let (is_of_session, is_listed) =
                (known.session == session, has.contains(&known.unique_id));
            let was_listed = known.is_listed;
            known.is_listed |= is_of_session && is_listed;
            // RocksDB lists a file some time after it has taken it.
            !is_of_session || is_listed || !was_listed
        });
    }

    /// Drops the tables of sessions that have ended.
    pub fn ended(&self, sessions: &BTreeSet<String>) {
        self.tables()
            .retain(|known| !sessions.contains(&known.session));
    }

    /// Drops all tables.
    pub fn clear(&self) {
        self.tables().clear();
    }
}

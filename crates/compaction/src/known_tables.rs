//! Tables that jobs have written and read back, kept while devices cache their files: so a job whose input is on a device
//! reads nothing of it.
//!
//! They are those of one session of a database. In the next one, the files are read again before cached blocks are used.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{FileIdentity, InputFile, InputTable};
use rockmill_exec::budget::{Budget, Reservation};
use rockmill_format::table::names;

/// All tables together take at most 1/`SHARE` of the memory budget.
const SHARE: u64 = 8;

/// The tables, oldest first.
#[derive(Debug, Default)]
pub struct KnownTables(Mutex<VecDeque<Known>>);

#[derive(Debug)]
struct Known {
    identity: FileIdentity,
    table: InputTable,
    bytes: u64,
    _reserved: Reservation,
}

impl KnownTables {
    fn tables(&self) -> MutexGuard<'_, VecDeque<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a table if there is memory for it. The oldest ones make room.
    pub fn keep(&self, budget: &Arc<Budget>, table: &InputTable, identity: FileIdentity) {
        // Their range tombstones are read from the file.
        if table.meta.metaindex.contains_key(names::RANGE_DELETIONS) {
            return;
        }
        let bytes = table.index_memory_bytes();
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
                identity,
                table: table.clone(),
                bytes,
                _reserved: reserved,
            });
        }
    }

    /// The table of an input, which reads nothing until it has a file again.
    pub fn get(&self, input: &InputFile) -> Option<InputTable> {
        let id = input.unique_id?;
        let tables = self.tables();
        let known = tables
            .iter()
            .find(|known| known.identity.unique_id() == id)?;
        (known.table.meta.file_size == input.size).then(|| known.table.clone())
    }

    /// Drops the table of a file that no version has any more.
    pub fn forget(&self, identity: &FileIdentity) {
        self.tables().retain(|known| known.identity != *identity);
    }
}

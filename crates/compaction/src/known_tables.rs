//! Tables that jobs have written and read back, kept while devices cache their files: so a job whose input is on a device
//! reads little of it.
//!
//! A table is kept for the session of its database. A job compares some bytes of the file with those that were read back, so it
//! notices a file that was replaced.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rockmill_core::{FileIdentity, InputFile, InputTable, Lock, ReadAt, Result};
use rockmill_exec::budget::{Budget, Reservation};
use rockmill_format::table::names;

/// The tables of all databases together take at most 1/`SHARE` of the memory budget.
const SHARE: u64 = 8;

/// The tables, oldest first.
#[derive(Debug, Default)]
pub struct KnownTables(Lock<VecDeque<Known>>);

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

/// Keeps the tables that a job writes. They are dropped with this, unless RocksDB has taken the files.
#[derive(Debug)]
pub struct Keeper {
    /// The kept tables.
    pub tables: Arc<KnownTables>,
    /// The memory budget.
    pub budget: Arc<Budget>,
    /// The session of the database.
    pub session: String,
    /// The session id of the attempt, which its files have.
    pub attempt: String,
    /// Whether RocksDB has taken the files.
    pub are_taken: AtomicBool,
}

impl Keeper {
    /// Keeps a table that was read back if a device has cached its file and there is memory for it.
    pub fn keep(&self, table: &InputTable, is_cached: bool) {
        let Some(identity) = FileIdentity::own(table) else {
            return;
        };
        let unique_id = identity.unique_id();
        // A subcompaction that was run again has written other files with the same ids.
        self.tables.forget(&self.session, &[unique_id]);
        // Range tombstones are read from the file.
        if !is_cached || (table.meta.metaindex).contains_key(names::RANGE_DELETIONS) {
            return;
        }
        // Without these, the next job opens the file anew.
        let Ok(marks) = table.marks(&*table.file) else {
            return;
        };
        let bytes = table.index_memory_bytes();
        let most = self.budget.all_bytes() / SHARE;
        let mut tables = self.tables.0.lock();
        // The oldest ones make room.
        let held = |tables: &VecDeque<Known>| tables.iter().map(|known| known.bytes).sum::<u64>();
        while held(&tables) + bytes > most {
            if tables.pop_front().is_none() {
                return;
            }
        }
        if let Some(reserved) = self.budget.try_reserve(bytes) {
            tables.push_back(Known {
                session: self.session.clone(),
                unique_id,
                table: WrittenTable {
                    table: table.without_file(),
                    marks,
                },
                is_listed: false,
                bytes,
                _reserved: reserved,
            });
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !*self.are_taken.get_mut() {
            let attempt = self.attempt.as_bytes();
            let is_its = |known: &Known| known.table.table.meta.properties.db_session_id == attempt;
            self.tables.0.lock().retain(|known| !is_its(known));
        }
    }
}

/// A table that a job has written, without its file.
#[derive(Debug, Clone)]
pub struct WrittenTable {
    table: InputTable,
    marks: Vec<u8>,
}

impl WrittenTable {
    /// The description of its contents.
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
    /// The table of an input of a session.
    pub fn get(&self, session: &str, input: &InputFile) -> Option<WrittenTable> {
        let id = input.unique_id?;
        let tables = self.0.lock();
        let mut of_session = tables.iter().filter(|known| known.session == session);
        let known = of_session.find(|known| known.unique_id == id)?;
        let has_size = known.table.table.meta.file_size == input.size;
        has_size.then(|| known.table.clone())
    }

    /// Drops the tables of files that leave the database.
    pub fn forget(&self, session: &str, ids: &[[u64; 2]]) {
        (self.0.lock()).retain(|known| known.session != session || !ids.contains(&known.unique_id));
    }

    /// Drops the tables that a database no longer has. `has` are the unique ids of its files.
    pub fn look(&self, session: &str, has: impl Iterator<Item = [u64; 2]>) {
        let mut tables = self.0.lock();
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
        (self.0.lock()).retain(|known| !sessions.contains(&known.session));
    }

    /// Drops all tables.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use rockmill_storage::clock::SystemClock;
    use rockmill_testkit::cases::{Entry, PUT, one_file, open, plan};

    use super::*;

    fn table(entries: u64) -> InputTable {
        let entries: Vec<_> = (0..entries)
            .map(|n| Entry::new(&n.to_be_bytes(), n + 1, PUT, &[7; 100]))
            .collect();
        open(one_file(&plan(), &entries)).expect("sound")
    }

    fn keeper(budget_bytes: u64) -> Keeper {
        Keeper {
            tables: Arc::default(),
            budget: Arc::new(Budget::new(1, budget_bytes, SystemClock::shared())),
            session: "session".to_owned(),
            attempt: String::new(),
            are_taken: AtomicBool::new(false),
        }
    }

    fn kept(keeper: &Keeper) -> Vec<u64> {
        let tables = keeper.tables.0.lock();
        tables.iter().map(|known| known.bytes).collect()
    }

    #[test]
    fn what_jobs_keep_of_files_that_rocksdb_has_not_taken_is_memory_of_the_budget() {
        let table = table(500);
        let bytes = table.index_memory_bytes();
        let keeps = keeper(SHARE * bytes);
        keeps.keep(&table, true);
        assert_eq!(
            (kept(&keeps), keeps.budget.taken_bytes()),
            (vec![bytes], bytes)
        );
        keeps.tables.clear();
        assert_eq!(keeps.budget.taken_bytes(), 0);
        let small = keeper(SHARE * bytes - 1);
        small.keep(&table, true);
        assert_eq!((kept(&small), small.budget.taken_bytes()), (vec![], 0));
        let used = keeper(SHARE * bytes);
        let _by_others = used.budget.try_reserve(SHARE / 2 * bytes);
        used.keep(&table, true);
        assert_eq!(kept(&used), [0; 0], "others have reserved what may be");
    }

    #[test]
    fn a_file_that_was_written_again_takes_the_place_of_the_first_and_one_that_cannot_be_read_has_none()
     {
        let keeps = keeper(1 << 30);
        let (first, again) = (table(10), table(500));
        keeps.keep(&first, true);
        keeps.keep(&again, true);
        assert_eq!(kept(&keeps), [again.index_memory_bytes()]);
        keeps.keep(&first.without_file(), true);
        assert_eq!(kept(&keeps), [0; 0]);
        keeps.keep(&again, true);
        keeps.keep(&first, false);
        assert_eq!(kept(&keeps), [0; 0], "the CPU has written it again");
    }

    #[test]
    fn tables_stay_only_if_rocksdb_takes_the_files() {
        let table = table(10);
        let attempt = table.meta.properties.db_session_id.clone();
        let attempt = String::from_utf8(attempt).expect("letters and digits");
        for are_taken in [false, true] {
            let mut keeps = keeper(1 << 30);
            keeps.attempt.clone_from(&attempt);
            keeps.are_taken = AtomicBool::new(are_taken);
            let tables = Arc::clone(&keeps.tables);
            keeps.keep(&table, true);
            drop(keeps);
            assert_eq!(tables.0.lock().len(), usize::from(are_taken));
        }
    }
}

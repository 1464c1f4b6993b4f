//! Opening a database as its OPTIONS file says, with Rockmill as its compaction service.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use rockmill::Service;
use rockmill_engine::{Diagnosis, Engine, Forecast, filter_policy_without_bits};
use rockmill_format::options_file::ColumnFamilyOptions;
use rust_rocksdb::properties::BACKGROUND_ERRORS;
use rust_rocksdb::{
    BottommostLevelCompaction, Cache, ColumnFamilyDescriptor, CompactOptions, DB, Env, Options,
    WaitForCompactOptions,
};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use super::{Task, objects};
use crate::outcome::Failure;
use crate::output;
use crate::side_by_side::rocksdb_failed;

/// The block cache. Compactions pass it by.
const CACHE_BYTES: usize = 8 << 20;

/// What filters of column families without files get; RocksDB's documentation names it.
const USUAL_MILLIBITS: u32 = 10_000;

/// What a database is opened with; nothing is written yet.
pub struct Opening {
    options: Options,
    families: Vec<ColumnFamilyDescriptor>,
}

impl Opening {
    /// Reads the newest OPTIONS file.
    ///
    /// # Errors
    /// Environment if another process has the database open; Data if it needs what only its application
    /// has; Usage if it must be said how its filters or transactions are made.
    pub fn new(task: &Task, engine: &Engine) -> Result<Self, Failure> {
        require_closed(&task.dir)?;
        let diagnosis = engine.diagnose(&task.dir)?;
        objects::require_known(&diagnosis.options)?;
        require_own_folder(&diagnosis)?;
        if !task.service.write_committed && diagnosis.options.db.str("allow_2pc") == Some("true") {
            return Err(Failure::Usage(
                "allow_2pc is on: say --write-committed if every transaction of this database is \
                 WriteCommitted, else compact it from its application"
                    .to_owned(),
            ));
        }
        let bits = filter_bits(task, &diagnosis)?;
        let name = format!("OPTIONS-{:06}", diagnosis.options_number);
        let path = task.dir.join(name);
        let text = fs::read_to_string(&path)
            .map_err(|e| Failure::Environment(format!("{}: {e}", path.display())))?;
        let (mut options, families) = load(&with_bits(&text, &bits))?;
        options.create_if_missing(false);
        options.set_error_if_exists(false);
        Ok(Self { options, families })
    }

    /// Opens the database, which replays its write-ahead log.
    ///
    /// # Errors
    /// Environment if the system refuses; Data if it is damaged.
    pub fn open(mut self, task: &Task, service: &Service) -> Result<Database, Failure> {
        self.options.set_compaction_service(service.clone());
        let opened = DB::open_cf_descriptors(&self.options, &task.dir, self.families);
        let db = opened.map_err(|e| rocksdb_failed("open the database", &e))?;
        Ok(Database {
            db,
            column_family: task.column_family.clone(),
        })
    }
}

/// Looks whether another process holds the database's LOCK. RocksDB would find that out as well, but only
/// behind renaming the other's LOG.
fn require_closed(dir: &Path) -> Result<(), Failure> {
    let refused = |what: String| Failure::Environment(format!("{}: {what}", dir.display()));
    let lock = match OpenOptions::new().write(true).open(dir.join("LOCK")) {
        Ok(lock) => lock,
        // A copy without one.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused(format!("cannot open LOCK: {e}"))),
    };
    match fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS) => {
            Err(refused("another process has the database open".to_owned()))
        }
        Err(e) => Err(refused(format!("cannot lock LOCK: {e}"))),
    }
}

/// A copy of a database must not take, and then remove, the logs of the original.
fn require_own_folder(diagnosis: &Diagnosis) -> Result<(), Failure> {
    let wal_dir = diagnosis.options.db.str("wal_dir").unwrap_or_default();
    if !wal_dir.is_empty() {
        return Err(Failure::Data(format!(
            "its write-ahead log is in {wal_dir}, which a copy of it may share: compact it from its \
             application"
        )));
    }
    let several_paths = |what: &rockmill_core::Error| {
        what.kind == rockmill_core::ErrorKind::Declined(rockmill::DeclineReason::DbPaths)
    };
    if diagnosis
        .families
        .iter()
        .any(|family| family.found.iter().any(several_paths))
    {
        return Err(Failure::Data(
            "its files lie in several paths, which its OPTIONS do not name: compact it from its \
             application"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Thousandths of a bit a key by column family, where OPTIONS do not say.
fn filter_bits(task: &Task, diagnosis: &Diagnosis) -> Result<Vec<Option<u32>>, Failure> {
    let of_family = |options: &ColumnFamilyOptions| -> Result<Option<u32>, Failure> {
        let Some(policy) = filter_policy_without_bits(options) else {
            return Ok(None);
        };
        let said = task.service.filter_millibits_per_key();
        let found = diagnosis.families.iter().find(|f| f.name == options.name);
        let learned = found.and_then(|family| family.learned_millibits_per_key);
        let usual = found.is_none_or(|family| family.files == 0);
        let usual = usual.then_some(USUAL_MILLIBITS);
        said.or(learned).or(usual).map(Some).ok_or_else(|| {
            Failure::Usage(format!(
                "column family {}: OPTIONS name {policy} without its bits per key and the files' \
                 filters do not tell: say --filter-bits-per-key",
                output::escape(&options.name)
            ))
        })
    };
    let families = diagnosis.options.column_families.iter();
    families.map(of_family).collect()
}

/// The text of an OPTIONS file with bits a key for those of its column families that have them here, in
/// the order of the file. RocksDB writes a family's table options behind its own.
fn with_bits(text: &str, bits: &[Option<u32>]) -> String {
    let mut families = bits.iter();
    let mut of_family = None;
    let mut with = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with("[CFOptions ") {
            of_family = families.next().copied().flatten();
        }
        with.push_str(line);
        if let (Some(millibits), Some(("filter_policy", _))) = (of_family, trimmed.split_once('='))
        {
            with.push_str(&format!(":{}", f64::from(millibits) / 1e3));
        }
        with.push('\n');
    }
    with
}

/// Lets RocksDB read the text of an OPTIONS file.
fn load(text: &str) -> Result<(Options, Vec<ColumnFamilyDescriptor>), Failure> {
    let scratch = tempfile::tempdir()
        .and_then(|dir| fs::write(dir.path().join("OPTIONS-000001"), text).map(|()| dir))
        .map_err(|e| Failure::Environment(format!("cannot make a temporary file: {e}")))?;
    let ignore_unknown = false;
    let env = Env::new().map_err(|e| rocksdb_failed("start", &e))?;
    let cache = Cache::new_lru_cache(CACHE_BYTES);
    Options::load_latest(scratch.path(), env, ignore_unknown, cache)
        .map_err(|e| rocksdb_failed("read the OPTIONS file", &e))
}

/// An open database, and the column family at hand.
pub struct Database {
    db: DB,
    column_family: String,
}

impl Database {
    /// Files and bytes of the column family, by level.
    ///
    /// # Errors
    /// Environment or Data if RocksDB cannot list them.
    pub fn levels(&self) -> Result<BTreeMap<u32, (u64, u64)>, Failure> {
        let files = self.db.live_files();
        let files = files.map_err(|e| rocksdb_failed("list its files", &e))?;
        let mut levels = BTreeMap::new();
        for file in files
            .iter()
            .filter(|f| f.column_family_name == self.column_family)
        {
            let (files, bytes) = levels.entry(file.level.max(0) as u32).or_insert((0, 0));
            *files += 1;
            *bytes += file.size as u64;
        }
        Ok(levels)
    }

    /// Compacts the keys to the bottommost level, and waits for what that brings about.
    ///
    /// # Errors
    /// Environment or Data if RocksDB could not.
    pub fn compact(&self, task: &Task, forecast: &Forecast) -> Result<(), Failure> {
        let family = self
            .db
            .cf_handle(&task.column_family)
            .ok_or_else(|| Failure::Usage(format!("no column family {:?}", task.column_family)))?;
        let mut compaction = CompactOptions::default();
        compaction.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
        // Rockmill cuts jobs itself; what RocksDB does alone it cuts into as many parts.
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
            .map_err(|e| rocksdb_failed("compact", &e))?;
        match self.db.property_int_value(BACKGROUND_ERRORS) {
            Ok(Some(0) | None) => Ok(()),
            Ok(Some(_)) => Err(Failure::Environment(
                "RocksDB cannot compact: its LOG says why".to_owned(),
            )),
            Err(e) => Err(rocksdb_failed("compact", &e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_to_the_policies_of_their_families() {
        let text = "[CFOptions \"default\"]\n[TableOptions/BlockBasedTable \"default\"]\n  \
                    filter_policy=bloomfilter\n[CFOptions \"b\"]\n\
                    [TableOptions/BlockBasedTable \"b\"]\n  filter_policy=nullptr\n\
                    [CFOptions \"c\"]\n[TableOptions/BlockBasedTable \"c\"]\n  \
                    filter_policy=ribbonfilter\n";
        let with = with_bits(text, &[Some(10_000), None, Some(9_900)]);
        let policies: Vec<_> = with
            .lines()
            .filter(|line| line.contains("policy"))
            .collect();
        assert_eq!(
            policies,
            [
                "  filter_policy=bloomfilter:10",
                "  filter_policy=nullptr",
                "  filter_policy=ribbonfilter:9.9"
            ]
        );
        assert_eq!(with_bits(text, &[None, None, None]), text);
    }
}

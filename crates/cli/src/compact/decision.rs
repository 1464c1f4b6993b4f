//! Decides whether the command may open a database, equally for a compaction and for a dry run.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rockmill_compaction::{Diagnosis, filter_policy_without_bits};
use rockmill_format::options_file::{ColumnFamilyOptions, OptionsFile};

use super::database::Opening;
use super::refusal::{FROM_APPLICATION, Refusal};
use super::task::Task;
use super::{lock, objects};

/// Bits per key for filters of column families without files, as recommended in RocksDB's documentation.
const USUAL_MILLIBITS: u32 = 10_000;

/// Options for opening a database, or all reasons against it.
pub type Decision = Result<Opening, Vec<Refusal>>;

/// Finds all reasons why the database cannot be opened as its application opens it, or would not keep its content.
pub fn decide(task: &Task, diagnosis: &Diagnosis) -> Decision {
    let options = &diagnosis.options;
    let mut refusals: Vec<_> = lock::in_use(&task.dir).into_iter().collect();
    refusals.extend(other_families(diagnosis));
    refusals.extend(objects::unknown(options));
    if !task.trust_operator_names {
        refusals.extend(unproved_operators(task, diagnosis));
        refusals.extend(unproved_filter(task, options));
    }
    refusals.extend(read_only_policy(task, options));
    refusals.extend(log_elsewhere(&task.dir, options));
    refusals.extend(several_paths(diagnosis));
    if !task.service.write_committed && options.db.str("allow_2pc") == Some("true") {
        refusals.push(Refusal::usage(
            "allow_2pc is on",
            format!(
                "say --write-committed if every transaction of this database is WriteCommitted, \
                 else {FROM_APPLICATION}"
            ),
        ));
    }
    let mut bits = Vec::new();
    for family in &options.column_families {
        match filter_bits(task, diagnosis, family) {
            Ok(millibits) => bits.push(millibits),
            Err(refusal) => refusals.push(refusal),
        }
    }
    if !refusals.is_empty() {
        return Err(refusals);
    }
    let opening = Opening::new(&task.dir, diagnosis, &bits);
    opening.map_err(|failure| vec![Refusal::of_failure(&failure)])
}

/// RocksDB opens a database only with all of its column families; it creates or rejects families that are missing.
fn other_families(diagnosis: &Diagnosis) -> Vec<Refusal> {
    let refusal = |what: &str, name: &[u8]| {
        let change =
            "open and close the database once with its application, which writes OPTIONS anew";
        Refusal::data(what, change).of_family(name)
    };
    let (options, families) = (&diagnosis.options, &diagnosis.families);
    let unnamed = families
        .iter()
        .filter(|f| std::str::from_utf8(&f.name).is_err());
    let unnamed = unnamed.map(|family| {
        Refusal::data("its name is not UTF-8", FROM_APPLICATION).of_family(&family.name)
    });
    let unknown = families.iter().filter(|f| options.cf(&f.name).is_none());
    let unknown = unknown.map(|family| refusal("OPTIONS do not have it", &family.name));
    let is_gone = |name: &[u8]| families.iter().all(|family| family.name != name);
    let gone = options.column_families.iter().filter(|f| is_gone(&f.name));
    let gone = gone.map(|family| refusal("OPTIONS alone have it", &family.name));
    unnamed.chain(unknown).chain(gone).collect()
}

/// Finds merge operators with names of RocksDB's own operators, where there may be operands to merge. The name proves
/// nothing: applications choose it, and RocksDB never compares it with anything.
///
/// Opening merges operands in the WAL of any column family; compacting merges operands in the files of one.
fn unproved_operators(task: &Task, diagnosis: &Diagnosis) -> Vec<Refusal> {
    let log = log_has_entries(&task.dir);
    let of_family = |family: &ColumnFamilyOptions| {
        let name = objects::of_rocksdb(&family.options, "merge_operator")?;
        let compacted = family.name == task.column_family.as_bytes();
        let mut found = diagnosis.families.iter().filter(|f| f.name == family.name);
        let files = compacted && found.any(|family| family.may_hold_operands);
        let (place, emptied) = match (files, log) {
            (true, _) => ("its files may hold operands", ""),
            (false, true) => (
                "the write-ahead log may hold operands",
                ", or open and close the database once with its application, which empties the log",
            ),
            (false, false) => return None,
        };
        let what = format!(
            "merge_operator is {name}, which may be its application's own of that name, and {place}"
        );
        let change = format!("say --trust-operator-names if it is RocksDB's{emptied}");
        Some(Refusal::data(what, change).of_family(&family.name))
    };
    let families = &diagnosis.options.column_families;
    families.iter().filter_map(of_family).collect()
}

/// Finds a compaction filter with a name of RocksDB's own filters. A filter acts on any entry.
fn unproved_filter(task: &Task, options: &OptionsFile) -> Option<Refusal> {
    let family = options.cf(task.column_family.as_bytes())?;
    let name = objects::of_rocksdb(&family.options, "compaction_filter")?;
    let what =
        format!("compaction_filter is {name}, which may be its application's own of that name");
    let change = "say --trust-operator-names if it is RocksDB's";
    Some(Refusal::data(what, change).of_family(&family.name))
}

/// Before RocksDB 7.0, OPTIONS name the policy of Bloom filters with a name that later means a policy that writes none.
fn read_only_policy(task: &Task, options: &OptionsFile) -> Option<Refusal> {
    const NAME: &str = "rocksdb.BuiltinBloomFilter";
    const WRITES_NONE: [u32; 3] = [7, 0, 0];
    let family = options.cf(task.column_family.as_bytes())?;
    let is_older = options.rocksdb_version < WRITES_NONE;
    (is_older && family.table_options.str("filter_policy") == Some(NAME)).then(|| {
        let what = format!(
            "RocksDB 11.12 reads filter_policy {NAME} of older OPTIONS as one that writes no filters"
        );
        let change = "open and close the database once with its application on RocksDB 7 or later";
        Refusal::data(what, change).of_family(&family.name)
    })
}

/// Whether the WAL has entries or cannot be read.
fn log_has_entries(dir: &Path) -> bool {
    let Ok(mut entries) = fs::read_dir(dir) else {
        return true;
    };
    entries.any(|entry| {
        entry.is_ok_and(|entry| {
            let is_log = Path::new(&entry.file_name()).extension() == Some(OsStr::new("log"));
            is_log && entry.metadata().map_or(true, |log| log.len() > 0)
        })
    })
}

/// Finds a WAL in another folder. Opening a copy of a database must not replay, and then remove, the logs of the
/// original. Older versions of RocksDB name the database's own folder.
fn log_elsewhere(dir: &Path, options: &OptionsFile) -> Option<Refusal> {
    let wal_dir = options.db.str("wal_dir").filter(|dir| !dir.is_empty())?;
    let is_own = fs::canonicalize(wal_dir)
        .and_then(|logs| Ok(logs == fs::canonicalize(dir)?))
        .unwrap_or(false);
    (!is_own).then(|| {
        let what = format!("its write-ahead log is in {wal_dir}, which a copy of it may share");
        Refusal::data(what, FROM_APPLICATION)
    })
}

fn several_paths(diagnosis: &Diagnosis) -> Option<Refusal> {
    let several_paths = |what: &rockmill_core::Error| {
        what.kind == rockmill_core::ErrorKind::Declined(rockmill::DeclineReason::DbPaths)
    };
    let mut families = diagnosis.families.iter();
    let several = families.any(|family| family.found.iter().any(several_paths));
    let what = "its files lie in several paths, which OPTIONS do not name";
    several.then(|| Refusal::data(what, FROM_APPLICATION))
}

/// Returns the thousandths of a bit per key of a column family's filters, where OPTIONS do not give them.
fn filter_bits(
    task: &Task,
    diagnosis: &Diagnosis,
    options: &ColumnFamilyOptions,
) -> Result<Option<u32>, Refusal> {
    let Some(policy) = filter_policy_without_bits(options) else {
        return Ok(None);
    };
    let said = task.service.filter_millibits_per_key();
    let found = diagnosis.families.iter().find(|f| f.name == options.name);
    let learned = found.and_then(|family| family.learned_millibits_per_key);
    let usual = found.is_none_or(|family| family.files == 0);
    let usual = usual.then_some(USUAL_MILLIBITS);
    said.or(learned).or(usual).map(Some).ok_or_else(|| {
        let what =
            format!("OPTIONS name {policy} without its bits a key, and the files do not tell");
        Refusal::usage(what, "say --filter-bits-per-key").of_family(&options.name)
    })
}

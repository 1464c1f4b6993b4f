//! Decides whether the command may open a database, equally for a compaction and for a dry run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rockmill_compaction::{Diagnosis, filter_policy_without_bits};
use rockmill_core::ErrorKind;
use rockmill_format::names;
use rockmill_format::options_file::{ColumnFamilyOptions, OptionsFile};
use rockmill_scan::MergeOperator;
use rockmill_snapshot::LogFolder;
use rockmill_snapshot::closed_database::options_name;
use rockmill_snapshot::unflushed::Unflushed;
use rockmill_storage::LocalStorage;
use rockmill_terminal::signals;

use super::database::Opening;
use super::objects;
use super::refusal::{FROM_APPLICATION, Refusal};
use super::task::Task;
use crate::say;
use crate::{database_dir, lock, wal_dir};

/// Bits per key for filters of column families without files, as recommended in RocksDB's documentation.
const USUAL_MILLIBITS: u32 = 10_000;

/// The advice for a database whose logs may be those of another one.
const NAME_THE_FOLDER: &str = "say --wal-dir with the folder of this database's own logs, or with the database's folder if \
    there are none";

/// The decision about a database.
pub struct Decision {
    /// All reasons to leave column families or the whole database alone.
    pub refusals: Vec<Refusal>,
    /// Whether the write-ahead log has entries, or its folder is unknown.
    pub log_has_entries: bool,
    /// `None` if the whole database is left alone, or no column family has to be compacted.
    pub opening: Option<Opening>,
}

impl Decision {
    /// Whether a column family is compacted, unless it turns out to have no work.
    pub fn allows(&self, family: &str) -> bool {
        let name = names::escape(family.as_bytes());
        let is_refused = |refusal: &Refusal| refusal.column_family.as_ref() == Some(&name);
        self.opening.is_some() && !self.refusals.iter().any(is_refused)
    }
}

/// Finds all reasons why column families are not compacted, or the database cannot be opened as its application opens it,
/// or would not keep its content.
pub fn decide(task: &Task, diagnosis: &Diagnosis) -> Decision {
    let options = &diagnosis.options;
    let logs = logs(task, options);
    let log_has_entries = logs.as_ref().map_or(true, |logs| has_entries(logs));
    let selected = task.selected(log_has_entries);
    let mut decision = Decision {
        refusals: Vec::new(),
        log_has_entries,
        opening: None,
    };
    let is_selected = |name: &[u8]| selected.iter().any(|family| family.as_bytes() == name);
    let refusals = &mut decision.refusals;
    refusals.extend(in_use(&task.dir));
    let logs = logs.map_err(|refusal| refusals.push(refusal)).ok();
    refusals.extend(cut_options(diagnosis));
    refusals.extend(other_families(diagnosis));
    refusals.extend(objects::unknown(options));
    let families = &options.column_families;
    for family in families.iter().filter(|family| is_selected(&family.name)) {
        refusals.extend(objects::unknown_when_compacting(family));
        refusals.extend(unproved_filter(family));
        refusals.extend(read_only_policy(options, family));
        refusals.extend(style_that_deletes(family));
    }
    let in_log = logs.as_deref().and_then(|logs| {
        let operands = families_with_logged_operands(&task.dir, logs);
        operands.unwrap_or_else(|refusal| {
            refusals.push(refusal);
            Some(BTreeSet::new())
        })
    });
    refusals.extend(unstated_operators(task, diagnosis, in_log, is_selected));
    refusals.extend(several_paths(diagnosis));
    refusals.extend(legacy_files(diagnosis));
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
    for family in families {
        let millibits = filter_bits(task, diagnosis, family, is_selected(&family.name));
        // No file is written for a column family that is left alone.
        let millibits = millibits.map_err(|refusal| refusals.push(refusal));
        bits.push(millibits.unwrap_or(Some(USUAL_MILLIBITS)));
    }
    let Some(logs) = logs else {
        return decision;
    };
    if selected.is_empty() || refusals.iter().any(|refusal| !refusal.is_of_one_family) {
        return decision;
    }
    let operators = merge_operators(task, options);
    match Opening::new(&task.dir, &logs, diagnosis, bits, operators) {
        Ok(opening) => decision.opening = Some(opening),
        Err(failure) => decision.refusals.push(Refusal::of_failure(&failure)),
    }
    if !selected.iter().any(|family| decision.allows(family)) {
        decision.opening = None;
    }
    decision
}

/// Whether a file of the write-ahead log in this folder has entries.
fn has_entries(logs: &Path) -> bool {
    let entries = fs::read_dir(logs).into_iter().flatten().flatten();
    let mut logs = entries.filter(|entry| entry.path().extension() == Some(OsStr::new("log")));
    logs.any(|log| log.metadata().is_ok_and(|log| log.len() > 0))
}

fn in_use(dir: &Path) -> Option<Refusal> {
    match lock::in_use(dir) {
        Ok(false) => None,
        Ok(true) => Some(Refusal::environment(
            lock::IN_USE,
            "close it there, or compact it from there",
        )),
        Err(e) => Some(Refusal::environment(
            format!("cannot open LOCK: {e}"),
            "run this as the user that owns the database",
        )),
    }
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

/// Finds column families that may have operands to merge, and for which no operator is stated. The name in OPTIONS
/// proves nothing: applications choose it, and RocksDB does not check it.
///
/// Opening merges operands in the WAL of any column family; compacting one merges operands in its files. `in_log` has the
/// families with operands in the WAL; `None` if they are not known.
fn unstated_operators(
    task: &Task,
    diagnosis: &Diagnosis,
    in_log: Option<BTreeSet<Vec<u8>>>,
    is_selected: impl Fn(&[u8]) -> bool,
) -> Vec<Refusal> {
    let of_family = |family: &ColumnFamilyOptions| {
        let name = objects::merge_operator(&family.options)?;
        let text = String::from_utf8_lossy(&family.name);
        let why = match stated_operator(task, family) {
            Ok(Some(_)) => return None,
            Ok(None) => {
                format!("merge_operator is {name}, which may be its application's own of that name")
            }
            Err(contradiction) => contradiction,
        };
        let compacted = is_selected(&family.name);
        let mut found = diagnosis.families.iter().filter(|f| f.name == family.name);
        let files = compacted && found.any(|family| family.may_hold_operands);
        let log = in_log.as_ref();
        let log = log.is_none_or(|families| families.contains(&family.name));
        let (place, emptied) = match (files, log) {
            (true, _) => ("its files may hold operands", ""),
            (false, true) => (
                "the write-ahead log may hold operands",
                ", or open and close the database once with its application, which empties the log",
            ),
            (false, false) => return None,
        };
        let what = format!("{why}, and {place}");
        let change = format!(
            "say --merge-operator {text}=NAME if it is one of RocksDB's, else {FROM_APPLICATION}{emptied}"
        );
        let refusal = Refusal::data(what, change);
        Some(match log {
            true => refusal.of_family(&family.name),
            false => refusal.of_family_alone(&family.name),
        })
    };
    let families = &diagnosis.options.column_families;
    families.iter().filter_map(of_family).collect()
}

/// The merge operator that is stated for a column family, or how OPTIONS contradict it. With another operator, values would
/// be lost for good.
fn stated_operator<'a>(
    task: &'a Task,
    family: &ColumnFamilyOptions,
) -> Result<Option<&'a MergeOperator>, String> {
    let name = String::from_utf8_lossy(&family.name);
    let Some(stated) = task.merge_operators.get(&name) else {
        return Ok(None);
    };
    let has_one = objects::merge_operator(&family.options).is_some();
    let contradiction = stated.contradiction(&family.options, task.merge_operators.names(&name));
    match contradiction.filter(|_| has_one) {
        None => Ok(Some(stated)),
        Some(contradiction) => Err(contradiction),
    }
}

/// Names of the column families with merge operands in the WAL; `None` if it cannot be read. Refuses a damaged log: RocksDB
/// would drop what is behind the damage, and then delete the log.
fn families_with_logged_operands(
    dir: &Path,
    logs: &Path,
) -> Result<Option<BTreeSet<Vec<u8>>>, Refusal> {
    const NO_ENTRIES: usize = 0;
    let Ok(tree) = database_dir::read_tree(dir) else {
        return Ok(None);
    };
    let cancel = signals::token();
    match Unflushed::read(&LocalStorage, logs, &tree, |_| true, NO_ENTRIES, cancel) {
        Ok(read) => {
            let families = tree.column_families.into_iter();
            let with = families.filter(|(id, _)| read.operands.contains(id));
            Ok(Some(with.map(|(_, family)| family.name).collect()))
        }
        Err(error) if error.kind == ErrorKind::Corruption => {
            let what = format!(
                "the write-ahead log is damaged: {}",
                error.in_directory(logs)
            );
            let change = "copy the log, then open and close the database with its application, whose \
                          wal_recovery_mode decides what stays";
            Err(Refusal::data(what, change))
        }
        Err(_) => Ok(None),
    }
}

/// Finds a style of compaction that deletes the oldest files, by their age or by the size of all.
fn style_that_deletes(family: &ColumnFamilyOptions) -> Option<Refusal> {
    const FIFO: &str = "kCompactionStyleFIFO";
    let is_fifo = family.options.str("compaction_style") == Some(FIFO);
    is_fifo.then(|| {
        let what =
            format!("compaction_style is {FIFO}, whose compactions delete the oldest entries");
        Refusal::data(what, FROM_APPLICATION).of_family_alone(&family.name)
    })
}

/// Values of the option `merge_operator` with which the database is opened, in the order of the OPTIONS file. Without a
/// statement there is no operator, and RocksDB fails if it still finds an operand.
fn merge_operators(task: &Task, options: &OptionsFile) -> Vec<String> {
    let value = |family: &ColumnFamilyOptions| {
        let name = String::from_utf8_lossy(&family.name);
        let has_one = objects::merge_operator(&family.options).is_some();
        let stated = stated_operator(task, family).ok().flatten();
        let stated = stated.filter(|_| has_one || task.merge_operators.names(&name));
        stated.map_or_else(|| objects::NULL.to_owned(), MergeOperator::option_value)
    };
    options.column_families.iter().map(value).collect()
}

/// Finds a compaction filter with a name of RocksDB's own filters. A filter acts on any entry.
fn unproved_filter(family: &ColumnFamilyOptions) -> Option<Refusal> {
    let name = objects::of_rocksdb(&family.options, "compaction_filter")?;
    let what =
        format!("compaction_filter is {name}, which may be its application's own of that name");
    Some(Refusal::data(what, FROM_APPLICATION).of_family_alone(&family.name))
}

/// OPTIONS before RocksDB 7.0 give Bloom filters a policy name that later means a policy without filters.
fn read_only_policy(options: &OptionsFile, family: &ColumnFamilyOptions) -> Option<Refusal> {
    const NAME: &str = "rocksdb.BuiltinBloomFilter";
    const WRITES_NONE: [u32; 3] = [7, 0, 0];
    let is_older = options.rocksdb_version < WRITES_NONE;
    (is_older && family.table_options.str("filter_policy") == Some(NAME)).then(|| {
        let what = format!(
            "RocksDB 11.12 reads filter_policy {NAME} of older OPTIONS as one that writes no filters"
        );
        let change = "open and close the database once with its application on RocksDB 7 or later";
        Refusal::data(what, change).of_family_alone(&family.name)
    })
}

/// Finds the folder of the WAL. RocksDB deletes logs when it has replayed them, so they must be this database's: those in
/// its own folder, or in one that the user names.
fn logs(task: &Task, options: &OptionsFile) -> Result<PathBuf, Refusal> {
    let tree = database_dir::read_tree(&task.dir).map_err(|e| Refusal::of_failure(&e))?;
    let (wal_dir, stated) = (options.db.str("wal_dir"), task.wal.stated());
    let logs = LogFolder::find(&LocalStorage, &task.dir, wal_dir, &tree, stated);
    let logs = logs.map_err(|e| Refusal::environment(e.what, NAME_THE_FOLDER))?;
    if !logs.may_be_replayed() {
        let found = logs.sentence().unwrap_or_default();
        return Err(Refusal::usage(found, NAME_THE_FOLDER));
    }
    say(wal_dir::sentence(&task.dir, &logs));
    Ok(logs.path)
}

/// Refuses a cut newest OPTIONS file. RocksDB keeps the two newest files when it opens a database, so it would remove
/// the valid one.
fn cut_options(diagnosis: &Diagnosis) -> Option<Refusal> {
    let [cut, older] = [diagnosis.cut_options?, diagnosis.options_number].map(options_name);
    let change = format!(
        "remove it, so that {older} counts, or open and close the database once with its application, which writes \
         OPTIONS anew"
    );
    Some(Refusal::data(format!("{cut} is empty or cut"), change))
}

/// Finds a file with LevelDB's magic number (`format.cc:Footer::DecodeFrom`). RocksDB opens no database that has one.
fn legacy_files(diagnosis: &Diagnosis) -> Option<Refusal> {
    let of_format = ErrorKind::Declined(rockmill::DeclineReason::FormatVersion);
    let mut found = diagnosis.families.iter().flat_map(|family| &family.found);
    let file = found.find_map(|error| error.file.as_ref().filter(|_| error.kind == of_format))?;
    let what = format!("RocksDB 11 does not open {file}, whose format_version is below 2");
    let change = "compact it from its application, on RocksDB 4.6 to 10";
    Some(Refusal::data(what, change))
}

fn several_paths(diagnosis: &Diagnosis) -> Option<Refusal> {
    let several_paths = |what: &rockmill_core::Error| {
        what.kind == ErrorKind::Declined(rockmill::DeclineReason::DbPaths)
    };
    let mut families = diagnosis.families.iter();
    let several = families.any(|family| family.found.iter().any(several_paths));
    let what = "its files lie in several paths, which OPTIONS do not name";
    several.then(|| Refusal::data(what, FROM_APPLICATION))
}

/// Returns the thousandths of a bit per key of a column family's filters, if OPTIONS do not give them.
fn filter_bits(
    task: &Task,
    diagnosis: &Diagnosis,
    options: &ColumnFamilyOptions,
    is_compacted: bool,
) -> Result<Option<u32>, Refusal> {
    let Some(policy) = filter_policy_without_bits(options) else {
        return Ok(None);
    };
    let said = task.service.filter_millibits_per_key();
    let found = diagnosis.families.iter().find(|f| f.name == options.name);
    let learned = found.and_then(|family| family.learned_millibits_per_key);
    // No file of another column family is written.
    let usual = !is_compacted || found.is_none_or(|family| family.files == 0);
    let usual = usual.then_some(USUAL_MILLIBITS);
    said.or(learned).or(usual).map(Some).ok_or_else(|| {
        let what =
            format!("OPTIONS name {policy} without its bits a key, and the files do not tell");
        Refusal::usage(what, "say --filter-bits-per-key").of_family_alone(&options.name)
    })
}

//! RocksDB's iterators over a directory.
//!
//! RocksDB opens a temporary folder with exactly the snapshot's version ([`Checkpoint`]), so another process may write,
//! flush and compact meanwhile. It opens the column family that is read and the default one, which RocksDB requires.
//! OPTIONS do not matter for reading, so an error there costs no rows.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use rockmill_core::{
    CancelToken, DeclineReason, Error, ErrorKind, Lock, Merging, Result, TIMESTAMP_SUFFIX,
};
use rockmill_format::names;
use rockmill_scan::{Checkpoint, IteratorRead, Iterators};
use rust_rocksdb::{ColumnFamilyDescriptor, DB, Options, ReadOptions};
use tempfile::TempDir;

/// Rows between two checks for cancellation.
const ROWS_PER_CHECK: usize = 4096;

/// Tables that RocksDB has open at a time. It opens others when it needs them.
const MAX_OPEN_FILES: i32 = 256;

/// Minimum number of levels that RocksDB is given: its default.
const MIN_LEVELS: u32 = 7;

const DEFAULT_FAMILY: &str = "default";

/// Opens a snapshot's version read-only when the first rows are read.
#[derive(Default)]
pub struct ReadOnly(Lock<Version>);

/// The version that is open.
#[derive(Default)]
enum Version {
    #[default]
    None,
    Opened(Arc<Opened>),
    /// None is opened any more.
    Closed,
}

/// A version, with a database for each column family that was read.
struct Opened {
    /// None once the folder is removed.
    databases: Lock<Option<BTreeMap<String, Arc<DB>>>>,
    folder: TempDir,
    checkpoint: Arc<Checkpoint>,
}

impl fmt::Debug for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadOnly")
    }
}

impl ReadOnly {
    /// Removes the temporary folder, though statements may still read. They fail, and so do later ones.
    pub fn close(&self) {
        let mut version = self.0.lock();
        if let Version::Opened(opened) = std::mem::replace(&mut *version, Version::Closed) {
            // RocksDB makes the folder and a log file when it opens a database, so none is opened after the removal. A
            // statement that does not end keeps `opened`. A folder that cannot be removed stays.
            let mut databases = opened.databases.lock();
            *databases = None;
            let _ = std::fs::remove_dir_all(opened.folder.path());
        }
    }

    fn at(&self, checkpoint: &Arc<Checkpoint>, cancel: &CancelToken) -> Result<Arc<Opened>> {
        let mut opened = self.0.lock();
        match &*opened {
            Version::Opened(known) if known.checkpoint.serves(checkpoint) => {
                return Ok(Arc::clone(known));
            }
            Version::Closed => return Err(Error::cancelled()),
            Version::None | Version::Opened(_) => {}
        }
        let folder = TempDir::new();
        let folder = folder.map_err(|e| Error::storage("TMPDIR", "make a temporary folder", &e))?;
        checkpoint.fill(folder.path(), cancel)?;
        let fresh = Arc::new(Opened {
            databases: Lock::new(Some(BTreeMap::new())),
            folder,
            checkpoint: Arc::clone(checkpoint),
        });
        *opened = Version::Opened(Arc::clone(&fresh));
        Ok(fresh)
    }
}

impl Opened {
    fn database(&self, family: &str) -> Result<Arc<DB>> {
        let mut databases = self.databases.lock();
        let databases = databases.as_mut().ok_or_else(Error::cancelled)?;
        if let Some(db) = databases.get(family) {
            return Ok(Arc::clone(db));
        }
        let db = Arc::new(self.open(family)?);
        databases.insert(family.to_owned(), Arc::clone(&db));
        Ok(db)
    }

    fn open(&self, family: &str) -> Result<DB> {
        let mut options = Options::default();
        // RocksDB refuses logs with prepared transactions without the first. Without the second it crashes if the
        // MANIFEST tracks logs.
        options.set_allow_2pc(true);
        options.set_track_and_verify_wals_in_manifest(true);
        options.set_max_open_files(MAX_OPEN_FILES);
        options.set_skip_stats_update_on_db_open(true);
        let mut families = vec![self.options(DEFAULT_FAMILY, family)?];
        if family != DEFAULT_FAMILY {
            families.push(self.options(family, family)?);
        }
        let db = DB::open_cf_descriptors_read_only(&options, self.folder.path(), families, false);
        db.map_err(|e| failed("open the database", &e))
    }

    /// The options of a column family, for a read of `read`.
    fn options(&self, family: &str, read: &str) -> Result<ColumnFamilyDescriptor> {
        const BYTEWISE: &[u8] = b"leveldb.BytewiseComparator";
        const REVERSE: &[u8] = b"rocksdb.ReverseBytewiseComparator";
        let tree = self.checkpoint.family(family).ok_or_else(|| {
            let gone = format!("there is no column family {family:?}");
            Error::declined(DeclineReason::Manifest, gone)
        })?;
        let declined = |reason, what: &str| {
            let what = format!("column family {family:?}: {what}");
            Err(Error::declined(reason, what))
        };
        let mut files = tree.levels.values().flat_map(|files| files.values());
        if files.any(|file| file.path_id != 0) {
            let what = "its files lie in more than one directory";
            return declined(DeclineReason::DbPaths, what);
        }
        let mut options = Options::default();
        match self.checkpoint.merge_operator(family) {
            // RocksDB's own returns memory that it has freed if a value in a blob file is the largest
            // (`db_iter.cc:MergeWithBlobBaseValue`).
            Some(operator) if operator.merging() == Some(Merging::Max) => {
                options.set_merge_operator_associative("MaxOperator", |_, value, operands| {
                    value.into_iter().chain(operands).max().map(<[u8]>::to_vec)
                });
            }
            Some(operator) => {
                let text = format!("merge_operator={}", operator.option_value());
                options = options.get_options_from_string(text).map_err(|e| {
                    let what = format!("RocksDB makes no merge operator {operator}: {e}");
                    Error::new(ErrorKind::Invalid, what)
                })?;
            }
            // RocksDB reads no log with operands without a merge operator. This one fails when it is used.
            None => options.set_merge_operator("not stated", |_, _, _| None, |_, _, _| None),
        }
        let comparator = self.checkpoint.comparator(tree);
        let name = String::from_utf8_lossy(comparator).into_owned();
        match comparator {
            BYTEWISE | b"" => {}
            REVERSE => options.set_comparator(&name, Box::new(|a, b| b.cmp(a))),
            // RocksDB needs only the name, unless keys are read.
            _ if family != read => options.set_comparator(&name, Box::new(|a, b| a.cmp(b))),
            _ if name.ends_with(TIMESTAMP_SUFFIX) => {
                let what = "its keys have user-defined timestamps: query it from its application";
                return declined(DeclineReason::UserTimestamps, what);
            }
            _ => {
                let what = format!(
                    "only its application has the comparator {name}: query it from there, through a handle of the open \
                     database"
                );
                return declined(DeclineReason::Comparator, &what);
            }
        }
        let deepest = tree.levels.keys().next_back().copied().unwrap_or(0);
        let levels = deepest.saturating_add(1).max(MIN_LEVELS);
        options.set_num_levels(i32::try_from(levels).unwrap_or(i32::MAX));
        Ok(ColumnFamilyDescriptor::new(name_of(family)?, options))
    }
}

/// The name of a column family from its text in [`Checkpoint`]s.
fn name_of(family: &str) -> Result<String> {
    String::from_utf8(names::unescape(family)).map_err(|_| {
        let what = format!(
            "RocksDB's binding reads no column family whose name is not UTF-8, such as \"{family}\": query it from the \
             application, through a handle of the open database"
        );
        Error::declined(DeclineReason::UnsupportedFormat, what)
    })
}

/// An error of RocksDB.
fn failed(doing: &str, error: &rust_rocksdb::Error) -> Error {
    let kind = match error.kind() {
        rust_rocksdb::ErrorKind::Corruption => ErrorKind::Corruption,
        // For example a file whose format this version of RocksDB does not read any more.
        rust_rocksdb::ErrorKind::NotSupported => {
            ErrorKind::Declined(DeclineReason::UnsupportedFormat)
        }
        _ => ErrorKind::Storage,
    };
    Error::new(kind, format!("RocksDB cannot {doing}: {error}"))
}

/// The error for operands without a stated merge operator.
fn not_stated(checkpoint: &Checkpoint, family: &str) -> Error {
    if let Some(why) = checkpoint.contradiction(family) {
        let what = format!("column family {family:?} has merge operands, and {why}");
        return Error::declined(DeclineReason::MergeOperands, what);
    }
    let named = checkpoint.named_operator(family).map(|name| {
        format!("; OPTIONS name {name}, which may be the application's own operator of that name")
    });
    let what = format!(
        "column family {family:?} has merge operands, and no merge operator is stated{}: if it is one of RocksDB's, say \
         --merge-operator '{family}=NAME', or in SQL OPTIONS ('merge_operator' 'NAME'); else query from the application, \
         through a handle of the open database",
        named.unwrap_or_default()
    );
    Error::declined(DeclineReason::MergeOperands, what)
}

impl Iterators for ReadOnly {
    fn read(
        &self,
        what: &IteratorRead<'_>,
        row: &mut dyn FnMut(&[u8], &[u8]) -> Result<()>,
    ) -> Result<()> {
        let name = what.path.display().to_string();
        let checkpoint = what
            .checkpoint
            .ok_or_else(|| Error::internal("a snapshot of a directory without its version"))?;
        let opened = self.at(checkpoint, what.cancel);
        let opened = opened.map_err(|e| e.in_file(&name))?;
        let db = opened.database(what.family);
        let db = db.map_err(|e| e.in_file(&name))?;
        let (found, expected) = (db.latest_sequence_number(), checkpoint.sequences());
        if !expected.contains(&found) {
            let what = format!(
                "RocksDB finds sequence number {found} where files and logs end with {}",
                expected.end()
            );
            return Err(Error::internal(what).in_file(&name));
        }
        let Some(family) = db.cf_handle(&name_of(what.family)?) else {
            return Err(Error::internal("a column family without a handle"));
        };
        let mut options = ReadOptions::default();
        if let Some(end) = &what.range.end {
            options.set_iterate_upper_bound(end.clone());
        }
        options.set_total_order_seek(true);
        options.fill_cache(false);
        let mut rows = db.raw_iterator_cf_opt(&family, options);
        match &what.range.begin {
            Some(begin) => rows.seek(begin),
            None => rows.seek_to_first(),
        }
        let mut passed = 0;
        while let Some((key, value)) = rows.item() {
            if passed % ROWS_PER_CHECK == 0 {
                what.cancel.check()?;
            }
            passed += 1;
            row(key, value)?;
            rows.next();
        }
        rows.status().map_err(|error| {
            let is_stated = checkpoint.merge_operator(what.family).is_some();
            // `Status::kMergeOperatorFailed`.
            let is_merge = error.to_string().contains("Merge operator failed");
            let error = match is_merge && !is_stated {
                true => not_stated(checkpoint, what.family),
                false => failed("read rows", &error),
            };
            error.in_file(&name)
        })
    }
}

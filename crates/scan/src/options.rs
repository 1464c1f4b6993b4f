//! The part of a database's OPTIONS file that matters for reading its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rockmill_core::Result;
use rockmill_format::manifest::ColumnFamily;
use rockmill_format::options_file::Options;
use rockmill_format::versions;
use rockmill_snapshot::closed_database::{self, LatestOptions, in_options, options_name};
use rockmill_storage::Storage;
use rockmill_storage::io::IoOptions;

/// The option that names the merge operator.
pub(crate) const MERGE_OPERATOR: &str = "merge_operator";

/// How the files of a database are read, and the folder of its logs.
#[derive(Debug)]
pub struct ReadOptions {
    /// How files are read.
    pub(crate) io: IoOptions,
    /// The option `wal_dir`.
    pub(crate) wal_dir: Option<String>,
    /// Folder of the logs: the database's own until a directory has found another.
    pub(crate) log_folder: PathBuf,
    /// Names of column families whose memtables change entries in place, so that logs do not have their contents.
    pub(crate) in_place: BTreeSet<Vec<u8>>,
    /// Names of comparators by those of column families.
    pub(crate) comparators: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of column families without a compaction filter. A filter without a name leaves no line in OPTIONS.
    pub(crate) unfiltered: BTreeSet<Vec<u8>>,
    /// Number of the OPTIONS file, if a program that opens the database goes on with its MANIFEST
    /// (`reuse_manifest_on_open`). Then the MANIFEST does not tell that options have changed.
    pub(crate) reuses_manifest: Option<u64>,
    /// Whether readers may see a write's sequence number before memtables have its entries (`unordered_write`).
    pub is_unordered: bool,
    /// Whether logs are compressed (`wal_compression`).
    pub is_log_compressed: bool,
    /// The option `merge_operator` of column families that have an operator with a name.
    pub(crate) merge_operators: BTreeMap<Vec<u8>, Options>,
}

impl ReadOptions {
    /// Reads the newest OPTIONS file in `dir`. Without one, everything is as by default.
    ///
    /// # Errors
    /// Storage; Declined if the file is malformed.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let mut read = Self {
            io: IoOptions::default(),
            wal_dir: None,
            log_folder: dir.to_owned(),
            in_place: BTreeSet::new(),
            comparators: BTreeMap::new(),
            unfiltered: BTreeSet::new(),
            reuses_manifest: None,
            is_unordered: false,
            is_log_compressed: false,
            merge_operators: BTreeMap::new(),
        };
        let Some(latest) = LatestOptions::read(storage, dir)? else {
            return Ok(read);
        };
        let malformed = |error| in_options(latest.number, error);
        for family in &latest.options.column_families {
            let is_in_place = family.options.bool("inplace_update_support", false);
            if is_in_place.map_err(malformed)? {
                read.in_place.insert(family.name.clone());
            }
            if let Some(comparator) = family.options.str("comparator") {
                let comparator = comparator.as_bytes().to_vec();
                read.comparators.insert(family.name.clone(), comparator);
            }
            let has_none = |name| match family.options.str(name) {
                None => !versions::may_hold(name, latest.options.rocksdb_version),
                Some(_) => family.options.is_null(name),
            };
            if has_none("compaction_filter") && has_none("compaction_filter_factory") {
                read.unfiltered.insert(family.name.clone());
            }
            let operator = family.options.object_name(MERGE_OPERATOR);
            if operator.is_some_and(|name| !name.is_empty()) {
                let operator = family.options.only(MERGE_OPERATOR);
                read.merge_operators.insert(family.name.clone(), operator);
            }
        }
        read.wal_dir = latest.options.db.str("wal_dir").map(str::to_owned);
        let is_unordered = latest.options.db.bool("unordered_write", false);
        read.is_unordered = is_unordered.map_err(malformed)?;
        let log_compression = latest.options.db.str("wal_compression");
        read.is_log_compressed = log_compression.is_some_and(|name| name != "kNoCompression");
        let reuses_manifest = latest.options.db.bool("reuse_manifest_on_open", false);
        read.reuses_manifest = reuses_manifest.map_err(malformed)?.then_some(latest.number);
        let io = IoOptions::read(&latest.options.db);
        read.io = io.map_err(|error| error.in_file(&options_name(latest.number)))?;
        Ok(read)
    }
}

/// The name of a column family's comparator; `named` has those of OPTIONS.
pub(crate) fn comparator<'a>(
    family: &'a ColumnFamily,
    named: &'a BTreeMap<Vec<u8>, Vec<u8>>,
) -> &'a [u8] {
    closed_database::comparator(family, named.get(&family.name).map(Vec::as_slice))
}

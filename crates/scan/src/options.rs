//! What a database's OPTIONS file says of reading its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rockmill_core::{DeclineReason, Error, Result};
use rockmill_format::options_file::OptionsFile;
use rockmill_snapshot::closed_database::{options_number, read_options};
use rockmill_storage::Storage;
use rockmill_storage::io::IoOptions;

/// How the files of a database are read, and where its logs are.
#[derive(Debug)]
pub struct ReadOptions {
    /// How files are read.
    pub(crate) io: IoOptions,
    /// Folder of the logs.
    pub(crate) log_folder: PathBuf,
    /// Names of column families whose memtables change entries in their place, so that logs do not tell what they hold.
    pub(crate) in_place: BTreeSet<Vec<u8>>,
    /// Names of comparators by those of column families.
    pub(crate) comparators: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of column families with a compaction filter.
    pub(crate) filtered: BTreeSet<Vec<u8>>,
}

impl ReadOptions {
    /// Reads the newest OPTIONS file in `dir`. Without one, everything is as by default.
    ///
    /// # Errors
    /// Storage; Declined if the file is malformed.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let name = dir.display().to_string();
        let names = storage.list(dir);
        let names = names.map_err(|e| Error::storage(&name, "list the directory", &e))?;
        let newest = names.iter().filter_map(|name| options_number(name)).max();
        let Some(number) = newest else {
            return Ok(Self {
                io: IoOptions::default(),
                log_folder: dir.to_owned(),
                in_place: BTreeSet::new(),
                comparators: BTreeMap::new(),
                filtered: BTreeSet::new(),
            });
        };
        let text = read_options(storage, dir, number)?;
        let malformed =
            |e: rockmill_format::Error| Error::declined(DeclineReason::OptionsFile, e.to_string());
        let options = OptionsFile::parse(&text).map_err(malformed)?;
        let (mut in_place, mut filtered) = (BTreeSet::new(), BTreeSet::new());
        let mut comparators = BTreeMap::new();
        for family in &options.column_families {
            let is_in_place = family.options.bool("inplace_update_support", false);
            if is_in_place.map_err(malformed)? {
                in_place.insert(family.name.clone());
            }
            if let Some(comparator) = family.options.str("comparator") {
                let comparator = comparator.as_bytes().to_vec();
                comparators.insert(family.name.clone(), comparator);
            }
            let filters = ["compaction_filter", "compaction_filter_factory"];
            if filters.iter().any(|name| !family.options.is_null(name)) {
                filtered.insert(family.name.clone());
            }
        }
        let log_folder = options
            .db
            .str("wal_dir")
            .filter(|folder| !folder.is_empty());
        Ok(Self {
            io: IoOptions::read(&options.db)?,
            log_folder: log_folder.map_or_else(|| dir.to_owned(), |folder| dir.join(folder)),
            in_place,
            comparators,
            filtered,
        })
    }
}

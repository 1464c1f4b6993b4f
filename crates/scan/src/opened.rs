//! Files that a snapshot of a directory holds open.
//!
//! Another process may delete files while they are opened, so it may take several attempts. A file that is open lives, so
//! each attempt leaves its files to the next one, which opens only those that are new.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use rockmill_core::{Error, ReadAt, Result};
use rockmill_snapshot::unflushed::Logs;
use rockmill_storage::base_name;
use rockmill_storage::io::JobInput;

use crate::checkpoint::Checkpoint;
use crate::options::ReadOptions;
use crate::snapshot::Family;
use crate::table::TableFolder;

/// Maximum attempts to open files that the MANIFEST names.
pub(crate) const ATTEMPTS: usize = 8;

/// Tables that an attempt leaves open for the next one, by number, bytes and unique id.
#[derive(Default)]
pub(crate) struct OpenTables(Tables);

type Tables = HashMap<(u64, u64, [u64; 2]), Arc<JobInput>>;

/// Opens tables for an attempt.
pub(crate) struct Opener<'a> {
    pub folder: &'a TableFolder,
    left_open: &'a mut Tables,
    /// Those of the attempt before.
    known: Tables,
}

impl OpenTables {
    /// Opens tables of this folder, and closes those that are not among them.
    pub fn opener<'a>(&'a mut self, folder: &'a TableFolder) -> Opener<'a> {
        Opener {
            folder,
            known: std::mem::take(&mut self.0),
            left_open: &mut self.0,
        }
    }
}

impl Opener<'_> {
    /// Opens the files of a column family that are in the database's own directory. They stay open as long as the snapshot
    /// lives. If one of them cannot be opened, the others are left to the next attempt all the same.
    ///
    /// # Errors
    /// Storage if one of them cannot be opened.
    pub fn open(&mut self, family: &mut Family) -> Result<()> {
        let mut failed = Ok(());
        let files = family.files_mut().iter_mut();
        for file in files.filter(|file| file.meta.path_id == 0) {
            let (number, bytes) = (file.meta.number, file.meta.size);
            let key = file.meta.unique_id.map(|id| (number, bytes, id));
            let known = key.and_then(|key| self.known.remove(&key));
            match known.map_or_else(|| self.folder.open(number), Ok) {
                Ok(open) => {
                    // A restored file may still grow.
                    if let Some(key) = key.filter(|_| open.len() == bytes) {
                        self.left_open.insert(key, Arc::clone(&open));
                    }
                    file.held = Some(open);
                }
                Err(error) => {
                    let name = base_name(&self.folder.file(number));
                    let doing = format!("open it in {ATTEMPTS} attempts");
                    failed = failed.and(Err(Error::storage(&name, &doing, &error)));
                }
            }
        }
        failed
    }
}

/// The tables and blob files of a snapshot.
pub(crate) struct OpenFiles {
    pub families: BTreeMap<u32, Family>,
    /// Whether the column family of a version has files that the version lacks.
    pub has_other_files: bool,
    /// The version for iterators, if there are any.
    pub checkpoint: Option<Checkpoint>,
}

/// Everything that an attempt opens.
pub(crate) struct Opened {
    pub files: OpenFiles,
    /// The logs, or the error of opening them.
    pub logs: Result<Logs>,
    pub options: ReadOptions,
}

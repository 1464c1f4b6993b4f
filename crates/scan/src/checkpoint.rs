//! A version of a database as a folder of its own, in which RocksDB can open it.
//!
//! RocksDB opens the newest version of a database. But another process may have written, flushed and compacted since
//! the snapshot was taken. So the folder has copies of the MANIFEST and the logs, as far as the snapshot has read them. It has
//! links to the files that the snapshot holds open. RocksDB finds exactly the snapshot's version there, even if files were
//! deleted since.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{CancelToken, DeclineReason, Error, ErrorKind, ReadAt, Result};
use rockmill_format::manifest::{ColumnFamily, Tree};
use rockmill_format::names;
use rockmill_format::options_file::Options;
use rockmill_snapshot::tree::Position;
use rockmill_snapshot::unflushed::LogFile;
use rockmill_storage::io::JobInput;
use rockmill_storage::{InputFileReader, LocalStorage, Storage, shared_files};

use crate::iterators::{IteratorRead, Iterators, RowFn};
use crate::options::{MERGE_OPERATOR, ReadOptions, comparator};
use crate::table::TableFolder;
use rockmill_core::{MergeOperator, MergeOperators};

/// The parts of a version. All files are open.
#[derive(Debug)]
pub struct Checkpoint {
    tree: Arc<Tree>,
    sequence: u64,
    /// Smallest last sequence number that RocksDB may find.
    least_sequence: u64,
    position: Position,
    manifest: InputFileReader,
    logs: Vec<LogFile>,
    tables: BTreeMap<u64, Arc<JobInput>>,
    blobs: Vec<(String, InputFileReader)>,
    merge_operators: MergeOperators,
    /// The option `merge_operator` of OPTIONS, by column family.
    named_operators: BTreeMap<Vec<u8>, Options>,
    /// Names of comparators in OPTIONS, by column family.
    named_comparators: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Checkpoint {
    /// Opens the MANIFEST of a version, and the blob files if a column family that `is_opened` has any. `position` is where
    /// its edits end in the MANIFEST.
    ///
    /// # Errors
    /// Storage, also if a file was deleted since.
    pub(crate) fn open(
        storage: &dyn Storage,
        folder: &TableFolder,
        tree: &Arc<Tree>,
        position: Position,
        is_opened: impl Fn(u32, &ColumnFamily) -> bool,
    ) -> Result<Self> {
        let path = &folder.path;
        let manifest = InputFileReader::open(storage, &path.join(&position.manifest))?;
        let mut blobs = Vec::new();
        let mut families = tree.column_families.iter();
        if families.any(|(id, family)| family.has_blob_files && is_opened(*id, family)) {
            let names = storage.list(path);
            let names =
                names.map_err(|e| Error::storage(&position.manifest, "list its folder", &e))?;
            let own = names.into_iter().map(|name| {
                let file = path.join(&name);
                (name, file)
            });
            let files = own.chain(shared_files(path));
            for (name, file) in files.filter(|(name, _)| name.ends_with(".blob")) {
                match InputFileReader::try_open(storage, &file) {
                    Ok(file) => blobs.push((name, file)),
                    // If the version has it, the MANIFEST changed before the file was deleted.
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(Error::storage(&name, "open it", &e)),
                }
            }
        }
        Ok(Self {
            tree: Arc::clone(tree),
            sequence: tree.last_sequence,
            least_sequence: tree.last_sequence,
            position,
            manifest,
            logs: Vec::new(),
            tables: BTreeMap::new(),
            blobs,
            merge_operators: MergeOperators::default(),
            named_operators: BTreeMap::new(),
            named_comparators: BTreeMap::new(),
        })
    }

    /// Adds the merge operators that are stated, and the names that OPTIONS have.
    pub(crate) fn merged_with(
        self,
        merge_operators: MergeOperators,
        options: &ReadOptions,
    ) -> Self {
        Self {
            merge_operators,
            named_operators: options.merge_operators.clone(),
            named_comparators: options.comparators.clone(),
            ..self
        }
    }

    /// Adds a table's file.
    pub(crate) fn add_table(&mut self, number: u64, file: &Arc<JobInput>) {
        self.tables.insert(number, Arc::clone(file));
    }

    /// Adds the logs, whose last sequence number RocksDB finds among these if they have any.
    pub(crate) fn add_logs(&mut self, logs: Vec<LogFile>, ends: RangeInclusive<u64>) {
        self.logs = logs;
        self.sequence = self.sequence.max(*ends.end());
        self.least_sequence = self.least_sequence.max(*ends.start());
    }

    /// The last sequence number of files and logs.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The last sequence numbers that RocksDB may find in the folder.
    pub fn sequences(&self) -> RangeInclusive<u64> {
        self.least_sequence..=self.sequence
    }

    /// The column family whose name has that text, as the MANIFEST describes it.
    pub fn family(&self, name: &str) -> Option<&ColumnFamily> {
        Some(self.tree.by_name(&names::unescape(name))?.1)
    }

    /// The name of a column family's comparator. It is empty if neither the MANIFEST nor OPTIONS have one.
    pub fn comparator<'a>(&'a self, family: &'a ColumnFamily) -> &'a [u8] {
        comparator(family, &self.named_comparators)
    }

    /// The merge operator that is stated for a column family, unless OPTIONS contradict it.
    pub fn merge_operator(&self, family: &str) -> Option<&MergeOperator> {
        let stated = self.merge_operators.get(family);
        stated.filter(|_| self.contradiction(family).is_none())
    }

    /// How OPTIONS contradict the operator that is stated for a column family.
    pub fn contradiction(&self, family: &str) -> Option<String> {
        let named = self.named_operators.get(&names::unescape(family))?;
        let stated = self.merge_operators.get(family)?;
        stated.contradiction(named, self.merge_operators.names(family))
    }

    /// The name of the column family's merge operator in OPTIONS. Applications choose names freely, so it proves
    /// nothing.
    pub fn named_operator(&self, family: &str) -> Option<String> {
        let named = self.named_operators.get(&names::unescape(family))?;
        named.object_name(MERGE_OPERATOR)
    }

    /// Whether both are the same version of the same database, read with the same merge operators, and this one has all
    /// files of the other one.
    pub fn serves(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let ends = |checkpoint: &Self| {
            let logs = checkpoint.logs.iter();
            logs.map(|log| (log.number, log.end)).collect::<Vec<_>>()
        };
        let is_equal = || {
            self.sequence == other.sequence
                && self.position == other.position
                && ends(self) == ends(other)
                && self.merge_operators == other.merge_operators
                && self.tree == other.tree
                && other
                    .tables
                    .keys()
                    .all(|number| self.tables.contains_key(number))
                // All blob files of the folder are open, or none is.
                && (other.blobs.is_empty() || !self.blobs.is_empty())
        };
        Arc::ptr_eq(self, other) || is_equal()
    }

    /// Fills an empty folder. Its links lead to the files that `self` holds open, so they lead there as long as it lives.
    ///
    /// # Errors
    /// Storage; Declined if RocksDB has written another log over one of the version's.
    pub fn fill(&self, folder: &Path, cancel: &CancelToken) -> Result<()> {
        let manifest = &self.position.manifest;
        let current = format!("{manifest}\n");
        let written = std::fs::write(folder.join("CURRENT"), current);
        written.map_err(|e| not_copied("CURRENT", &e))?;
        let to = folder.join(manifest);
        copy(&self.manifest, self.position.bytes, &to, cancel)?;
        for log in &self.logs {
            let to = folder.join(format!("{:06}.log", log.number));
            let is_copied = match copy(&log.file, log.end, &to, cancel) {
                Ok(()) => log.is_copied(&InputFileReader::open(&LocalStorage, &to)?, cancel)?,
                // The next log may be shorter.
                Err(error) if error.kind == ErrorKind::Corruption => false,
                Err(error) => return Err(error),
            };
            if !is_copied {
                let what = "another process has overwritten a log that the statement reads: run the statement again";
                let error = Error::declined(DeclineReason::InputMissing, what);
                return Err(error.in_file(log.file.name()));
            }
        }
        for (number, file) in &self.tables {
            let to = folder.join(format!("{number:06}.sst"));
            link(file.descriptor(), file.name(), to)?;
        }
        for (name, file) in &self.blobs {
            link(file.inner().descriptor(), name, folder.join(name))?;
        }
        Ok(())
    }
}

/// Copies the first `end` bytes.
fn copy(file: &InputFileReader, end: u64, to: &Path, cancel: &CancelToken) -> Result<()> {
    const PIECE_BYTES: u64 = 1 << 20;
    let refused = |e: io::Error| not_copied(file.name(), &e);
    let mut copy = File::create_new(to).map_err(refused)?;
    let mut piece = Vec::new();
    let mut at = 0;
    while at < end {
        cancel.check()?;
        piece.resize(PIECE_BYTES.min(end - at) as usize, 0);
        file.read_exact_at(&mut piece, at)?;
        copy.write_all(&piece).map_err(refused)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Links an open file, whose name may be deleted.
fn link(descriptor: Option<BorrowedFd<'_>>, name: &str, to: PathBuf) -> Result<()> {
    let descriptor = descriptor.ok_or_else(|| Error::internal("a file without a descriptor"))?;
    let open = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    symlink(open, to).map_err(|e| not_copied(name, &e))
}

fn not_copied(name: &str, error: &io::Error) -> Error {
    Error::storage(name, "copy or link it to a temporary folder", error)
}

/// Iterators over a snapshot's version.
#[derive(Debug)]
pub(crate) struct AtCheckpoint {
    pub iterators: Arc<dyn Iterators>,
    /// The version, or the reason why RocksDB cannot read it.
    pub checkpoint: std::result::Result<Arc<Checkpoint>, Error>,
}

impl Iterators for AtCheckpoint {
    fn read(&self, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()> {
        let checkpoint = self.checkpoint.as_ref().map_err(Clone::clone)?;
        let what = IteratorRead {
            checkpoint: Some(checkpoint),
            ..*what
        };
        self.iterators.read(&what, row)
    }

    fn merge_operator(&self, family: &str) -> Option<MergeOperator> {
        let checkpoint = self.checkpoint.as_ref().ok()?;
        checkpoint.merge_operator(family).cloned()
    }
}

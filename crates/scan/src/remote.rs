//! Column families that other processes read.
//!
//! A process plans over them without their files. The process that has the files describes one version, pins it open, and
//! runs the scans.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{KeyRange, Result};
use rockmill_snapshot::DatabaseIdentity;
use rockmill_snapshot::tree::Position;
use serde::{Deserialize, Serialize};

use crate::deleted::Deleted;
use crate::engine::ScanEngine;
use crate::family::FamilySnapshot;
use crate::history::Origin;
use crate::piece::{Piece, ReadPath};
use crate::ranges;
use crate::snapshot::{Family, Snapshot};
use crate::version::Version;

/// A version of a column family, as the process that has its files describes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// The version.
    pub version: Version,
    /// Entries of all files and of the log.
    pub entries: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// The id of the database and the inode of the folder, if there is an id. Copies of a database have the same id in other
    /// folders. One folder has one inode under all its names.
    pub database: Option<(Vec<u8>, u64)>,
    /// A range that has all its keys, and whose ends are keys of entries; `None` if it has no entry.
    pub keys: Option<KeyRange>,
}

/// A part of a column family that another process has.
#[derive(Debug, Clone)]
pub struct Remote {
    /// The address of the process, in a form that the caller knows.
    pub url: String,
    /// The database's folder, as the process knows it.
    pub path: PathBuf,
    /// Folder of the write-ahead logs, if it is stated.
    pub log_folder: Option<PathBuf>,
    /// The keys that it may have.
    pub range: KeyRange,
    /// The version.
    pub described: Described,
    /// Lives as long as the process must keep the files.
    pub pinned: Arc<dyn Pinned>,
}

/// A value that lives as long as another process must keep files.
pub trait Pinned: Any + Send + Sync + std::fmt::Debug {}

impl FamilySnapshot {
    /// The description of this version for another process.
    ///
    /// # Errors
    /// Those of [`FamilySnapshot::version`].
    pub fn describe(&self) -> Result<Described> {
        let of_files = self.file_keys.clone().into_iter();
        let unflushed = self.unflushed.iter().flat_map(|table| table.ranges());
        let keys = of_files.chain(unflushed).reduce(|one, other| KeyRange {
            begin: one.begin.min(other.begin),
            end: one.end.max(other.end),
        });
        let DatabaseIdentity { id, folder } = &self.origin.position.database;
        Ok(Described {
            version: self.version()?,
            database: (!id.is_empty()).then(|| (id.clone(), folder.inode)),
            entries: self.entries().unwrap_or(0),
            bytes: self.bytes(),
            keys,
        })
    }

    /// A column family whose parts other processes have. Only its plans can be made here.
    pub fn of_remotes(path: &Path, name: &str, remotes: Vec<Remote>) -> Self {
        let sequences = remotes
            .iter()
            .map(|remote| remote.described.version.sequence);
        Self {
            path: path.to_owned(),
            log_folder: path.to_owned(),
            name: name.to_owned(),
            sequence: sequences.max().unwrap_or(0),
            tables: Vec::new(),
            inputs: Vec::new(),
            orders_by_bytes: true,
            iterators: None,
            files: Vec::new(),
            deleted: Deleted::default(),
            unread: None,
            origin: Origin {
                id: 0,
                position: Position::default(),
                files: BTreeSet::new(),
                log_number: 0,
                logged: 0,
                merged: None,
                ahead: BTreeSet::new(),
                epochs: BTreeSet::new(),
                has_filter: false,
                reuses_manifest: None,
            },
            unflushed: Vec::new(),
            file_keys: None,
            remotes,
        }
    }

    /// The parts that other processes have; empty if this process has the files.
    pub fn remotes(&self) -> &[Remote] {
        &self.remotes
    }

    /// One piece for each range of keys. The processes that have the files cut them.
    pub(crate) fn remote_pieces(&self, ranges: &[KeyRange]) -> Vec<Piece> {
        let ranges = ranges::disjoint(ranges).into_iter();
        let pieces = ranges.map(|range| {
            let parts = self
                .remotes
                .iter()
                .filter(|remote| remote.range.overlaps(&range));
            Piece {
                bytes: parts.map(|remote| remote.described.bytes).sum(),
                range,
                path: ReadPath::Files,
            }
        });
        pieces.collect()
    }
}

impl Snapshot {
    /// A snapshot of column families that other processes read.
    pub fn of_remotes(
        engine: &Arc<ScanEngine>,
        path: &Path,
        families: impl IntoIterator<Item = FamilySnapshot>,
    ) -> Self {
        let families = families.into_iter();
        let families: BTreeMap<_, _> = families
            .map(|family| (family.name().to_owned(), Family::of_remotes(family)))
            .collect();
        Self::with_families(engine, path, families)
    }
}

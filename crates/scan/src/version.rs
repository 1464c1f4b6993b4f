//! A version of a column family as data: another process that has the directory can open it.
//!
//! Files that a version consists of never change. Unflushed entries are in logs, and a flush writes only the newest
//! entry of a key. So a version with unflushed entries exists until the next flush, and one without until the next
//! compaction of its files.

use std::collections::BTreeSet;

use rockmill_core::{DeclineReason, Error, Result};
use rockmill_format::names;
use serde::{Deserialize, Serialize};

use crate::family::FamilySnapshot;
use crate::quoted;
use crate::snapshot::Family;
use rockmill_core::MergeOperator;

/// A file of a version: its number, its bytes, and the unique id of its table.
pub type VersionFile = (u64, u64, Option<[u64; 2]>);

/// A version of a column family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Id of the database, which its copies on other machines have as well.
    pub database: Vec<u8>,
    /// Name of the column family.
    pub family: String,
    /// The sequence number: the version has all writes up to it.
    pub sequence: u64,
    /// The files.
    pub files: BTreeSet<VersionFile>,
    /// Unflushed entries are in logs from this number on; `None` if all are flushed.
    pub log_number: Option<u64>,
    /// Later sequence numbers in the logs are not part of the version. A file may have a larger one than entries that the
    /// logs get afterwards (`manual_wal_flush`).
    pub logged: u64,
    /// The merge operator that is stated.
    pub merge_operator: Option<MergeOperator>,
}

impl FamilySnapshot {
    /// The version that [`crate::Directory::at`] opens again.
    ///
    /// # Errors
    /// Declined if RocksDB's iterators read all of the column family: it may have entries that are neither in files nor in
    /// the log.
    pub fn version(&self) -> Result<Version> {
        if let Some(reason) = self.unread() {
            let what = format!(
                "RocksDB's iterators of this process read column family {}: {reason}",
                quoted(&self.name)
            );
            return Err(Error::declined(DeclineReason::UnsupportedFormat, what));
        }
        Ok(Version {
            database: self.origin.position.database.id.clone(),
            family: self.name.clone(),
            sequence: self.sequence,
            files: self.origin.files.clone(),
            merge_operator: (self.iterators.as_ref())
                .and_then(|iterators| iterators.merge_operator(&self.name)),
            log_number: (!self.unflushed.is_empty()).then_some(self.origin.log_number),
            logged: self.origin.logged,
        })
    }
}

impl Version {
    /// Whether the version is of the column family of that name. A database that this process has open gives the name
    /// itself, and a directory its text.
    pub(crate) fn is_of(&self, name: &[u8]) -> bool {
        self.family.as_bytes() == name || names::unescape(&self.family) == name
    }

    /// Removes from a column family all files that are not in this version. Returns whether the column family had only
    /// this version's files.
    ///
    /// # Errors
    /// Declined if it does not have them any more, or if it is of another database.
    pub(crate) fn choose(&self, family: &mut Family) -> Result<bool> {
        let before = family.files_mut().len();
        family.keep_files(|file| self.files.contains(&file));
        let has_log = self.log_number.is_none_or(|log| log == family.log_number());
        let is_of_same = family.database().id == self.database;
        match is_of_same && family.files_mut().len() == self.files.len() && has_log {
            true => Ok(before == self.files.len()),
            false => Err(self.gone()),
        }
    }

    /// Whether it has entries that are not flushed.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.log_number.is_some()
    }

    pub(crate) fn gone(&self) -> Error {
        let what = format!(
            "files or unflushed entries of column family {} that the plan reads are gone: plan the query again",
            quoted(&self.family)
        );
        Error::declined(DeclineReason::InputMissing, what)
    }
}

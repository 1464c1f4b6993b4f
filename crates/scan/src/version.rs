//! A version of a column family as data: another process that has the directory can open it.
//!
//! Files that a version consists of never change. What was not flushed is in logs, and may be overwritten when it is
//! flushed. So a version with unflushed entries exists until the next flush, and one without until the next compaction of
//! its files.

use std::collections::BTreeSet;

use rockmill_core::{DeclineReason, Error, Result};
use serde::{Deserialize, Serialize};

use crate::view::{Family, FamilyView};

/// A version of a column family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Name of the column family.
    pub family: String,
    /// The sequence number: the version has what was written up to it.
    pub sequence: u64,
    /// Number of each file, and its bytes.
    pub files: BTreeSet<(u64, u64)>,
    /// What is not flushed is in logs from this number on; `None` if all is.
    pub log_number: Option<u64>,
}

impl FamilyView {
    /// What [`crate::Directory::at`] opens again.
    pub fn version(&self) -> Version {
        let files = self.files().iter();
        Version {
            family: self.name.clone(),
            sequence: self.sequence,
            files: files.map(|file| (file.number, file.bytes)).collect(),
            log_number: (!self.unflushed.is_empty()).then_some(self.origin.log_number),
        }
    }
}

impl Version {
    /// Leaves the files of this version to a column family.
    ///
    /// # Errors
    /// Declined if it does not have them any more.
    pub(crate) fn choose(&self, family: &mut Family) -> Result<()> {
        family.keep_files(|number, bytes| self.files.contains(&(number, bytes)));
        let has_log = self.log_number.is_none_or(|log| log == family.log_number());
        match family.files_mut().len() == self.files.len() && has_log {
            true => Ok(()),
            false => Err(self.gone()),
        }
    }

    pub(crate) fn gone(&self) -> Error {
        let what = format!(
            "files or unflushed entries of column family {:?} that the plan reads are gone: plan the query again",
            self.family
        );
        Error::declined(DeclineReason::InputMissing, what)
    }
}

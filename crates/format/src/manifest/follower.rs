//! A tree that is kept up to date from the bytes appended to its MANIFEST.

use super::edit::VersionEdit;
use super::tree::Tree;
use crate::error::{Error, Result};
use crate::log::{LogReader, Record};

/// Follows one MANIFEST file from its start.
///
/// The caller feeds the bytes after [`Follower::bytes_fed`]. The tree is the state of the file up to
/// [`Follower::bytes_consumed`], which is compared with RocksDB's `min_manifest_file_size`.
#[derive(Debug, Default)]
pub struct Follower {
    log: LogReader,
    tree: Tree,
    /// Edits of an atomic group whose last one is still to come.
    group: Vec<VersionEdit>,
    consumed: u64,
    failed: Option<Error>,
}

impl Follower {
    /// A follower at the start of a MANIFEST.
    pub fn new() -> Self {
        Self::default()
    }

    /// The state up to [`Follower::bytes_consumed`].
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Number of bytes fed so far: the offset at which to read the file next.
    pub fn bytes_fed(&self) -> u64 {
        self.log.bytes_fed()
    }

    /// Offset in the file behind the last record that the tree shows.
    pub fn bytes_consumed(&self) -> u64 {
        self.consumed
    }

    /// Whether only zeros follow the edits. Edits may replace them later, which another follower has to read.
    pub fn rests_on_zeros(&self) -> bool {
        self.log.rests_on_zeros()
    }

    /// Takes the bytes that follow those fed before, and applies all edits that are complete.
    ///
    /// # Errors
    /// The errors of [`LogReader::next_record`], [`VersionEdit::decode`] and [`Tree::apply`], and Corruption if an atomic group is
    /// broken. The offset is the one in the file; for errors inside of a record, that of the record. After an error,
    /// the follower must not be used any more.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.log.push(bytes);
        self.apply_records()
            .inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn apply_records(&mut self) -> Result<()> {
        while let Some(record) = self.log.next_record()? {
            let edit = VersionEdit::decode(&record.payload).map_err(|error| {
                let what = format!("{} (at byte {} of the edit)", error.what, error.offset);
                of_record(
                    &record,
                    Error {
                        offset: 0,
                        what: what.into(),
                        ..error
                    },
                )
            })?;
            self.apply(edit)
                .map_err(|error| of_record(&record, error))?;
            if self.group.is_empty() {
                self.consumed = record.end;
            }
        }
        Ok(())
    }

    /// Applies an edit at once, or with the others of its group
    /// (`db/version_set.cc:AtomicGroupReadBuffer`).
    fn apply(&mut self, edit: VersionEdit) -> Result<()> {
        let open = self.group.last().and_then(|e| e.atomic_group_remaining);
        let expected = open.map(|remaining| remaining - 1);
        match (expected, edit.atomic_group_remaining) {
            (None, None) => return self.tree.apply(&edit),
            (None, Some(_)) => {}
            (Some(expected), Some(remaining)) if expected == remaining => {}
            (Some(_), _) => return Err(Error::corruption(0, "broken atomic group")),
        }
        let complete = edit.atomic_group_remaining == Some(0);
        self.group.push(edit);
        if complete {
            for edit in std::mem::take(&mut self.group) {
                self.tree.apply(&edit)?;
            }
        }
        Ok(())
    }
}

fn of_record(record: &Record, error: Error) -> Error {
    error.at(record.offset)
}

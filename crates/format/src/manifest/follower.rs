//! A tree that is kept up to date from the bytes appended to its MANIFEST.

use super::edit::VersionEdit;
use super::tree::{Levels, Tree};
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
    /// Files that the last edits have deleted.
    deletions: Vec<Deletion>,
    failed: Option<Error>,
}

/// Files that one edit has deleted. RocksDB may still have them.
#[derive(Debug)]
struct Deletion {
    column_family: u32,
    files: Levels,
    /// The edit's next file number.
    next_file_number: u64,
    /// Offset in the file behind the edit.
    end: u64,
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

    /// Files of a column family that edits have deleted from the tree, and that RocksDB may still have. Each item has the
    /// files of one edit. Edits up to offset `settled` are certain.
    ///
    /// RocksDB takes back edits that it could not sync, or whose MANIFEST it could not make the current one. Its next edit
    /// then begins another MANIFEST. So only the last batch of edits is uncertain. All edits of a batch have the same next
    /// file number; that of the last one is larger by one if the batch begins the MANIFEST
    /// (`db/version_set.cc:ProcessManifestWrites`).
    pub fn uncertain_deletions(
        &self,
        column_family: u32,
        settled: u64,
    ) -> impl Iterator<Item = &Levels> {
        let is_uncertain = move |deletion: &&Deletion| {
            deletion.column_family == column_family && deletion.end > settled
        };
        let uncertain = self.deletions.iter().filter(is_uncertain);
        uncertain.map(|deletion| &deletion.files)
    }

    /// Whether only zeros follow the edits. Edits may replace them later, which another follower has to read.
    pub fn ends_in_zeros(&self) -> bool {
        self.log.ends_in_zeros()
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
            self.apply(edit, record.end)
                .map_err(|error| of_record(&record, error))?;
            if self.group.is_empty() {
                self.consumed = record.end;
            }
        }
        Ok(())
    }

    /// Applies an edit at once, or with the others of its group
    /// (`db/version_set.cc:AtomicGroupReadBuffer`).
    fn apply(&mut self, edit: VersionEdit, end: u64) -> Result<()> {
        let open = self.group.last().and_then(|e| e.atomic_group_remaining);
        let expected = open.map(|remaining| remaining - 1);
        match (expected, edit.atomic_group_remaining) {
            (None, None) => return self.apply_to_tree(&edit, end),
            (None, Some(_)) => {}
            (Some(expected), Some(remaining)) if expected == remaining => {}
            (Some(_), _) => return Err(Error::corruption(0, "broken atomic group")),
        }
        let complete = edit.atomic_group_remaining == Some(0);
        self.group.push(edit);
        if complete {
            for edit in std::mem::take(&mut self.group) {
                self.apply_to_tree(&edit, end)?;
            }
        }
        Ok(())
    }

    fn apply_to_tree(&mut self, edit: &VersionEdit, end: u64) -> Result<()> {
        let next_file_number = edit.next_file_number.unwrap_or(self.tree.next_file_number);
        let may_be_of_batch =
            |deletion: &Deletion| deletion.next_file_number.saturating_add(1) >= next_file_number;
        self.deletions.retain(may_be_of_batch);
        let mut files = Levels::new();
        let family = self.tree.column_families.get(&edit.column_family);
        for &(level, number) in &edit.deleted_files {
            if let Some((_, file)) = family.and_then(|family| family.file(number)) {
                let of_level = files.entry(level).or_default();
                of_level.insert(number, file.clone());
            }
        }
        if !files.is_empty() {
            self.deletions.push(Deletion {
                column_family: edit.column_family,
                files,
                next_file_number,
                end,
            });
        }
        self.tree.apply(edit)
    }
}

fn of_record(record: &Record, error: Error) -> Error {
    error.at(record.offset)
}

#[cfg(test)]
mod tests {
    use super::super::test_encoder::encode_edit;
    use super::super::tests::file;
    use super::*;
    use crate::log::test_encoder::encode_log;

    #[test]
    fn only_deletions_of_the_last_batch_of_edits_are_uncertain() {
        let adding = VersionEdit {
            new_files: [1, 2, 3, 4].map(|number| (6, file(number))).to_vec(),
            ..VersionEdit::default()
        };
        let deleting = |number, next_file_number| VersionEdit {
            deleted_files: vec![(6, number)],
            next_file_number: Some(next_file_number),
            ..VersionEdit::default()
        };
        let edits = [
            adding,
            deleting(1, 10),
            deleting(2, 11),
            deleting(3, 12),
            deleting(4, 12),
        ];
        let log = |edits: &[VersionEdit]| {
            let records: Vec<_> = edits.iter().map(encode_edit).collect();
            encode_log(&records)
        };
        let uncertain = |edits: &[VersionEdit], settled: &[VersionEdit]| {
            let settled = log(settled).len() as u64;
            let mut follower = Follower::new();
            follower.feed(&log(edits)).expect("it is sound");
            let levels: Vec<_> = follower.uncertain_deletions(0, settled).collect();
            assert_eq!(follower.uncertain_deletions(1, settled).count(), 0);
            let files = levels.iter().flat_map(|levels| levels[&6].keys().copied());
            files.collect::<Vec<_>>()
        };
        assert_eq!(uncertain(&edits[..1], &[]), [0; 0]);
        assert_eq!(uncertain(&edits[..2], &[]), [1]);
        assert_eq!(uncertain(&edits[..2], &edits[..1]), [1]);
        assert_eq!(uncertain(&edits[..2], &edits[..2]), [0; 0]);
        assert_eq!(
            uncertain(&edits[..3], &[]),
            [1, 2],
            "they may begin a MANIFEST"
        );
        assert_eq!(uncertain(&edits, &[]), [2, 3, 4]);
        assert_eq!(uncertain(&edits, &edits[..4]), [4]);
    }
}

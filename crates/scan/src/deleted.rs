//! What the range tombstones of a version delete.

use std::sync::Arc;

use rockmill_core::{Fragments, InputTable, KeyRange, Result};
use rockmill_exec::budget::Reservation;
use rockmill_format::key::KeyOrder;
use rockmill_format::manifest::FileMeta;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_snapshot::tree::{self, user_key};

use crate::memory_table::MemoryTable;
use crate::ranges;

/// Keys that the range tombstones of all tables of a version delete. A clone shares them, and the memory that is reserved.
#[derive(Debug, Clone, Default)]
pub struct Deleted {
    /// The tombstones that the snapshot sees, clipped to their files.
    pub fragments: Arc<Fragments>,
    /// Keys some of whose versions a tombstone may delete and others not, as disjoint ranges. RocksDB's iterators read them.
    pub undecided: Arc<[KeyRange]>,
    _reservation: Option<Arc<Reservation>>,
}

/// A file of a version with its level.
pub type LeveledFile<'a> = (u32, &'a FileMeta, &'a InputTable);

impl Deleted {
    /// Splits the tombstones of files and of unflushed entries that a snapshot sees. `keep` reserves their memory.
    ///
    /// # Errors
    /// Those of `keep`.
    pub fn new(
        files: &[LeveledFile<'_>],
        unflushed: &[Arc<MemoryTable>],
        sequence: u64,
        keep: impl FnOnce(u64) -> Result<Reservation>,
    ) -> Result<Self> {
        /// The tombstones clipped, their borders, and up to two fragments of each.
        const COPIES: u64 = 6;
        let of_files = || files.iter().flat_map(|file| seen(file, sequence));
        let of_unflushed = unflushed.iter().flat_map(|part| &part.tombstones);
        let of_unflushed = || of_unflushed.clone().filter(|one| one.sequence <= sequence);
        let bytes = of_files().map(|(_, one)| one.memory_bytes());
        let bytes = bytes.chain(of_unflushed().map(RangeTombstone::memory_bytes));
        let bytes = bytes.fold(0, u64::saturating_add);
        if bytes == 0 {
            return Ok(Self::default());
        }
        let mut reservation = keep(bytes.saturating_mul(COPIES))?;
        let (mut all, mut undecided) = (Vec::new(), shared_keys(files, sequence));
        for file in files {
            let (smallest, largest) = (&file.1.smallest, &file.1.largest);
            let mut is_cut = false;
            for (sequence, tombstone) in seen(file, sequence) {
                let (within, cuts_key) =
                    tombstone.within_file(KeyOrder::Bytewise, smallest, largest);
                is_cut |= cuts_key;
                all.push(RangeTombstone { sequence, ..within });
            }
            if is_cut {
                undecided.push(of_key(user_key(largest)));
            }
        }
        all.extend(of_unflushed().map(|one| RangeTombstone {
            begin: one.begin.as_slice(),
            end: one.end.as_slice(),
            sequence: one.sequence,
        }));
        let fragments = Fragments::new(KeyOrder::Bytewise, &all, &[]);
        drop(all);
        reservation.shrink(fragments.memory_bytes());
        Ok(Self {
            fragments: Arc::new(fragments),
            undecided: ranges::disjoint(&undecided).into(),
            _reservation: Some(Arc::new(reservation)),
        })
    }

    /// Keys that tombstones with at least this sequence number delete, as disjoint ranges.
    pub fn since(&self, sequence: u64) -> Vec<KeyRange> {
        let newer = self.fragments.iter();
        let newer = newer.filter(|fragment| fragment.sequences.iter().any(|&own| own >= sequence));
        let ranges = newer.map(|fragment| KeyRange {
            begin: Some(fragment.begin.to_vec()),
            end: Some(fragment.end.to_vec()),
        });
        ranges::disjoint(&ranges.collect::<Vec<_>>())
    }

    /// The same without fragments, for a reader of keys that no tombstone deletes.
    pub fn without_fragments(&self) -> Self {
        Self {
            undecided: self.undecided.clone(),
            ..Self::default()
        }
    }
}

fn of_key(user_key: &[u8]) -> KeyRange {
    ranges::closed(user_key, user_key)
}

/// The tombstones of a file that a snapshot sees, with their sequence numbers.
fn seen<'a>(
    (_, _, table): &LeveledFile<'a>,
    sequence: u64,
) -> impl Iterator<Item = (u64, &'a RangeTombstone)> {
    let global = table.global_sequence();
    let own = table.range_tombstones(sequence).into_iter().flatten();
    own.map(move |one| (global.unwrap_or(one.sequence), one))
}

/// User keys with versions in two files of a level, one of which has tombstones.
fn shared_keys(files: &[LeveledFile<'_>], sequence: u64) -> Vec<KeyRange> {
    let bounds = files.iter();
    let bounds: Vec<_> = bounds
        .map(|(level, meta, _)| (*level, &meta.smallest[..], &meta.largest[..]))
        .collect();
    let has_some = |at: usize| seen(&files[at], sequence).next().is_some();
    let shared = tree::shared_keys(&bounds, KeyOrder::Bytewise).into_iter();
    let shared = shared.filter(|(_, both)| both.iter().any(|&at| has_some(at)));
    shared.map(|(key, _)| of_key(key)).collect()
}

#[cfg(test)]
mod tests {
    use rockmill_core::{CancelToken, InputTable, open_table};
    use rockmill_exec::budget::Reservation;
    use rockmill_format::key::{join, pack_tag};
    use rockmill_format::range_tombstone::END_TAG;
    use rockmill_storage::{InputFileReader, LocalStorage};
    use rust_rocksdb::{Options, SstFileWriter};

    use super::*;
    use crate::{ScanEngine, ScanSettings};

    /// A table of one row, whose tombstones end in front of these keys.
    fn table(ends: &[&str]) -> InputTable {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("1.sst");
        let options = Options::default();
        let mut writer = SstFileWriter::create(&options);
        writer.open(&path).expect("opened");
        writer.put("c", "value").expect("put");
        writer.finish().expect("finished");
        let file = InputFileReader::open(&LocalStorage, &path).expect("opened");
        let table = open_table(Box::new(file)).expect("read");
        let tombstones = ends.iter().map(|end| RangeTombstone {
            begin: b"a".to_vec(),
            end: end.as_bytes().to_vec(),
            sequence: 7,
        });
        table.with_range_tombstones(tombstones.collect())
    }

    fn meta((smallest, s): (&str, u64), (largest, l): (&str, u64)) -> FileMeta {
        let tag = |sequence| match sequence {
            u64::MAX => END_TAG,
            sequence => pack_tag(sequence, 1),
        };
        FileMeta {
            smallest: join(smallest.as_bytes(), tag(s)),
            largest: join(largest.as_bytes(), tag(l)),
            ..FileMeta::default()
        }
    }

    /// Fragments and undecided keys of files at a sequence number, as text.
    fn deleted(files: &[(u32, FileMeta, InputTable)], sequence: u64) -> (Vec<String>, Vec<String>) {
        let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
        let files: Vec<_> = files
            .iter()
            .map(|(level, meta, table)| (*level, meta, table))
            .collect();
        let keep =
            |bytes| -> Result<Reservation> { engine.tables.keep(bytes, &CancelToken::new()) };
        let deleted = Deleted::new(&files, &[], sequence, keep).expect("room");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fragments = deleted.fragments.iter();
        let undecided = deleted.undecided.iter();
        (
            fragments
                .map(|one| text(one.begin) + "-" + &text(one.end))
                .collect(),
            undecided
                .map(|range| text(range.begin.as_deref().expect("one key")))
                .collect(),
        )
    }

    #[test]
    fn tombstones_end_where_their_file_ends() {
        let end = u64::MAX;
        let one = |largest| [(1, meta(("b", 9), largest), table(&["z"]))];
        assert_eq!(
            deleted(&one(("f", end)), 7),
            (vec!["b-f".to_owned()], vec![])
        );
        // Other versions of the last key may be in the next file.
        let (fragments, undecided) = deleted(&one(("f", 3)), 7);
        assert_eq!(
            (fragments, undecided),
            (vec!["b-f".into()], vec!["f".into()])
        );
        // The snapshot does not see it.
        assert_eq!(deleted(&one(("f", 3)), 6), (vec![], vec![]));
    }

    #[test]
    fn a_key_of_two_files_of_a_level_is_left_to_iterators() {
        let files = |level, largest| {
            [
                (level, meta(("f", 2), ("k", 1)), table(&[])),
                (level, meta(("b", 9), largest), table(&["f"])),
            ]
        };
        assert_eq!(deleted(&files(1, ("f", 3)), 7).1, ["f"]);
        assert_eq!(deleted(&files(1, ("f", u64::MAX)), 7).1, [""; 0]);
        assert_eq!(deleted(&files(1, ("e", 3)), 7).1, ["e"]);
        // Files of level 0 overlap.
        assert_eq!(deleted(&files(0, ("f", 3)), 7).1, [""; 0]);
        assert_eq!(deleted(&files(0, ("f", 3)), 6).1, [""; 0]);
    }
}

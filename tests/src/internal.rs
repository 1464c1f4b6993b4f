//! Internal entries of a database's SST files, and differences that equivalent trees may have.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rockmill_core::{CancelToken, Fragments};
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::compression::Decompressor;
use rockmill_format::handle::BlockHandle;
use rockmill_format::key::{self, KeyOrder, ValueType};
use rockmill_format::manifest::FileMeta;
use rockmill_format::properties::TableProperties;
use rockmill_format::range_tombstone::{END_TAG, RangeTombstone, decode_range_tombstones};
use rockmill_format::table::{TableMeta, decode_filter_partitions, names};
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::LocalStorage;
use rust_rocksdb::DB;

use crate::content::Pairs;
use crate::workload::SINGLE_DELETE_PREFIX;

/// Size in bytes of sequence number and type at the end of an internal key (`db/dbformat.h`).
const TAG_BYTES: usize = 8;

/// An SST file in memory.
struct Table<'a> {
    path: &'a Path,
    file: Vec<u8>,
    meta: TableMeta,
}

impl<'a> Table<'a> {
    fn open(path: &'a Path) -> Result<Self, String> {
        let place = |e: rockmill_format::Error| format!("{}: {e}", path.display());
        let file = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut read = |offset, length| bytes(path, &file, offset, length).map(<[u8]>::to_vec);
        let meta = TableMeta::open(file.len() as u64, &mut read, place)?;
        Ok(Self { path, file, meta })
    }

    fn place(&self, error: &rockmill_format::Error) -> String {
        format!("{}: {error}", self.path.display())
    }

    fn range_tombstones(&self) -> Result<Vec<RangeTombstone>, String> {
        let Some(&handle) = self.meta.metaindex.get(names::RANGE_DELETIONS) else {
            return Ok(Vec::new());
        };
        let mut block = Vec::new();
        self.read(handle, &mut Decompressor::new(Vec::new()), &mut block)?;
        let own = decode_range_tombstones(&block, u64::MAX).map_err(|e| self.place(&e))?;
        Ok(own.unwrap_or_default())
    }

    /// Reads a block into `block`, uncompressed.
    fn read(
        &self,
        handle: BlockHandle,
        decompressor: &mut Decompressor,
        block: &mut Vec<u8>,
    ) -> Result<(), String> {
        let place = |e| self.place(&e);
        let length = handle.stored_len(self.meta.file_size).map_err(place)?;
        let stored = bytes(self.path, &self.file, handle.offset, length)?;
        let opened = self.meta.footer.guard.open(stored, handle.offset);
        let (payload, kind) = opened.map_err(place)?;
        decompressor.decompress(kind, payload, block).map_err(place)
    }
}

fn bytes<'f>(path: &Path, file: &'f [u8], offset: u64, length: usize) -> Result<&'f [u8], String> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    let bytes = range.and_then(|range| file.get(range));
    bytes.ok_or_else(|| format!("{}: no {length} bytes at {offset}", path.display()))
}

/// Returns the path of a live file from RocksDB's name.
fn path_of(db: &DB, name: &str) -> PathBuf {
    db.path().join(name.trim_start_matches('/'))
}

/// The properties of a live file, by RocksDB's name.
///
/// # Errors
///
/// The error in the file and its place.
pub fn properties_of(db: &DB, name: &str) -> Result<TableProperties, String> {
    properties(&path_of(db, name))
}

/// The properties of an SST file.
///
/// # Errors
///
/// The error in the file and its place.
pub fn properties(sst: &Path) -> Result<TableProperties, String> {
    Ok(Table::open(sst)?.meta.properties)
}

/// Whether the MANIFEST has the sequence number of all entries of the file.
fn is_ingested(path: &Path) -> Result<bool, String> {
    let properties = Table::open(path)?.meta.properties;
    Ok(properties.external_sst_file_version.is_some())
}

/// Returns all entries of one SST file in the file's order: value and internal key (user key, then `sequence << 8 |
/// type` in 8 bytes, little endian).
///
/// # Errors
///
/// The error in the file and its place.
pub fn read_internal_entries(sst: &Path) -> Result<Pairs, String> {
    let table = Table::open(sst)?;
    let (meta, place) = (&table.meta, |e| table.place(&e));
    let interval = u32::try_from(meta.properties.data_block_restart_interval).unwrap_or(u32::MAX);
    let mut decompressor = Decompressor::new(meta.dictionary.clone());
    let (mut entries, mut block) = (Vec::new(), Vec::new());
    for handle in meta.index.iter().map(|entry| entry.handle) {
        table.read(handle, &mut decompressor, &mut block)?;
        let parsed = Block::parse(&block).map_err(place)?;
        let mut key = Vec::new();
        let mut reader = parsed.entries(ValueForm::Sized, interval).map_err(place)?;
        while let Some(entry) = reader.next_entry().map_err(place)? {
            entry.restore_key(&mut key);
            entries.push((key.clone(), entry.value.to_vec()));
        }
    }
    Ok(entries)
}

/// The blocks behind the data blocks of an SST file, uncompressed.
#[derive(Debug, Default)]
pub struct Tail {
    /// First and last internal key of each data block, and its handle.
    pub blocks: Vec<(Vec<u8>, Vec<u8>, BlockHandle)>,
    /// User keys of all entries.
    pub user_keys: Vec<Vec<u8>>,
    /// Partitions of the index, and the index of these.
    pub index: Vec<(BlockHandle, Vec<u8>)>,
    /// Partitions of the filter, and the index of these.
    pub filter: Vec<(BlockHandle, Vec<u8>)>,
    /// The properties.
    pub properties: TableProperties,
}

/// Returns the tail of one SST file with a two-level index.
///
/// # Errors
///
/// The error in the file and its place.
pub fn tail(sst: &Path) -> Result<Tail, String> {
    let table = Table::open(sst)?;
    let (meta, place) = (&table.meta, |e| table.place(&e));
    let mut decompressor = Decompressor::new(meta.dictionary.clone());
    let mut read = |handle| {
        let mut block = Vec::new();
        table.read(handle, &mut decompressor, &mut block)?;
        Ok::<_, String>((handle, block))
    };
    let mut tail = Tail {
        properties: meta.properties.clone(),
        ..Tail::default()
    };
    for entry in &meta.index {
        let (_, block) = read(entry.handle)?;
        let parsed = Block::parse(&block).map_err(place)?;
        let mut reader = parsed.entries(ValueForm::Sized, 1).map_err(place)?;
        let (mut first, mut key) = (Vec::new(), Vec::new());
        while let Some(entry) = reader.next_entry().map_err(place)? {
            entry.restore_key(&mut key);
            if first.is_empty() {
                first.clone_from(&key);
            }
            tail.user_keys.push(key[..key.len() - TAG_BYTES].to_vec());
        }
        tail.blocks.push((first, key, entry.handle));
    }
    let handles = meta.index_partitions.iter().copied();
    let index = handles.chain([meta.index_handle]).map(&mut read);
    tail.index = index.collect::<Result<_, _>>()?;
    if let Some(&top) = meta.metaindex.get(names::PARTITIONED_FILTER) {
        let top = read(top)?;
        let partitions = decode_filter_partitions(&top.1, meta).map_err(place)?;
        let filter = partitions
            .into_iter()
            .map(|partition| read(partition.handle));
        tail.filter = filter.collect::<Result<_, _>>()?;
        tail.filter.push(top);
    }
    Ok(tail)
}

/// Returns the data blocks of one SST file, uncompressed.
///
/// # Errors
///
/// The error in the file and its place.
pub fn data_blocks(sst: &Path) -> Result<Vec<Vec<u8>>, String> {
    let table = Table::open(sst)?;
    let mut decompressor = Decompressor::new(table.meta.dictionary.clone());
    let blocks = table.meta.index.iter().map(|entry| {
        let mut block = Vec::new();
        table.read(entry.handle, &mut decompressor, &mut block)?;
        Ok(block)
    });
    blocks.collect()
}

/// The dictionary of an SST file, which is empty if it has none, and for each data block whether its bytes come out only with
/// it.
///
/// # Errors
///
/// The error in the file and its place.
pub fn dictionary(sst: &Path) -> Result<(Vec<u8>, Vec<bool>), String> {
    let table = Table::open(sst)?;
    let dictionary = table.meta.dictionary.clone();
    let (mut with, mut without) = (
        Decompressor::new(dictionary.clone()),
        Decompressor::new(Vec::new()),
    );
    let mut need_it = Vec::new();
    for entry in &table.meta.index {
        let (mut block, mut other) = (Vec::new(), Vec::new());
        table.read(entry.handle, &mut with, &mut block)?;
        let read = table.read(entry.handle, &mut without, &mut other);
        need_it.push(read.is_err() || block != other);
    }
    Ok((dictionary, need_it))
}

/// An entry in RocksDB's order of internal keys: user key ascending, newest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    user_key: Vec<u8>,
    /// `sequence << 8 | type`.
    tag: Reverse<u64>,
    value: Vec<u8>,
}

impl Entry {
    fn new(internal_key: &[u8], value: Vec<u8>) -> Option<Self> {
        let (user_key, tag) = internal_key.split_last_chunk::<TAG_BYTES>()?;
        Some(Self {
            user_key: user_key.to_vec(),
            tag: Reverse(u64::from_le_bytes(*tag)),
            value,
        })
    }

    /// The type of the entry.
    #[must_use]
    pub fn kind(&self) -> u64 {
        self.tag.0 & 0xff
    }

    /// Describes key, sequence, type and the value's length, for messages.
    fn describe(&self) -> String {
        let (sequence, kind) = (self.tag.0 >> 8, self.tag.0 & 0xff);
        let key = self.user_key.escape_ascii();
        format!(
            "key \"{key}\" sequence {sequence} type {kind} value of {} bytes",
            self.value.len()
        )
    }
}

/// The compared facts of a file in the tree: everything except its name and size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileFacts {
    /// Level.
    pub level: i32,
    /// Smallest user key.
    pub start: Vec<u8>,
    /// Largest user key.
    pub end: Vec<u8>,
    /// Smallest sequence number.
    pub smallest_sequence: u64,
    /// Largest sequence number.
    pub largest_sequence: u64,
}

/// Returns the live files of a column family with their names, ordered by their facts.
///
/// # Errors
///
/// RocksDB's error, as text.
pub fn files(db: &DB, family: &str) -> Result<Vec<(FileFacts, String)>, String> {
    let mut files: Vec<(FileFacts, String)> = db
        .live_files()
        .map_err(|e| format!("live files: {e}"))?
        .into_iter()
        .filter(|file| file.column_family_name == family)
        .map(|file| {
            let facts = FileFacts {
                level: file.level,
                start: file.start_key.unwrap_or_default(),
                end: file.end_key.unwrap_or_default(),
                smallest_sequence: file.smallest_seqno,
                largest_sequence: file.largest_seqno,
            };
            (facts, file.name)
        })
        .collect();
    files.sort();
    Ok(files)
}

/// Returns the entries of a column family at one level, or at all levels, in the order of internal keys, with or
/// without single-deleted keys. With snapshots, Rockmill may keep more of the latter than RocksDB, because a service
/// does not get the earliest write-conflict snapshot. Then only reads of them are compared.
///
/// # Errors
///
/// RocksDB's error, as text, or an internal key that is too short.
pub fn entries(
    db: &DB,
    family: &str,
    level: Option<i32>,
    single_deleted: bool,
) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for (facts, name) in files(db, family)? {
        if level.is_some_and(|level| level != facts.level) {
            continue;
        }
        let path = path_of(db, &name);
        let is_ingested = is_ingested(&path)?;
        for (key, value) in read_internal_entries(&path)? {
            let mut entry = Entry::new(&key, value).ok_or_else(|| {
                format!("{}: internal key of {} bytes", path.display(), key.len())
            })?;
            if is_ingested {
                // The MANIFEST has the sequence number of all entries, which is 0 in the file.
                entry.tag.0 |= facts.largest_sequence << 8;
            }
            if single_deleted || !entry.user_key.starts_with(SINGLE_DELETE_PREFIX) {
                entries.push(entry);
            }
        }
    }
    entries.sort();
    Ok(entries)
}

/// Returns the range tombstones of a column family.
///
/// # Errors
///
/// RocksDB's error, as text, or the error in a file.
pub fn range_tombstones(db: &DB, family: &str) -> Result<Vec<RangeTombstone>, String> {
    let mut tombstones = Vec::new();
    for (facts, name) in files(db, family)? {
        let path = path_of(db, &name);
        let mut own = Table::open(&path)?.range_tombstones()?;
        if !own.is_empty() && is_ingested(&path)? {
            // As for entries.
            own.iter_mut()
                .for_each(|tombstone| tombstone.sequence = facts.largest_sequence);
        }
        tombstones.extend(own);
    }
    Ok(tombstones)
}

/// Returns the files of a column family at one level with their facts in the MANIFEST, by number.
fn files_at(db: &DB, family: &str, level: i32) -> Result<Vec<(PathBuf, FileMeta)>, String> {
    let mut follower = TreeFollower::default();
    follower
        .refresh(&LocalStorage, db.path(), (0, 0), &CancelToken::new())
        .map_err(|e| e.to_string())?;
    let families = follower.tree().column_families.values();
    let mut of_name = families.filter(|one| one.name == family.as_bytes());
    let tree = of_name.next().ok_or("no such column family")?;
    let level = u32::try_from(level).map_err(|e| e.to_string())?;
    let files = tree.levels.get(&level).into_iter().flatten();
    let placed =
        files.map(|(number, file)| (path_of(db, &format!("{number:06}.sst")), file.clone()));
    Ok(placed.collect())
}

/// A file of a level.
pub struct LevelFile {
    /// Smallest and largest internal key.
    pub bounds: [Vec<u8>; 2],
    /// Whether it is marked for compaction.
    pub is_marked: bool,
    /// Its properties.
    pub properties: TableProperties,
}

/// Returns the files of a column family at one level, by their smallest internal keys.
///
/// # Errors
///
/// The error in the MANIFEST or in a file, and its place.
pub fn level_files(db: &DB, family: &str, level: i32) -> Result<Vec<LevelFile>, String> {
    let files = files_at(db, family, level)?
        .into_iter()
        .map(|(path, file)| {
            Ok(LevelFile {
                is_marked: file.marked_for_compaction,
                properties: properties(&path)?,
                bounds: [file.smallest, file.largest],
            })
        });
    let mut files = files.collect::<Result<Vec<_>, String>>()?;
    files.sort_by(|a, b| a.bounds.cmp(&b.bounds));
    Ok(files)
}

/// Returns the range tombstones of a column family's files at one level, clipped to the files' bounds in the MANIFEST.
///
/// # Errors
///
/// RocksDB's error, as text, or the error in a file.
pub fn clipped_tombstones(
    db: &DB,
    family: &str,
    order: KeyOrder,
    level: i32,
) -> Result<Vec<RangeTombstone>, String> {
    let mut clipped = Vec::new();
    for (path, file) in files_at(db, family, level)? {
        let short = || format!("{}: a bound without a tag", path.display());
        let (smallest, _) = key::split(&file.smallest).ok_or_else(short)?;
        let (largest, tag) = key::split(&file.largest).ok_or_else(short)?;
        let mut end = largest.to_vec();
        // In reverse order there is no next key.
        if tag != END_TAG && order == KeyOrder::Bytewise {
            end.push(0);
        }
        for mut own in Table::open(&path)?.range_tombstones()? {
            if is_ingested(&path)? {
                own.sequence = file.largest_seqno;
            }
            own.begin = order.last(&own.begin, smallest).to_vec();
            own.end = order.first(&own.end, &end).to_vec();
            clipped.push(own);
        }
    }
    Ok(clipped)
}

/// Compares the effect of range tombstones on the keys, and on the position directly behind each. With `absent`, no
/// deeper file can have a key, so tombstones that every snapshot sees may be missing.
///
/// # Errors
///
/// The first key for which they differ.
pub fn compare_tombstones<'k>(
    [rocksdb, rockmill]: [&[RangeTombstone]; 2],
    order: KeyOrder,
    snapshots: &[u64],
    keys: impl IntoIterator<Item = &'k Vec<u8>>,
    absent: impl Fn(&[u8]) -> bool,
) -> Result<(), String> {
    let [theirs, ours] = [rocksdb, rockmill].map(|all| Fragments::new(order, all, snapshots));
    let earliest = snapshots.first().copied().unwrap_or(u64::MAX);
    for key in keys {
        for key in [key.clone(), [key.as_slice(), &[0]].concat()] {
            let of = |all: &Fragments| -> Vec<u64> {
                let found = all.covering(&key, &mut 0);
                let sequences = found.map_or(&[][..], |fragment| fragment.sequences);
                let stays = |sequence: &&u64| **sequence > earliest || !absent(&key);
                sequences.iter().filter(stays).copied().collect()
            };
            let (theirs, ours) = (of(&theirs), of(&ours));
            if theirs != ours {
                let key = key.escape_ascii();
                return Err(format!(
                    "tombstones of \"{key}\" are {ours:?} instead of {theirs:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Makes entries equal whose form depends on where RocksDB meets the range tombstones:
///
/// - Deletes are removed that a range tombstone covers at every snapshot that sees them: no reader needs them. At the bottom,
///   RocksDB does not check range tombstones (`compaction_iterator.cc:NextFromInput`).
/// - Operands become values if a range tombstone of the same snapshots is beneath. RocksDB makes the value if it meets an entry
///   that the tombstone covers, and an earlier compaction may have dropped that (`merge_helper.cc:MergeUntil`).
pub fn settle_by_range_tombstones(
    entries: &mut Vec<Entry>,
    tombstones: &[RangeTombstone],
    order: KeyOrder,
    snapshots: &[u64],
) {
    /// Bits of the type in a tag.
    const KIND: u64 = 0xff;
    let is_any = |user_key: &[u8], unseen: &dyn Fn(u64) -> Range<u64>| {
        tombstones.iter().any(|tombstone| {
            let unseen = unseen(tombstone.sequence);
            !order.is_before(user_key, &tombstone.begin)
                && order.is_before(user_key, &tombstone.end)
                && !unseen.is_empty()
                && !snapshots.iter().any(|s| unseen.contains(s))
        })
    };
    entries.retain_mut(|entry| {
        let sequence = entry.tag.0 >> 8;
        match ValueType::from_code((entry.tag.0 & KIND) as u8) {
            Some(ValueType::Deletion) => !is_any(&entry.user_key, &|own| sequence..own),
            Some(ValueType::Merge) => {
                if is_any(&entry.user_key, &|own| own..sequence) {
                    entry.tag.0 = entry.tag.0 & !KIND | u64::from(ValueType::Value as u8);
                }
                true
            }
            _ => true,
        }
    });
}

/// Compares entries of RocksDB's own compaction with Rockmill's.
///
/// # Errors
///
/// The first missing or extra entry.
pub fn compare(rocksdb: &[Entry], rockmill: &[Entry]) -> Result<(), String> {
    let (theirs, ours): (BTreeSet<_>, BTreeSet<_>) =
        (rocksdb.iter().collect(), rockmill.iter().collect());
    if theirs.len() != rocksdb.len() || ours.len() != rockmill.len() {
        return Err("an entry occurs twice".to_owned());
    }
    if let Some(entry) = theirs.difference(&ours).next() {
        return Err(format!("Rockmill lacks {}", entry.describe()));
    }
    match ours.difference(&theirs).next() {
        Some(entry) => Err(format!("Rockmill kept {}", entry.describe())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness;

    fn entry(key: &str, sequence: u64, kind: u64) -> Entry {
        let tag = (sequence << 8) | kind;
        let internal_key = [key.as_bytes(), &tag.to_le_bytes()].concat();
        Entry::new(&internal_key, Vec::new()).expect("long enough")
    }

    #[test]
    fn newer_entries_of_a_key_come_first() {
        assert!(entry("a", 9, 1) < entry("a", 8, 1));
        assert!(entry("a", 1, 1) < entry("b", 8, 1));
    }

    #[test]
    fn an_entry_lacking_or_kept_is_an_error() {
        let (put, delete) = (entry("a", 9, 1), entry("b", 8, 0));
        let both = [put, delete];
        assert!(compare(&both, &both[1..]).is_err());
        assert!(compare(&both[..1], &both).is_err());
        assert!(compare(&both, &both).is_ok());
    }

    #[test]
    fn deletes_go_that_a_range_tombstone_covers_for_all_readers() {
        let tombstone = RangeTombstone {
            begin: b"b".to_vec(),
            end: b"d".to_vec(),
            sequence: 9,
        };
        let covered = entry("c", 7, 0);
        let others = [
            entry("a", 7, 0),
            entry("b", 5, 0),
            entry("b", 9, 0),
            entry("c", 7, 1),
            entry("d", 7, 0),
        ];
        let mut entries = [&others[..], &[covered]].concat();
        // The snapshot at 6 sees the Delete at 5 and not the range tombstone; that at 9 sees both.
        settle_by_range_tombstones(&mut entries, &[tombstone], KeyOrder::Bytewise, &[6, 9]);
        assert_eq!(entries, others);
    }

    #[test]
    fn operands_above_a_range_tombstone_of_their_readers_are_values() {
        const VALUE: u64 = 1;
        const MERGE: u64 = 2;
        let tombstone = RangeTombstone {
            begin: b"b".to_vec(),
            end: b"d".to_vec(),
            sequence: 9,
        };
        let mut entries = vec![
            entry("a", 10, MERGE),
            entry("c", 11, MERGE),
            entry("c", 10, MERGE),
            entry("c", 8, MERGE),
        ];
        let mut settled = entries.clone();
        // The snapshot at 10 sees the operand at 10 and the range tombstone, without the operand at 11.
        settle_by_range_tombstones(&mut settled, &[tombstone], KeyOrder::Bytewise, &[8, 10]);
        entries[2] = entry("c", 10, VALUE);
        assert_eq!(settled, entries);
    }

    #[test]
    fn rocksdb_drops_a_covered_delete_in_a_flush_and_keeps_it_at_the_bottom() {
        let [in_flush, at_bottom] = [false, true].map(|flushes_between| {
            let directory = tempfile::tempdir().expect("a temporary directory");
            let db = harness::open(&harness::local_options(), directory.path());
            let family = db.cf_handle("default").expect("it is open");
            db.put(b"b", b"").expect("put");
            let snapshot = db.snapshot();
            db.delete(b"b").expect("delete");
            if flushes_between {
                db.flush().expect("flush");
            }
            db.delete_range_cf(family, b"a", b"c")
                .expect("delete range");
            db.flush().expect("flush");
            harness::compact_everything(&db);
            let all = entries(&db, "default", None, true).expect("readable");
            let tombstones = range_tombstones(&db, "default").expect("readable");
            let snapshots = Vec::from_iter(snapshot.sequence_number());
            let mut compared = all.clone();
            settle_by_range_tombstones(&mut compared, &tombstones, KeyOrder::Bytewise, &snapshots);
            (all.len(), compared)
        });
        assert_eq!((in_flush.0, at_bottom.0), (1, 2));
        assert_eq!(in_flush.1, at_bottom.1);
    }

    #[test]
    fn all_versions_of_a_key_are_read_from_the_files_of_a_database() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let db = harness::open(&harness::local_options(), directory.path());
        db.put(b"a", b"old").expect("put");
        db.flush().expect("flush");
        db.put(b"a", b"new").expect("put");
        db.delete(b"b").expect("delete");
        db.put(SINGLE_DELETE_PREFIX, b"left out").expect("put");
        db.flush().expect("flush");
        let entries = entries(&db, "default", Some(0), false).expect("readable");
        let facts: Vec<_> = entries
            .iter()
            .map(|e| (e.user_key.as_slice(), e.tag.0, e.value.as_slice()))
            .collect();
        let tag = |sequence: u64, kind: u64| (sequence << 8) | kind;
        let expected: [(&[u8], u64, &[u8]); 3] = [
            (b"a", tag(2, 1), b"new"),
            (b"a", tag(1, 1), b"old"),
            (b"b", tag(3, 0), b""),
        ];
        assert_eq!(facts, expected);
    }

    #[test]
    fn an_internal_key_without_a_tag_is_no_entry() {
        assert!(Entry::new(b"short", Vec::new()).is_none());
    }
}

//! Damages SST files region by region, and replaces SST files.
//!
//! There are two ways to damage a file. A damaged copy can replace it: RocksDB still has the old file open, so its
//! local compaction succeeds. Or the file is overwritten in place, which RocksDB sees.

use std::fs;
use std::io::{Result, Write};
use std::path::{Path, PathBuf};

use rust_rocksdb::DB;

/// Size of the footer of a block-based table, in bytes (`table/format.h:Footer::kNewVersionsEncodedLength`).
const FOOTER_BYTES: usize = 53;
/// Size of type byte and checksum after each block, in bytes.
const TRAILER_BYTES: usize = 5;
/// Offset of the metaindex block's size in the footer, from `format_version` 6 on.
const METAINDEX_SIZE_AT: usize = 13;
/// Bytes of the metaindex block's size.
const METAINDEX_SIZE_BYTES: usize = 4;

/// A part of an SST file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The first data block: its first byte is part of an entry.
    FirstDataBlock,
    /// A data block in the middle of the file.
    MiddleDataBlock,
    /// The filter block.
    Filter,
    /// The index block.
    Index,
    /// The properties block.
    Properties,
    /// The metaindex block.
    Metaindex,
    /// The footer's fields.
    Footer,
    /// The footer's magic number.
    Magic,
}

impl Region {
    /// All regions.
    pub const ALL: [Self; 8] = [
        Self::FirstDataBlock,
        Self::MiddleDataBlock,
        Self::Filter,
        Self::Index,
        Self::Properties,
        Self::Metaindex,
        Self::Footer,
        Self::Magic,
    ];

    /// Whether a compaction reads the region. It rebuilds filters.
    #[must_use]
    pub fn is_read_by_compactions(self) -> bool {
        self != Self::Filter
    }

    /// Returns an offset inside the region of `file`, whose metaindex must not be compressed and whose `format_version`
    /// is at least 6.
    ///
    /// # Panics
    ///
    /// If `file` has no such region.
    #[must_use]
    pub fn offset(self, file: &[u8]) -> usize {
        let footer = file.len() - FOOTER_BYTES;
        let size_at = footer + METAINDEX_SIZE_AT;
        let mut size = [0; METAINDEX_SIZE_BYTES];
        size.copy_from_slice(&file[size_at..size_at + METAINDEX_SIZE_BYTES]);
        let metaindex = footer - TRAILER_BYTES - u32::from_le_bytes(size) as usize;
        let block = |name: &str| {
            let (offset, size) = handle(&file[metaindex..footer], name.as_bytes())
                .unwrap_or_else(|| panic!("no {name} in the metaindex"));
            offset + size / 2
        };
        match self {
            Self::FirstDataBlock => 0,
            Self::MiddleDataBlock => handle(
                &file[metaindex..footer],
                b"fullfilter.rocksdb.BuiltinBloomFilter",
            )
            .map_or(metaindex / 2, |(tail, _)| tail / 2),
            Self::Filter => block("fullfilter.rocksdb.BuiltinBloomFilter"),
            Self::Index => block("rocksdb.index"),
            Self::Properties => block("rocksdb.properties"),
            Self::Metaindex => metaindex + (footer - metaindex) / 2,
            Self::Footer => footer + METAINDEX_SIZE_AT,
            Self::Magic => file.len() - 1,
        }
    }
}

/// Finds `name` in a metaindex block and reads the block handle after it.
fn handle(metaindex: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let at = metaindex
        .windows(name.len())
        .position(|window| window == name)?;
    let (offset, rest) = varint(&metaindex[at + name.len()..])?;
    let (size, _) = varint(rest)?;
    Some((offset, size))
}

fn varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(usize::BITS as usize / 7) {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[index + 1..]));
        }
    }
    None
}

/// Returns a copy of `file` with one bit flipped at an offset.
#[must_use]
pub fn with_flipped_bit(file: &[u8], offset: usize) -> Vec<u8> {
    let mut copy = file.to_vec();
    copy[offset] ^= 1 << (offset % 8);
    copy
}

/// Returns the live SST files of a database by name, ascending.
///
/// # Panics
///
/// If RocksDB cannot list them.
#[must_use]
pub fn sst_files(db: &DB) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = db
        .live_files()
        .expect("live files")
        .into_iter()
        .map(|file| db.path().join(file.name.trim_start_matches('/')))
        .collect();
    files.sort();
    files
}

/// Replaces `file` with a new file with `content`. Open descriptors keep the old file.
///
/// # Errors
///
/// The operating system's error.
pub fn replace(file: &Path, content: &[u8]) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, content)?;
    fs::rename(new, file)
}

/// Overwrites `file` in place. Open descriptors see the new content.
///
/// # Errors
///
/// The operating system's error.
pub fn overwrite(file: &Path, content: &[u8]) -> Result<()> {
    let mut open = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(file)?;
    open.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{fill, local_options, open};
    use crate::table::{Filter, TableShape};

    const WRITES: usize = 2_000;

    #[test]
    fn every_region_is_found_and_in_the_order_of_the_file() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let table = TableShape {
            filter: Filter::Bloom(10.0),
            ..TableShape::default()
        };
        let db = open(&table.apply(local_options()), directory.path());
        fill(&db, WRITES, 1);
        let file = fs::read(&sst_files(&db)[0]).expect("read");
        let offsets = Region::ALL.map(|region| region.offset(&file));
        assert!(offsets.is_sorted(), "{offsets:?} of {}", file.len());
        let comparator = b"leveldb.BytewiseComparator";
        let from_index_to_metaindex = &file[offsets[3]..offsets[5]];
        assert!(
            from_index_to_metaindex
                .windows(comparator.len())
                .any(|w| w == comparator)
        );
    }
}

//! Data blocks and their entries.

use rockmill_core::{Error, InputTable, Result};
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::compression::Decompressor;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::key::{self, ValueType};
use rockmill_format::properties::compression_type_name;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_terminal::output::{self, Stop};
use serde::Serialize;

use super::{NotShown, not_shown};
use crate::sst::understood;

/// One data block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockRow {
    /// Offset in the file.
    pub offset: u64,
    /// Size in the file, including the trailer.
    pub stored_size: u64,
    /// RocksDB's name of its compression type.
    pub compression: String,
    /// Its contents, if it could be decompressed.
    #[serde(flatten)]
    pub holds: Option<BlockContents>,
}

/// Contents of a data block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockContents {
    /// Uncompressed size without the trailer.
    pub size: u64,
    /// Number of entries.
    pub entries: u64,
    /// Number of restart points.
    pub restarts: u64,
    /// First user key.
    #[serde(serialize_with = "escaped")]
    pub first_key: Vec<u8>,
    /// Last user key.
    #[serde(serialize_with = "escaped")]
    pub last_key: Vec<u8>,
}

/// One entry of a data block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EntryRow {
    /// The user key.
    #[serde(serialize_with = "escaped")]
    pub user_key: Vec<u8>,
    /// Its sequence number.
    pub sequence: u64,
    /// RocksDB's name of its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Size of its value in bytes.
    pub value_size: u64,
}

/// A range tombstone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RangeDeletionRow {
    /// First user key.
    #[serde(serialize_with = "escaped")]
    pub start: Vec<u8>,
    /// Exclusive end, a user key.
    #[serde(serialize_with = "escaped")]
    pub end: Vec<u8>,
    /// Its sequence number.
    pub sequence: u64,
}

impl From<RangeTombstone> for RangeDeletionRow {
    fn from(tombstone: RangeTombstone) -> Self {
        Self {
            sequence: tombstone.sequence,
            start: tombstone.begin,
            end: tombstone.end,
        }
    }
}

fn escaped<S: serde::Serializer>(
    bytes: &[u8],
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&output::escape(bytes))
}

/// Calls `each` with the first `limit` data blocks. Returns the parts that are not shown.
pub fn for_each_block(
    table: &InputTable,
    limit: usize,
    each: &mut dyn FnMut(&BlockRow) -> std::result::Result<(), Stop>,
) -> std::result::Result<NotShown, Stop> {
    let mut reader = Reader::new(table);
    let mut left_out = NotShown::new();
    for at in 0..table.meta.index.len().min(limit) {
        let (compression, loaded) = reader.load(at)?;
        let handle = table.meta.index[at].handle;
        let holds = match loaded {
            Ok(()) => Some(reader.holds(at)?),
            Err(why) => {
                left_out.insert(not_shown("the contents of some data blocks", &why));
                None
            }
        };
        each(&BlockRow {
            offset: handle.offset,
            stored_size: crate::sst::end_of(handle) - handle.offset,
            compression,
            holds,
        })?;
    }
    Ok(left_out)
}

/// Calls `each` with the first `limit` entries of the data blocks. Returns the parts that are not shown.
pub fn for_each_entry(
    table: &InputTable,
    limit: usize,
    each: &mut dyn FnMut(&EntryRow) -> std::result::Result<(), Stop>,
) -> std::result::Result<NotShown, Stop> {
    let mut reader = Reader::new(table);
    let mut left_out = NotShown::new();
    let mut left = limit;
    for at in 0..table.meta.index.len() {
        if left == 0 {
            break;
        }
        if let (_, Err(why)) = reader.load(at)? {
            left_out.insert(not_shown("the contents of some data blocks", &why));
            continue;
        }
        reader.for_each_entry(at, |user_key, tag, value| {
            let code = key::tag_type(tag);
            each(&EntryRow {
                user_key: user_key.to_vec(),
                sequence: key::tag_sequence(tag),
                kind: ValueType::from_code(code)
                    .map_or_else(|| format!("{code:#04x}"), |kind| kind.name().to_owned()),
                value_size: value.len() as u64,
            })?;
            left -= 1;
            Ok(left > 0)
        })?;
    }
    Ok(left_out)
}

/// Loads data blocks with their trailers, which the engine's own stream does not return.
struct Reader<'a> {
    table: &'a InputTable,
    decompressor: Decompressor,
    payload: Vec<u8>,
}

impl<'a> Reader<'a> {
    fn new(table: &'a InputTable) -> Self {
        Self {
            table,
            decompressor: (table.meta.footer.guard).decompressor(table.meta.dictionary.clone()),
            payload: Vec::new(),
        }
    }

    /// Reads, verifies and decompresses the data block at an index position. Returns the name of its compression, and
    /// an error if that is not known.
    fn load(&mut self, at: usize) -> Result<(String, Result<()>)> {
        let InputTable { file, meta, .. } = self.table;
        let handle = meta.index[at].handle;
        let fail = |e: rockmill_format::Error| Error::format(file.name(), e);
        let mut stored = vec![0; handle.stored_len(meta.file_size).map_err(fail)?];
        file.read_exact_at(&mut stored, handle.offset)?;
        let guard = meta.footer.guard;
        let compression = compression_type_name(stored[stored.len() - BLOCK_TRAILER_SIZE]);
        let opened = guard.open(&stored, handle.offset).map_err(fail);
        let (payload, kind) = match understood(opened)? {
            Ok(opened) => opened,
            Err(why) => return Ok((compression, Err(why))),
        };
        let done = self
            .decompressor
            .decompress(kind, payload, &mut self.payload);
        let done = done.map_err(|e| fail(e.at(handle.offset)));
        Ok((compression, understood(done)?))
    }

    /// Returns the contents of the loaded block.
    fn holds(&self, at: usize) -> std::result::Result<BlockContents, Stop> {
        let mut holds = BlockContents {
            size: self.payload.len() as u64,
            entries: 0,
            restarts: self.parse(at)?.num_restarts() as u64,
            first_key: Vec::new(),
            last_key: Vec::new(),
        };
        self.for_each_entry(at, |user_key, _, _| {
            if holds.entries == 0 {
                holds.first_key = user_key.to_vec();
            }
            holds.last_key.clear();
            holds.last_key.extend_from_slice(user_key);
            holds.entries += 1;
            Ok(true)
        })?;
        Ok(holds)
    }

    fn fail_at(&self, at: usize) -> impl Fn(rockmill_format::Error) -> Error {
        let offset = self.table.meta.index[at].handle.offset;
        move |e| Error::format(self.table.file.name(), e.at(offset))
    }

    fn parse(&self, at: usize) -> Result<Block<'_>> {
        Block::parse(&self.payload).map_err(self.fail_at(at))
    }

    /// Calls `each` with user key, tag and value of the loaded block's entries until it returns false.
    fn for_each_entry(
        &self,
        at: usize,
        mut each: impl FnMut(&[u8], u64, &[u8]) -> std::result::Result<bool, Stop>,
    ) -> std::result::Result<(), Stop> {
        let fail = self.fail_at(at);
        let interval = u32::try_from(self.table.meta.properties.data_block_restart_interval);
        let mut entries = self
            .parse(at)?
            .entries(ValueForm::Sized, interval.unwrap_or(u32::MAX))
            .map_err(&fail)?;
        let mut internal_key = Vec::new();
        while let Some(entry) = entries.next_entry().map_err(&fail)? {
            entry.restore_key(&mut internal_key);
            let (user_key, tag) = key::split(&internal_key).ok_or_else(|| {
                let what = "internal key shorter than 8 bytes";
                fail(rockmill_format::Error::corruption(entry.offset, what))
            })?;
            if !each(user_key, tag, entry.value)? {
                break;
            }
        }
        Ok(())
    }
}

//! A whole SST file seen from its end: footer, metaindex, properties, index, dictionary.
//!
//! ```text
//! data blocks | filter | index (partitions, top) | dictionary | range deletions | properties
//! | metaindex | footer
//! ```

use std::collections::BTreeMap;

use crate::block::{Block, BlockBuilder, BlockLayout, ValueForm};
use crate::coding::Cursor;
use crate::compression::{CompressionType, Decompressor};
use crate::error::{Error, Result};
use crate::footer::{FOOTER_SIZE, Footer};
use crate::handle::BlockHandle;
use crate::index::{IndexCoding, IndexEntry, decode_index};
use crate::properties::TableProperties;

/// Names in the metaindex (`table/meta_blocks.cc`).
pub mod names {
    /// Full filter.
    pub const FULL_FILTER: &[u8] = b"fullfilter.rocksdb.BuiltinBloomFilter";
    /// Top-level index of a partitioned filter.
    pub const PARTITIONED_FILTER: &[u8] = b"partitionedfilter.rocksdb.BuiltinBloomFilter";
    /// Compression dictionary.
    pub const DICTIONARY: &[u8] = b"rocksdb.compression_dict";
    /// Index, from format_version 6 on.
    pub const INDEX: &[u8] = b"rocksdb.index";
    /// Properties.
    pub const PROPERTIES: &[u8] = b"rocksdb.properties";
    /// Range tombstones.
    pub const RANGE_DELETIONS: &[u8] = b"rocksdb.range_del";
}

/// How an index is organised (`BlockBasedTableOptions::IndexType`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum IndexType {
    /// One block.
    BinarySearch = 0,
    /// One block, with side blocks that map prefixes to it.
    Hash = 1,
    /// Blocks below a top-level block.
    TwoLevel = 2,
    /// One block, with each data block's first key.
    BinarySearchWithFirstKey = 3,
}

impl IndexType {
    /// The type with the property's code.
    pub fn from_code(code: u32) -> Option<Self> {
        [
            Self::BinarySearch,
            Self::Hash,
            Self::TwoLevel,
            Self::BinarySearchWithFirstKey,
        ]
        .into_iter()
        .find(|&kind| kind as u32 == code)
    }
}

/// What an SST says of itself.
#[derive(Debug, Clone)]
pub struct TableMeta {
    /// Bytes of the file.
    pub file_size: u64,
    /// The footer.
    pub footer: Footer,
    /// Meta blocks by name.
    pub metaindex: BTreeMap<Vec<u8>, BlockHandle>,
    /// The properties.
    pub properties: TableProperties,
    /// How the index is organised.
    pub index_type: IndexType,
    /// Where the (top-level) index is.
    pub index_handle: BlockHandle,
    /// Where the index partitions are; empty unless the index has two levels.
    pub index_partitions: Vec<BlockHandle>,
    /// One entry a data block, in key order.
    pub index: Vec<IndexEntry>,
    /// Compression dictionary of the data blocks, empty if there is none.
    pub dictionary: Vec<u8>,
}

/// Reads `len` bytes at an offset.
pub type ReadFn<'a, E> = &'a mut dyn FnMut(u64, usize) -> std::result::Result<Vec<u8>, E>;

impl TableMeta {
    /// Reads and verifies everything but data blocks, range deletions and filters.
    ///
    /// `read` fetches bytes of a file of `file_size` bytes; `wrap` turns this crate's errors, with
    /// offsets in the file, into the caller's.
    ///
    /// # Errors
    /// Those of `read`; Corruption if the file is damaged, Unsupported if it is not understood.
    pub fn open<E>(
        file_size: u64,
        read: ReadFn<'_, E>,
        wrap: impl Fn(Error) -> E,
    ) -> std::result::Result<Self, E> {
        let Some(footer_at) = file_size.checked_sub(FOOTER_SIZE as u64) else {
            return Err(wrap(Error::corruption(
                0,
                format!("a file of {file_size} bytes is too short to be an SST"),
            )));
        };
        let footer = Footer::decode(&read(footer_at, FOOTER_SIZE)?, file_size).map_err(&wrap)?;
        let mut blocks = BlockReader {
            footer,
            limit: footer_at,
            read,
            wrap: &wrap,
            decompressor: Decompressor::new(Vec::new()),
        };
        let metaindex = blocks.parse(footer.metaindex, decode_metaindex)?;
        let missing = |what: &str| {
            Error::corruption(
                footer.metaindex.offset,
                format!("no {what} in the metaindex"),
            )
        };
        let properties_at = *metaindex
            .get(names::PROPERTIES)
            .ok_or_else(|| wrap(missing("properties block")))?;
        let properties = blocks.parse(properties_at, decode_properties)?;
        if !is_bytewise(&properties.comparator_name) {
            return Err(wrap(Error::unsupported(
                properties_at.offset,
                format!("comparator {}", properties.comparator_name.escape_ascii()),
            )));
        }
        let index_handle = footer
            .index
            .or_else(|| metaindex.get(names::INDEX).copied())
            .ok_or_else(|| wrap(missing("index block")))?;
        let index_type = properties
            .index_type
            .and_then(IndexType::from_code)
            .ok_or_else(|| {
                wrap(Error::corruption(
                    properties_at.offset,
                    "index type property missing or unknown",
                ))
            })?;
        let (index, index_partitions) = blocks.read_index(index_handle, index_type, &properties)?;
        let dictionary = match metaindex.get(names::DICTIONARY) {
            Some(&handle) => blocks.read_block(handle)?,
            None => Vec::new(),
        };
        Ok(Self {
            file_size,
            footer,
            metaindex,
            properties,
            index_type,
            index_handle,
            index_partitions,
            index,
            dictionary,
        })
    }
}

/// Whether keys are ordered by their bytes, as everything behind the properties presumes; very old
/// files do not say. A user-defined timestamp is a matter of the keys' own bytes.
fn is_bytewise(comparator_name: &[u8]) -> bool {
    const BYTEWISE: [&[u8]; 3] = [
        b"",
        b"leveldb.BytewiseComparator",
        b"leveldb.BytewiseComparator.u64ts",
    ];
    BYTEWISE.contains(&comparator_name)
}

struct BlockReader<'a, E, W> {
    footer: Footer,
    limit: u64,
    read: ReadFn<'a, E>,
    wrap: &'a W,
    decompressor: Decompressor,
}

impl<E, W: Fn(Error) -> E> BlockReader<'_, E, W> {
    /// Reads, verifies and decompresses a block that is not a data block.
    fn read_block(&mut self, handle: BlockHandle) -> std::result::Result<Vec<u8>, E> {
        let len = handle.stored_len(self.limit).map_err(self.wrap)?;
        let mut stored = (self.read)(handle.offset, len)?;
        let guard = &self.footer.guard;
        let (payload, kind) = guard.open(&stored, handle.offset).map_err(self.wrap)?;
        if kind == CompressionType::None {
            let len = payload.len();
            stored.truncate(len);
            return Ok(stored);
        }
        let mut out = Vec::new();
        self.decompressor
            .decompress(kind, payload, &mut out)
            .map_err(|e| (self.wrap)(e.at(handle.offset)))?;
        Ok(out)
    }

    /// Reads a block and parses it; errors name the block's place in the file.
    fn parse<T>(
        &mut self,
        handle: BlockHandle,
        decode: impl FnOnce(&[u8]) -> Result<T>,
    ) -> std::result::Result<T, E> {
        let block = self.read_block(handle)?;
        decode(&block)
            .map_err(|e| e.at(handle.offset))
            .map_err(self.wrap)
    }

    fn read_index(
        &mut self,
        handle: BlockHandle,
        kind: IndexType,
        properties: &TableProperties,
    ) -> std::result::Result<(Vec<IndexEntry>, Vec<BlockHandle>), E> {
        let coding = IndexCoding {
            user_keys: properties.index_key_is_user_key != 0,
            delta_values: properties.index_value_is_delta_encoded != 0,
            first_keys: kind == IndexType::BinarySearchWithFirstKey,
            format_version: self.footer.format_version,
            restart_interval: properties
                .index_block_restart_interval
                .try_into()
                .unwrap_or(u32::MAX),
        };
        let top = self.parse(handle, |block| decode_index(block, coding))?;
        if kind != IndexType::TwoLevel {
            self.check_order(handle, &top)?;
            return Ok((top, Vec::new()));
        }
        let mut index = Vec::new();
        for partition in &top {
            let entries = self.parse(partition.handle, |block| decode_index(block, coding))?;
            index.extend(entries);
        }
        self.check_order(handle, &index)?;
        Ok((index, top.into_iter().map(|entry| entry.handle).collect()))
    }

    /// Data blocks follow one another without overlap, and separators ascend, across partitions too.
    fn check_order(&self, handle: BlockHandle, index: &[IndexEntry]) -> std::result::Result<(), E> {
        let ordered = index.windows(2).all(|pair| {
            pair[0].separator <= pair[1].separator
                && pair[0].handle.checked_end() <= Some(pair[1].handle.offset)
        });
        // Those before it end before it.
        let last = index.last().map(|e| e.handle.checked_end());
        if ordered && last.is_none_or(|end| end <= Some(self.limit)) {
            Ok(())
        } else {
            Err((self.wrap)(Error::corruption(
                handle.offset,
                "index names blocks out of order or out of range",
            )))
        }
    }
}

/// Calls `each` with every key and value of a meta block.
fn for_each_meta(block: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let mut entries = Block::parse(block)?.entries(ValueForm::Sized, 1)?;
    let mut key = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut key);
        each(&key, entry.value).map_err(|e| e.at(entry.value_offset as u64))?;
    }
    Ok(())
}

fn decode_metaindex(block: &[u8]) -> Result<BTreeMap<Vec<u8>, BlockHandle>> {
    let mut out = BTreeMap::new();
    for_each_meta(block, |key, value| {
        out.insert(key.to_vec(), BlockHandle::decode(&mut Cursor::new(value))?);
        Ok(())
    })?;
    Ok(out)
}

fn decode_properties(block: &[u8]) -> Result<TableProperties> {
    let mut pairs = Vec::new();
    for_each_meta(block, |key, value| {
        pairs.push((key.to_vec(), value.to_vec()));
        Ok(())
    })?;
    TableProperties::from_entries(pairs)
}

/// The top-level block of a partitioned filter: separators and the handles of the partitions.
///
/// # Errors
/// Corruption if it is malformed.
pub fn decode_filter_partitions(block: &[u8], meta: &TableMeta) -> Result<Vec<IndexEntry>> {
    decode_index(
        block,
        IndexCoding {
            user_keys: meta.properties.index_key_is_user_key != 0,
            delta_values: meta.properties.index_value_is_delta_encoded != 0,
            first_keys: false,
            format_version: meta.footer.format_version,
            restart_interval: 1,
        },
    )
}

/// Restart interval of the properties block: one restart for all (`PropertyBlockBuilder`).
const PROPERTIES_RESTART_INTERVAL: usize = i32::MAX as usize;

/// The properties block's payload.
pub fn encode_properties(properties: &TableProperties) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BlockLayout::plain(PROPERTIES_RESTART_INTERVAL));
    for (key, value) in properties.to_entries() {
        builder.add(&key, &value);
    }
    builder.finish().to_vec()
}

/// The metaindex block's payload.
pub fn encode_metaindex(blocks: &BTreeMap<Vec<u8>, BlockHandle>) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BlockLayout::plain(1));
    for (name, handle) in blocks {
        let mut value = Vec::new();
        handle.encode(&mut value);
        builder.add(name, &value);
    }
    builder.finish().to_vec()
}

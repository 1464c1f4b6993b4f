//! The parts of an SST file outside of its data blocks: footer, metaindex, properties, index, dictionary.
//!
//! ```text
//! data blocks | filter | index (partitions, top) | dictionary | range deletions | properties
//! | metaindex | footer
//! ```

use std::collections::BTreeMap;

use crate::block::{Block, BlockBuilder, BlockLayout, ValueForm};
use crate::coding::Cursor;
use crate::compression::{CompressionType, Decompressor};
use crate::error::{Error, ErrorKind, Result};
use crate::footer::{FOOTER_SIZE, Footer};
use crate::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use crate::index::{IndexCoding, IndexEntry, decode_index};
use crate::key::KeyOrder;
use crate::properties::{EXTERNAL_GLOBAL_SEQNO, TableProperties};

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
    /// Start of the names of user-defined indexes (`user_defined_index.h:kUserDefinedIndexPrefix`).
    pub const USER_DEFINED_INDEX: &[u8] = b"rocksdb.user_defined_index.";
}

/// Organisation of an index (`BlockBasedTableOptions::IndexType`).
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

/// Metadata of an SST.
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
    /// Organisation of the index.
    pub index_type: IndexType,
    /// Handle of the (top-level) index.
    pub index_handle: BlockHandle,
    /// Handles of the index partitions; empty unless the index has two levels.
    pub index_partitions: Vec<BlockHandle>,
    /// One entry per data block, in key order.
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
    /// Errors of `read`; Corruption if the file is damaged, Unsupported if it is not understood.
    pub fn open<E>(
        file_size: u64,
        read: ReadFn<'_, E>,
        wrap: impl Fn(Error) -> E,
    ) -> std::result::Result<Self, E> {
        let (meta, unknown) = Self::open_known(file_size, read, &wrap)?;
        let name = &meta.properties.comparator_name;
        if !orders_by_bytes(name) && key_order(name).is_none() && !has_bytewise_keys(name) {
            let properties_at = meta.metaindex.get(names::PROPERTIES);
            let offset = properties_at.map_or(0, |handle| handle.offset);
            let what = format!("comparator {}", name.escape_ascii());
            return Err(wrap(Error::unsupported(offset, what)));
        }
        match unknown.into_iter().next() {
            Some(error) => Err(wrap(error)),
            None => Ok(meta),
        }
    }

    /// Like [`TableMeta::open`], for a file that may have any comparator and an index with parts that are not understood.
    /// These parts are missing in the index; the errors give the reasons.
    ///
    /// # Errors
    /// Errors of [`TableMeta::open`].
    pub fn open_known<E>(
        file_size: u64,
        read: ReadFn<'_, E>,
        wrap: impl Fn(Error) -> E,
    ) -> std::result::Result<(Self, Vec<Error>), E> {
        Self::read_known(file_size, read, true).map_err(|stop| stop.or_wrap(wrap))
    }

    /// Reads and verifies footer, metaindex and properties. Index and dictionary, which are far larger, stay empty.
    ///
    /// # Errors
    /// Errors of [`TableMeta::open_known`].
    pub fn open_without_index<E>(
        file_size: u64,
        read: ReadFn<'_, E>,
        wrap: impl Fn(Error) -> E,
    ) -> std::result::Result<Self, E> {
        let opened = Self::read_known(file_size, read, false);
        opened
            .map(|(meta, _)| meta)
            .map_err(|stop| stop.or_wrap(wrap))
    }

    fn read_known<E>(
        file_size: u64,
        read: ReadFn<'_, E>,
        has_index: bool,
    ) -> std::result::Result<(Self, Vec<Error>), Stop<E>> {
        let footer_at = file_size.checked_sub(FOOTER_SIZE as u64).ok_or_else(|| {
            let what = format!("a file of {file_size} bytes is too short to be an SST");
            Error::corruption(0, what)
        })?;
        let bytes = read(footer_at, FOOTER_SIZE).map_err(Stop::Read)?;
        let footer = Footer::decode(&bytes, file_size)?;
        let mut blocks = BlockReader {
            footer,
            limit: file_size.saturating_sub(footer.encoded_len()),
            read,
            decompressor: footer.guard.decompressor(Vec::new()),
            unknown: Vec::new(),
            has_index,
            is_other_order: false,
        };
        let metaindex = blocks.parse(footer.metaindex, decode_metaindex)?;
        let missing = |what: &str| {
            let what = format!("no {what} in the metaindex");
            Error::corruption(footer.metaindex.offset, what)
        };
        let is_legacy = footer.guard.is_legacy;
        let properties_at = metaindex.get(names::PROPERTIES).copied();
        let properties = match properties_at {
            Some(handle) => blocks.read_properties(handle)?,
            // LevelDB writes none.
            None if is_legacy => TableProperties::default(),
            None => return Err(missing("properties block").into()),
        };
        let index_handle = footer
            .index
            .or_else(|| metaindex.get(names::INDEX).copied())
            .ok_or_else(|| missing("index block"))?;
        let index_type = match properties.index_type {
            // Old versions have only this type.
            None if is_legacy => Some(IndexType::BinarySearch),
            code => code.and_then(IndexType::from_code),
        };
        let index_type = index_type.ok_or_else(|| {
            let what = "index type property missing or unknown";
            Error::corruption(properties_at.map_or(0, |handle| handle.offset), what)
        })?;
        let (index, index_partitions) = blocks.read_index(index_handle, index_type, &properties)?;
        let dictionary = match metaindex.get(names::DICTIONARY) {
            Some(&handle) if has_index => blocks.read_block(handle)?,
            _ => Vec::new(),
        };
        let mut meta = Self {
            file_size,
            footer,
            metaindex,
            properties,
            index_type,
            index_handle,
            index_partitions,
            index,
            dictionary,
        };
        if blocks.is_other_order {
            meta.properties.comparator_name = UNNAMED_COMPARATOR.to_vec();
        }
        Ok((meta, blocks.unknown))
    }
}

/// Placeholder for the comparator of a file without a comparator's name, whose keys are not ordered bytewise.
pub const UNNAMED_COMPARATOR: &[u8] = b"that the file does not name";

/// The order of keys under one of RocksDB's own comparators. Very old files, whose order is bytewise, do not name theirs.
pub fn key_order(comparator_name: &[u8]) -> Option<KeyOrder> {
    match comparator_name {
        [] => Some(KeyOrder::Bytewise),
        name => KeyOrder::from_comparator(name),
    }
}

/// Whether a comparator is known to order keys bytewise. This includes comparators other than RocksDB's own, whose
/// names Rockmill's output would lack.
pub fn orders_by_bytes(comparator_name: &[u8]) -> bool {
    /// Those of MyRocks.
    const OTHERS: [&[u8]; 1] = [b"RocksDB_SE_v3.10"];
    key_order(comparator_name) == Some(KeyOrder::Bytewise) || OTHERS.contains(&comparator_name)
}

/// Whether keys are ordered bytewise up to the timestamps at their ends. Jobs are declined for timestamps with a reason
/// of their own.
pub fn has_bytewise_keys(comparator_name: &[u8]) -> bool {
    comparator_name == b"leveldb.BytewiseComparator.u64ts"
}

/// Why reading stopped.
enum Stop<E> {
    /// An error in the bytes.
    Found(Error),
    /// An error of the function that reads them.
    Read(E),
}

impl<E> Stop<E> {
    fn or_wrap(self, wrap: impl Fn(Error) -> E) -> E {
        match self {
            Self::Found(error) => wrap(error),
            Self::Read(error) => error,
        }
    }
}

impl<E> From<Error> for Stop<E> {
    fn from(error: Error) -> Self {
        Self::Found(error)
    }
}

type Stopped<T, E> = std::result::Result<T, Stop<E>>;

struct BlockReader<'a, E> {
    footer: Footer,
    limit: u64,
    read: ReadFn<'a, E>,
    decompressor: Decompressor,
    /// Reasons why parts of the index were left out.
    unknown: Vec<Error>,
    /// Whether the index is read.
    has_index: bool,
    /// Whether the index of a file without a comparator's name is not in bytewise order.
    is_other_order: bool,
}

impl<E> BlockReader<'_, E> {
    /// Reads, verifies and decompresses a block that is not a data block.
    fn read_block(&mut self, handle: BlockHandle) -> Stopped<Vec<u8>, E> {
        let len = handle.stored_len(self.limit)?;
        let mut stored = (self.read)(handle.offset, len).map_err(Stop::Read)?;
        let (payload, kind) = self.footer.guard.open(&stored, handle.offset)?;
        if kind == CompressionType::None {
            let len = payload.len();
            stored.truncate(len);
            return Ok(stored);
        }
        let mut out = Vec::new();
        self.decompressor
            .decompress(kind, payload, &mut out)
            .map_err(|e| e.at(handle.offset))?;
        Ok(out)
    }

    /// Reads the properties. Old versions wrote a sequence number into ingested files after computing the block's
    /// checksum. So the checksum may be that of the block with zeros there
    /// (`meta_blocks.cc:ReadTablePropertiesHelper`).
    fn read_properties(&mut self, handle: BlockHandle) -> Stopped<TableProperties, E> {
        let error = match self.parse(handle, decode_properties) {
            Err(Stop::Found(error)) if error.kind == ErrorKind::Corruption => error,
            parsed => return parsed,
        };
        let len = handle.stored_len(self.limit)?;
        let mut stored = (self.read)(handle.offset, len).map_err(Stop::Read)?;
        let payload = &stored[..len - BLOCK_TRAILER_SIZE];
        let Some(at) = global_sequence_at(payload) else {
            return Err(error.into());
        };
        let properties = decode_properties(payload).map_err(|e| e.at(handle.offset))?;
        stored[at..at + size_of::<u64>()].fill(0);
        match self.footer.guard.open(&stored, handle.offset) {
            Ok((_, CompressionType::None)) => Ok(properties),
            _ => Err(error.into()),
        }
    }

    /// Reads a block and parses it; errors name the block's offset in the file.
    fn parse<T>(
        &mut self,
        handle: BlockHandle,
        decode: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Stopped<T, E> {
        let block = self.read_block(handle)?;
        Ok(decode(&block).map_err(|e| e.at(handle.offset))?)
    }

    /// A block of the index; a sound block that is not understood counts as empty.
    fn parse_index(
        &mut self,
        handle: BlockHandle,
        coding: IndexCoding,
    ) -> Stopped<Vec<IndexEntry>, E> {
        match self.parse(handle, |block| decode_index(block, coding)) {
            Err(Stop::Found(error)) if error.kind != ErrorKind::Corruption => {
                self.unknown.push(error);
                Ok(Vec::new())
            }
            parsed => parsed,
        }
    }

    /// Reads the index. Very old files do not name their comparator. If their keys are not in bytewise order, it is
    /// another comparator.
    fn read_index(
        &mut self,
        handle: BlockHandle,
        kind: IndexType,
        properties: &TableProperties,
    ) -> Stopped<(Vec<IndexEntry>, Vec<BlockHandle>), E> {
        if !self.has_index {
            return Ok(Default::default());
        }
        let order = key_order(&properties.comparator_name);
        match self.read_index_in(order, handle, kind, properties) {
            Err(Stop::Found(error)) if properties.comparator_name.is_empty() => {
                let in_any_order = self.read_index_in(None, handle, kind, properties);
                self.is_other_order = in_any_order.is_ok();
                in_any_order.map_err(|_| error.into())
            }
            read => read,
        }
    }

    fn read_index_in(
        &mut self,
        order: Option<KeyOrder>,
        handle: BlockHandle,
        kind: IndexType,
        properties: &TableProperties,
    ) -> Stopped<(Vec<IndexEntry>, Vec<BlockHandle>), E> {
        let coding = IndexCoding {
            user_keys: properties.index_key_is_user_key != 0,
            delta_values: properties.index_value_is_delta_encoded != 0,
            first_keys: kind == IndexType::BinarySearchWithFirstKey,
            format_version: self.footer.format_version,
            restart_interval: properties
                .index_block_restart_interval
                .try_into()
                .unwrap_or(u32::MAX),
            order,
        };
        let top = self.parse_index(handle, coding)?;
        if kind != IndexType::TwoLevel {
            self.check_order(handle, &top, coding)?;
            return Ok((top, Vec::new()));
        }
        let mut index = Vec::new();
        for partition in &top {
            index.extend(self.parse_index(partition.handle, coding)?);
        }
        self.check_order(handle, &index, coding)?;
        Ok((index, top.into_iter().map(|entry| entry.handle).collect()))
    }

    /// Data blocks follow one another without overlap, and separators ascend, across partitions too.
    fn check_order(
        &self,
        handle: BlockHandle,
        index: &[IndexEntry],
        coding: IndexCoding,
    ) -> Result<()> {
        let ordered = index.windows(2).all(|pair| {
            !coding.is_out_of_order(&pair[0].separator, &pair[1].separator)
                && pair[0].handle.checked_end() <= Some(pair[1].handle.offset)
        });
        // All earlier handles end before the last one.
        let last = index.last().map(|e| e.handle.checked_end());
        if ordered && last.is_none_or(|end| end <= Some(self.limit)) {
            return Ok(());
        }
        let what = "index names blocks out of order or out of range";
        Err(Error::corruption(handle.offset, what))
    }
}

/// Maximum bytes of the keys of a meta block. They may share prefixes, so that a small block could expand to many
/// bytes.
const MAX_META_KEY_BYTES: usize = 256 << 20;

/// Calls `each` with every key and value of a meta block.
///
/// # Errors
/// Corruption if it is malformed; Unsupported if its keys have more than 256 MiB.
pub(crate) fn for_each_meta(
    block: &[u8],
    mut each: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<()> {
    let mut entries = Block::parse(block)?.entries(ValueForm::Sized, 1)?;
    let (mut key, mut key_bytes) = (Vec::new(), 0_usize);
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut key);
        key_bytes = key_bytes.saturating_add(key.len());
        if key_bytes > MAX_META_KEY_BYTES {
            let what = "a meta block whose keys have more than 256 MiB";
            return Err(Error::unsupported(entry.value_offset as u64, what));
        }
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

/// Position of an ingested file's sequence number in its properties block.
fn global_sequence_at(block: &[u8]) -> Option<usize> {
    let mut found = None;
    let mut entries = Block::parse(block)
        .and_then(|block| block.entries(ValueForm::Sized, 1))
        .ok()?;
    let mut key = Vec::new();
    while let Some(entry) = entries.next_entry().ok()? {
        entry.restore_key(&mut key);
        let is_number = entry.value.len() == size_of::<u64>();
        if key == EXTERNAL_GLOBAL_SEQNO.as_bytes() && is_number {
            found = Some(entry.value_offset);
        }
    }
    found
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
            restart_interval: (meta.properties.index_block_restart_interval)
                .try_into()
                .unwrap_or(u32::MAX),
            order: key_order(&meta.properties.comparator_name),
        },
    )
}

/// Restart interval of the properties block: one restart for all (`PropertyBlockBuilder`).
const PROPERTIES_RESTART_INTERVAL: usize = i32::MAX as usize;

/// The properties block's payload, as RocksDB of this version writes it.
pub fn encode_properties(properties: &TableProperties, rocksdb_version: [u32; 3]) -> Vec<u8> {
    let mut builder = BlockBuilder::new(BlockLayout::plain(PROPERTIES_RESTART_INTERVAL));
    for (key, value) in properties.to_entries(rocksdb_version) {
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

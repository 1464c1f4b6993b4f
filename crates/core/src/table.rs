//! An opened input file.

use std::ops::Range;
use std::sync::Arc;

use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::index::IndexEntry;
use rockmill_format::key::{KeyOrder, MAX_SEQUENCE};
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::table::{TableMeta, key_order, names};

use crate::columns::TableColumns;
use crate::decline::DeclineReason;
use crate::error::{Error, Result};
use crate::file_identity::Cacheable;
use crate::io::ReadAt;
use crate::plan::KeyRange;

/// An SST file with all that readers of its blocks need.
#[derive(Debug, Clone)]
pub struct InputTable {
    /// The file.
    pub file: Arc<dyn ReadAt>,
    /// Footer, properties, index, dictionary.
    pub meta: Arc<TableMeta>,
    /// Stored bytes of the largest data block, and of all separators. Computed once, because indexes have millions of
    /// entries.
    largest_stored_block: u64,
    separator_bytes: u64,
    /// The sequence number of all entries, which are stored with 0.
    global_sequence: Option<u64>,
    /// A lower bound of its user keys, because the index does not contain the first key.
    smallest: Option<Arc<[u8]>>,
    /// Order of its user keys, if it is not that of its comparator's name.
    stated_order: Option<KeyOrder>,
    /// Its range tombstones, once they are read.
    range_tombstones: Option<Arc<[RangeTombstone]>>,
    /// Columns that scans have parsed, if some are kept.
    columns: Option<TableColumns>,
    /// Names the file to devices that cache files.
    cacheable: Option<Cacheable>,
}

/// First version of ingested files whose entries have one sequence number that is not stored with them.
const FIRST_GLOBAL_SEQUENCE: u32 = 2;

impl InputTable {
    fn new(file: Box<dyn ReadAt>, meta: TableMeta) -> Self {
        let (mut largest_stored_block, mut separator_bytes) = (0, 0);
        for block in &meta.index {
            largest_stored_block = block.handle.size.max(largest_stored_block);
            separator_bytes += block.separator.len() as u64;
        }
        Self {
            file: Arc::from(file),
            meta: Arc::new(meta),
            largest_stored_block,
            separator_bytes,
            global_sequence: None,
            smallest: None,
            stated_order: None,
            range_tombstones: None,
            columns: None,
            cacheable: None,
        }
    }

    /// The same table with this sequence number for all its entries, as in an ingested file. They are stored with
    /// sequence number 0; the MANIFEST or the property `rocksdb.external_sst_file.global_seqno` has the real one.
    ///
    /// # Errors
    /// Corruption if it is larger than the maximum sequence number.
    pub fn with_global_sequence(self, sequence: u64) -> Result<Self> {
        if sequence > MAX_SEQUENCE {
            let what = format!("{sequence} is not a sequence number");
            return Err(Error::corruption(self.file.name(), 0, what));
        }
        Ok(Self {
            global_sequence: Some(sequence),
            ..self
        })
    }

    /// Order of its user keys, if it is known.
    pub fn known_order(&self) -> Option<KeyOrder> {
        let named = || key_order(&self.meta.properties.comparator_name);
        self.stated_order.or_else(named)
    }

    /// Order of its user keys. Comparators that are not RocksDB's have that of bytes, as far as their tables are opened.
    pub fn order(&self) -> KeyOrder {
        self.known_order().unwrap_or_default()
    }

    /// The error for user keys that are not in the table's order: damage, unless their order is only said to be that.
    pub fn out_of_order(&self, damage: Error) -> Error {
        match self.stated_order {
            Some(_) => {
                let error = Error::declined(DeclineReason::Comparator, Self::OTHER_ORDER);
                error.in_file(self.file.name())
            }
            None => damage,
        }
    }

    /// Why a table cannot be read in a stated order.
    const OTHER_ORDER: &str = "the comparator does not order the keys by their bytes";

    /// Whether the file was ingested and its entries have one sequence number that is not stored with them.
    pub fn was_ingested(&self) -> bool {
        self.meta.properties.external_sst_file_version.unwrap_or(0) >= FIRST_GLOBAL_SEQUENCE
    }

    /// The same table. If it was ingested, its entries get the sequence number that the MANIFEST gives as the file's
    /// largest (`block_based_table_reader.cc:GetGlobalSequenceNumber`).
    ///
    /// # Errors
    /// Corruption if the file has another one.
    pub fn with_largest_sequence(self, largest: u64) -> Result<Self> {
        if !self.was_ingested() {
            return Ok(self);
        }
        // Old versions have written it into the file as well.
        match self.meta.properties.external_sst_file_global_seqno {
            Some(written) if written != 0 && written != largest => {
                let what = format!(
                    "the file has sequence number {written}, and the MANIFEST has {largest}"
                );
                let (name, at) = (self.file.name(), self.meta.file_size);
                Err(Error::corruption(name, at, what))
            }
            _ => self.with_global_sequence(largest),
        }
    }

    /// The sequence number of all entries, if they have one that is not stored with them.
    pub fn global_sequence(&self) -> Option<u64> {
        self.global_sequence
    }

    /// The same table with `smallest` as a lower bound of its user keys.
    #[must_use]
    pub fn beginning_at(self, smallest: &[u8]) -> Self {
        Self {
            smallest: Some(Arc::from(smallest)),
            ..self
        }
    }

    /// The same table with the range tombstones that [`crate::range_tombstones`] has read.
    #[must_use]
    pub fn with_range_tombstones(self, tombstones: Vec<RangeTombstone>) -> Self {
        Self {
            range_tombstones: Some(Arc::from(tombstones)),
            ..self
        }
    }

    /// The range tombstones that a snapshot sees; `None` if they have not been read.
    pub fn range_tombstones(&self, snapshot: u64) -> Option<impl Iterator<Item = &RangeTombstone>> {
        let all = self.range_tombstones.as_deref()?.iter();
        let sequence =
            |tombstone: &RangeTombstone| self.global_sequence.unwrap_or(tombstone.sequence);
        Some(all.filter(move |&tombstone| sequence(tombstone) <= snapshot))
    }

    /// Bytes that tell its file from others of the same size, read from `file`: the footer, and the checksums of index and
    /// properties.
    ///
    /// # Errors
    /// Storage.
    pub fn marks(&self, file: &dyn ReadAt) -> Result<Vec<u8>> {
        let footer = self.meta.footer.encoded_len().min(self.meta.file_size);
        let mut marks = vec![0; footer as usize];
        file.read_exact_at(&mut marks, self.meta.file_size - footer)?;
        let properties = self.meta.metaindex.get(names::PROPERTIES);
        for block in properties.into_iter().chain([&self.meta.index_handle]) {
            let mut trailer = [0; BLOCK_TRAILER_SIZE];
            file.read_exact_at(&mut trailer, block.offset.saturating_add(block.size))?;
            marks.extend(trailer);
        }
        Ok(marks)
    }

    /// The same table without its file.
    #[must_use]
    pub fn without_file(&self) -> Self {
        self.read_through(Arc::new(NoFile {
            name: self.file.name().to_owned(),
            len: self.file.len(),
        }))
    }

    /// The same table with another reader of its file.
    #[must_use]
    pub fn read_through(&self, file: Arc<dyn ReadAt>) -> Self {
        Self {
            file,
            ..self.clone()
        }
    }

    /// The same table with kept columns.
    #[must_use]
    pub fn with_columns(self, columns: TableColumns) -> Self {
        Self {
            columns: Some(columns),
            ..self
        }
    }

    /// The same table, of whose file devices may keep data blocks.
    #[must_use]
    pub fn with_cacheable(self, cacheable: Option<Cacheable>) -> Self {
        Self { cacheable, ..self }
    }

    /// Names the file to devices, if they may keep data blocks of it.
    pub fn cacheable(&self) -> Option<&Cacheable> {
        self.cacheable.as_ref()
    }

    /// The kept columns, if scans keep some.
    pub fn columns(&self) -> Option<&TableColumns> {
        self.columns.as_ref()
    }

    /// Whether its blocks may have keys of a range.
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        !self.blocks_in_range(range).is_empty()
    }

    /// Stored bytes from the first to the last of the blocks that may have keys of a range, trailers included.
    pub fn stored_bytes(&self, range: &KeyRange) -> u64 {
        let blocks = &self.meta.index[self.blocks_in_range(range)];
        match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) => {
                let end = last.handle.checked_end().unwrap_or(u64::MAX);
                end.saturating_sub(first.handle.offset)
            }
            _ => 0,
        }
    }

    /// The approximate share of `all`, a quantity of the whole table, in the blocks that may have keys of a range.
    /// Rounded up.
    pub fn share_in_range(&self, range: &KeyRange, all: u64) -> u64 {
        let (stored, data) = (self.stored_bytes(range), self.meta.properties.data_size);
        let share = (u128::from(all) * u128::from(stored)).div_ceil(u128::from(data.max(1)));
        u64::try_from(share).map_or(all, |share| share.min(all))
    }

    /// The blocks that may have keys of a range, as positions in the index.
    pub fn blocks_in_range(&self, range: &KeyRange) -> Range<usize> {
        let (index, order) = (&self.meta.index, self.order());
        let first_at =
            |key: &[u8]| index.partition_point(|entry| order.is_before(&entry.separator, key));
        let start = range.begin.as_deref().map_or(0, first_at);
        let end = match &range.end {
            Some(end)
                if (self.smallest.as_deref())
                    .is_some_and(|smallest| !order.is_before(smallest, end)) =>
            {
                start
            }
            // The first block whose separator reaches the end may have keys below it; later blocks cannot.
            Some(end) => {
                let reach = first_at(end);
                (reach + 1).min(index.len())
            }
            None => index.len(),
        };
        start..end.max(start)
    }

    /// Decompressed bytes of the largest data block, estimated from the file's mean compression.
    pub fn largest_block_bytes(&self) -> u64 {
        /// Maximum ratio of Snappy. LevelDB's files do not contain their compression ratio.
        const UNKNOWN_GROWTH: u64 = 32;
        let properties = &self.meta.properties;
        if properties.data_size == 0 {
            return self.largest_stored_block.saturating_mul(UNKNOWN_GROWTH);
        }
        let growth = properties
            .uncompressed_data_size
            .max(
                properties
                    .raw_key_size
                    .saturating_add(properties.raw_value_size),
            )
            .div_ceil(properties.data_size.max(1));
        self.largest_stored_block.saturating_mul(growth.max(1))
    }

    /// Memory of the opened table's index.
    pub fn index_memory_bytes(&self) -> u64 {
        let entry = size_of::<IndexEntry>() as u64;
        self.separator_bytes + self.meta.index.len() as u64 * entry
    }
}

/// The file of a table that is kept without it.
#[derive(Debug)]
struct NoFile {
    name: String,
    len: u64,
}

impl ReadAt for NoFile {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        Err(Error::internal("a table that is kept has no file"))
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// Opens an SST: reads footer, metaindex, properties, index and dictionary, and verifies their
/// checksums.
///
/// # Errors
/// Storage if reading fails; Corruption or Declined if the file is damaged or not understood.
pub fn open_table(file: Box<dyn ReadAt>) -> Result<InputTable> {
    let wrap = |e| Error::format(file.name(), e);
    let meta = TableMeta::open(file.len(), &mut reader(&*file), wrap)?;
    Ok(InputTable::new(file, meta))
}

/// Like [`open_table`], of a file with any comparator, whose user keys are said to be in this order.
///
/// # Errors
/// The errors of [`open_table`]; Declined if its index is in another order.
pub fn open_table_in(file: Box<dyn ReadAt>, order: KeyOrder) -> Result<InputTable> {
    let (table, unknown) = open_known_table(file)?;
    if let Some(error) = unknown.into_iter().next() {
        return Err(error);
    }
    if key_order(&table.meta.properties.comparator_name) == Some(order) {
        return Ok(table);
    }
    let mut pairs = table.meta.index.windows(2);
    if pairs.any(|pair| order.is_before(&pair[1].separator, &pair[0].separator)) {
        let what = InputTable::OTHER_ORDER;
        let error = Error::declined(DeclineReason::Comparator, what);
        return Err(error.in_file(table.file.name()));
    }
    Ok(InputTable {
        stated_order: Some(order),
        ..table
    })
}

/// Like [`open_table`], of a file that may have any comparator and an index that is not understood in parts.
/// No data block stands in the index for these parts; the errors say why.
///
/// # Errors
/// The errors of [`open_table`].
pub fn open_known_table(file: Box<dyn ReadAt>) -> Result<(InputTable, Vec<Error>)> {
    let wrap = |e| Error::format(file.name(), e);
    let (meta, unknown) = TableMeta::open_known(file.len(), &mut reader(&*file), wrap)?;
    let unknown = unknown.into_iter().map(wrap).collect();
    Ok((InputTable::new(file, meta), unknown))
}

/// Reads what an SST says of its contents ([`TableMeta::open_without_index`]), whatever its comparator is.
///
/// # Errors
/// The errors of [`open_table`].
pub fn describe_table(file: &dyn ReadAt) -> Result<TableMeta> {
    let wrap = |e| Error::format(file.name(), e);
    TableMeta::open_without_index(file.len(), &mut reader(file), wrap)
}

/// A function that reads a number of bytes of a file at an offset.
fn reader(file: &dyn ReadAt) -> impl FnMut(u64, usize) -> Result<Vec<u8>> {
    move |offset, len| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }
}

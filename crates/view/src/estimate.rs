//! The estimated size of a view, from the properties of files.

use rockmill_core::{InputTable, KeyRange};
use rockmill_cuda::DeviceTable;
use rockmill_format::key::TAG_SIZE;
use rockmill_scan::{FamilySnapshot, Piece};

/// Estimated size of a view, and the ranges that it would leave to RocksDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Estimate {
    /// The sequence number of the view's snapshot.
    pub sequence: u64,
    /// Maximum number of keys: entries that are not tombstones, older versions included.
    pub keys: u64,
    /// Device memory of slots in bytes.
    pub slot_bytes: u64,
    /// Device memory of records in bytes, if the keys and the values of each file have one length, and no key is in two
    /// files.
    pub record_bytes: u64,
    /// Maximum number of keys whose newest entry in files may be a merge operand. RocksDB must be asked for these.
    pub operands: u64,
    /// Ranges of keys that are not in the table.
    pub asked: Vec<RocksDbRange>,
}

/// Keys for which RocksDB must be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RocksDbRange {
    /// The keys.
    pub range: KeyRange,
    /// Stored bytes of the blocks that may have them.
    pub bytes: u64,
    /// The reason why they are not in the table.
    pub reason: String,
}

impl RocksDbRange {
    pub(crate) fn new(piece: Piece, reason: String) -> Self {
        Self {
            range: piece.range,
            bytes: piece.bytes,
            reason,
        }
    }
}

impl Estimate {
    pub(crate) fn new(family: &FamilySnapshot, asked: Vec<RocksDbRange>) -> Self {
        let sum = |of: fn(&InputTable) -> u64| {
            let inputs = family.inputs().iter().map(of);
            inputs.fold(0, u64::saturating_add)
        };
        let keys = sum(rows);
        Self {
            sequence: family.sequence(),
            keys,
            slot_bytes: DeviceTable::slot_bytes(keys),
            record_bytes: sum(record_bytes),
            operands: sum(|input| input.meta.properties.num_merge_operands),
            asked,
        }
    }
}

/// Maximum device memory of the records of some pieces. Each of their files may have all of its rows in them.
pub(crate) fn max_record_bytes(family: &FamilySnapshot, pieces: &[Piece]) -> u64 {
    /// The device rounds up the memory for the records of a task to its pages.
    const PAGE_BYTES: u64 = 2 << 20;
    let is_read = |input: &&InputTable| {
        let mut pieces = pieces.iter();
        pieces.any(|piece| input.stored_bytes(&piece.range) > 0)
    };
    let records = family.inputs().iter().filter(is_read).map(|input| {
        let raw = input.meta.properties.raw_bytes();
        // A key, and a value, may each need padding to the next unit.
        let padded = DeviceTable::record_bytes(1, 1);
        raw.saturating_add(rows(input).saturating_mul(padded))
    });
    let pages = (pieces.len() as u64).saturating_mul(PAGE_BYTES);
    records.fold(pages, u64::saturating_add)
}

/// Entries of a table that may be rows.
fn rows(input: &InputTable) -> u64 {
    let properties = &input.meta.properties;
    properties
        .num_entries
        .saturating_sub(properties.num_deletions)
}

/// Bytes of the records of a table's rows, if all keys have one length and all values.
fn record_bytes(input: &InputTable) -> u64 {
    let (properties, rows) = (&input.meta.properties, rows(input));
    let key_bytes = properties
        .raw_key_size
        .div_ceil(properties.num_entries.max(1));
    let key_bytes = key_bytes.saturating_sub(TAG_SIZE as u64);
    let value_bytes = properties.raw_value_size.div_ceil(rows.max(1));
    rows.saturating_mul(DeviceTable::record_bytes(key_bytes, value_bytes))
}

//! Columns that were parsed from tables, kept for the next scan.
//!
//! ```text
//!   table, as its identity names it
//!     Group: the entries of some neighbouring data blocks      keys, tags
//!       Column, by the expression that computes it             what the value of each entry says
//! ```
//!
//! A column is named by its [`Expression`]: the instructions that compute it from the bytes of an entry. So two layouts
//! never share a column unless they compute the same values. Groups contain all entries of their blocks, and scans decide
//! anew which of them they see. So snapshots, deletes and overlapping tables need no rule of their own.
//!
//! Each group and column has a sum of its bytes. Readers compare it before they use the bytes: memory keeps them for hours.

mod cache;
mod column;

use std::ops::Range;
use std::sync::Arc;

use crate::file_identity::FileIdentity;
use crate::hash::kv_hash;
use crate::scan::Instruction;
use crate::table::InputTable;

pub use cache::{Accounts, ColumnCache, ColumnName};
pub use column::Column;

/// The instructions that compute a value from the bytes of an entry, without others. The last one's result is the value.
pub type Expression = Arc<[Instruction]>;

/// Stored bytes of a group, unless a single block has more. Its columns fit the cache of a core.
const GROUP_BYTES: u64 = 256 << 10;

/// Names the entries of a table, wherever its file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableIdentity {
    file: FileIdentity,
    /// The same ingested file may be in several column families, with another sequence number in each.
    global_sequence: Option<u64>,
}

impl TableIdentity {
    /// The identity of an opened table with RocksDB's unique id. `None` if nothing of it may be kept ([`FileIdentity::of`]).
    pub fn of(table: &InputTable, unique_id: [u64; 2]) -> Option<Self> {
        FileIdentity::of(table, unique_id).map(|file| Self::of_file(table, file))
    }

    /// The identity of an opened table whose file is known.
    pub fn of_file(table: &InputTable, file: FileIdentity) -> Self {
        Self {
            file,
            global_sequence: table.global_sequence(),
        }
    }
}

/// Whether the blocks of a table lie in the order of the index, so that each is in one group.
pub fn has_groups(table: &InputTable) -> bool {
    let blocks = table.meta.index.iter();
    blocks.is_sorted_by(|a, b| a.handle.offset < b.handle.offset)
}

/// Stored bytes of the groups of a table.
fn group_bytes(table: &InputTable) -> u64 {
    let columns = table.columns();
    columns.map_or(GROUP_BYTES, |columns| columns.cache.group_bytes)
}

/// The group of a block.
pub fn group_of(table: &InputTable, block: usize) -> u64 {
    table.meta.index[block].handle.offset / group_bytes(table)
}

/// The blocks of a group.
pub fn blocks_of(table: &InputTable, group: u64) -> Range<usize> {
    let bytes = group_bytes(table);
    let before = |group: u64| {
        let blocks = &table.meta.index;
        blocks.partition_point(|entry| entry.handle.offset / bytes < group)
    };
    before(group)..before(group + 1)
}

/// The part of `all`, a quantity of the whole table, in a group of blocks.
pub fn group_share(table: &InputTable, all: u64) -> u64 {
    let data = u128::from(table.meta.properties.data_size.max(1));
    let share = (u128::from(all) * u128::from(group_bytes(table))).div_ceil(data);
    u64::try_from(share).map_or(all, |share| share.min(all))
}

/// All entries of some neighbouring data blocks, in their order.
#[derive(Debug)]
pub struct Group {
    /// Their user keys.
    pub keys: Column,
    /// Their sequence numbers and types, as integers of the same bits.
    pub tags: Column,
    /// The largest sequence number if all entries are values of different keys.
    pub plain: Option<u64>,
    sum: u64,
}

impl Group {
    /// A group.
    pub fn new(keys: Column, tags: Column, plain: Option<u64>) -> Self {
        let mut group = Self {
            keys,
            tags,
            plain,
            sum: 0,
        };
        group.sum = group.sum();
        group
    }

    fn sum(&self) -> u64 {
        let sums = [self.keys.sum(), self.tags.sum()].map(u64::to_le_bytes);
        let plain = self.plain.unwrap_or(u64::MAX).to_le_bytes();
        kv_hash(sums.as_flattened(), &plain)
    }

    /// Whether its bytes are those that it had at first.
    pub fn is_sound(&self) -> bool {
        self.keys.is_sound() && self.tags.is_sound() && self.sum == self.sum()
    }

    /// Number of entries.
    pub fn entries(&self) -> usize {
        self.keys.rows()
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.keys.bytes() + self.tags.bytes()
    }
}

/// The kept columns of a table.
#[derive(Debug, Clone)]
pub struct TableColumns {
    /// Keeps them.
    pub cache: Arc<ColumnCache>,
    /// Names the table; `None` if nothing of it is kept.
    pub identity: Option<TableIdentity>,
}

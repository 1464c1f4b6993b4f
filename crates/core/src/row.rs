//! Rows that are passed on one by one.

use rockmill_format::key::ValueType;

use crate::error::Result;

/// The entry that visibility keeps of a user key, or one of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The user key.
    pub user_key: &'a [u8],
    /// Sequence number.
    pub sequence: u64,
    /// Type of the entry.
    pub value_type: ValueType,
    /// The stored value. The meaning of the value of a row that needs a merge is not known here.
    pub value: &'a [u8],
}

/// The kind of an entry for collectors (`types.h:EntryType`). The numbers are those of `rm_entry_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A value.
    Put = 0,
    /// A Delete.
    Delete = 1,
    /// A SingleDelete.
    SingleDelete = 2,
    /// A merge operand.
    Merge = 3,
    /// A range tombstone.
    RangeDeletion = 4,
    /// A wide-column entity.
    WideColumns = 5,
    /// A value that waits for its sequence number.
    TimedPut = 6,
    /// Something else.
    Other = 7,
}

impl Row<'_> {
    /// Returns the kind of the entry for collectors.
    pub fn kind(&self) -> EntryKind {
        match self.value_type {
            ValueType::Value => EntryKind::Put,
            ValueType::Deletion => EntryKind::Delete,
            ValueType::SingleDeletion => EntryKind::SingleDelete,
            ValueType::Merge => EntryKind::Merge,
            ValueType::RangeDeletion => EntryKind::RangeDeletion,
            ValueType::WideColumnEntity => EntryKind::WideColumns,
            ValueType::ValuePreferredSeqno => EntryKind::TimedPut,
            ValueType::BlobIndex | ValueType::DeletionWithTimestamp => EntryKind::Other,
        }
    }

    /// Whether the entry alone does not say what a reader of the key finds.
    pub fn needs_merge(&self) -> bool {
        self.value_type.needs_merge()
    }
}

/// Receives rows in the order of their internal keys.
pub trait RowSink {
    /// Receives the next row.
    ///
    /// # Errors
    /// Any error; the task ends with it.
    fn row(&mut self, row: Row<'_>) -> Result<()>;
}

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
    /// The stored value. The meaning of an undecided row's value is not known here.
    pub value: &'a [u8],
}

impl Row<'_> {
    /// Whether the entry alone does not say what a reader of the key finds.
    pub fn is_undecided(&self) -> bool {
        !self.value_type.decides_alone()
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

//! Rows handed over one by one.

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
    /// The value as it is stored; of an undecided row, what it means is not known here.
    pub value: &'a [u8],
}

impl Row<'_> {
    /// Whether the entry alone does not say what a reader of the key finds.
    pub fn is_undecided(&self) -> bool {
        !self.value_type.decides_alone()
    }
}

/// Takes rows, in order of their internal keys.
pub trait RowSink {
    /// Takes the next row.
    ///
    /// # Errors
    /// Any, with which the task ends.
    fn row(&mut self, row: Row<'_>) -> Result<()>;
}

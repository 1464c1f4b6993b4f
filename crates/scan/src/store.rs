//! Gets and writes of a column family as RocksDB does them.

use std::fmt::Debug;

use rockmill_core::Result;

/// A write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "keys and values")]
pub enum Write<'a> {
    /// Puts a value.
    Put { key: &'a [u8], value: &'a [u8] },
    /// Deletes a key.
    Delete { key: &'a [u8] },
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// They are as durable as the store's options say.
    Done,
    /// RocksDB stalls writes, and nothing was written.
    Stalled,
    /// The database does not accept writes.
    ReadOnly,
}

/// Function that takes the number of a key and its value.
pub type ValueFn<'a> = &'a mut dyn FnMut(usize, Result<Option<&[u8]>>);

/// Gets and writes of a column family's newest values.
pub trait Store: Debug + Send + Sync {
    /// Passes on the current values of keys, each once, in any order.
    fn get(&self, keys: &[&[u8]], value: ValueFn<'_>);

    /// Writes all or nothing, in this order.
    ///
    /// # Errors
    /// Storage or Corruption if RocksDB refuses.
    fn write(&self, writes: &[Write<'_>]) -> Result<Written>;
}

//! The hash over a file's contents, which RocksDB compares with paranoid file checks (`db/output_validator.cc`): of
//! each key and value in turn, seeded with the hash of all before.
//!
//! So one thread has to process a file. A thread of the host takes a tenth of a microsecond for each entry, in blocks
//! that it has just checked; a thread of a GPU takes six.

use rockmill_format::block::{self, ValueForm};
use rockmill_format::xxph3::hash64_seeded;

/// The hash of the blocks so far.
#[derive(Debug)]
pub struct ValidationHash {
    restart_interval: u32,
    key: Vec<u8>,
    hash: u64,
}

impl ValidationHash {
    /// The hash of no entries. Blocks have restart points `restart_interval` entries apart.
    pub fn new(restart_interval: usize) -> Self {
        Self {
            restart_interval: u32::try_from(restart_interval).unwrap_or(u32::MAX),
            key: Vec::new(),
            hash: 0,
        }
    }

    /// Adds a data block.
    ///
    /// # Errors
    /// Corruption if it is malformed.
    pub fn add(&mut self, payload: &[u8]) -> rockmill_format::Result<()> {
        self.key.clear();
        let block = block::Block::parse(payload)?;
        let mut entries = block.entries(ValueForm::Sized, self.restart_interval)?;
        while let Some(entry) = entries.next_entry()? {
            entry.restore_key(&mut self.key);
            self.hash = hash64_seeded(&self.key, self.hash);
            self.hash = hash64_seeded(entry.value, self.hash);
        }
        Ok(())
    }

    /// The hash.
    pub fn hash(&self) -> u64 {
        self.hash
    }
}

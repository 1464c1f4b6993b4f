//! The hash over all that a file holds, which RocksDB compares where it is asked for paranoid file checks
//! (`db/output_validator.cc`): of each key and value in turn, seeded with that of all before.
//!
//! So one thread has to go through a file. One of the host's takes a tenth of a microsecond an entry, in blocks that it
//! has just checked; one of a GPU's takes six.

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_format::block::{self, ValueForm};
use rockmill_format::xxph3::hash64_seeded;

use super::parts::Block;

/// The hash of the blocks so far.
#[derive(Debug)]
pub struct Chain {
    restart_interval: u32,
    key: Vec<u8>,
    hash: u64,
}

impl Chain {
    /// Of nothing. Blocks have restart points so many entries apart.
    pub fn new(restart_interval: usize) -> Self {
        Self {
            restart_interval: u32::try_from(restart_interval).unwrap_or(u32::MAX),
            key: Vec::new(),
            hash: 0,
        }
    }

    /// Goes on with `blocks`, which are stored from the start of `bytes` on. What is no data block holds no entries.
    ///
    /// # Errors
    /// Verification if one is malformed.
    pub fn add(&mut self, blocks: &[Block], bytes: &[u8]) -> Result<()> {
        let start = blocks.first().map_or(0, |block| block.offset);
        for stored in blocks.iter().filter(|block| block.metadata.is_none()) {
            let from = (stored.offset - start) as usize;
            let payload = &bytes[from..from + stored.payload as usize];
            self.add_block(payload).map_err(|e| {
                let what = format!("a block that came back from the device: {}", e.what);
                Error {
                    offset: Some(stored.offset),
                    ..Error::new(ErrorKind::Verification, what)
                }
            })?;
        }
        Ok(())
    }

    fn add_block(&mut self, payload: &[u8]) -> rockmill_format::Result<()> {
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
    pub fn finish(self) -> u64 {
        self.hash
    }
}

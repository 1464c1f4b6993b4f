//! A file's index as it came back from the device: the places of blocks by RocksDB's format instead of the intended
//! ones.

use rockmill_core::{BuiltIndex, Result, index_hash, placed_hash};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use rockmill_format::index::{IndexSettings, decode_written_index};

use super::images::Image;
use super::parts::Block;
use crate::driver::altered;

/// An index that was read and is consistent in itself.
#[derive(Debug)]
pub struct ReadIndex {
    handles: Vec<BlockHandle>,
    built: BuiltIndex,
    tags_hash: u64,
}

impl ReadIndex {
    /// Reads the index of `image`, whose checksum has been verified.
    ///
    /// # Errors
    /// Verification, unless the expected number of data blocks is contiguous and fills the file.
    pub fn read(mut bytes: Vec<u8>, image: &Image, settings: &IndexSettings) -> Result<Self> {
        let user_keys = image.index.internal_keys == 0;
        bytes.truncate(bytes.len() - BLOCK_TRAILER_SIZE);
        let (entries, tags) = decode_written_index(&bytes, settings.coding(user_keys))
            .map_err(|e| altered(&format!("an index that does not decode: {}", e.what)))?;
        let mut end = Some(0);
        for entry in &entries {
            let follows = end == Some(entry.handle.offset);
            end = entry.handle.checked_end().filter(|_| follows);
        }
        if end != Some(image.data_bytes) || entries.len() as u64 != image.num_blocks {
            return Err(altered("blocks do not fill their files"));
        }
        Ok(Self {
            handles: entries.iter().map(|entry| entry.handle).collect(),
            built: BuiltIndex {
                payload: bytes,
                user_keys,
                hash: index_hash(entries.iter().map(|e| (e.separator.as_slice(), e.handle))),
            },
            tags_hash: (0..)
                .zip(&tags)
                .map(|(i, &tag)| placed_hash(tag, i))
                .fold(0, u64::wrapping_add),
        })
    }

    /// The data blocks.
    pub fn blocks(&self) -> impl Iterator<Item = Block> {
        self.handles.iter().map(|handle| Block {
            offset: handle.offset,
            payload: handle.size,
            metadata: None,
        })
    }

    /// A hash of the separators' tags, if they are internal keys.
    pub fn tags_hash(&self) -> u64 {
        self.tags_hash
    }

    /// The block.
    pub fn into_built(self) -> BuiltIndex {
        self.built
    }
}

//! The list of a slice's data blocks, as it came back from the device: what the host makes the index of.

use rockmill_core::{entry_hash, kv_hash, placed_hash};

use crate::ffi::{Key, OutBlock};
use crate::stages::WORD_KEY_BYTES;

/// Data blocks of a slice, and what the host needs of keys that are too long for their records.
#[derive(Debug)]
pub struct OutBlocks {
    pub blocks: Vec<OutBlock>,
    /// First and last user key of each block, in a wide slice.
    edges: Option<Vec<u8>>,
}

impl OutBlocks {
    /// Blocks, and in a wide slice the user keys at their ends.
    pub fn new(blocks: Vec<OutBlock>, edges: Option<Vec<u8>>) -> Self {
        Self { blocks, edges }
    }

    /// Puts the internal key at the beginning of a block in place of what `out` holds.
    pub fn put_first_key(&self, block: &OutBlock, out: &mut Vec<u8>) {
        self.put_key(&block.first_key, block.edge_start as usize, out);
    }

    /// The same of the key at its end.
    pub fn put_last_key(&self, block: &OutBlock, out: &mut Vec<u8>) {
        let at = block.edge_start as usize + block.first_key.len as usize;
        self.put_key(&block.last_key, at, out);
    }

    fn put_key(&self, key: &Key, edge: usize, out: &mut Vec<u8>) {
        let prefix = u128::from(key.hi) << 64 | u128::from(key.lo);
        let len = key.len as usize;
        out.clear();
        match &self.edges {
            Some(edges) => out.extend_from_slice(&edges[edge..edge + len]),
            None => out.extend_from_slice(&prefix.to_be_bytes()[..len]),
        }
        out.extend_from_slice(&key.tag.to_le_bytes());
    }

    /// `verify.hpp:HashBlocks` of the host's copy.
    pub fn hash(&self) -> u64 {
        let placed = (0..).zip(&self.blocks).map(|(i, block)| {
            let mut hash = hash_of(block);
            if let Some(edges) = &self.edges {
                let (first, last) = (block.first_key.len as usize, block.last_key.len as usize);
                let both = &edges[block.edge_start as usize..][..first + last];
                hash = entry_hash(hash, kv_hash(&both[..first], &both[first..]));
            }
            placed_hash(hash, i)
        });
        placed.fold(0, u64::wrapping_add)
    }

    /// Whether all blocks' keys lie within the bytes that came back.
    pub fn are_whole(&self) -> bool {
        self.blocks.iter().all(|block| {
            let lens = [block.first_key.len, block.last_key.len].map(u64::from);
            let end = block.edge_start.saturating_add(lens[0] + lens[1]);
            match &self.edges {
                Some(edges) => end <= edges.len() as u64,
                None => lens.iter().all(|&len| len <= WORD_KEY_BYTES),
            }
        })
    }
}

/// A hash of a block's record, word by word.
fn hash_of(block: &OutBlock) -> u64 {
    let pair = |low, high| u64::from(low) | u64::from(high) << 32;
    let of_key = |key: &Key| [key.hi, key.lo, key.tag, pair(key.entry, key.len)];
    let places = [
        block.at,
        block.file_offset,
        pair(block.size, block.file),
        pair(block.first, block.count),
        block.key_start,
        block.edge_start,
    ];
    let keys = [of_key(&block.first_key), of_key(&block.last_key)];
    let words = places.iter().chain(keys.iter().flatten());
    words.fold(0, |hash, &word| entry_hash(hash, word))
}

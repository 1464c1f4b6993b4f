//! The host's check of data blocks that came back: checksums, and a sample of compressed blocks that the library
//! decompresses, because a codec that is wrong in both directions would agree with itself.

use std::collections::BTreeSet;

use rockmill_core::{Error, OutputPlan, Result, SizeSample};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::{
    CompressionSettings, CompressionType, Compressor, Decompressor, Implementation,
};
use rockmill_format::handle::BlockGuard;

use super::parts::{Block, check_blocks};
use super::validation_hash::ValidationHash;

/// The library decompresses one data block of a file in this many.
const DECOMPRESSED: u64 = 64;

/// It also compresses one in this many again, to compare sizes. That takes longer.
const COMPRESSED: u64 = 256;

/// Results of checking the data blocks of a file, one after another.
#[derive(Debug)]
pub struct DataCheck<'a> {
    guard: BlockGuard,
    /// Checksums of the blocks before compression; empty if they were not compressed.
    raw_sums: &'a [u32],
    /// Number of data blocks so far.
    blocks: u64,
    /// Blocks among them that are stored uncompressed.
    pub stored_raw: u64,
    /// Compression types of the blocks.
    pub used: BTreeSet<CompressionType>,
    /// RocksDB's hash over all entries, if the plan requests it.
    chain: Option<ValidationHash>,
    decompressor: Decompressor,
    /// The library's compressor with the plan's settings; `None` if Rockmill's own code does not compress.
    library: Option<Compressor>,
    /// Sizes of some blocks.
    pub size_sample: SizeSample,
    /// The last decompressed block.
    raw: Vec<u8>,
}

impl<'a> DataCheck<'a> {
    /// The state before the first block.
    ///
    /// # Errors
    /// Internal if the library cannot compress with these settings.
    pub fn new(plan: &OutputPlan, guard: BlockGuard, raw_sums: &'a [u32]) -> Result<Self> {
        let library =
            (plan.table.compression.implementation == Implementation::Rockmill1).then(|| {
                Compressor::new(&CompressionSettings {
                    implementation: Implementation::Library,
                    ..plan.table.compression.clone()
                })
            });
        let library = library.transpose();
        let library = library.map_err(|e| Error::internal(e.what))?;
        Ok(Self {
            guard,
            raw_sums,
            blocks: 0,
            stored_raw: 0,
            used: BTreeSet::new(),
            chain: (plan.paranoid_hash).then(|| ValidationHash::new(plan.table.restart_interval)),
            decompressor: Decompressor::new(Vec::new()),
            library,
            size_sample: SizeSample::default(),
            raw: Vec::new(),
        })
    }

    /// Checks the next blocks, which are stored from the start of `bytes` on. One may be the filter.
    ///
    /// # Errors
    /// Verification.
    pub fn blocks(&mut self, blocks: &[Block], bytes: &[u8]) -> Result<()> {
        let guard = self.guard;
        check_blocks(blocks, guard, bytes, |block, payload, kind| {
            match block.metadata {
                None => self.data_block(block, payload, kind),
                Some(_) => Ok(()),
            }
        })
    }

    fn data_block(&mut self, block: &Block, payload: &[u8], kind: CompressionType) -> Result<()> {
        let at = self.blocks;
        self.blocks += 1;
        self.used.insert(kind);
        if kind == CompressionType::None {
            self.stored_raw += 1;
            self.compare_sizes(at, payload.len(), payload)?;
            return self.add_to_chain(block, payload);
        }
        let is_sampled = at.is_multiple_of(DECOMPRESSED);
        if !is_sampled && self.chain.is_none() {
            return Ok(());
        }
        let mut raw = std::mem::take(&mut self.raw);
        (self.decompressor)
            .decompress(kind, payload, &mut raw)
            .map_err(|e| block.altered(&e.what))?;
        let sum = ChecksumType::Xxh3.compute(&raw, CompressionType::None as u8);
        if self.raw_sums.get(at as usize) != Some(&sum) {
            return Err(block.altered("it decompresses to something else"));
        }
        self.compare_sizes(at, payload.len(), &raw)?;
        self.add_to_chain(block, &raw)?;
        self.raw = raw;
        Ok(())
    }

    /// Compresses block `at`, which is stored in `stored` bytes, with the library if the block belongs to the sample.
    fn compare_sizes(&mut self, at: u64, stored: usize, raw: &[u8]) -> Result<()> {
        if let Some(library) = &mut self.library
            && at.is_multiple_of(COMPRESSED)
        {
            let compressed = library.compress(raw);
            let (by_library, _) = compressed.map_err(|e| Error::internal(e.what))?;
            self.size_sample.add(SizeSample {
                rockmill_bytes: stored as u64,
                library_bytes: by_library.len() as u64,
            });
        }
        Ok(())
    }

    /// RocksDB's hash over all entries, or 0 if the plan does not request it.
    pub fn paranoid_hash(&self) -> u64 {
        self.chain.as_ref().map_or(0, ValidationHash::hash)
    }

    fn add_to_chain(&mut self, block: &Block, raw: &[u8]) -> Result<()> {
        let added = self.chain.as_mut().map(|chain| chain.add(raw));
        added.unwrap_or(Ok(())).map_err(|e| block.altered(&e.what))
    }
}

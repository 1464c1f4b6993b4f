//! Damages the files of a device.

use rand::rngs::SmallRng;
use rand::{Rng, seq::IndexedRandom};
use rockmill_core::{Result, SstFile, SstSink, open_table};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::handle::BLOCK_TRAILER_SIZE;

use crate::Fault;
use crate::cases::{MemFile, MemSink};

/// Files of a task, kept in memory until all of them are written.
pub struct Images<'a> {
    sink: &'a mut dyn SstSink,
    files: Vec<Box<dyn SstFile>>,
    kept: MemSink,
}

impl SstSink for Images<'_> {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let (number, file) = self.sink.create()?;
        self.files.push(file);
        let (_, kept) = self.kept.create()?;
        Ok((number, kept))
    }
}

impl<'a> Images<'a> {
    /// Creates files that are finally written to `sink`.
    pub fn new(sink: &'a mut dyn SstSink) -> Self {
        Self {
            sink,
            files: Vec::new(),
            kept: MemSink::default(),
        }
    }

    /// Writes all files, one of them damaged; returns false if there is none.
    ///
    /// # Errors
    /// The errors of the sink.
    pub fn give_back(self, fault: Fault, rng: &mut SmallRng) -> Result<bool> {
        let mut images = self.kept.into_files();
        let victim = (0..images.len()).collect::<Vec<_>>().choose(rng).copied();
        if let Some(victim) = victim {
            damage(&mut images[victim].bytes, fault, rng)?;
        }
        for (mut file, image) in self.files.into_iter().zip(images) {
            file.append(&image.bytes)?;
            file.finish()?;
        }
        Ok(victim.is_some())
    }
}

fn damage(bytes: &mut Vec<u8>, fault: Fault, rng: &mut SmallRng) -> Result<()> {
    match fault {
        Fault::Truncated => bytes.truncate(rng.random_range(0..bytes.len())),
        Fault::WrongResult => alter_block(bytes, rng)?,
        _ => flip(bytes, rng),
    }
    Ok(())
}

fn flip(bytes: &mut [u8], rng: &mut SmallRng) {
    let at = rng.random_range(0..bytes.len());
    bytes[at] ^= 1 << rng.random_range(0..u8::BITS);
}

/// Alters the content of a data block and gives it a matching checksum. Another encoding of the same content would not
/// be a wrong result.
fn alter_block(bytes: &mut [u8], rng: &mut SmallRng) -> Result<()> {
    let table = open_table(Box::new(MemFile(bytes.to_vec())))?;
    let Some(block) = table.meta.index.choose(rng) else {
        return Ok(());
    };
    let start = block.handle.offset as usize;
    let end = start + block.handle.size as usize;
    let kind = CompressionType::from_code(bytes[end]);
    let mut decompressor = Decompressor::new(table.meta.dictionary.clone());
    let mut content = |payload: &[u8]| {
        let mut content = Vec::new();
        let done = decompressor.decompress(kind?, payload, &mut content);
        done.is_ok().then_some(content)
    };
    let before = content(&bytes[start..end]);
    while before.is_some() && content(&bytes[start..end]) == before {
        flip(&mut bytes[start..end], rng);
    }
    let guard = table.meta.footer.guard;
    let checksum = guard.checksum(&bytes[start..end], bytes[end], block.handle.offset);
    bytes[end + 1..end + BLOCK_TRAILER_SIZE].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

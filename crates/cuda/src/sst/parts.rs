//! What comes back from the device: parts of whole blocks, each block verified.

use std::ops::Range;

use rockmill_core::{Error, ErrorKind, Result};
use rockmill_format::compression::CompressionType;
use rockmill_format::filter::METADATA_LEN;
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockGuard};

/// A block of a file: where it lies and how many bytes of payload it has.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    pub offset: u64,
    pub payload: u64,
    /// What the payload ends with, if it is a filter.
    pub metadata: Option<[u8; METADATA_LEN]>,
}

impl Block {
    /// The error of a block that is not what it was meant to be.
    pub fn altered(&self, what: &str) -> Error {
        let what = format!("a block that came back from the device: {what}");
        Error {
            offset: Some(self.offset),
            ..Error::new(ErrorKind::Verification, what)
        }
    }

    /// Where the trailer ends.
    pub fn end(self) -> u64 {
        self.offset + self.payload + BLOCK_TRAILER_SIZE as u64
    }
}

/// What is copied back at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// A range of the file of at most a chunk.
    pub bytes: Range<u64>,
    /// The blocks that end here.
    pub blocks: Range<usize>,
    /// Whether these begin here too; if not, there is one, and it begins some parts before.
    pub is_whole: bool,
}

/// Consecutive blocks, as many as a chunk holds; larger ones in several parts.
pub fn parts_of(blocks: &[Block], chunk: u64) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        let end = block.end();
        match parts.last_mut() {
            Some(part) if part.is_whole && end - part.bytes.start <= chunk => {
                part.bytes.end = end;
                part.blocks.end = i + 1;
            }
            _ => {
                let is_whole = end - block.offset <= chunk;
                let starts = (block.offset..end).step_by(chunk as usize);
                parts.extend(starts.map(|start| Part {
                    bytes: start..end.min(start + chunk),
                    blocks: if start + chunk < end { i..i } else { i..i + 1 },
                    is_whole,
                }));
            }
        }
    }
    parts
}

/// Verifies the checksum of each block of what came back, and shows its payload and how that is compressed.
///
/// # Errors
/// Verification, or what `each` fails with.
pub fn check_blocks(
    blocks: &[Block],
    guard: BlockGuard,
    bytes: &[u8],
    mut each: impl FnMut(&Block, &[u8], CompressionType) -> Result<()>,
) -> Result<()> {
    let start = blocks.first().map_or(0, |block| block.offset);
    for block in blocks {
        let stored = &bytes[(block.offset - start) as usize..(block.end() - start) as usize];
        let (payload, kind) = guard
            .open(stored, block.offset)
            .map_err(|e| block.altered(&e.what))?;
        if block
            .metadata
            .is_some_and(|metadata| !payload.ends_with(&metadata))
        {
            return Err(block.altered("a filter with other metadata than was meant"));
        }
        each(block, payload, kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_format::checksum::ChecksumType;
    use rockmill_format::filter::bloom;

    const GUARD: BlockGuard = BlockGuard {
        checksum: ChecksumType::Xxh3,
        base_context_checksum: 7,
        is_legacy: false,
    };

    /// Two blocks, of which the second is a filter, and where they lie.
    fn stored() -> (Vec<u8>, Vec<Block>) {
        let metadata = bloom::metadata(6);
        let payloads = [vec![1; 100], [&[0; 64][..], &metadata].concat()];
        let (mut bytes, mut blocks) = (Vec::new(), Vec::new());
        for (payload, metadata) in payloads.iter().zip([None, Some(metadata)]) {
            let offset = bytes.len() as u64;
            bytes.extend_from_slice(payload);
            GUARD.put_trailer(payload, CompressionType::None, offset, &mut bytes);
            blocks.push(Block {
                offset,
                payload: payload.len() as u64,
                metadata,
            });
        }
        (bytes, blocks)
    }

    #[test]
    fn a_flipped_bit_in_what_came_back_is_noticed() {
        let (bytes, blocks) = stored();
        assert_eq!(
            check_blocks(&blocks, GUARD, &bytes, |_, _, _| Ok(())),
            Ok(())
        );
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let error =
                check_blocks(&blocks, GUARD, &damaged, |_, _, _| Ok(())).expect_err("damaged");
            assert_eq!(error.kind, ErrorKind::Verification);
        }
    }

    #[test]
    fn a_filter_that_says_another_number_of_probes_is_noticed() {
        let (bytes, mut blocks) = stored();
        blocks[1].metadata = Some(bloom::metadata(7));
        let error =
            check_blocks(&blocks, GUARD, &bytes, |_, _, _| Ok(())).expect_err("other metadata");
        assert!(error.what.contains("metadata"), "{error}");
    }

    fn blocks_of(sizes: &[u64]) -> Vec<Block> {
        let mut end = 0;
        let block = |&size: &u64| {
            let offset = end;
            end += size;
            Block {
                offset,
                payload: size - BLOCK_TRAILER_SIZE as u64,
                metadata: None,
            }
        };
        sizes.iter().map(block).collect()
    }

    #[test]
    fn parts_are_all_of_the_bytes_and_end_where_blocks_do() {
        const CHUNK: u64 = 1 << 20;
        for sizes in [
            &[100; 10][..],
            &[CHUNK, 100, 100],
            &[100, 2 * CHUNK + 1, 100],
            &[CHUNK - 100, 100, 100, CHUNK + 1],
            &[2 * CHUNK],
            &[],
        ] {
            let blocks = blocks_of(sizes);
            let (mut byte, mut block) = (0, 0);
            for part in parts_of(&blocks, CHUNK) {
                assert_eq!((part.bytes.start, part.blocks.start), (byte, block));
                (byte, block) = (part.bytes.end, part.blocks.end);
                assert!(part.bytes.end - part.bytes.start <= CHUNK);
                if let Some(last) = part.blocks.clone().next_back() {
                    assert_eq!(blocks[last].end(), byte);
                }
                let begins = blocks[part.blocks.start].offset == part.bytes.start;
                assert_eq!(part.is_whole, begins && !part.blocks.is_empty());
            }
            assert_eq!((byte, block), (sizes.iter().sum(), sizes.len()));
        }
        assert_eq!(parts_of(&blocks_of(&[100; 10]), CHUNK).len(), 1);
        assert_eq!(parts_of(&blocks_of(&[CHUNK / 2; 10]), CHUNK).len(), 5);
    }
}

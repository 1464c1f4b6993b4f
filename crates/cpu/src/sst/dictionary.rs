//! Compression dictionaries: the first data blocks of a file wait until there are enough to take samples of
//! (`block_based_table_builder.cc:MaybeEnterUnbuffered`).

use rockmill_core::OutputPlan;
use rockmill_format::compression::DictionarySettings;

/// Maximum bytes of waiting blocks, whatever the options allow: samples of more would hardly be better.
const MOST_BUFFERED_BYTES: u64 = 32 << 20;

/// A data block that waits.
#[derive(Debug)]
pub struct WaitingBlock {
    /// The block, not compressed.
    pub payload: Vec<u8>,
    /// Its last internal key.
    pub last_key: Vec<u8>,
    /// The first internal key behind it, if there is one.
    pub next_key: Option<Vec<u8>>,
}

/// The data blocks of a file that wait for its dictionary.
#[derive(Debug)]
pub struct WaitingBlocks {
    settings: DictionarySettings,
    max_bytes: u64,
    /// Bytes of the blocks.
    bytes: u64,
    /// Bytes of what belongs to them.
    beside: u64,
    /// The blocks, in order.
    pub blocks: Vec<WaitingBlock>,
}

impl WaitingBlocks {
    /// None so far; `None` if files get no dictionary.
    pub fn new(plan: &OutputPlan) -> Option<Self> {
        let settings = plan.table.compression.dictionary?;
        Some(Self {
            settings,
            max_bytes: max_waiting_bytes(plan),
            bytes: 0,
            beside: 0,
            blocks: Vec::new(),
        })
    }

    /// Adds a block.
    pub fn push(&mut self, block: WaitingBlock) {
        let keys = block.last_key.len() + block.next_key.as_ref().map_or(0, Vec::len);
        self.bytes += block.payload.len() as u64;
        self.beside += (keys + size_of::<WaitingBlock>()) as u64;
        self.blocks.push(block);
    }

    /// Whether there are enough.
    pub fn are_enough(&self) -> bool {
        self.bytes + self.beside >= self.max_bytes
    }

    /// A dictionary of samples that are spread evenly.
    pub fn dictionary(&self) -> Vec<u8> {
        let max_bytes = self.settings.max_sample_bytes();
        let times = self.bytes / (max_bytes as u64).max(1);
        let step = usize::try_from(times).unwrap_or(usize::MAX).max(1);
        let (mut samples, mut sizes) = (Vec::new(), Vec::new());
        for block in self.blocks.iter().step_by(step) {
            let size = block.payload.len().min(max_bytes - samples.len());
            if size > 0 {
                samples.extend_from_slice(&block.payload[..size]);
                sizes.push(size);
            }
        }
        self.settings.of_samples(samples, &sizes)
    }
}

/// Maximum bytes of blocks that wait for a dictionary; 0 if files get none.
pub fn max_waiting_bytes(plan: &OutputPlan) -> u64 {
    let settings = plan.table.compression.dictionary;
    settings.map_or(0, |settings| {
        (plan.splitting.target_file_size)
            .min(settings.max_buffer_bytes)
            .min(MOST_BUFFERED_BYTES)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_all_blocks_and_fill_the_dictionary() {
        let mut plan = OutputPlan::default();
        assert!(WaitingBlocks::new(&plan).is_none() && max_waiting_bytes(&plan) == 0);
        plan.table.compression.dictionary = Some(DictionarySettings {
            max_bytes: 250,
            max_buffer_bytes: 10 * (100 + size_of::<WaitingBlock>() as u64),
            training: None,
        });
        let mut waiting = WaitingBlocks::new(&plan).expect("files get one");
        assert_eq!(waiting.dictionary(), b"");
        for n in 0..10 {
            assert!(!waiting.are_enough());
            waiting.push(WaitingBlock {
                payload: vec![n; 100],
                last_key: Vec::new(),
                next_key: None,
            });
        }
        assert!(waiting.are_enough());
        let expected = [[0; 100], [4; 100]].concat();
        assert_eq!(waiting.dictionary()[..200], expected);
        assert_eq!(waiting.dictionary().len(), 250);
    }
}

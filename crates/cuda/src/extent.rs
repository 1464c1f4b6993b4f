//! How much of everything a slice takes at most, as far as indexes and properties tell before it is read.

use rockmill_core::{InputTable, KeyRange, Plan, RangesBeneath};
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::key::TAG_SIZE;
use rockmill_format::properties::TableProperties;

use crate::device::Device;
use crate::images::IMAGE_ALIGNMENT;
use crate::input::Input;
use crate::layout::MOST_FILES;
use crate::limits::{KEY_PADDING, filter_rules, may_lack_prefix};
use crate::stages::WORD_KEY_BYTES;

/// Counts of a slice, to foresee its memory on the device.
#[derive(Debug, Default, Clone, Copy)]
pub struct Extent {
    /// Bytes of blocks as they are read, with what lies between them.
    pub arena_bytes: u64,
    /// Data blocks that are read.
    pub in_blocks: u64,
    /// Runs that they are of.
    pub runs: u64,
    /// Entries read.
    pub entries: u64,
    /// Entries and bytes of their internal keys, if some key seems to be too long for its record; else 0.
    pub wide_entries: u64,
    pub wide_key_bytes: u64,
    /// Entries, if filters are of prefixes that some keys may not have; else 0.
    pub prefixed_entries: u64,
    /// Bytes of the slice's bounds.
    pub bound_bytes: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Files beneath the output, and levels that these are in.
    pub beneath: u64,
    pub levels: u64,
    pub beneath_bytes: u64,
    /// Files that decide where output files end.
    pub grandparents: u64,
    pub grandparent_bytes: u64,
    /// Output files.
    pub files: u64,
    /// Bytes of the internal keys at their ends.
    pub edge_bytes: u64,
    /// Data blocks written.
    pub out_blocks: u64,
    /// Bytes of all filters.
    pub filter_bytes: u64,
    /// Bytes of all files.
    pub image_bytes: u64,
}

/// Entries are not spread evenly over a file: where a slice is a part of one, so much more are foreseen, and
/// so many.
const UNEVEN: (u64, u64) = (5, 4);
const FEW_ENTRIES: u64 = 256;

/// What an entry takes beside a whole key and what it took in the input: a restart and longer lengths.
const ENTRY_OVERHEAD: u64 = 8;

/// What a block takes beside its entries: the trailer, a restart and their count.
const BLOCK_OVERHEAD: u64 = BLOCK_TRAILER_SIZE as u64 + 8;

/// What an index entry takes beside the separator: lengths, a handle, a restart.
const INDEX_ENTRY_OVERHEAD: u64 = 32;

/// Padding in front of and behind keys together.
const KEY_OVERHEAD: u64 = 2 * KEY_PADDING as u64;

/// Padding around each of a file's parts.
const FILE_OVERHEAD: u64 = 2 * IMAGE_ALIGNMENT;

/// `value * part / whole`, rounded up.
fn share(value: u64, part: u64, whole: u64) -> u64 {
    let share = (u128::from(value) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl Extent {
    /// What is foreseen of a slice of `inputs` that has these blocks. A slice that turns out to have more
    /// entries gets more memory if there is some.
    pub fn foreseen(
        input: &Input<'_>,
        plan: &Plan,
        range: &KeyRange,
        inputs: &[InputTable],
    ) -> Self {
        let (mut entries, mut key_bytes, mut first) = (0u64, 0u64, 0);
        let mut wide = false;
        for &(ordinal, end) in &input.runs {
            let properties = &inputs[ordinal].meta.properties;
            let sizes = input.blocks[first..end].iter();
            let stored: u64 = sizes.map(|block| u64::from(block.size)).sum();
            let of_table = |value| share(value, stored, properties.data_size);
            let most = share(of_table(properties.num_entries), UNEVEN.0, UNEVEN.1);
            let run_entries = most.saturating_add(FEW_ENTRIES).min(properties.num_entries);
            let keys = share(run_entries, properties.raw_key_size, properties.num_entries);
            wide |= may_be_wide(properties);
            entries = entries.saturating_add(run_entries);
            key_bytes = key_bytes.saturating_add(keys);
            first = end;
        }
        let beneath = match &plan.rules.beneath {
            RangesBeneath::Files(levels) => &levels[..],
            RangesBeneath::Nothing | RangesBeneath::Unknown => &[],
        };
        let len = |key: &[u8]| key.len() as u64;
        let beneath_bytes: u64 = (beneath.iter().flatten())
            .map(|(first, last)| len(first) + len(last))
            .sum();
        let grandparents = &plan.cutting.grandparents;
        let grandparent_bytes: u64 = (grandparents.iter())
            .map(|file| len(&file.smallest) + len(&file.largest))
            .sum();
        let bounds = [&range.begin, &range.end].into_iter().flatten();
        let bound_bytes = bounds.map(|key| len(key)).sum::<u64>() + KEY_OVERHEAD;
        let if_wide = |value: u64| if wide { value } else { 0 };
        let data = (input.bytes)
            .saturating_add(key_bytes)
            .saturating_add(entries.saturating_mul(ENTRY_OVERHEAD));
        let files = (data / plan.cutting.max_output_file_size.max(1) + 2).min(MOST_FILES as u64);
        let out_blocks = (data / plan.table.block_size.max(1) + files).min(entries);
        let filter_bytes = filter_bytes(plan, entries, files);
        let index_bytes = share(key_bytes, out_blocks, entries)
            .saturating_add(out_blocks.saturating_mul(INDEX_ENTRY_OVERHEAD));
        let image_bytes = data
            .saturating_add(out_blocks.saturating_mul(BLOCK_OVERHEAD))
            .saturating_add(filter_bytes)
            .saturating_add(index_bytes)
            .saturating_add(files * FILE_OVERHEAD);
        Self {
            arena_bytes: input.arena_bytes,
            in_blocks: input.blocks.len() as u64,
            runs: input.runs.len() as u64,
            entries,
            wide_entries: if_wide(entries),
            wide_key_bytes: if_wide(key_bytes.saturating_add(KEY_OVERHEAD)),
            prefixed_entries: match may_lack_prefix(&filter_rules(plan.table.filter)) {
                true => entries,
                false => 0,
            },
            bound_bytes,
            snapshots: plan.rules.snapshots.len() as u64,
            beneath: beneath.iter().map(Vec::len).sum::<usize>() as u64,
            levels: beneath.len() as u64,
            beneath_bytes: beneath_bytes + KEY_OVERHEAD,
            grandparents: grandparents.len() as u64,
            grandparent_bytes: grandparent_bytes + KEY_OVERHEAD,
            files,
            edge_bytes: share(key_bytes, 2 * files, entries),
            out_blocks,
            filter_bytes,
            image_bytes,
        }
    }

    /// Bytes of temporary storage that the stages ask for.
    pub fn scratch_bytes(&self, device: &Device) -> u64 {
        // SAFETY: takes a number alone.
        let bytes = |n: u64| unsafe { (device.table().scratch_bytes)(n) };
        bytes(self.in_blocks + 1).saturating_add(bytes(self.entries.saturating_add(1)))
    }
}

/// Whether some user keys of a file may be too long for their records: those of one length that fit are the
/// rule.
fn may_be_wide(properties: &TableProperties) -> bool {
    const MOST_BYTES: u64 = WORD_KEY_BYTES + TAG_SIZE as u64;
    let fitting = properties.num_entries.saturating_mul(MOST_BYTES);
    let of_one_length = properties
        .raw_key_size
        .is_multiple_of(properties.num_entries.max(1));
    properties.raw_key_size > fitting || !of_one_length
}

/// Bytes of filters over so many keys: rounded up for each file to whole lines and to what allocators like.
fn filter_bytes(plan: &Plan, entries: u64, files: u64) -> u64 {
    const MILLIBITS_PER_BYTE: u64 = 8000;
    const FILE_BYTES: u64 = 256;
    let millibits = plan.table.filter.map_or(0, |f| f.millibits_per_key);
    if millibits == 0 {
        return 0;
    }
    let bits = share(entries, u64::from(millibits), MILLIBITS_PER_BYTE);
    share(bits, UNEVEN.0, UNEVEN.1).saturating_add(files * FILE_BYTES)
}

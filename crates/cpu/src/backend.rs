//! The four stages behind the [`Backend`] trait.

use rockmill_core::{
    Backend, FileEstimate, InputTable, Plan, Result, SliceReport, SliceWork, SstSink,
};

use crate::decode::RunReader;
use crate::merge::Merge;
use crate::retain::retain;
use crate::writer::SstWriter;

/// Compacts slices on the calling thread.
#[derive(Debug, Default)]
pub struct CpuBackend;

/// The survivors of a slice, computed while they are written.
#[derive(Debug)]
pub struct CpuRun<'a> {
    plan: &'a Plan,
    merge: Merge<'a>,
    /// Position in the job's inputs of each of the merge's runs.
    ordinals: Vec<usize>,
    num_inputs: usize,
}

impl Backend for CpuBackend {
    type Run<'a> = CpuRun<'a>;

    fn name(&self) -> &str {
        "cpu"
    }

    fn slice_memory_bytes(
        &self,
        plan: &Plan,
        inputs: &[InputTable],
        read_ahead_bytes: usize,
    ) -> u64 {
        /// Keys, prefixes, tags and hashes of a decoded block of small entries come to at most this many
        /// times the block's bytes; large values are not copied.
        const DECODED_BLOCKS: u64 = 8;
        const SMALL_BLOCK_BYTES: u64 = 64 << 10;
        /// Output block built, compressed, and on its way out.
        const OUTPUT_BLOCKS: u64 = 4;
        /// Write buffer, a compressor's tables and what else is small.
        const OUTPUT_BYTES: u64 = 4 << 20;
        /// What ZSTD, the largest, keeps to decompress.
        const DECOMPRESSOR_BYTES: u64 = 192 << 10;
        let blocks = inputs.iter().map(InputTable::largest_block_bytes);
        let largest = blocks.clone().max().unwrap_or(0).max(plan.table.block_size);
        let runs: u64 = blocks
            .map(|block| {
                let read = block.max(read_ahead_bytes as u64);
                let decoded = DECODED_BLOCKS * block.min(SMALL_BLOCK_BYTES);
                read.saturating_add(block)
                    .saturating_add(decoded)
                    .saturating_add(DECOMPRESSOR_BYTES)
            })
            .fold(0, u64::saturating_add);
        runs.saturating_add(largest.saturating_mul(OUTPUT_BLOCKS))
            .saturating_add(OUTPUT_BYTES)
            .saturating_add(file_memory_bytes(plan, inputs))
    }

    fn survivors<'a>(&'a self, work: SliceWork<'a>) -> Result<CpuRun<'a>> {
        let mut runs = Vec::new();
        let mut ordinals = Vec::new();
        for (ordinal, input) in work.inputs.iter().enumerate() {
            if !input.overlaps(&work.slice.range) {
                continue;
            }
            let window_bytes = match input.file.is_direct() {
                true => work.read_ahead_bytes,
                false => cached_window_bytes(work.read_ahead_bytes, work.inputs.len()),
            };
            let run = RunReader::open(input, &work.slice.range, window_bytes, work.cancel)?;
            runs.push(run.reporting(work.progress));
            ordinals.push(ordinal);
        }
        Ok(CpuRun {
            plan: work.plan,
            merge: Merge::new(runs),
            ordinals,
            num_inputs: work.inputs.len(),
        })
    }

    fn write_ssts<'a>(&'a self, run: CpuRun<'a>, sink: &mut dyn SstSink) -> Result<SliceReport> {
        let CpuRun {
            plan,
            mut merge,
            ordinals,
            num_inputs,
        } = run;
        let mut writer = SstWriter::new(plan, sink)?;
        let retained = retain(&plan.rules, &mut merge, &mut writer)?;
        let mut report = SliceReport {
            files: writer.finish()?,
            entries_read: vec![0; num_inputs],
            entries_replaced: retained.replaced,
            tombstones_dropped: retained.tombstones_dropped,
            entries_written: retained.written,
            hash_kept: retained.hash_kept,
            hash_dropped: retained.hash_dropped,
            verified: true,
            ..SliceReport::default()
        };
        for (run, &ordinal) in merge.runs().iter().zip(&ordinals) {
            let totals = run.totals();
            report.entries_read[ordinal] = totals.entries;
            report.tombstones_read += totals.tombstones;
            report.key_bytes_read += totals.key_bytes;
            report.value_bytes_read += totals.value_bytes;
            report.bytes_read += totals.bytes_read;
            report.hash_in = report.hash_in.wrapping_add(totals.hash);
        }
        Ok(report)
    }
}

/// Bytes to copy at a time from the page cache, of each of so many inputs: few enough that all windows
/// together stay in the second-level cache until they are decoded, and enough to be worth a system call.
fn cached_window_bytes(read_ahead_bytes: usize, inputs: usize) -> usize {
    const ALL_WINDOWS_BYTES: usize = 1 << 20;
    const LEAST_BYTES: usize = 16 << 10;
    let share = ALL_WINDOWS_BYTES / inputs.max(1);
    read_ahead_bytes.min(share.max(LEAST_BYTES))
}

/// Filter hashes and index of the output file at hand.
fn file_memory_bytes(plan: &Plan, inputs: &[InputTable]) -> u64 {
    /// Of what goes in, and of what was found in the finished blocks.
    const HASH_BYTES: u64 = 16;
    /// A vector may have grown to twice what it holds.
    const GROWTH: u64 = 2;
    let file = FileEstimate::new(plan, inputs);
    let hashes = if plan.table.filter.is_some() {
        file.entries.saturating_mul(HASH_BYTES)
    } else {
        0
    };
    hashes
        .saturating_add(file.index_bytes)
        .saturating_mul(GROWTH)
}

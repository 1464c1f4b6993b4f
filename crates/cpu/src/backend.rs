//! The four stages behind the [`Backend`] trait.

use rockmill_core::{Backend, Error, Plan, Result, SliceReport, SliceWork, SstSink};

use crate::decode::{RunReader, blocks_in_range};
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

    fn slice_memory_bytes(&self, plan: &Plan, runs: usize, read_ahead_bytes: usize) -> u64 {
        /// Keys, prefixes, tags and hashes of a decoded block come to at most this many times the
        /// block's bytes; one more for its decompressed payload.
        const DECODED_BLOCKS: u64 = 8;
        /// Output block in its stages, index, buffers.
        const OUTPUT_BYTES: u64 = 8 << 20;
        /// A hash for the filter; entries below this size are taken to have it.
        const HASH_BYTES: u64 = 8;
        const SMALL_ENTRY_BYTES: u64 = 32;
        let run = read_ahead_bytes as u64 + DECODED_BLOCKS * plan.table.block_size;
        let hashes = if plan.table.filter.is_some() && !plan.cutting.single_file {
            plan.cutting.max_output_file_size / SMALL_ENTRY_BYTES * HASH_BYTES
        } else {
            0
        };
        run * runs as u64 + OUTPUT_BYTES + hashes
    }

    fn survivors<'a>(&'a self, work: SliceWork<'a>) -> Result<CpuRun<'a>> {
        let mut runs = Vec::new();
        let mut ordinals = Vec::new();
        for (ordinal, input) in work.inputs.iter().enumerate() {
            if blocks_in_range(input, &work.slice.range).is_empty() {
                continue;
            }
            runs.push(RunReader::open(
                input,
                &work.slice.range,
                work.read_ahead_bytes,
                work.cancel,
            )?);
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
        let accounted = report.hash_kept.wrapping_add(report.hash_dropped);
        if report.hash_in != accounted {
            return Err(Error::internal(
                "entries read do not equal entries kept and dropped",
            ));
        }
        Ok(report)
    }
}

//! The stages behind the [`Backend`] trait.

use rockmill_core::scan::{BatchSink, ScanPlan};
use rockmill_core::{
    Backend, CheckedOrder, FileEstimate, Footprint, InputTable, Operator, Output, OutputPlan,
    Purpose, ReadReport, ReadTask, Request, Result, RowOutput, RowSink, SstOutput, SstSink,
    Support, TaskReport, Unsupported, Visibility,
};

use crate::inspect::Inspector;
use crate::read::checked::Checked;
use crate::read::decode::{Accepted, RunReader};
use crate::read::groups::{self, GroupReader};
use crate::read::merge::Merge;
use crate::read::operands::MERGING_BYTES;
use crate::read::retain::{RetainTotals, Sink, retain};
use crate::read::snapshot::see;
use crate::scan::{self, Scanner};
use crate::sst::dictionary::max_waiting_bytes;
use crate::sst::writer::SstWriter;

/// Reads on the calling thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuBackend;

/// The rows of a task, computed while an operator takes them.
#[derive(Debug)]
struct CpuRows<'a> {
    request: Request<'a>,
    merge: Merge<'a>,
    /// Position in the request's tables of each of the merge's runs.
    ordinals: Vec<usize>,
    /// The rows of a scan whose columns are kept, in place of the merge's.
    groups: Option<GroupReader<'a>>,
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        "cpu"
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        match request.purpose {
            // The kernels on the host support it (`rockmill_cuda::Target::Host`).
            Purpose::Resident => Support::No(Unsupported::Purpose),
            _ => request.support(),
        }
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        let groups = match groups::may_group(request) {
            true => groups::memory_bytes(request),
            false => 0,
        };
        let applying = match request.purpose {
            Purpose::WriteSst(plan) => sst_memory_bytes(plan, request.tables),
            Purpose::Inspect | Purpose::Resident => 0,
            Purpose::Scan(plan) => (plan.memory_bytes(request.tables, request.range))
                .saturating_add(scan::memory_bytes(plan, request.tables)),
        };
        Footprint {
            host_bytes: (read_memory_bytes(request).saturating_add(groups))
                .saturating_add(applying),
            device_bytes: 0,
        }
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let request = Request {
            reading: task.reading,
            purpose: operator.purpose(),
        };
        let mut rows = CpuRows::read(request, &task)?;
        match operator {
            Operator::WriteSst { plan, sink } => rows.write_ssts(plan, sink),
            Operator::Inspect { rows: sink } => rows.inspect(sink),
            Operator::Scan { plan, batches } => rows.scan(plan, batches),
            Operator::Resident { .. } => Err(operator.unsupported()),
        }
    }
}

impl<'a> CpuRows<'a> {
    fn read(request: Request<'a>, task: &ReadTask<'a>) -> Result<Self> {
        let mut runs = Vec::new();
        let mut ordinals = Vec::new();
        if let (Purpose::Scan(plan), Visibility::Snapshot(rules)) =
            (request.purpose, request.visibility)
            && let Some(leaves) = groups::leaves(&request)?
        {
            return Ok(CpuRows {
                request,
                merge: Merge::new(runs),
                ordinals,
                groups: Some(GroupReader::open(
                    plan,
                    rules,
                    leaves,
                    &request,
                    task.cancel,
                )?),
            });
        }
        let checked_order = checked_order(&request);
        for (ordinal, input) in request.tables.iter().enumerate() {
            if let Some(checked) = checked_order {
                checked.check_blocks(input, request.range)?;
            }
            if !input.overlaps(request.range) {
                continue;
            }
            let window_bytes = match input.file.is_direct() {
                true => request.read_ahead_bytes,
                false => cached_window_bytes(request.read_ahead_bytes, request.tables.len()),
            };
            let (range, cancel) = (request.range, task.cancel);
            let open = |accepted| {
                RunReader::open_checked(input, range, accepted, window_bytes, cancel, checked_order)
            };
            let run = match (request.purpose, request.visibility) {
                (Purpose::Scan(_), _) => {
                    RunReader::open_unhashed(input, range, window_bytes, cancel)
                }
                (_, Visibility::Compaction(rules)) => open(match rules.merging {
                    Some(_) => Accepted::Merged,
                    None => Accepted::Compacted,
                }),
                (_, Visibility::Snapshot(_)) => open(Accepted::All),
            };
            runs.push(run?.reporting(task.progress));
            ordinals.push(ordinal);
        }
        Ok(Self {
            request,
            merge: Merge::new(runs),
            ordinals,
            groups: None,
        })
    }
}

impl CpuRows<'_> {
    fn write_ssts(&mut self, plan: &OutputPlan, sink: &mut dyn SstSink) -> Result<TaskReport> {
        let rules = match self.request.visibility {
            Visibility::Compaction(rules) => Some(rules),
            Visibility::Snapshot(_) => None,
        };
        let mut writer = SstWriter::new(plan, sink)?.in_range(rules, self.request.range);
        let totals = self.pass_to(&mut writer)?;
        let ssts = SstOutput {
            files: writer.finish()?,
            verified: true,
            ..SstOutput::default()
        };
        Ok(TaskReport {
            read: self.report(&totals),
            output: Output::Ssts(ssts),
            ..TaskReport::default()
        })
    }

    fn inspect(&mut self, rows: &mut dyn RowSink) -> Result<TaskReport> {
        let mut inspector = Inspector {
            rows,
            output: RowOutput::default(),
        };
        let totals = self.pass_to(&mut inspector)?;
        Ok(TaskReport {
            read: self.report(&totals),
            output: Output::Rows(inspector.output),
            ..TaskReport::default()
        })
    }

    fn scan(&mut self, plan: &ScanPlan, batches: &mut dyn BatchSink) -> Result<TaskReport> {
        if let Some(groups) = self.groups.take() {
            return groups.scan(batches);
        }
        let mut scanner = Scanner::new(plan, batches)?;
        let totals = self.pass_to(&mut scanner)?;
        Ok(TaskReport {
            output: Output::Batches(scanner.finish()?),
            read: self.report(&totals),
            ..TaskReport::default()
        })
    }

    /// Takes all rows.
    fn pass_to(&mut self, sink: &mut impl Sink) -> Result<RetainTotals> {
        match self.request.visibility {
            Visibility::Compaction(rules) => match checked_order(&self.request) {
                Some(checked) => {
                    let mut merge = Checked::new(&mut self.merge, checked, self.request.range)?;
                    retain(rules, &mut merge, sink)
                }
                None => retain(rules, &mut self.merge, sink),
            },
            Visibility::Snapshot(rules) => see(&rules, &mut self.merge, sink),
        }
    }

    /// The totals of reading, once all rows are taken.
    fn report(&self, totals: &RetainTotals) -> ReadReport {
        let mut report = ReadReport {
            entries: vec![0; self.request.tables.len()],
            replaced: totals.replaced,
            tombstones_dropped: totals.tombstones_dropped,
            above_snapshot: totals.above,
            kept: totals.kept,
            dropped: totals.dropped,
            consumed: totals.consumed,
            made: totals.made,
            hash_kept: totals.hash_kept,
            hash_dropped: totals.hash_dropped,
            hash_consumed: totals.hash_consumed,
            ..ReadReport::default()
        };
        for (run, &ordinal) in self.merge.runs().iter().zip(&self.ordinals) {
            let totals = run.totals();
            report.entries[ordinal] = totals.entries;
            report.tombstones += totals.tombstones;
            report.key_bytes += totals.key_bytes;
            report.value_bytes += totals.value_bytes;
            report.bytes += totals.bytes_read;
            report.hash_in = report.hash_in.wrapping_add(totals.hash);
        }
        report
    }
}

/// The order to which the application's comparator has to agree, if there is one.
fn checked_order<'a>(request: &Request<'a>) -> Option<&'a CheckedOrder> {
    match request.visibility {
        Visibility::Compaction(rules) => rules.checked_order.as_deref(),
        Visibility::Snapshot(_) => None,
    }
}

/// Host memory of reading.
fn read_memory_bytes(request: &Request<'_>) -> u64 {
    /// Keys, prefixes, tags and hashes of a decoded block of small entries come to at most this many
    /// times the block's bytes; large values are not copied.
    const DECODED_BLOCKS: u64 = 8;
    const SMALL_BLOCK_BYTES: u64 = 64 << 10;
    /// Memory of the decompressor that needs the most, ZSTD.
    const DECOMPRESSOR_BYTES: u64 = 192 << 10;
    let blocks = request.tables.iter().map(InputTable::largest_block_bytes);
    let of_run = |block: u64| {
        let read = block.max(request.read_ahead_bytes as u64);
        let decoded = DECODED_BLOCKS * block.min(SMALL_BLOCK_BYTES);
        read.saturating_add(block)
            .saturating_add(decoded)
            .saturating_add(DECOMPRESSOR_BYTES)
    };
    let merging = match request.visibility {
        Visibility::Compaction(rules) if rules.merging.is_some() || rules.filter.is_some() => {
            MERGING_BYTES
        }
        _ => 0,
    };
    blocks.map(of_run).fold(merging, u64::saturating_add)
}

/// Host memory of writing.
fn sst_memory_bytes(plan: &OutputPlan, inputs: &[InputTable]) -> u64 {
    /// An output block that is built, its compressed form, and blocks that are being written.
    const OUTPUT_BLOCKS: u64 = 4;
    /// Write buffer, a compressor's tables and small allocations.
    const OUTPUT_BYTES: u64 = 4 << 20;
    let blocks = inputs.iter().map(InputTable::largest_block_bytes);
    let largest = blocks.max().unwrap_or(0).max(plan.table.block_size);
    (largest.saturating_mul(OUTPUT_BLOCKS))
        .saturating_add(OUTPUT_BYTES)
        .saturating_add(dictionary_memory_bytes(plan))
        .saturating_add(file_memory_bytes(plan, inputs))
}

/// Host memory of the blocks that wait for a dictionary, and of the dictionary in the file, a compressor and a decompressor.
fn dictionary_memory_bytes(plan: &OutputPlan) -> u64 {
    /// The compressor may have tables beside it.
    const COPIES: u64 = 6;
    /// ZSTD's trainer takes some 6 MB.
    const TRAINER_BYTES: u64 = 8 << 20;
    let Some(dictionary) = plan.table.compression.dictionary else {
        return 0;
    };
    let waiting = max_waiting_bytes(plan);
    // The samples are copies of waiting bytes.
    let samples = (dictionary.max_sample_bytes() as u64).min(waiting);
    let training = match dictionary.training {
        Some(_) => samples.saturating_add(TRAINER_BYTES),
        None => 0,
    };
    let dictionary = (dictionary.max_bytes as u64).min(waiting);
    (waiting.saturating_add(training)).saturating_add(dictionary.saturating_mul(COPIES))
}

/// Bytes to copy at a time from the page cache for each of `inputs` inputs: few enough that all windows together stay
/// in the second-level cache until they are decoded, and enough to be worth a system call.
fn cached_window_bytes(read_ahead_bytes: usize, inputs: usize) -> usize {
    const ALL_WINDOWS_BYTES: usize = 1 << 20;
    const MIN_BYTES: usize = 16 << 10;
    let share = ALL_WINDOWS_BYTES / inputs.max(1);
    read_ahead_bytes.min(share.max(MIN_BYTES))
}

/// Filter hashes and index of the current output file.
fn file_memory_bytes(plan: &OutputPlan, inputs: &[InputTable]) -> u64 {
    /// For each hash of the entries written, and of those found in the finished blocks.
    const HASH_BYTES: u64 = 16;
    /// A vector may have grown to twice its contents.
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

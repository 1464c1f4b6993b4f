//! Display of scans: in `EXPLAIN`, and while they run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::physical_expr::utils::conjunction;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan};
use rockmill_core::KeyRange;
use rockmill_core::scan::ScanOutput;
use rockmill_scan::ReadPath;

use super::{Planned, ScanExec};
use crate::program::Reason;

/// Filters and aggregates of a plan that DataFusion computes although a scan lies below them, with the reasons.
pub fn left_out(plan: &Arc<dyn ExecutionPlan>) -> Vec<(String, Reason)> {
    let mut left = Vec::new();
    let _ = plan.apply(|node| {
        if let Some(scan) = node.downcast_ref::<ScanExec>() {
            let planned = scan.planned.iter();
            left.extend(planned.flat_map(|planned| planned.left.iter().cloned()));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    left
}

/// Stored bytes that the scans of a plan have read, and that they read in total.
pub fn progress(plan: &Arc<dyn ExecutionPlan>) -> (u64, u64) {
    ScanProgress::of(plan).read()
}

/// The counters of a plan's scans, without the plan.
#[derive(Debug, Clone, Default)]
pub struct ScanProgress {
    done: Vec<Arc<AtomicU64>>,
    all: u64,
}

impl ScanProgress {
    /// The counters of all scans of `plan`.
    pub fn of(plan: &Arc<dyn ExecutionPlan>) -> Self {
        let mut progress = Self::default();
        let _ = plan.apply(|node| {
            if let Some(scan) = node.downcast_ref::<ScanExec>() {
                progress.done.push(Arc::clone(&scan.done));
                let pieces = scan.partitions.iter().flatten();
                progress.all =
                    pieces.fold(progress.all, |all, piece| all.saturating_add(piece.bytes));
            }
            Ok(TreeNodeRecursion::Continue)
        });
        progress
    }

    /// Stored bytes that the scans have read, and that they read in total.
    pub fn read(&self) -> (u64, u64) {
        let done = self.done.iter().map(|done| done.load(Ordering::Relaxed));
        (done.sum(), self.all)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, format: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = &self.source;
        let pieces = self.partitions.iter().map(Vec::len).sum::<usize>();
        if matches!(format, DisplayFormatType::TreeRender) {
            return write!(f, "family={}\npieces={pieces}", source.family.name());
        }
        write!(f, "RockmillScan: family={}", source.family.name())?;
        match &self.plan.output {
            ScanOutput::Rows(_) => {
                let schema = self.schema();
                let names = schema.fields().iter().map(|field| field.name().as_str());
                write!(f, ", columns=[{}]", names.collect::<Vec<_>>().join(", "))?;
            }
            ScanOutput::Groups(aggregation) => write!(
                f,
                ", partial aggregates={}, group keys={}",
                aggregation.aggregates.len(),
                aggregation.keys.len()
            )?,
        }
        if let Some(planned) = &self.planned {
            planned.fmt_as(f)?;
        }
        if let Some(why) = self.plan.left_to_cpu() {
            write!(f, ", no GPU={why}")?;
        }
        if let Some(limit) = self.limit {
            write!(f, ", limit={limit}")?;
        }
        let all = self.partitions.iter().flatten();
        let through_iterators = all
            .filter(|piece| !matches!(piece.path, ReadPath::Files))
            .count();
        let remotes = source.family.remotes();
        if !remotes.is_empty() {
            let shown = remotes.iter().enumerate();
            let shown = shown.filter(|(at, _)| self.remote.is_none_or(|remote| remote == *at));
            let shown = shown
                .map(|(_, remote)| format!("{}@{}", remote.url, remote.described.version.sequence));
            return write!(f, ", shards=[{}]", shown.collect::<Vec<_>>().join(", "));
        }
        write!(
            f,
            ", files={}, pieces={pieces}",
            source.family.files().len()
        )?;
        if through_iterators > 0 {
            write!(f, ", through RocksDB's iterators={through_iterators}")?;
        }
        write!(f, ", sequence={}", source.statement.snapshot.sequence())
    }
}

/// Characters of a dynamic filter that are shown at most.
const MOST_CHARACTERS: usize = 300;

impl Planned {
    fn fmt_as(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.filters.is_empty() {
            write!(f, ", filter={}", conjunction(self.filters.iter().cloned()))?;
        }
        for filter in &self.dynamic {
            // It may have all keys of a join.
            let filter = filter.to_string();
            let (shown, more) = match filter.char_indices().nth(MOST_CHARACTERS) {
                Some((end, _)) => (&filter[..end], " .."),
                None => (filter.as_str(), ""),
            };
            write!(f, ", dynamic filter={shown}{more}")?;
        }
        for (filter, why) in &self.left {
            write!(f, ", left to DataFusion={filter} ({why})")?;
        }
        if self.ranges != [KeyRange::default()] {
            write!(f, ", key ranges={}", self.ranges.len())?;
        }
        Ok(())
    }
}

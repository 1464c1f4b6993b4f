//! Scans in parts, each for another process.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;

use super::{ScanExec, properties, spread};

/// Number of processes that can run a scan together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// One process. DataFusion collects the rows of several partitions, and plans nothing for those of one: an aggregate or
    /// a limit above it, or in the scan itself, is final.
    One,
    /// Any number of processes that have the same files, and more than this are no use.
    Upto(usize),
    /// As many processes as have shards with keys that the scan reads.
    Shards(usize),
}

/// Number of processes that can run a plan together, if it is a scan.
pub fn scan_tasks(node: &dyn ExecutionPlan) -> Option<Tasks> {
    let scan = node.downcast_ref::<ScanExec>()?;
    Some(match scan.source.family.remotes().is_empty() {
        true if scan.partitions.len() == 1 => Tasks::One,
        true => Tasks::Upto(scan.partitions.iter().map(Vec::len).sum()),
        false => Tasks::Shards(scan.read_remotes().len()),
    })
}

/// The scan in as many parts, which have the same rows together. All have the same number of partitions. `None` if the
/// plan is not a scan.
///
/// # Errors
/// Internal if there are more shards than parts.
pub fn split_scan(
    node: &dyn ExecutionPlan,
    parts: usize,
) -> Result<Option<Vec<Arc<dyn ExecutionPlan>>>> {
    let Some(scan) = node.downcast_ref::<ScanExec>() else {
        return Ok(None);
    };
    let parts = match scan.source.family.remotes().is_empty() {
        true => scan.split(parts),
        false => scan.of_shards(parts)?,
    };
    let parts = parts.into_iter();
    Ok(Some(parts.map(|part| Arc::new(part) as _).collect()))
}

/// The URL of the process that runs a part of [`split_scan`], if it is that of a shard.
pub fn shard_of(part: &dyn ExecutionPlan) -> Option<&str> {
    let scan = part.downcast_ref::<ScanExec>()?;
    Some(&scan.source.family.remotes()[scan.remote?].url)
}

impl ScanExec {
    /// Positions of the shards that may have keys of the scan.
    fn read_remotes(&self) -> Vec<usize> {
        let remotes = self.source.family.remotes().iter().enumerate();
        let is_read = |range| {
            let mut pieces = self.partitions.iter().flatten();
            pieces.any(|piece| piece.range.overlaps(range))
        };
        let read = remotes.filter(|(_, remote)| is_read(&remote.range));
        read.map(|(at, _)| at).collect()
    }

    fn split(&self, parts: usize) -> Vec<Self> {
        let pieces = self.partitions.iter().flatten().cloned().collect();
        let parts = spread(pieces, parts);
        let most = parts.iter().map(Vec::len).max().unwrap_or(0);
        let partitions = self.partitions.len().min(most).max(1);
        let parts = parts.into_iter();
        parts
            .map(|pieces| self.part(spread(pieces, partitions), None))
            .collect()
    }

    fn of_shards(&self, parts: usize) -> Result<Vec<Self>> {
        let read = self.read_remotes();
        if read.len() > parts {
            return internal_err!("a scan of {} shards is split into {parts}", read.len());
        }
        let shards = read.iter().map(|&at| {
            let range = &self.source.family.remotes()[at].range;
            let pieces = self.partitions.iter().map(|pieces| {
                let pieces = pieces.iter().filter(|piece| piece.range.overlaps(range));
                pieces.cloned().collect()
            });
            self.part(pieces.collect(), Some(at))
        });
        // An exchange between one process and one other would be left out of the plan.
        let empty = || self.part(vec![Vec::new(); self.partitions.len()], Some(0));
        let shards = shards.collect::<Vec<_>>().into_iter();
        Ok(shards
            .chain(std::iter::repeat_with(empty))
            .take(parts)
            .collect())
    }

    fn part(&self, partitions: Vec<Vec<super::Piece>>, remote: Option<usize>) -> Self {
        Self {
            properties: properties(self.schema(), self.ordered_by, partitions.len()),
            partitions: Arc::new(partitions),
            remote,
            done: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        }
    }
}

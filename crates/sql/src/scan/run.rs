//! A running partition of a scan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use datafusion::arrow::array::{RecordBatch, UInt64Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::exec_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_expr_common::physical_expr::{
    snapshot_generation, snapshot_physical_expr,
};
use datafusion::physical_plan::metrics::{Count, ExecutionPlanMetricsSet, MetricBuilder, Time};
use rockmill_core::scan::{Aggregate, Batch, IntegerRange, ScanOutput, ScanPlan, exceeds};
use rockmill_core::{CancelToken, Error};
use rockmill_scan::{Piece, PieceReport, PieceResult};

use super::implied::add_implied;
use super::{Planned, Source, external_in};
use crate::program::Program;
use crate::stored::record_batch;

/// Stops the pieces of a partition once its batches are not taken any more.
pub struct CancelOnDrop(pub CancelToken);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Name of a scan's counter of bytes that it has read from tables.
pub const SCAN_BYTES: &str = "bytes_read";

/// Name of its counter of rows that it has found.
pub const SCAN_ROWS: &str = "rows_visible";

/// Name of the time that this took, with the wait for memory and for a thread.
pub const SCAN_TIME: &str = "scan_time";

/// Counters of a partition for `EXPLAIN ANALYZE`.
pub struct Counters {
    metrics: ExecutionPlanMetricsSet,
    partition: usize,
    output_rows: Count,
    bytes: Count,
    /// Bytes and columns from the cache, if there is one.
    cached: Option<(Count, Count)>,
    blocks: Count,
    rows: Count,
    hidden: Count,
    /// Rows that do not fit the layout, unless they are an error.
    malformed: Option<Count>,
    /// Time of pieces, with their wait for memory and for a thread.
    time: Time,
}

impl Counters {
    pub fn new(
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
        plan: &ScanPlan,
        has_cache: bool,
    ) -> Self {
        let counter = |name| MetricBuilder::new(metrics).counter(name, partition);
        Self {
            output_rows: MetricBuilder::new(metrics).output_rows(partition),
            bytes: counter(SCAN_BYTES),
            cached: has_cache.then(|| (counter("bytes_cached"), counter("columns_cached"))),
            blocks: counter("blocks_read"),
            rows: counter(SCAN_ROWS),
            hidden: counter("rows_hidden"),
            malformed: (plan.checks.iter().any(|check| check.counts))
                .then(|| counter("rows_malformed")),
            time: MetricBuilder::new(metrics).subset_time(SCAN_TIME, partition),
            metrics: metrics.clone(),
            partition,
        }
    }

    fn add(&self, report: &PieceReport) {
        self.bytes.add(report.bytes as usize);
        if let Some((bytes, columns)) = &self.cached {
            bytes.add(report.cached_bytes as usize);
            columns.add(report.cached_columns as usize);
        }
        self.blocks.add(report.blocks as usize);
        self.rows.add(report.rows as usize);
        self.hidden.add(report.hidden as usize);
        if let Some(malformed) = &self.malformed {
            malformed.add(report.malformed as usize);
        }
        let by = match &report.through_iterators {
            Some(_) => "pieces_by_iterators".to_owned(),
            None => format!("pieces_by_{}", report.device),
        };
        let count = |what| MetricBuilder::new(&self.metrics).counter(what, self.partition);
        count(by).add(1);
        if report.device_refused.is_some() {
            count("pieces_moved_to_cpu".to_owned()).add(1);
        }
    }
}

/// A partition that is being read.
pub struct Run {
    pub source: Source,
    pub pieces: Vec<Piece>,
    pub plan: Arc<ScanPlan>,
    pub planned: Option<Planned>,
    /// Maximum number of rows to return.
    pub limit: usize,
    /// Maximum rows of a batch. Larger ones are copied into smaller ones, which do not share memory.
    pub batch_rows: Option<usize>,
    pub schema: SchemaRef,
    pub cancel: CancelToken,
    /// Bytes of finished pieces.
    pub done: Arc<AtomicU64>,
    pub counters: Counters,
}

impl Run {
    /// Passes the batches of all pieces to `take`, until it refuses one.
    pub fn all(self, mut take: impl FnMut(RecordBatch) -> bool) -> Result<()> {
        let mut left = self.limit;
        let mut now = None;
        let mut has_many_groups = false;
        let mut pieces: Vec<_> = self.pieces.iter().rev().cloned().collect();
        while left > 0
            && let Some(piece) = pieces.pop()
        {
            let (engine, family) = (&self.source.engine, &self.source.family);
            let plan = self.plan_now(&mut now)?;
            let ran = {
                let _timer = self.counters.time.timer();
                engine.run_or_cut(family, &piece, &plan, has_many_groups, &self.cancel)
            };
            let (output, mut room) = match ran {
                Err(_) if self.cancel.is_cancelled() => break,
                Err(error) => return Err(self.named(error)),
                Ok(PieceResult::Whole(output, room)) => (output, room),
                Ok(PieceResult::Parts(parts)) => {
                    has_many_groups = true;
                    pieces.extend(parts.into_iter().rev());
                    continue;
                }
            };
            self.counters.add(&output.report);
            self.done.fetch_add(piece.bytes, Ordering::Relaxed);
            let mut waiting = output.batches.iter().map(Batch::bytes).sum();
            for batch in output.batches {
                room.set(waiting);
                waiting -= batch.bytes();
                let batch = record_batch(&self.schema, batch)?;
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                self.counters.output_rows.add(batch.num_rows());
                let Some(rows) = self.batch_rows.filter(|rows| batch.num_rows() > *rows) else {
                    match take(batch) {
                        true => continue,
                        false => return Ok(()),
                    }
                };
                for first in (0..batch.num_rows()).step_by(rows) {
                    if !take(part(&batch, first, batch.num_rows().min(first + rows))?) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// The error of a piece. A scan does not know the expressions of its sums.
    fn named(&self, error: Error) -> DataFusionError {
        let ScanOutput::Groups(groups) = &self.plan.output else {
            return external_in(self.source.family.path(), error);
        };
        let of_sum = exceeds("a sum");
        if (error.kind, &error.what) != (of_sum.kind, &of_sum.what) {
            return external_in(self.source.family.path(), error);
        }
        let states = self.schema.fields().iter().skip(groups.keys.len());
        let sums = states.zip(&groups.aggregates).filter(|(_, aggregate)| {
            matches!(aggregate, Aggregate::Sum { range, .. } if *range == IntegerRange::Exact)
        });
        // The name of a state ends with its kind in brackets.
        let names = sums.map(|(state, _)| state.name().rsplit_once('[').map_or("", |(of, _)| of));
        let names = names.collect::<Vec<_>>().join(" or ");
        exec_datafusion_err!("{names} exceeds the range of its type")
    }

    /// The plan with the current dynamic filters, as far as they can be compiled. `known` is the one before, with the
    /// generation of its filters.
    fn plan_now(&self, known: &mut Option<(u64, Arc<ScanPlan>)>) -> Result<Arc<ScanPlan>> {
        let planned = self.planned.as_ref();
        let Some(planned) = planned.filter(|planned| !planned.dynamic.is_empty()) else {
            return Ok(Arc::clone(&self.plan));
        };
        let generations = planned.dynamic.iter().map(snapshot_generation);
        let generation = generations.fold(0, u64::wrapping_add);
        if let Some((of, plan)) = known
            && *of == generation
        {
            return Ok(Arc::clone(plan));
        }
        let program = Program::new(Arc::clone(&planned.layout));
        let mut program = program.beginning_with(&self.plan);
        for dynamic in &planned.dynamic {
            // DataFusion evaluates these conditions again, so a scan may leave one out.
            let now = snapshot_physical_expr(Arc::clone(dynamic))?;
            add_implied(&mut program, &now, planned.layout.schema());
        }
        let plan = Arc::new(program.into_plan(&self.plan));
        *known = Some((generation, Arc::clone(&plan)));
        Ok(plan)
    }
}

/// A copy of some rows: a slice would keep the memory of all rows, and count as large.
fn part(batch: &RecordBatch, first: usize, end: usize) -> Result<RecordBatch> {
    if batch.num_columns() == 0 {
        return Ok(batch.slice(first, end - first));
    }
    let rows = UInt64Array::from_iter_values(first as u64..end as u64);
    Ok(take_record_batch(batch, &rows)?)
}

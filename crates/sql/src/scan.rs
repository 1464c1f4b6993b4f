//! The physical plan of a scan.

/// Methods that all plans without inputs have in common.
macro_rules! leaf {
    () => {
        fn properties(&self) -> &Arc<PlanProperties> {
            &self.properties
        }

        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            Vec::new()
        }

        fn with_new_children(
            self: Arc<Self>,
            _: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            Ok(self)
        }
    };
    (without expressions) => {
        leaf!();

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }
    };
}

mod implied;
mod pinned;
mod planned;
mod run;
mod sent;
mod shown;
mod split;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::stats::Precision;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Statistics, internal_err, project_schema};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, EmissionType, SchedulingType, apply_expression_roots,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::{ExecutionPlan, Partitioning, PlanProperties};
use futures::StreamExt;
use rockmill_core::scan::{Aggregation, ScanOutput, ScanPlan};
use rockmill_core::{CancelToken, KeyRange};
use rockmill_scan::{FamilySnapshot, Piece, ReadPath, ScanEngine};

use crate::program::{Program, Reason};
use crate::ranges::key_ranges;
use crate::table::{Reads, StatementSnapshot};
use run::{CancelOnDrop, Counters, Run};

pub(crate) use pinned::PinExec;
pub(crate) use pinned::PinnedSnapshots;
pub use pinned::{DatabaseLocation, PinGuard, PinRequest, PinSnapshots};
pub use pinned::{PinReply, pin_plan};
pub(crate) use planned::Planned;
pub use run::{SCAN_BYTES, SCAN_ROWS, SCAN_TIME};
pub(crate) use sent::SentExec;
pub(crate) use sent::location_of;
pub use sent::{decode_scan, encode_scan};
pub use shown::{ScanProgress, left_out, progress};
pub use split::{Tasks, scan_tasks, shard_of, split_scan};

/// Rows of a batch if the session does not state a number.
pub(crate) const USUAL_BATCH_ROWS: usize = 8192;

/// Source of a scan.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub engine: Arc<ScanEngine>,
    /// Keeps the snapshot and the files of a statement.
    pub statement: Arc<StatementSnapshot>,
    pub family: Arc<FamilySnapshot>,
}

/// Reads a column family: filters rows, and returns columns or partial aggregates.
#[derive(Debug, Clone)]
pub struct ScanExec {
    source: Source,
    /// `None` if another process has planned the scan.
    planned: Option<Planned>,
    /// Maximum number of rows that are taken from each partition.
    limit: Option<usize>,
    plan: Arc<ScanPlan>,
    /// Whether batches have at most the session's number of rows. Otherwise they have the size that scans make, unless
    /// the session has less than the default because its memory is small.
    has_limited_batches: bool,
    /// Position of the column by which the rows are ordered.
    ordered_by: Option<usize>,
    partitions: Arc<Vec<Vec<Piece>>>,
    /// Position of the part that another process reads, if this is the scan of one part.
    remote: Option<usize>,
    properties: Arc<PlanProperties>,
    /// Bytes of finished pieces.
    done: Arc<AtomicU64>,
    metrics: ExecutionPlanMetricsSet,
}

/// Aggregates that a scan computes, over all columns of the table.
pub(crate) struct Aggregates {
    /// Columns that DataFusion's own operator would return.
    pub schema: SchemaRef,
    /// Adds them to a program, or returns the reason why it cannot.
    pub compile: Box<CompileAggregates>,
}

/// See [`Aggregates::compile`].
type CompileAggregates = dyn FnOnce(&mut Program) -> std::result::Result<Aggregation, Reason>;

impl ScanExec {
    /// A scan of the columns of a projection that satisfies filters.
    ///
    /// # Errors
    /// If a filter cannot be compiled, or the files cannot be read.
    pub(crate) fn new(
        source: Source,
        planned: Planned,
        limit: Option<usize>,
        partitions: usize,
    ) -> Result<Self> {
        let (layout, projection) = (&planned.layout, &planned.projection);
        let table = layout.schema();
        let schema = project_schema(table, Some(projection))?;
        let mut program = planned.program.clone();
        let columns = projection
            .iter()
            .map(|&position| column_at(table, position));
        let columns = columns.map(|column| program.output(&column));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>();
        let columns = columns.map_err(DataFusionError::Plan)?;
        let plan = program.plan(ScanOutput::Rows(columns));
        let plan =
            plan.map_err(|why| DataFusionError::Plan(format!("{why}: select fewer columns")))?;
        let ranges = key_ranges(layout, &planned.filters);
        let pieces = pieces(&source, &ranges, planned.reads, partitions);
        let ordered_by = (layout.ordered_by()).filter(|_| source.family.orders_by_bytes());
        let ordered_by = ordered_by.and_then(|key| projection.iter().position(|&at| at == key));
        let planned = Planned { ranges, ..planned };
        Ok(Self {
            properties: properties(schema, ordered_by, pieces.len()),
            ordered_by,
            source,
            planned: Some(planned),
            limit,
            has_limited_batches: false,
            plan: Arc::new(plan),
            partitions: Arc::new(pieces),
            remote: None,
            done: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        })
    }

    /// The same scan with partial aggregates in place of columns.
    ///
    /// # Errors
    /// The reason why it is left to DataFusion.
    pub(crate) fn with_aggregates(
        &self,
        aggregates: Aggregates,
    ) -> std::result::Result<Self, Reason> {
        let planned = self.planned_rows();
        let planned = planned.ok_or("the scan is planned")?;
        if planned.reads == Reads::Iterators {
            return Err("DataFusion computes it".to_owned());
        }
        if self.limit.is_some() {
            return Err("the scan has a limit".to_owned());
        }
        let mut program = planned.program.clone();
        let aggregation = (aggregates.compile)(&mut program)?;
        let plan = program.plan(ScanOutput::Groups(aggregation))?;
        Ok(Self {
            plan: Arc::new(plan),
            properties: properties(aggregates.schema, None, self.partitions.len()),
            ordered_by: None,
            done: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
            ..self.clone()
        })
    }

    /// The same scan, whose batches have at most as many rows as the session states.
    pub(crate) fn with_limited_batches(&self) -> Self {
        Self {
            has_limited_batches: true,
            ..self.clone()
        }
    }

    fn has_rows(&self) -> bool {
        matches!(self.plan.output, ScanOutput::Rows(_))
    }

    /// The inputs from which its rows are planned; `None` if it returns aggregates, or if another process has planned
    /// it.
    pub(crate) fn planned_rows(&self) -> Option<&Planned> {
        self.planned.as_ref().filter(|_| self.has_rows())
    }

    /// An expression over the scan's columns as one over all columns of the table.
    pub(crate) fn over_table(
        &self,
        expression: Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let moved = expression.transform_down(|expression| {
            let Some(column) = expression.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expression));
            };
            let planned = self.planned.as_ref();
            let position = planned.and_then(|planned| planned.projection.get(column.index()));
            let Some(&position) = position else {
                return internal_err!("a scan has no column {}", column.index());
            };
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), position));
            Ok(Transformed::yes(column))
        })?;
        Ok(moved.data)
    }
}

/// The positions of all columns.
pub(crate) fn all_columns(schema: &Schema) -> Vec<usize> {
    (0..schema.fields().len()).collect()
}

fn column_at(schema: &Schema, position: usize) -> Arc<dyn PhysicalExpr> {
    Arc::new(Column::new(schema.field(position).name(), position))
}

/// Bytes of each piece of a column family that is read in `partitions` partitions.
fn piece_bytes(family: &FamilySnapshot, engine: &ScanEngine, partitions: u64) -> u64 {
    /// Enough that partitions end at about the same time.
    const PIECES_PER_PARTITION: u64 = 4;
    let bytes = family.bytes().div_ceil(partitions * PIECES_PER_PARTITION);
    let range = engine.piece_bytes();
    bytes.clamp(*range.start(), *range.end())
}

/// The pieces of each partition, in the order of their keys.
fn pieces(
    source: &Source,
    ranges: &[KeyRange],
    reads: Reads,
    partitions: usize,
) -> Vec<Vec<Piece>> {
    const MIN_REMOTE_PARTITIONS: u64 = 2;
    let partitions = partitions.max(1) as u64;
    let piece_bytes = piece_bytes(&source.family, &source.engine, partitions);
    let mut pieces = source.family.pieces(ranges, piece_bytes);
    if !source.family.remotes().is_empty() {
        // The processes that have the files cut them. Two partitions at least, so that DataFusion plans a node that
        // collects them: their number grows with that of the parts.
        let mut of_partitions = vec![Vec::new(); partitions.max(MIN_REMOTE_PARTITIONS) as usize];
        of_partitions[0] = pieces;
        return of_partitions;
    }
    if reads != Reads::Files {
        for piece in &mut pieces {
            piece.path = ReadPath::RocksDb("a comparison asks for them".to_owned());
        }
    }
    let mut of_partitions = spread(pieces, partitions as usize);
    of_partitions.retain(|pieces| !pieces.is_empty());
    if of_partitions.is_empty() {
        of_partitions.push(Vec::new());
    }
    of_partitions
}

/// Spreads pieces over `parts` parts, in their order and by their bytes. Parts may be empty.
pub(crate) fn spread(pieces: Vec<Piece>, parts: usize) -> Vec<Vec<Piece>> {
    let total: u64 = pieces.iter().map(|piece| piece.bytes.max(1)).sum();
    let mut spread = vec![Vec::new(); parts.max(1)];
    let mut passed = 0;
    for piece in pieces {
        let part = u128::from(passed) * spread.len() as u128 / u128::from(total);
        passed += piece.bytes.max(1);
        spread[part as usize].push(piece);
    }
    spread
}

/// Properties of a scan with these columns, whose rows may be ordered by one of them.
fn properties(
    schema: SchemaRef,
    ordered_by: Option<usize>,
    partitions: usize,
) -> Arc<PlanProperties> {
    let mut equivalences = EquivalenceProperties::new(Arc::clone(&schema));
    if let Some(position) = ordered_by {
        let ascending = PhysicalSortExpr::new(column_at(&schema, position), SortOptions::default());
        equivalences.add_ordering([ascending]);
    }
    let properties = PlanProperties::new(
        equivalences,
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    );
    Arc::new(properties.with_scheduling_type(SchedulingType::Cooperative))
}

/// An error of Rockmill's as one of DataFusion's. A file of a database in `dir` has its path.
pub(crate) fn external_in(dir: &Path, error: rockmill_core::Error) -> DataFusionError {
    external(match error.file {
        Some(_) => error.in_directory(dir),
        None => error,
    })
}

/// An error of Rockmill's as one of DataFusion's.
pub(crate) fn external(error: rockmill_core::Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &'static str {
        "RockmillScan"
    }

    leaf!();

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        let planned = self.planned.iter();
        let filters = planned.flat_map(|planned| {
            let late = planned.offered.iter().chain(&planned.dynamic);
            planned.filters.iter().chain(late)
        });
        apply_expression_roots(filters, f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(pieces) = self.partitions.get(partition) else {
            return internal_err!("a scan has no partition {partition}");
        };
        if !self.source.family.remotes().is_empty() {
            return internal_err!("a scan of shards would run where their files are not");
        }
        self.source.statement.runs();
        let batch_rows = context.session_config().batch_size();
        let run = Run {
            source: self.source.clone(),
            pieces: pieces.clone(),
            plan: Arc::clone(&self.plan),
            planned: self.planned.clone(),
            limit: self.limit.unwrap_or(usize::MAX),
            batch_rows: (self.has_limited_batches || batch_rows < USUAL_BATCH_ROWS)
                .then_some(batch_rows),
            schema: self.schema(),
            cancel: CancelToken::new(),
            done: Arc::clone(&self.done),
            counters: Counters::new(
                &self.metrics,
                partition,
                &self.plan,
                self.source.engine.has_cache(),
            ),
        };
        let guard = CancelOnDrop(run.cancel.clone());
        let schema = self.schema();
        // A scan takes its thread when its first row is wanted. A join executes its probe side before it reads its build
        // side. If probe sides took all threads, no build side would ever end.
        let batches = futures::stream::once(async move {
            // A finished piece waits here while the next one is computed.
            let mut builder = RecordBatchReceiverStream::builder(schema, 1);
            let sender = builder.tx();
            builder
                .spawn_blocking(move || run.all(|batch| sender.blocking_send(Ok(batch)).is_ok()));
            builder.build()
        });
        let batches = batches.flatten().inspect(move |_| {
            // Lives as long as the stream.
            let _ = &guard;
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            batches,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.schema());
        if self.has_rows() && args.partition().is_none() {
            let entries = self.source.family.entries();
            statistics.num_rows = entries.map_or(Precision::Absent, |entries| {
                Precision::Inexact(entries as usize)
            });
        }
        Ok(Arc::new(statistics))
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        self.has_rows().then(|| {
            // A filter would change which rows come first.
            let scan = self.without_dynamic_filters();
            Arc::new(Self { limit, ..scan }) as Arc<dyn ExecutionPlan>
        })
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    /// Takes no filter: [`crate::table::RocksTable`] has taken those that scans compute. DataFusion moves the others by the names
    /// of columns, of which several may be the same.
    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let filters = result.parent_filters.iter().map(|parent| &parent.filter);
        let none = vec![PushedDown::No; filters.len()];
        let scan = self.with_offered(filters)?;
        let answer = FilterPushdownPropagation::with_parent_pushdown_result(none);
        Ok(answer.with_updated_node(Arc::new(scan)))
    }

    /// A plan that runs again has other sources of constants.
    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(self.without_dynamic_filters()))
    }
}

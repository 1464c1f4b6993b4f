//! Joins that do not fit into memory.
//!
//! DataFusion's hash joins keep one side in memory, as one batch. They do not spill, and a batch has at most 2 GiB of each
//! column of strings or bytes. Joins that sort both sides spill, so a query has a second plan with these.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinSide, internal_err, resources_datafusion_err};
use datafusion::dataframe::DataFrame;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::SessionState;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, execute_stream,
};
use futures::{StreamExt, TryStreamExt, stream};

use crate::rule::one_input;
use crate::size::columns;
use crate::writes::with_named_files;

/// The plan of a query. If its hash joins do not fit into memory, joins that spill replace them. They do not if the
/// session may not spill, or if the query writes something. Files that it writes get their names when it has ended.
///
/// # Errors
/// Those of DataFusion.
pub async fn plan_query(query: DataFrame) -> Result<Arc<dyn ExecutionPlan>> {
    let (state, query) = query.into_parts();
    let plan = state.create_physical_plan(&query).await?;
    let only_reads = !matches!(
        query,
        LogicalPlan::Copy(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
    );
    if !only_reads || !has_hash_joins(&plan) {
        return Ok(with_named_files(plan));
    }
    let spilling = match state.runtime_env().disk_manager.tmp_files_enabled() {
        true => with_merge_joins(state, &query).await?,
        false => None,
    };
    let plan: Arc<dyn ExecutionPlan> = match plan.output_partitioning().partition_count() {
        1 => plan,
        _ => Arc::new(CoalescePartitionsExec::new(plan)),
    };
    Ok(Arc::new(QueryExec::new(plan, spilling)))
}

/// The plan of a query that sorts both sides of all joins; `None` if it cannot do so.
async fn with_merge_joins(
    mut state: SessionState,
    query: &LogicalPlan,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // Plans with one partition always have hash joins.
    const LEAST_PARTITIONS: usize = 2;
    let config = state.config_mut();
    let options = config.options_mut();
    options.optimizer.prefer_hash_join = false;
    options.optimizer.repartition_joins = true;
    let partitions = config.target_partitions().max(LEAST_PARTITIONS);
    *config = config.clone().with_target_partitions(partitions);
    let plan = state.create_physical_plan(query).await?;
    Ok(Some(plan).filter(|plan| !has_hash_joins(plan)))
}

/// Gives the filter of a join of sorted rows a column if it has none, such as a comparison with a subquery. DataFusion passes
/// over a filter without columns.
///
/// # Errors
/// Those of DataFusion if it cannot make the join.
pub fn filters_with_columns(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let with_columns = plan.transform_up(|node| {
        let join = node.downcast_ref::<SortMergeJoinExec>();
        let filter = join.and_then(|join| join.filter().as_ref());
        match (join, filter) {
            (Some(join), Some(filter)) if filter.column_indices().is_empty() => {
                let join = with_filter(join, with_first_column(join, filter))?;
                Ok(Transformed::yes(Arc::new(join) as _))
            }
            _ => Ok(Transformed::no(node)),
        }
    })?;
    Ok(with_columns.data)
}

fn with_first_column(join: &SortMergeJoinExec, filter: &JoinFilter) -> JoinFilter {
    let first = ColumnIndex {
        index: 0,
        side: JoinSide::Left,
    };
    let field = Arc::clone(&join.left().schema().fields()[first.index]);
    let schema = Arc::new(Schema::new([field]));
    JoinFilter::new(Arc::clone(filter.expression()), vec![first], schema)
}

fn with_filter(join: &SortMergeJoinExec, filter: JoinFilter) -> Result<SortMergeJoinExec> {
    SortMergeJoinExec::try_new(
        Arc::clone(join.left()),
        Arc::clone(join.right()),
        join.on().to_vec(),
        Some(filter),
        join.join_type(),
        join.sort_options().to_vec(),
        join.null_equality(),
    )
}

fn has_hash_joins(plan: &Arc<dyn ExecutionPlan>) -> bool {
    !kept_sides(plan).is_empty()
}

/// Columns of the sides that hash joins keep.
fn kept_sides(plan: &Arc<dyn ExecutionPlan>) -> Vec<SchemaRef> {
    let mut sides = Vec::new();
    let _ = plan.apply(|node| {
        let join = node.downcast_ref::<HashJoinExec>();
        sides.extend(join.map(|join| join.left().schema()));
        Ok(TreeNodeRecursion::Continue)
    });
    sides
}

/// Runs a plan, or another one if the first does not fit into memory.
#[derive(Debug)]
struct QueryExec {
    plan: Arc<dyn ExecutionPlan>,
    /// Returns the same rows, and needs less memory.
    spilling: Option<Arc<dyn ExecutionPlan>>,
    properties: Arc<PlanProperties>,
}

impl QueryExec {
    fn new(plan: Arc<dyn ExecutionPlan>, spilling: Option<Arc<dyn ExecutionPlan>>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(plan.schema()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            plan,
            spilling,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for QueryExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RockmillQuery")
    }
}

impl ExecutionPlan for QueryExec {
    fn name(&self) -> &'static str {
        "RockmillQuery"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!(plan, |this, plan| Self::new(plan, this.spilling.clone()));

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.plan.schema();
        let mut rows = self.plan.execute(partition, Arc::clone(&context))?;
        let (plan, spilling) = (Arc::clone(&self.plan), self.spilling.clone());
        let rows = stream::once(async move {
            let first = rows.next().await;
            match spilling {
                Some(spilling) if matches!(&first, Some(Err(error)) if has_no_room(error)) => {
                    drop(rows);
                    execute_stream(spilling, context)
                }
                _ => {
                    let schema = rows.schema();
                    let rows = stream::iter(first).chain(rows);
                    let rows = rows.map_err(move |error| named(error, &plan));
                    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)) as _)
                }
            }
        });
        let rows = rows.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

fn has_no_room(error: &DataFusionError) -> bool {
    matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) || is_side_too_long(error)
}

/// Whether a side is too long for one batch. Expressions have other errors, which another kind of join would not prevent.
fn is_side_too_long(error: &DataFusionError) -> bool {
    let DataFusionError::ArrowError(error, _) = error.find_root() else {
        return false;
    };
    matches!(**error, ArrowError::OffsetOverflowError(_))
}

/// The same error, or one that names the columns that are too long for one batch.
fn named(error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    let columns = columns(&kept_sides(plan));
    if !is_side_too_long(&error) || columns.is_empty() {
        return error;
    }
    resources_datafusion_err!(
        "one side of a join has more than 2 GiB of column {columns}, which is the most for one column: join fewer \
         columns or rows"
    )
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::common::{JoinType, NullEquality, exec_datafusion_err};
    use datafusion::physical_expr::expressions::col;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::physical_plan::joins::PartitionMode;

    use super::*;

    #[test]
    fn a_side_of_a_join_that_is_too_long_names_its_columns() {
        let fields = [
            ("id", DataType::Int64),
            ("name", DataType::Utf8),
            ("body", DataType::Binary),
        ];
        let fields = fields.map(|(name, data_type)| Field::new(name, data_type, false));
        let side: Arc<dyn ExecutionPlan> =
            Arc::new(EmptyExec::new(Arc::new(Schema::new(fields.to_vec()))));
        let id = || col("id", &side.schema()).unwrap();
        let join = HashJoinExec::try_new(
            Arc::clone(&side),
            Arc::clone(&side),
            vec![(id(), id())],
            None,
            &JoinType::Inner,
            None,
            PartitionMode::CollectLeft,
            NullEquality::NullEqualsNothing,
            false,
        );
        let join: Arc<dyn ExecutionPlan> = Arc::new(join.unwrap());
        let too_long = || DataFusionError::from(ArrowError::OffsetOverflowError(1 << 31));
        assert!(has_no_room(&too_long()));
        let error = named(too_long().context("from a task"), &join).to_string();
        assert!(error.contains("2 GiB of column body or name"), "{error}");
        let beside = || exec_datafusion_err!("byte array offset overflow");
        assert!(!has_no_room(&beside()));
        let other = named(beside(), &join);
        assert!(matches!(other, DataFusionError::Execution(_)), "{other}");
    }
}

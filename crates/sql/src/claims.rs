//! Claims about rows that do not hold.
//!
//! DataFusion leaves out a sort if a node claims that its rows are in an order, or that a column is constant or unique. With
//! such a claim, it also returns a group before it has read all rows. It derives the claims of a node from those of its
//! inputs. Scans claim the order of their keys, so these errors of DataFusion would change answers:
//!
//! - Grouping sets: a column has nulls in some sets, and each set begins with the first key again.
//! - An outer join: columns that are constant have nulls where a row has no partner.
//! - A join of which several rows have the first value of the order: the order of the other side begins again for each of
//!   them. A merge join with a filter has no order.
//! - Columns that were moved or computed after a GROUP BY: others than the keys seem unique.
//! - Aggregates over windows: nulls come first, and rows that leave a window make it smaller.
//! - `unnest` over columns of one name, of which it takes the first for all.
//! - A merge of sorted partitions by their first columns: it is not in the order of the others.
//! - A filter on a cast, which has one value for several of its column.
//! - Some functions: times of days repeat, and the negative of the least integer is itself.
//!
//! So a rule puts a [`ForgetExec`] above or below such nodes. It comes before the rule of DataFusion that relies on claims.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Constraints, JoinType, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::sort_properties::SortProperties;
use datafusion::physical_expr::equivalence::ProjectionMapping;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column, NegativeExpr};
use datafusion::physical_expr::utils::{collect_columns, split_conjunction};
use datafusion::physical_expr::window::StandardWindowExpr;
use datafusion::physical_expr::{
    AcrossPartitions, ConstExpr, EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr,
};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterDescription, FilterPushdownPhase, FilterPushdownPropagation,
};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, Statistics, replace_children_if_necessary,
};

use crate::pushdown::is_unambiguous;
use crate::rule::Rule;

/// The rule of DataFusion that adds and leaves out sorts.
const BEFORE: &str = "EnsureRequirements";

/// Adds one rule before that of DataFusion which relies on claims, and one behind it.
pub fn add_true_claims(optimizer: &mut PhysicalOptimizer) {
    let mut rules = optimizer.rules.iter();
    if let Some(at) = rules.position(|rule| rule.name() == BEFORE) {
        optimizer
            .rules
            .insert(at + 1, Rule::new("rockmill_full_merges", full_merges));
        optimizer
            .rules
            .insert(at, Rule::new("rockmill_true_claims", true_claims));
    }
}

/// Puts DataFusion's claims right.
fn true_claims(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|before| {
        let children = before.children().into_iter().enumerate();
        let children = children.map(|(at, child)| {
            let kept = kept_below(&before, at, child)?;
            Ok(forget(Arc::clone(child), kept))
        });
        let children = children.collect::<Result<_>>()?;
        let node = replace_children_if_necessary(Arc::clone(&before), children)?;
        let node = with_true_claims(node);
        let is_new = !Arc::ptr_eq(&before, &node);
        Ok(Transformed::new_transformed(node, is_new))
    })?;
    Ok(plan.data)
}

/// Merges sorted partitions by all columns by which each of them is sorted. DataFusion claims their order for the result, also
/// if it merges them by the first columns alone.
fn full_merges(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        Ok(match full_merge(&node) {
            Some(merge) => Transformed::yes(Arc::new(merge) as _),
            None => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}

fn full_merge(node: &Arc<dyn ExecutionPlan>) -> Option<SortPreservingMergeExec> {
    let merge = node.downcast_ref::<SortPreservingMergeExec>()?;
    let (input, by) = (merge.input(), merge.expr());
    let orders = input.equivalence_properties().oeq_class().iter();
    let finer = orders.filter(|order| order.len() > by.len() && order.starts_with(by));
    let finest = finer.max_by_key(|order| order.len())?;
    let merge_by = SortPreservingMergeExec::new(finest.clone(), Arc::clone(input));
    Some(merge_by.with_fetch(merge.fetch()))
}

/// A node that makes no wrong claims, with the claims of its inputs.
pub fn with_true_claims(node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    let kept = kept_above(&node);
    forget(node, kept)
}

fn forget(node: Arc<dyn ExecutionPlan>, kept: Option<usize>) -> Arc<dyn ExecutionPlan> {
    match kept {
        Some(kept) => Arc::new(ForgetExec::new(node, kept)),
        None => node,
    }
}

/// The number of first columns of an input about which a node may rely on claims; `None` for all of them.
fn kept_below(
    node: &Arc<dyn ExecutionPlan>,
    at: usize,
    input: &Arc<dyn ExecutionPlan>,
) -> Result<Option<usize>> {
    let claims = input.equivalence_properties();
    let hash = node.downcast_ref::<HashJoinExec>();
    let other = node.downcast_ref::<NestedLoopJoinExec>();
    let join = hash.map(HashJoinExec::join_type);
    let has_nulls = match join.or(other.map(NestedLoopJoinExec::join_type)) {
        Some(JoinType::Left) => at == 1,
        Some(JoinType::Right) => at == 0,
        Some(JoinType::Full) => true,
        _ => false,
    };
    if has_nulls && !claims.eq_group().is_empty() {
        return Ok(Some(0));
    }
    let is_ordered = |input: &Arc<dyn ExecutionPlan>| {
        let claims = input.equivalence_properties();
        !claims.oeq_class().is_empty()
    };
    if let Some(join) = hash
        && at == 0
        && matches!(join.join_type(), JoinType::Inner | JoinType::Right)
        && is_ordered(input)
        && is_ordered(join.right())
    {
        return Ok(Some(0));
    }
    let mut has_errors = false;
    if node.children().len() == 1 && !node.is::<FilterExec>() {
        node.apply_expressions(&mut |expression| {
            has_errors |= expression.exists(|part| Ok(is_misjudged(part, claims)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let moves = !claims.constraints().is_empty() && moves_columns(node);
    Ok(match (has_errors, moves) {
        (true, _) => Some(0),
        (false, true) => Some(input.schema().fields().len()),
        (false, false) => None,
    })
}

/// The number of first columns of a node about which its claims hold; `None` for all of them.
fn kept_above(node: &Arc<dyn ExecutionPlan>) -> Option<usize> {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        return aggregate.group_expr().has_grouping_set().then_some(0);
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        return match join.join_type() {
            JoinType::Inner | JoinType::Left if join.filter().is_none() => {
                Some(join.left().schema().fields().len())
            }
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => Some(0),
            _ => join.filter().as_ref().map(|_| 0),
        };
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return guesses_constants(filter).then(|| filter.schema().fields().len());
    }
    if node.is::<UnnestExec>() {
        return (!is_unambiguous(&node.schema())).then_some(0);
    }
    let bounded = node.downcast_ref::<BoundedWindowAggExec>();
    let bounded = bounded.map(BoundedWindowAggExec::window_expr);
    let window = node.downcast_ref::<WindowAggExec>();
    let windows = bounded.or(window.map(WindowAggExec::window_expr))?;
    let mut windows = windows.iter();
    let has_aggregates = windows.any(|window| !window.as_any().is::<StandardWindowExpr>());
    has_aggregates.then(|| node.children()[0].schema().fields().len())
}

/// Whether a node has other columns than its input, or has them at other positions.
fn moves_columns(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_at = |at: usize, computed: &Arc<dyn PhysicalExpr>| {
        let column = computed.downcast_ref::<Column>();
        column.is_some_and(|column| column.index() == at)
    };
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let mut computed = projection.expr().iter().enumerate();
        return !computed.all(|(at, computed)| is_at(at, &computed.expr));
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let mut groups = aggregate.group_expr().expr().iter().enumerate();
        return !groups.all(|(at, (group, _))| is_at(at, group));
    }
    let filter = node.downcast_ref::<FilterExec>();
    filter.is_some_and(|filter| filter.projection().is_some())
}

/// The sides of the equalities of a filter of which one is a column.
fn equalities(filter: &FilterExec) -> Vec<[&Arc<dyn PhysicalExpr>; 2]> {
    let conditions = split_conjunction(filter.predicate()).into_iter();
    let equalities = conditions.filter_map(|condition| condition.downcast_ref::<BinaryExpr>());
    let equalities = equalities.filter(|condition| *condition.op() == Operator::Eq);
    let sides = equalities.flat_map(|equality| {
        let (left, right) = (equality.left(), equality.right());
        [[left, right], [right, left]]
    });
    sides.filter(|[column, _]| column.is::<Column>()).collect()
}

fn has_no_columns(expression: &Arc<dyn PhysicalExpr>) -> bool {
    collect_columns(expression).is_empty()
}

/// Whether a filter claims constants that it does not compare with one.
fn guesses_constants(filter: &FilterExec) -> bool {
    let mut compared = Vec::new();
    for [column, other] in equalities(filter) {
        let column = column.downcast_ref::<Column>();
        compared.extend(column.filter(|_| has_no_columns(other)).map(Column::index));
    }
    let before = filter.input().equivalence_properties();
    let claims = filter.properties().equivalence_properties();
    claims.constants().iter().any(|constant| {
        let Some(column) = constant.expr.downcast_ref::<Column>() else {
            return false;
        };
        let moved = filter.projection().as_ref();
        let at = moved.map_or(column.index(), |moved| moved[column.index()]);
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(column.name(), at));
        before.is_expr_constant(&column).is_none() && !compared.contains(&at)
    })
}

/// The claims of a filter that guesses nothing: those of its input, and what its equalities say.
fn claims_of(filter: &FilterExec) -> Result<EquivalenceProperties> {
    let mut claims = filter.input().equivalence_properties().clone();
    for [column, other] in equalities(filter) {
        if has_no_columns(other) {
            let constant = ConstExpr::new(Arc::clone(column), AcrossPartitions::Uniform(None));
            claims.add_constants([constant])?;
        } else if other.is::<Column>() {
            claims.add_equal_conditions(Arc::clone(column), Arc::clone(other))?;
        }
    }
    Ok(match filter.projection().as_ref() {
        Some(kept) => {
            let kept = ProjectionMapping::from_indices(kept, claims.schema())?;
            claims.project(&kept, filter.schema())
        }
        None => claims,
    })
}

/// Whether DataFusion claims an order for an expression that it may not have.
fn is_misjudged(expression: &Arc<dyn PhysicalExpr>, claims: &EquivalenceProperties) -> bool {
    let schema = claims.schema();
    let changes_order = if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        let from = cast.expr().data_type(schema);
        from.is_ok_and(|from| repeats(&from, cast.cast_type()))
    } else if let Some(negative) = expression.downcast_ref::<NegativeExpr>() {
        let from = negative.arg().data_type(schema);
        from.is_ok_and(|from| from.is_integer())
    } else {
        let function = expression.downcast_ref::<ScalarFunctionExpr>();
        function.is_some_and(|function| function.fun().name() == "log")
    };
    changes_order && {
        let properties = claims.get_expr_properties(Arc::clone(expression));
        matches!(properties.sort_properties, SortProperties::Ordered(_))
    }
}

/// Whether a later time may become an earlier one, as times of days and times in a time zone do.
fn repeats(from: &DataType, to: &DataType) -> bool {
    use DataType::{Date32, Date64, Duration, Time32, Time64, Timestamp};
    let is_sound = match (from, to) {
        (Timestamp(_, zone), Timestamp(_, other)) => zone.is_some() == other.is_some(),
        (Timestamp(_, None) | Date32 | Date64, Date32 | Date64)
        | (Date32 | Date64, Timestamp(_, None))
        | (Time32(_) | Time64(_), Time32(_) | Time64(_))
        | (Duration(_), Duration(_)) => true,
        (from, to) => from == to || !from.is_temporal(),
    };
    !is_sound
}

/// Whether a node only forgets claims about the rows of its input.
#[must_use]
pub fn is_forgetting(node: &dyn ExecutionPlan) -> bool {
    node.is::<ForgetExec>()
}

/// Returns the rows of its input, and claims less about them: orders and constants of the first columns, and nothing unique.
/// Above a filter, it claims no constant that the filter guesses.
#[derive(Debug)]
pub struct ForgetExec {
    input: Arc<dyn ExecutionPlan>,
    /// Number of the columns.
    pub kept: usize,
    properties: Arc<PlanProperties>,
}

impl ForgetExec {
    /// The rows of `input`, with the claims about its first `kept` columns.
    pub fn new(input: Arc<dyn ExecutionPlan>, kept: usize) -> Self {
        let (claims, schema) = (input.equivalence_properties(), input.schema());
        let columns = (0..kept).collect::<Vec<_>>();
        let filter = input.downcast_ref::<FilterExec>();
        let claims = match ProjectionMapping::from_indices(&columns, &schema) {
            _ if kept == schema.fields().len() => match filter.map(claims_of) {
                Some(true_claims) => {
                    true_claims.unwrap_or_else(|_| EquivalenceProperties::new(schema))
                }
                None => claims.clone(),
            },
            Ok(kept) => claims.project(&kept, schema),
            Err(_) => EquivalenceProperties::new(schema),
        };
        let claims = claims.with_constraints(Constraints::default());
        let mut properties = input
            .properties()
            .as_ref()
            .clone()
            .with_eq_properties(claims);
        // Rows of one set of groups are in one partition, those of another in all.
        if input.is::<AggregateExec>() && kept == 0 {
            let partitions = input.output_partitioning().partition_count();
            properties =
                properties.with_partitioning(Partitioning::UnknownPartitioning(partitions));
        }
        Self {
            input,
            kept,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for ForgetExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RockmillForget: kept_columns={}", self.kept)
    }
}

impl ExecutionPlan for ForgetExec {
    fn name(&self) -> &'static str {
        "RockmillForget"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match <[_; 1]>::try_from(children) {
            Ok([input]) => Ok(Arc::new(Self::new(input, self.kept))),
            Err(_) => internal_err!("{} has one input", self.name()),
        }
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    /// Otherwise DataFusion would move sorts below it, and miss them above.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![self.kept == self.schema().fields().len() && !self.input.is::<FilterExec>()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        inputs: &[Arc<Statistics>],
        _: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        Ok(Arc::clone(&inputs[0]))
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    fn gather_filters_for_pushdown(
        &self,
        _: FilterPushdownPhase,
        filters: Vec<Arc<dyn PhysicalExpr>>,
        _: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(filters, &self.children())
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        result: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        Ok(FilterPushdownPropagation::if_all(result))
    }
}

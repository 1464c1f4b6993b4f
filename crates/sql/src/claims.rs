//! Wrong claims about rows: DataFusion's equivalence properties, which are orders, constants and unique columns.
//!
//! DataFusion leaves out a sort if a node claims that its rows are in an order, or that a column is constant or unique. With
//! such a claim, it also returns a group before it has read all rows. It derives the claims of a node from those of its
//! inputs. Scans claim the order of their keys, so these errors of DataFusion would change answers:
//!
//! - Grouping sets: a column has nulls in some sets, and each set begins with the first key again.
//! - Outer joins: a constant column has nulls where a row has no partner.
//! - Joins: DataFusion appends the order of one side to that of the other. That holds only if the other's values are unique. A
//!   merge join with a filter has no order.
//! - Projections above a GROUP BY: other columns than the keys seem unique.
//! - Aggregates over windows: nulls come first, and rows that leave a window make it smaller.
//! - `unnest` over columns of one name: DataFusion takes the first of them for all.
//! - A merge of sorted partitions by their first columns: it is not in the order of the others.
//! - A filter on a cast, such as `cast(x as int) = 0`: DataFusion takes x for constant.
//! - A sort above a limit with an offset: it moves below, and some of the wanted rows are not read.
//! - Casts to times of days, which repeat; the negative of the least integer, which is itself; logarithms.
//!
//! [`true_claims`] puts a [`ForgetExec`] above or below such nodes, before the rule of DataFusion that relies on claims.

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
use datafusion::physical_expr::utils::split_conjunction;
use datafusion::physical_expr::window::StandardWindowExpr;
use datafusion::physical_expr::{
    ConstExpr, EquivalenceProperties, OrderingRequirements, PhysicalExpr, ScalarFunctionExpr,
};
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties, Statistics, replace_children_if_necessary,
};

use crate::pushdown::is_unambiguous;
use crate::rule::{Rule, one_input};
use crate::windows::with_whole_ranges;

/// The rule of DataFusion that adds and leaves out sorts.
const BEFORE: &str = "EnsureRequirements";

/// The rule of DataFusion that refuses a plan without an order that it needs.
const LAST: &str = "SanityCheckPlan";

/// Adds one rule before that of DataFusion which relies on claims, and one behind it.
pub fn add_true_claims(optimizer: &mut PhysicalOptimizer) {
    let mut rules = optimizer.rules.iter();
    if let Some(at) = rules.position(|rule| rule.name() == BEFORE) {
        optimizer
            .rules
            .insert(at + 1, Rule::new("rockmill_full_orders", full_orders));
        optimizer
            .rules
            .insert(at, Rule::new("rockmill_true_claims", true_claims));
    }
    let mut rules = optimizer.rules.iter();
    if let Some(at) = rules.position(|rule| rule.name() == LAST) {
        let rule = Rule::new("rockmill_missing_sorts", missing_sorts);
        optimizer.rules.insert(at, rule);
    }
}

/// Sorts what other rules have left without the order that a node needs.
fn missing_sorts(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|before| {
        let node = with_sorted_inputs(Arc::clone(&before))?;
        let is_new = !Arc::ptr_eq(&before, &node);
        Ok(Transformed::new_transformed(node, is_new))
    })?;
    Ok(plan.data)
}

/// Removes claims that do not hold.
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

/// Sorts inputs that are not in the order that their node needs: DataFusion forgets it above a union whose inputs have equal
/// columns. Merges sorted partitions by all columns by which each of them is sorted. DataFusion claims their order for the
/// result, also if it merges them by the first columns alone.
fn full_orders(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|before| {
        let node = with_sorted_inputs(with_whole_ranges(Arc::clone(&before))?)?;
        let node = match full_merge(&node) {
            Some(merge) => Arc::new(merge),
            None => node,
        };
        let is_new = !Arc::ptr_eq(&before, &node);
        Ok(Transformed::new_transformed(node, is_new))
    })?;
    Ok(plan.data)
}

fn with_sorted_inputs(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let inputs = node
        .children()
        .into_iter()
        .zip(node.required_input_ordering());
    let sorted = inputs.map(|(input, order)| {
        let claims = input.equivalence_properties();
        let order = order.map(OrderingRequirements::into_single);
        Ok(match order {
            Some(order) if !claims.ordering_satisfy_requirement(order.clone())? => {
                let is_partitioned = input.output_partitioning().partition_count() > 1;
                let sort = SortExec::new(order.into(), Arc::clone(input));
                Arc::new(sort.with_preserve_partitioning(is_partitioned))
            }
            _ => Arc::clone(input),
        })
    });
    let sorted = sorted.collect::<Result<_>>()?;
    replace_children_if_necessary(node, sorted)
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

fn forget(node: Arc<dyn ExecutionPlan>, kept: Option<KeptClaims>) -> Arc<dyn ExecutionPlan> {
    match kept {
        Some(kept) => Arc::new(ForgetExec::new(node, kept)),
        None => node,
    }
}

/// The claims about an input on which a node may rely; `None` for all of them.
fn kept_below(
    node: &Arc<dyn ExecutionPlan>,
    at: usize,
    input: &Arc<dyn ExecutionPlan>,
) -> Result<Option<KeptClaims>> {
    let claims = input.equivalence_properties();
    let hash = node.downcast_ref::<HashJoinExec>();
    let nested = node.downcast_ref::<NestedLoopJoinExec>();
    let join = hash.map(HashJoinExec::join_type);
    let adds_nulls = match join.or(nested.map(NestedLoopJoinExec::join_type)) {
        Some(JoinType::Left) => at == 1,
        Some(JoinType::Right) => at == 0,
        Some(JoinType::Full) => true,
        _ => false,
    };
    // Rows without a partner have nulls here, so no column stays constant or equal to another.
    if adds_nulls && !claims.eq_group().is_empty() {
        return Ok(Some(KeptClaims::Columns(0)));
    }
    let is_ordered = |input: &Arc<dyn ExecutionPlan>| {
        let claims = input.equivalence_properties();
        !claims.oeq_class().is_empty()
    };
    // DataFusion appends the order of the build side, which begins again for each row of the probe side.
    if let Some(join) = hash
        && at == 0
        && matches!(join.join_type(), JoinType::Inner | JoinType::Right)
        && is_ordered(input)
        && is_ordered(join.right())
    {
        return Ok(Some(KeptClaims::Columns(0)));
    }
    let mut has_wrong_orders = false;
    // Joins and filters derive no order from their expressions.
    if node.children().len() == 1 && !node.is::<FilterExec>() {
        node.apply_expressions(&mut |expression| {
            has_wrong_orders |= expression.exists(|part| Ok(has_wrong_order(part, claims)))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    let moves = !claims.constraints().is_empty() && moves_columns(node);
    Ok(match (has_wrong_orders, moves) {
        (true, _) => Some(KeptClaims::Columns(0)),
        (false, true) => Some(KeptClaims::Columns(input.schema().fields().len())),
        (false, false) => None,
    })
}

/// The claims of a node that hold; `None` for all of them.
fn kept_above(node: &Arc<dyn ExecutionPlan>) -> Option<KeptClaims> {
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let has_sets = aggregate.group_expr().has_grouping_set();
        return has_sets.then_some(KeptClaims::GroupingSets);
    }
    if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
        let has_filter = join.filter().is_some();
        return match join.join_type() {
            JoinType::Inner | JoinType::Left if !has_filter => {
                Some(KeptClaims::Columns(join.left().schema().fields().len()))
            }
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                Some(KeptClaims::Columns(0))
            }
            _ => has_filter.then_some(KeptClaims::Columns(0)),
        };
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        return guesses_constants(filter).then_some(KeptClaims::Filter);
    }
    // DataFusion moves a sort below an offset, and reads as many rows as are wanted behind it.
    if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
        let columns = KeptClaims::Columns(limit.schema().fields().len());
        return (limit.skip() > 0).then_some(columns);
    }
    if node.is::<UnnestExec>() {
        return (!is_unambiguous(&node.schema())).then_some(KeptClaims::Columns(0));
    }
    let bounded = node.downcast_ref::<BoundedWindowAggExec>();
    let bounded = bounded.map(BoundedWindowAggExec::window_expr);
    let window = node.downcast_ref::<WindowAggExec>();
    let windows = bounded.or(window.map(WindowAggExec::window_expr))?;
    let mut windows = windows.iter();
    let has_aggregates = windows.any(|window| !window.as_any().is::<StandardWindowExpr>());
    has_aggregates.then(|| KeptClaims::Columns(node.children()[0].schema().fields().len()))
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

/// Whether a filter claims constants that its condition does not prove.
fn guesses_constants(filter: &FilterExec) -> bool {
    let Ok(proven) = proven_claims(filter) else {
        return true;
    };
    let claims = filter.properties().equivalence_properties();
    let mut constants = claims.constants().into_iter();
    constants.any(|constant| proven.is_expr_constant(&constant.expr).is_none())
}

/// The claims of a filter that its condition proves. DataFusion adds a constant where it estimates a single value.
fn proven_claims(filter: &FilterExec) -> Result<EquivalenceProperties> {
    let (condition, before) = (filter.predicate(), filter.input().equivalence_properties());
    let mut claims = before.clone();
    for part in split_conjunction(condition) {
        let equality = part.downcast_ref::<BinaryExpr>();
        let equality = equality.filter(|part| *part.op() == Operator::Eq);
        if let Some((left, right)) = equality.map(|part| (part.left(), part.right()))
            && (left.is::<Column>() || right.is::<Column>())
        {
            claims.add_equal_conditions(Arc::clone(left), Arc::clone(right))?;
        }
    }
    claims.add_constants(ConstExpr::collect_predicate_constants(before, condition))?;
    Ok(match filter.projection().as_ref() {
        Some(columns) => {
            let columns = ProjectionMapping::from_indices(columns, claims.schema())?;
            claims.project(&columns, filter.schema())
        }
        None => claims,
    })
}

/// Whether DataFusion claims an order for an expression that it may not have.
fn has_wrong_order(expression: &Arc<dyn PhysicalExpr>, claims: &EquivalenceProperties) -> bool {
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

/// The claims that a [`ForgetExec`] keeps. It never keeps that columns are unique.
#[derive(Clone, Copy, Debug)]
pub enum KeptClaims {
    /// Orders and constants of this number of first columns.
    Columns(usize),
    /// Those that the condition of a filter proves.
    Filter,
    /// None, and no partitioning by groups.
    GroupingSets,
}

/// Returns the rows of its input, and claims less about them.
#[derive(Debug)]
pub struct ForgetExec {
    input: Arc<dyn ExecutionPlan>,
    pub kept: KeptClaims,
    properties: Arc<PlanProperties>,
}

impl ForgetExec {
    /// The rows of `input`, with some of its claims.
    pub fn new(input: Arc<dyn ExecutionPlan>, kept: KeptClaims) -> Self {
        let (claims, schema) = (input.equivalence_properties(), input.schema());
        let kept_claims = match kept {
            KeptClaims::Columns(columns) if columns == schema.fields().len() => {
                Some(claims.clone())
            }
            KeptClaims::Columns(columns) => {
                let columns = (0..columns).collect::<Vec<_>>();
                let columns = ProjectionMapping::from_indices(&columns, &schema);
                let kept = columns.map(|columns| claims.project(&columns, Arc::clone(&schema)));
                kept.ok()
            }
            KeptClaims::Filter => {
                let filter = input.downcast_ref::<FilterExec>();
                filter.and_then(|filter| proven_claims(filter).ok())
            }
            KeptClaims::GroupingSets => None,
        };
        let kept_claims = kept_claims.unwrap_or_else(|| EquivalenceProperties::new(schema));
        let kept_claims = kept_claims.with_constraints(Constraints::default());
        let properties = input.properties().as_ref().clone();
        let mut properties = properties.with_eq_properties(kept_claims);
        if matches!(kept, KeptClaims::GroupingSets) {
            // Only rows of the set with all keys are partitioned by them.
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
        write!(f, "RockmillForget: kept={:?}", self.kept)
    }
}

impl ExecutionPlan for ForgetExec {
    fn name(&self) -> &'static str {
        "RockmillForget"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    one_input!(input, |this, input| Self::new(input, this.kept));

    /// While filters move, other nodes with the same claims may be its input.
    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = children.pop() else {
            return internal_err!("{} has one input", self.name());
        };
        Ok(Arc::new(match options.children_properties {
            ChildrenPropertiesMode::Keep => Self {
                input,
                kept: self.kept,
                properties: Arc::clone(&self.properties),
            },
            ChildrenPropertiesMode::Recompute => Self::new(input, self.kept),
        }))
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
}

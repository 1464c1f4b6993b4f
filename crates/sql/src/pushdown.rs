//! Filters that DataFusion moves down a physical plan.
//!
//! A node finds the columns of a filter in its inputs by their names. An input or a projection may have two columns of one
//! name. The second input of a semi join may have another column of that name, and an input of a union may have other
//! names. Then the filter arrives with another meaning.
//!
//! DataFusion moves two kinds of filters. Static filters are those of the statement. Scans take none of them: the logical
//! optimizer has moved them as far as possible.
//!
//! Dynamic filters have constants that are known while a statement runs: a join that has read its build side, or a sort with a
//! limit, knows which rows it still needs. DataFusion's own tables mostly skip groups of rows by such a filter, and a scan or
//! a filter below a sort drops single rows. So it must hold for each row that the statement needs. Two more things break that:
//!
//! - A filter, a join or an aggregate may have a limit, which counts rows before a filter from above.
//! - The filter of an aggregate leaves out a minimum or maximum of an expression, or one that is null so far. So aggregates make
//!   none.
//!
//! While DataFusion's rules move filters, a node that lets none pass stands wherever a filter would get another meaning. Scans
//! apply the dynamic filters that arrive. In sessions without these rules they apply none.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, internal_err};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, replace_children_if_necessary,
};

use crate::claims::ForgetExec;
use crate::rule::one_input;
use crate::scan::ScanExec;

/// One of DataFusion's two rules that move filters. No filter gets another meaning on its way.
#[derive(Debug)]
struct FilterPushdown {
    theirs: Arc<dyn PhysicalOptimizerRule + Send + Sync>,
    name: String,
}

impl FilterPushdown {
    const STATIC: &str = "FilterPushdown";
    const DYNAMIC: &str = "FilterPushdown(Post)";
}

/// Puts Rockmill's rules in the place of DataFusion's.
pub fn replace_pushdown(optimizer: &mut PhysicalOptimizer) {
    for rule in &mut optimizer.rules {
        if [FilterPushdown::STATIC, FilterPushdown::DYNAMIC].contains(&rule.name()) {
            *rule = Arc::new(FilterPushdown {
                theirs: Arc::clone(rule),
                name: format!("rockmill_{}", rule.name()),
            });
        }
    }
}

impl PhysicalOptimizerRule for FilterPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut config = config.clone();
        config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        let plan = plan.transform_up(with_stops)?.data;
        let plan = self.theirs.optimize(plan, &config)?;
        let plan = plan.transform_up(|node| {
            Ok(match node.downcast_ref::<StopExec>() {
                Some(stop) => Transformed::yes(Arc::clone(&stop.0)),
                None => Transformed::no(node),
            })
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Lets scans apply the dynamic filters that have arrived.
///
/// # Errors
/// Those of DataFusion if a node does not accept its inputs.
pub fn dynamic_filters(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        Ok(match node.downcast_ref::<ScanExec>() {
            Some(scan) => Transformed::yes(Arc::new(scan.with_dynamic_filters()) as _),
            None => Transformed::no(node),
        })
    })?;
    Ok(plan.data)
}

/// A node that lets no filter pass. It is in a plan only while filters move.
#[derive(Debug)]
struct StopExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for StopExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for StopExec {
    fn name(&self) -> &'static str {
        "StopExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    one_input!(0, |_this, input| Self(input));

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.0.execute(partition, context)
    }
}

/// A node with stops above and below it, wherever DataFusion would change the meaning of a filter.
fn with_stops(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let children = node.children();
    if !passes_filters(&node) {
        // A node that is not known here may move filters in a way of its own.
        let has_inputs = !children.is_empty();
        return Ok(Transformed::yes(stopped_if(has_inputs, node)));
    }
    let mut stops_above = has_limit(&node);
    let last = children.len() - 1;
    let mut below = Vec::with_capacity(children.len());
    for (at, child) in children.into_iter().enumerate() {
        let mut stops_below = !keeps_meaning(&node, at, child);
        // What a join or a sort makes for this input may go there, and what comes from above may not.
        if stops_below && at == last && makes_filters(&node, child) {
            stops_above = true;
            stops_below = false;
        }
        below.push(stopped_if(stops_below, Arc::clone(child)));
    }
    let node = replace_children_if_necessary(node, below)?;
    Ok(Transformed::yes(stopped_if(stops_above, node)))
}

fn stopped_if(stops: bool, node: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match stops {
        true => Arc::new(StopExec(node)),
        false => node,
    }
}

/// Whether a node makes filters over the columns of its last input.
fn makes_filters(node: &Arc<dyn ExecutionPlan>, input: &Arc<dyn ExecutionPlan>) -> bool {
    let schema = input.schema();
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let mut keys = join.on().iter();
        keys.all(|(_, key)| has_names(key, &schema))
    } else if let Some(sort) = node.downcast_ref::<SortExec>() {
        let mut keys = sort.expr().iter();
        keys.all(|key| has_names(&key.expr, &schema))
    } else {
        false
    }
}

fn has_limit(node: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    node.fetch().is_some() || aggregate.is_some_and(|node| node.limit_options().is_some())
}

/// Whether DataFusion moves filters over the columns of a node to its inputs.
fn passes_filters(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<AggregateExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<FilterExec>()
        || node.is::<ForgetExec>()
        || node.is::<HashJoinExec>()
        || node.is::<ProjectionExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<UnionExec>()
}

/// Whether a filter over the columns of a node that passes filters means the same over those of its input `at`.
fn keeps_meaning(node: &Arc<dyn ExecutionPlan>, at: usize, input: &Arc<dyn ExecutionPlan>) -> bool {
    let (output, input) = (node.schema(), input.schema());
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let mut computed = projection.expr().iter();
        return is_unambiguous(&output)
            && computed.all(|computed| has_names(&computed.expr, &input));
    }
    let has_same_columns = if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let mut groups = aggregate.group_expr().expr().iter();
        groups.all(|(group, name)| {
            let column = group.downcast_ref::<Column>();
            column.is_some_and(|column| column.name() == name) && has_names(group, &input)
        })
    } else if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // DataFusion looks for the names of the output in both inputs.
        let other = match join.join_type() {
            JoinType::LeftSemi => at == 1,
            JoinType::RightSemi => at == 0,
            _ => false,
        };
        let mut names = output.fields().iter().map(|field| field.name());
        !other || !names.any(|name| input.column_with_name(name).is_some())
    } else if node.is::<UnionExec>() {
        let (output, input) = (output.fields().iter(), input.fields().iter());
        output.map(|f| f.name()).eq(input.map(|f| f.name()))
    } else {
        true
    };
    has_same_columns && is_unambiguous(&input)
}

/// Whether all columns have different names.
pub fn is_unambiguous(schema: &Schema) -> bool {
    let mut names = HashSet::new();
    let mut fields = schema.fields().iter();
    fields.all(|field| names.insert(field.name()))
}

/// Whether the columns of an expression have the names that they have in a schema.
fn has_names(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    collect_columns(expression).iter().all(|column| {
        let field = schema.fields().get(column.index());
        field.is_some_and(|field| field.name() == column.name())
    })
}

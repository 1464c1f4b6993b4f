//! Filters that DataFusion moves down a physical plan.
//!
//! A node finds the columns of a filter in its inputs by their names. An input or a projection may have two columns of one
//! name. The second input of a semi join may have another column of that name, and an input of a union may have other
//! names. Then the filter arrives with another meaning.
//!
//! DataFusion moves two kinds of filters. Static filters are those of the statement. They stay above such nodes, and scans take
//! none of them: the logical optimizer has moved them as far as possible.
//!
//! Dynamic filters have constants that are known while a statement runs: a join that has read its build side, or a sort with a
//! limit, knows which rows it still needs. DataFusion's own tables mostly skip groups of rows by such a filter, and a scan
//! drops single rows. So it must hold for each row that the statement needs. Two more reasons break that:
//!
//! - A filter, a join or an aggregate may have a limit, which counts rows before a filter from above.
//! - The filter of an aggregate leaves out a minimum or maximum of an expression, or one that is null so far.
//!
//! So a rule follows each filter from the join or sort that makes it, and scans apply those that arrive unchanged. Without the
//! rule, scans apply none.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::error::Result;
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
use datafusion::physical_plan::{ExecutionPlan, replace_children_if_necessary};

use crate::claims::ForgetExec;
use crate::scan::ScanExec;

/// DataFusion's rule that moves the filters of a statement, and that leaves those above ambiguous names where they are.
#[derive(Debug)]
struct FilterPushdown(Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl FilterPushdown {
    const THEIRS: &str = "FilterPushdown";
}

/// Puts Rockmill's rule in the place of DataFusion's.
pub fn replace_pushdown(optimizer: &mut PhysicalOptimizer) {
    for rule in &mut optimizer.rules {
        if rule.name() == FilterPushdown::THEIRS {
            *rule = Arc::new(FilterPushdown(Arc::clone(rule)));
        }
    }
}

impl PhysicalOptimizerRule for FilterPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if !plan.exists(|node| Ok(is_ambiguous(node)))? {
            return self.0.optimize(plan, config);
        }
        let children = plan.children().into_iter();
        let children = children.map(|child| self.optimize(Arc::clone(child), config));
        let children = children.collect::<Result<_>>()?;
        replace_children_if_necessary(plan, children)
    }

    fn name(&self) -> &'static str {
        "rockmill_filter_pushdown"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Lets scans apply the dynamic filters that arrive unchanged.
#[derive(Debug)]
pub struct DynamicFilters;

impl PhysicalOptimizerRule for DynamicFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        followed(plan, &[])
    }

    fn name(&self) -> &'static str {
        "rockmill_dynamic_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same plan, whose scans apply the filters that this function meets on its way and those of `above`.
fn followed(node: Arc<dyn ExecutionPlan>, above: &[u64]) -> Result<Arc<dyn ExecutionPlan>> {
    if let Some(scan) = node.downcast_ref::<ScanExec>() {
        return Ok(Arc::new(scan.with_dynamic_filters(above)));
    }
    let made = made_by(&node);
    let passes = passes_filters(&node) && !has_limit(&node);
    let children = node.children().into_iter().enumerate();
    let children = children.map(|(at, child)| {
        let mut below = made.clone();
        if passes && keeps_meaning(&node, at, child) {
            below.extend(above);
        }
        followed(Arc::clone(child), &below)
    });
    let children = children.collect::<Result<_>>()?;
    replace_children_if_necessary(node, children)
}

/// The filters that a node makes, over the columns of its last input.
fn made_by(node: &Arc<dyn ExecutionPlan>) -> Vec<u64> {
    if !node.is::<HashJoinExec>() && !node.is::<SortExec>() {
        return Vec::new();
    }
    let made = node.dynamic_expressions_produced().into_iter();
    let last = node.children().pop().map(|input| input.schema());
    let made = made.filter(|filter| last.as_ref().is_some_and(|last| has_names(filter, last)));
    made.filter_map(|filter| filter.expression_id()).collect()
}

fn has_limit(node: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    node.fetch().is_some() || aggregate.is_some_and(|node| node.limit_options().is_some())
}

/// Whether a node gives filters another meaning.
fn is_ambiguous(node: &Arc<dyn ExecutionPlan>) -> bool {
    let mut children = node.children().into_iter().enumerate();
    passes_filters(node) && children.any(|(at, child)| !keeps_meaning(node, at, child))
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
        match join.join_type() {
            JoinType::LeftSemi => at == 0,
            JoinType::RightSemi => at == 1,
            _ => true,
        }
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

//! Filters whose constants are known while a statement runs.
//!
//! A join that has read its build side, or a sort with a limit, knows which rows it still needs. DataFusion moves such a
//! condition down to the scans. Its own tables mostly skip groups of rows by their statistics, and a scan drops single
//! rows. So a condition must hold for each row that the statement needs, and some do not:
//!
//! - Nodes look up columns of a condition in their inputs by name. An input may have two columns of one name. The second
//!   input of a semi join may have another column of that name, and an input of a union may have other names.
//! - A filter, a join or an aggregate may have a limit, which counts rows before a condition from above.
//! - The condition of an aggregate leaves out a minimum or maximum of an expression, or one that is null so far.
//!
//! So this rule follows each condition from the join or sort that makes it, and scans apply those that arrive unchanged.
//! Without the rule, scans apply none.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::JoinType;
use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
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

use crate::scan::ScanExec;

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
    let children = node.children().into_iter().enumerate();
    let children = children.map(|(at, child)| {
        let mut below = made.clone();
        if passes(&node, at, child) {
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

/// Whether a filter over the columns of a node means the same over those of its input `at`.
fn passes(node: &Arc<dyn ExecutionPlan>, at: usize, input: &Arc<dyn ExecutionPlan>) -> bool {
    let (output, input) = (node.schema(), input.schema());
    if node.fetch().is_some() {
        return false;
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let mut computed = projection.expr().iter();
        return is_unambiguous(&output)
            && computed.all(|computed| has_names(&computed.expr, &input));
    }
    let has_same_columns = if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let mut groups = aggregate.group_expr().expr().iter();
        aggregate.limit_options().is_none()
            && groups.all(|(group, name)| {
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
        output
            .map(|field| field.name())
            .eq(input.map(|field| field.name()))
    } else {
        node.is::<CoalescePartitionsExec>()
            || node.is::<CooperativeExec>()
            || node.is::<FilterExec>()
            || node.is::<RepartitionExec>()
            || node.is::<SortExec>()
    };
    has_same_columns && is_unambiguous(&input)
}

/// Whether all columns have different names.
fn is_unambiguous(schema: &Schema) -> bool {
    let mut names = HashSet::new();
    schema
        .fields()
        .iter()
        .all(|field| names.insert(field.name()))
}

/// Whether the columns of an expression have the names that they have in a schema.
fn has_names(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    collect_columns(expression).iter().all(|column| {
        let field = schema.fields().get(column.index());
        field.is_some_and(|field| field.name() == column.name())
    })
}

//! Filters that DataFusion moves down a logical plan to where they mean something else.
//!
//! - A filter that names no column, such as `where (select max(x) from y) > 100`, moves below an aggregate that returns a row
//!   even if it reads none. That row stays.
//! - A filter with a volatile function, such as `random()`, moves below groups, windows and joins, which count other rows then.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::utils::{conjunction, split_conjunction};
use datafusion::logical_expr::{Aggregate, Expr, Filter, LogicalPlan};
use datafusion::optimizer::OptimizerConfig;

use crate::rule::{DataFusionRule, replace_rule};

/// Lets DataFusion move the conditions that may move.
pub fn replace_push_down(builder: &mut SessionStateBuilder) {
    replace_rule(builder, "push_down_filter", push_down);
}

fn push_down(
    theirs: &DataFusionRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    // DataFusion merges filters above one another.
    let (mut parts, mut input) = (Vec::new(), &plan);
    while let LogicalPlan::Filter(filter) = input {
        parts.extend(split_conjunction(&filter.predicate).into_iter().cloned());
        input = &filter.input;
    }
    let (stay, moves): (Vec<_>, Vec<_>) = parts.into_iter().partition(|part| stays(part, input));
    let Some(stay) = conjunction(stay) else {
        return theirs.rewrite(plan, config);
    };
    let Some(moves) = conjunction(moves) else {
        return Ok(Transformed::no(plan));
    };
    let moves = Filter::try_new(moves, Arc::new(input.clone()))?;
    let moved = theirs.rewrite(LogicalPlan::Filter(moves), config)?;
    if !moved.transformed {
        return Ok(Transformed::no(plan));
    }
    let stays = Filter::try_new(stay, Arc::new(moved.data))?;
    Ok(Transformed::yes(LogicalPlan::Filter(stays)))
}

/// Whether a condition must not move below the input of its filter.
fn stays(condition: &Expr, input: &LogicalPlan) -> bool {
    let returns_without_rows = match input {
        LogicalPlan::Aggregate(aggregate) => returns_without_rows(aggregate),
        _ => false,
    };
    condition.is_volatile() || returns_without_rows && condition.column_refs().is_empty()
}

/// Whether an aggregate may return a row although it reads none.
fn returns_without_rows(aggregate: &Aggregate) -> bool {
    let groups = &aggregate.group_expr;
    groups.is_empty()
        || groups
            .iter()
            .any(|group| matches!(group, Expr::GroupingSet(_)))
}

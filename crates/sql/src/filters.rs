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
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};

/// The rule of DataFusion that moves filters.
const THEIRS: &str = "push_down_filter";

/// Puts Rockmill's rule in the place of DataFusion's.
pub fn replace_push_down(builder: &mut SessionStateBuilder) {
    let Optimizer { rules } = builder.optimizer().get_or_insert_default();
    for rule in rules.iter_mut().filter(|rule| rule.name() == THEIRS) {
        *rule = Arc::new(PushDownFilter(Arc::clone(rule)));
    }
}

/// DataFusion's rule, which does not see the conditions that must stay.
#[derive(Debug)]
struct PushDownFilter(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for PushDownFilter {
    fn name(&self) -> &'static str {
        "rockmill_push_down_filter"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // DataFusion merges filters above one another.
        let (mut parts, mut input) = (Vec::new(), &plan);
        while let LogicalPlan::Filter(filter) = input {
            parts.extend(split_conjunction(&filter.predicate).into_iter().cloned());
            input = &filter.input;
        }
        let (stay, moves): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| stays(part, input));
        let Some(stay) = conjunction(stay) else {
            return self.0.rewrite(plan, config);
        };
        let Some(moves) = conjunction(moves) else {
            return Ok(Transformed::no(plan));
        };
        let moves = Filter::try_new(moves, Arc::new(input.clone()))?;
        let moved = self.0.rewrite(LogicalPlan::Filter(moves), config)?;
        if !moved.transformed {
            return Ok(Transformed::no(plan));
        }
        let stays = Filter::try_new(stay, Arc::new(moved.data))?;
        Ok(Transformed::yes(LogicalPlan::Filter(stays)))
    }
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

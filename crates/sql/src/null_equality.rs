//! Joins whose keys are equal where both are null.
//!
//! DataFusion makes such a join of `is not distinct from`, and treats all keys of a join alike. Its rules then give it keys that
//! are compared by `=`, or merge it with other joins. So joins become such ones only behind all other rules.

use datafusion::common::tree_node::Transformed;
use datafusion::common::{NullEquality, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{Join, LogicalPlan};
use datafusion::optimizer::extract_equijoin_predicate::ExtractEquijoinPredicate;
use datafusion::optimizer::{OptimizerConfig, OptimizerContext, OptimizerRule};

use crate::rule::{DataFusionRule, replace_rule};

/// Lets DataFusion make keys of the conditions of joins, but none that are equal where both are null.
pub fn replace_extract_keys(builder: &mut SessionStateBuilder) {
    replace_rule(
        builder,
        ExtractEquijoinPredicate::new().name(),
        extract_keys,
    );
}

fn extract_keys(
    theirs: &DataFusionRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    if !matches!(&plan, LogicalPlan::Join(join) if join.filter.is_some()) {
        return Ok(Transformed::no(plan));
    }
    let before = plan.clone();
    let after = theirs.rewrite(plan, config)?;
    Ok(match &after.data {
        LogicalPlan::Join(join) if after.transformed && is_null_equal(join) => {
            Transformed::no(before)
        }
        _ => after,
    })
}

fn is_null_equal(join: &Join) -> bool {
    join.null_equality == NullEquality::NullEqualsNull
}

/// Makes keys of the conditions `is not distinct from` in joins that have no other keys, for hash joins.
///
/// # Errors
/// Those of DataFusion.
pub fn null_equal_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    let (theirs, config) = (ExtractEquijoinPredicate::new(), OptimizerContext::new());
    let keyed = plan.transform_up_with_subqueries(|node| match &node {
        LogicalPlan::Join(join) if join.on.is_empty() => theirs.rewrite(node, &config),
        _ => Ok(Transformed::no(node)),
    })?;
    Ok(keyed.data)
}

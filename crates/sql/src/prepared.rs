//! PREPARE stores a statement as it is written.
//!
//! DataFusion optimizes a statement at PREPARE, before the types of its columns are chosen, and again at EXECUTE. Then a column
//! of a union loses digits, and rules of the analyzer see a plan that has been changed. Here rules of the optimizer change
//! nothing at PREPARE. EXECUTE analyzes and optimizes the statement with its values, as if it was never prepared.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::OptimizerConfig;

use crate::rule::{DataFusionRule, replace_all_rules};

/// Makes the rules of the optimizer change nothing at PREPARE.
pub fn keep_prepared(builder: &mut SessionStateBuilder) {
    replace_all_rules(builder, at_execute);
}

fn at_execute(
    theirs: &DataFusionRule,
    plan: LogicalPlan,
    config: &dyn OptimizerConfig,
) -> Result<Transformed<LogicalPlan>> {
    // A session is the registry of its functions, and PREPARE passes on its options alone.
    match config.function_registry() {
        Some(_) => theirs.rewrite(plan, config),
        None => Ok(Transformed::no(plan)),
    }
}

//! PREPARE stores a statement as it is written.
//!
//! DataFusion optimizes a statement at PREPARE, before the types of its columns are chosen, and again at EXECUTE. Then a column
//! of a union loses digits, and rules of the analyzer see a plan that has been changed. Here rules of the optimizer change
//! nothing at PREPARE. EXECUTE analyzes and optimizes the statement with its values, as if it was never prepared.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{Optimizer, OptimizerConfig, OptimizerRule};

/// Makes the rules of the optimizer change nothing at PREPARE.
pub fn keep_prepared(builder: &mut SessionStateBuilder) {
    let Optimizer { rules } = builder.optimizer().get_or_insert_default();
    for rule in rules {
        *rule = Arc::new(AtExecute(Arc::clone(rule)));
    }
}

/// A rule that changes nothing at PREPARE.
#[derive(Debug)]
struct AtExecute(Arc<dyn OptimizerRule + Send + Sync>);

impl OptimizerRule for AtExecute {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // A session is the registry of its functions, and PREPARE passes on its options alone.
        match config.function_registry() {
            Some(_) => self.0.rewrite(plan, config),
            None => Ok(Transformed::no(plan)),
        }
    }
}

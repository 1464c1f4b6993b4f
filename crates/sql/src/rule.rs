//! Rules for physical plans.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

/// Changes a plan.
type Change = fn(Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>>;

/// A rule for physical plans that is a function of the plan alone. The columns of a plan stay.
#[derive(Debug)]
pub struct Rule {
    name: &'static str,
    change: Change,
}

impl Rule {
    /// The rule with a name, as `explain verbose` shows it.
    pub fn new(name: &'static str, change: Change) -> Arc<Self> {
        Arc::new(Self { name, change })
    }
}

impl PhysicalOptimizerRule for Rule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        (self.change)(plan)
    }

    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

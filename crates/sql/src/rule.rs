//! What rules for plans, and nodes with one input, share.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, Optimizer, OptimizerConfig, OptimizerRule};
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

/// A rule for logical plans that is a function of the plan alone, subqueries included.
#[derive(Debug)]
pub struct LogicalRule {
    name: &'static str,
    change: fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
}

impl LogicalRule {
    /// The rule with a name, as `explain verbose` shows it.
    pub fn new(
        name: &'static str,
        change: fn(LogicalPlan) -> Result<Transformed<LogicalPlan>>,
    ) -> Arc<Self> {
        Arc::new(Self { name, change })
    }
}

impl OptimizerRule for LogicalRule {
    fn name(&self) -> &str {
        self.name
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.change)(plan)
    }
}

impl AnalyzerRule for LogicalRule {
    fn name(&self) -> &str {
        self.name
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        Ok((self.change)(plan)?.data)
    }
}

/// A rule of DataFusion for logical plans.
pub type DataFusionRule = dyn OptimizerRule + Send + Sync;

/// Rewrites a plan by a rule of DataFusion, or otherwise.
type Rewrite =
    fn(&DataFusionRule, LogicalPlan, &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>>;

/// A rule in the place of one of DataFusion's.
#[derive(Debug)]
struct InPlace {
    name: String,
    theirs: Arc<DataFusionRule>,
    rewrite: Rewrite,
}

/// Lets `rewrite` decide what a rule of DataFusion's optimizer does.
pub fn replace_rule(builder: &mut SessionStateBuilder, name: &str, rewrite: Rewrite) {
    let Optimizer { rules } = builder.optimizer().get_or_insert_default();
    for rule in rules.iter_mut().filter(|rule| rule.name() == name) {
        *rule = in_place(format!("rockmill_{name}"), rule, rewrite);
    }
}

/// Lets `rewrite` decide what each rule of the optimizer does. The rules keep their names.
pub fn replace_all_rules(builder: &mut SessionStateBuilder, rewrite: Rewrite) {
    let Optimizer { rules } = builder.optimizer().get_or_insert_default();
    for rule in rules {
        *rule = in_place(rule.name().to_owned(), rule, rewrite);
    }
}

fn in_place(name: String, theirs: &Arc<DataFusionRule>, rewrite: Rewrite) -> Arc<DataFusionRule> {
    Arc::new(InPlace {
        name,
        theirs: Arc::clone(theirs),
        rewrite,
    })
}

impl OptimizerRule for InPlace {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.theirs.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        (self.rewrite)(&*self.theirs, plan, config)
    }
}

/// Methods of a node with one input and no expressions: its input `$input`, and the node that has another input.
macro_rules! one_input {
    ($input:tt, |$this:ident, $other:ident| $node:expr) => {
        fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
            vec![&self.$input]
        }

        fn with_new_children(
            self: Arc<Self>,
            mut children: Vec<Arc<dyn ExecutionPlan>>,
        ) -> Result<Arc<dyn ExecutionPlan>> {
            let $this = self;
            match (children.pop(), children.is_empty()) {
                (Some($other), true) => Ok(Arc::new($node)),
                _ => internal_err!("{} has one input", $this.name()),
            }
        }

        fn apply_expressions(
            &self,
            _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
        ) -> Result<TreeNodeRecursion> {
            Ok(TreeNodeRecursion::Continue)
        }
    };
}

pub(crate) use one_input;

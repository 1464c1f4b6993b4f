//! Functional dependencies, which say that one column determines others, where DataFusion derives them wrongly.
//!
//! DataFusion drops a column of GROUP BY or ORDER BY that others determine, and a DISTINCT or a join that changes nothing. It
//! also groups by columns that are not stated. Two of its derivations change answers:
//!
//! - A GROUP BY over a join: a key of one side seems to determine all columns of the result.
//! - `unnest`: a key of its input seems to be unique in its result, which has several rows of one key.
//!
//! So `unnest` has no dependencies here, and a GROUP BY over a join only that of its columns on all of its keys: both in the
//! parts of FROM, while DataFusion plans a statement, and before each rule of its optimizer that relies on dependencies.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchemaRef, Dependency, FunctionalDependence, FunctionalDependencies};
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{Aggregate, LogicalPlan};
use datafusion::optimizer::Optimizer;
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::rule::LogicalRule;

/// The rules of DataFusion that rely on dependencies.
const BEFORE: [&str; 4] = [
    "replace_distinct_aggregate",
    "eliminate_join",
    "eliminate_duplicated_expr",
    "optimize_projections",
];

/// Adds a planner for the parts of FROM, and rules for the optimizer.
pub fn add_true_dependencies(builder: &mut SessionStateBuilder) {
    let planners = builder.relation_planners().get_or_insert_default();
    planners.insert(0, Arc::new(TrueDependencies));
    let Optimizer { rules } = builder.optimizer().get_or_insert_default();
    for name in BEFORE {
        if let Some(at) = rules.iter().position(|rule| rule.name() == name) {
            let rule = LogicalRule::new("rockmill_true_dependencies", true_dependencies);
            rules.insert(at, rule);
        }
    }
}

/// Corrects the dependencies of groups over joins and of `unnest`, and computes those above them again.
fn true_dependencies(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|plan| {
        let before = Arc::clone(plan.schema());
        if before.functional_dependencies().is_empty() {
            return Ok(Transformed::no(plan));
        }
        let plan = match plan {
            LogicalPlan::Aggregate(aggregate) => {
                let Aggregate {
                    input,
                    group_expr,
                    aggr_expr,
                    ..
                } = aggregate;
                let mut of_input = input.schema().functional_dependencies().iter();
                let is_of_join = of_input.any(|of| of.mode == Dependency::Multi);
                let mut aggregate = Aggregate::try_new(input, group_expr, aggr_expr)?;
                if is_of_join && !aggregate.schema.functional_dependencies().is_empty() {
                    let of_groups = of_groups(&aggregate);
                    aggregate.schema = with_dependencies(&aggregate.schema, of_groups)?;
                }
                LogicalPlan::Aggregate(aggregate)
            }
            LogicalPlan::Unnest(mut unnest) => {
                let none = FunctionalDependencies::empty();
                unnest.schema = with_dependencies(&unnest.schema, none)?;
                LogicalPlan::Unnest(unnest)
            }
            other => other.recompute_schema()?,
        };
        let after = plan.schema().functional_dependencies();
        let is_new = after != before.functional_dependencies();
        Ok(Transformed::new_transformed(plan, is_new))
    })
}

/// All columns of GROUP BY together determine the others.
fn of_groups(aggregate: &Aggregate) -> FunctionalDependencies {
    // A column that is stated twice is there once.
    let groups: HashSet<_> = aggregate.group_expr.iter().collect();
    let keys: Vec<_> = (0..groups.len()).collect();
    let fields = aggregate.schema.fields();
    let is_nullable = fields
        .iter()
        .take(groups.len())
        .any(|key| key.is_nullable());
    let all = (0..fields.len()).collect();
    let dependence = FunctionalDependence::new(keys, all, is_nullable);
    FunctionalDependencies::new(vec![dependence.with_mode(Dependency::Single)])
}

fn with_dependencies(
    schema: &DFSchemaRef,
    dependencies: FunctionalDependencies,
) -> Result<DFSchemaRef> {
    let schema = schema.as_ref().clone();
    Ok(Arc::new(schema.with_functional_dependencies(dependencies)?))
}

/// The planner for the parts of FROM.
#[derive(Debug)]
struct TrueDependencies;

thread_local! {
    /// Whether [`TrueDependencies`] has asked DataFusion for the plan of the next part of FROM.
    static IS_ASKED: Cell<bool> = const { Cell::new(false) };
}

impl RelationPlanner for TrueDependencies {
    /// Asks DataFusion for the plan. DataFusion asks all planners again, so the second call returns the part unchanged.
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if IS_ASKED.take() {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        IS_ASKED.set(true);
        let plan = context.plan(relation);
        IS_ASKED.set(false);
        let plan = true_dependencies(plan?)?.data;
        let planned = PlannedRelation::new(plan, None);
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

//! `count` beside `count(distinct ..)`.
//!
//! DataFusion computes `count(distinct a), sum(b)` by groups of `a`, which spill. With `count(b)` beside it, all values of
//! `a` stay in memory. [`CountsAsSums`] replaces that `count` by a sum of ones.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{
    Aggregate, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::aggregate::is_known;
use crate::sums;

/// Replaces `count(b)` by `coalesce(sum(cast(b is not null as bigint)), 0)` where the other aggregates are such as
/// DataFusion computes by groups of the only distinct argument.
#[derive(Debug)]
pub struct CountsAsSums;

impl AnalyzerRule for CountsAsSums {
    fn name(&self) -> &'static str {
        "rockmill_counts_as_sums"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if is_wanted(&aggregate) => {
                Ok(Transformed::yes(replaced(&aggregate)?))
            }
            plan => Ok(Transformed::no(plan)),
        })
        .map(|transformed| transformed.data)
    }
}

/// Whether the aggregates are those of DataFusion's rule `SingleDistinctToGroupBy`, and some `count`.
fn is_wanted(aggregate: &Aggregate) -> bool {
    if let [Expr::GroupingSet(_), ..] = &aggregate.group_expr[..] {
        return false;
    }
    let (mut distinct, mut has_counts) = (Vec::new(), false);
    for call in &aggregate.aggr_expr {
        let Expr::AggregateFunction(AggregateFunction { func, params }) = call else {
            return false;
        };
        if params.filter.is_some() || !params.order_by.is_empty() {
            return false;
        }
        match func.name() {
            _ if params.distinct => distinct.extend(&params.args),
            _ if !is_known(func) => return false,
            "count" => has_counts = true,
            "sum" | "min" | "max" => {}
            _ => return false,
        }
    }
    let is_single = distinct
        .split_first()
        .is_some_and(|(first, others)| others.iter().all(|other| other == first));
    has_counts && is_single
}

/// The sum for a call, if it is a `count` of all values. It is simplified here, because DataFusion gives an expression that
/// it simplifies an alias, which its rule does not accept.
fn sum_of(call: &Expr, input: &DFSchema) -> Result<Option<Expr>> {
    let Expr::AggregateFunction(AggregateFunction { func, params }) = call else {
        return Ok(None);
    };
    let AggregateFunctionParams { args, distinct, .. } = params;
    if *distinct || func.name() != "count" || !is_known(func) {
        return Ok(None);
    }
    let mut counted = None;
    for arg in args {
        if arg.nullable(input)? {
            let is_there = arg.clone().is_not_null();
            counted = Some(match counted {
                Some(others) => Expr::and(others, is_there),
                None => is_there,
            });
        }
    }
    let ones = counted.map_or_else(|| lit(1_i64), |counted| cast(counted, DataType::Int64));
    Ok(Some(sums::sum().call(vec![ones])))
}

fn replaced(aggregate: &Aggregate) -> Result<LogicalPlan> {
    let calls = &aggregate.aggr_expr;
    // The schema has a column that is stated twice once.
    let mut groups: Vec<Expr> = Vec::new();
    for group in &aggregate.group_expr {
        if !groups.contains(group) {
            groups.push(group.clone());
        }
    }
    let mut new: Vec<Expr> = Vec::new();
    for call in calls {
        let call = sum_of(call, aggregate.input.schema())?.unwrap_or_else(|| call.clone());
        // Several calls count the same values where none is null.
        if !new.contains(&call) {
            new.push(call);
        }
    }
    let input = LogicalPlanBuilder::from(Arc::clone(&aggregate.input));
    let summed = input.aggregate(groups.clone(), new)?;
    let columns = aggregate.schema.iter();
    let computed = groups.iter().chain(calls);
    let mut outputs = Vec::new();
    for (expr, (qualifier, field)) in computed.zip(columns) {
        let output = match sum_of(expr, aggregate.input.schema())? {
            Some(sum) => coalesce(vec![sum, lit(0_i64)]),
            None => expr.clone(),
        };
        outputs.push(output.alias_qualified(qualifier.cloned(), field.name()));
    }
    summed.project(outputs)?.build()
}

//! The first rows of each group: correlated subqueries with LIMIT.
//!
//! DataFusion computes a correlated subquery as a join, and does not know how a limit counts then. If all of its correlated
//! conditions are equalities, such as `i.k = o.k`, the rows of each `i.k` are numbered instead:
//!
//! ```sql
//! select .. from i where i.k = o.k and p order by x limit 2
//! select .. from (select *, row_number() over (partition by i.k order by x) as n from i where p) where i.k = o.k and n <= 2
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions_window::row_number::row_number;
use datafusion::logical_expr::expr::Sort as SortKey;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprFunctionExt, ExprSchemable, FetchType, Filter, Limit, LogicalPlan,
    LogicalPlanBuilder, Operator, Projection, SkipType, Sort, lit, when,
};

use crate::computed_keys::computed_keys;

/// The column of the numbers.
const NUMBER: &str = "__rockmill_number";

/// The plan of a correlated subquery without its limit, and `None` if it has none.
///
/// # Errors
/// NotImplemented if the limit is not one of projections and sorts above a filter whose correlated conditions are equalities,
/// or above an aggregate without groups; those of DataFusion.
pub fn numbered(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let mut node = plan;
    while let LogicalPlan::Projection(projection) = node {
        node = &projection.input;
    }
    let LogicalPlan::Limit(limit) = node else {
        return Ok(None);
    };
    match without_limit(plan, limit)? {
        Some(plan) => computed_keys(plan).map(|plan| Some(plan.data)),
        None => not_impl_err!(
            "LIMIT in a correlated subquery, unless all of its conditions with columns of the statement around it are \
             equalities: write it with row_number()"
        ),
    }
}

/// The rows of a plan that only EXISTS counts.
pub fn rows_alone(mut plan: &LogicalPlan) -> Result<&LogicalPlan> {
    loop {
        plan = match plan {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Sort(Sort { input, .. }) => input,
            LogicalPlan::Limit(limit) if keeps_a_row(limit)? => &limit.input,
            plan => return Ok(plan),
        };
    }
}

/// Whether a limit leaves a row if there is one.
fn keeps_a_row(limit: &Limit) -> Result<bool> {
    let fetch = limit.get_fetch_type()?;
    let is_empty = !matches!(fetch, FetchType::Literal(fetch) if fetch != Some(0));
    Ok(matches!(limit.get_skip_type()?, SkipType::Literal(0)) && !is_empty)
}

fn without_limit(plan: &LogicalPlan, limit: &Limit) -> Result<Option<LogicalPlan>> {
    let mut above = Vec::new();
    let mut node = plan;
    while let LogicalPlan::Projection(projection) = node {
        above.push(projection);
        node = &projection.input;
    }
    let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
        (limit.get_skip_type()?, limit.get_fetch_type()?)
    else {
        return Ok(None);
    };
    let (mut keys, mut node) = (None, &*limit.input);
    let filter = loop {
        node = match node {
            LogicalPlan::Projection(projection) => {
                above.push(projection);
                keys = keys.map(|keys| below(keys, projection)).transpose()?;
                &projection.input
            }
            // The keys of the highest sort decide.
            LogicalPlan::Sort(Sort {
                expr,
                input,
                fetch: None,
            }) => {
                keys = keys.or_else(|| Some(expr.clone()));
                input
            }
            LogicalPlan::Filter(filter) => break filter,
            LogicalPlan::Aggregate(aggregate)
                if aggregate.group_expr.is_empty() && keeps_a_row(limit)? =>
            {
                return projected(node.clone(), &above).map(Some);
            }
            _ => return Ok(None),
        };
    };
    let has_outer = |projection: &&Projection| projection.expr.iter().any(Expr::contains_outer);
    let keys = keys.unwrap_or_default();
    if above.iter().any(has_outer) || keys.iter().any(|key| key.expr.contains_outer()) {
        return Ok(None);
    }
    let conditions = split_conjunction_owned(filter.predicate.clone());
    let (outer, own): (Vec<_>, Vec<_>) = conditions.into_iter().partition(Expr::contains_outer);
    let Some(groups) = outer.iter().map(inner_side).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let schema = filter.input.schema();
    let groups = groups.into_iter().map(|key| with_one_zero(key, schema));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    if groups.is_empty() {
        return Ok(None);
    }
    let mut rows = LogicalPlanBuilder::from(filter.input.as_ref().clone());
    if let Some(own) = conjunction(own) {
        rows = rows.filter(own)?;
    }
    let number = row_number().partition_by(groups).order_by(keys).build()?;
    let rows = rows.window([number.alias(NUMBER)])?;
    let number = Expr::Column(Column::new_unqualified(NUMBER));
    let mut conditions = outer;
    conditions.push(number.clone().gt(lit(skip as u64)));
    if let Some(fetch) = fetch {
        conditions.push(number.lt_eq(lit(skip.saturating_add(fetch) as u64)));
    }
    let conditions = conditions
        .into_iter()
        .reduce(Expr::and)
        .unwrap_or(lit(true));
    let rows = Arc::new(rows.build()?);
    let mut rows = LogicalPlan::Filter(Filter::try_new(conditions, rows)?);
    // A plan without projections would have the number, too.
    if above.is_empty() {
        let columns = plan.schema().iter();
        let columns: Vec<_> = columns.map(|of| Expr::Column(Column::from(of))).collect();
        rows = LogicalPlanBuilder::from(rows).project(columns)?.build()?;
    }
    projected(rows, &above).map(Some)
}

/// Projections over other rows; the lowest one comes last.
fn projected(mut rows: LogicalPlan, above: &[&Projection]) -> Result<LogicalPlan> {
    for projection in above.iter().rev() {
        let projection = Projection::try_new(projection.expr.clone(), Arc::new(rows))?;
        rows = LogicalPlan::Projection(projection);
    }
    Ok(rows)
}

/// A key in which `-0.0` is `0.0`: both are equal, and windows take them for two keys.
fn with_one_zero(key: Expr, schema: &DFSchema) -> Result<Expr> {
    let kind = key.get_type(schema)?;
    if !kind.is_floating() {
        return Ok(key);
    }
    let zero = Expr::Literal(ScalarValue::new_zero(&kind)?, None);
    when(key.clone().eq(zero.clone()), zero).otherwise(key)
}

/// Keys over the columns of a projection, over those below it.
fn below(keys: Vec<SortKey>, projection: &Projection) -> Result<Vec<SortKey>> {
    let schema: &DFSchema = &projection.schema;
    let columns = schema.iter().map(Column::from);
    let values = projection.expr.iter().map(|expr| expr.clone().unalias());
    let values: HashMap<Column, Expr> = columns.zip(values).collect();
    let key = |key: SortKey| {
        let expr = key.expr.transform(|part| {
            Ok(match &part {
                Expr::Column(column) => match values.get(column) {
                    // Not once more within.
                    Some(value) => Transformed::new(value.clone(), true, TreeNodeRecursion::Jump),
                    None => Transformed::no(part),
                },
                _ => Transformed::no(part),
            })
        })?;
        Ok(SortKey {
            expr: expr.data,
            ..key
        })
    };
    keys.into_iter().map(key).collect()
}

/// The side of an equality that names no column of the statement around it; the other one names nothing else.
fn inner_side(condition: &Expr) -> Option<Expr> {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return None;
    };
    let is_outer = |side: &Expr| side.contains_outer() && side.column_refs().is_empty();
    let is_inner = |side: &Expr| !side.contains_outer() && !side.column_refs().is_empty();
    match (&**left, &**right) {
        (outer, inner) | (inner, outer) if is_outer(outer) && is_inner(inner) => {
            Some(inner.clone())
        }
        _ => None,
    }
}

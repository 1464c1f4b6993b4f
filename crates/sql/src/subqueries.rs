//! Subqueries that DataFusion changes into other joins, or takes for never null.
//!
//! DataFusion computes a subquery that names columns of the statement around it, a correlated one, as a join: conditions with
//! such columns become conditions of the join. That is wrong where something else than a filter stands above the condition.
//! Here such a subquery is written in another way first, or it is an error:
//!
//! - EXISTS over an aggregate without groups has a row for each row of the statement. IN over it is a comparison.
//! - HAVING of an aggregate without groups is lost, so it becomes a CASE in the select list.
//! - Two columns of one name, as in a self-join, become one column of the join, so one gets another name.
//! - Windows, OFFSET, outer joins, a constant beside an aggregate, and DISTINCT or HAVING of LATERAL: an error.
//!
//! A scalar subquery returns null if it has no row, also if its column is never null ([`nullable_scalars`]).

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, JoinType, ScalarValue, not_impl_err};
use datafusion::error::Result;
use datafusion::functions::core::expr_fn::nullif;
use datafusion::functions_aggregate::first_last::first_value;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction};
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, ExprSchemable, Filter, Join, LogicalPlan, LogicalPlanBuilder,
    Operator, Projection, SkipType, Subquery, SubqueryAlias, TryCast, lit, when,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use crate::top_rows::{numbered, rows_alone};

/// Says that scalar subqueries may be null.
pub fn nullable_scalars(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let mut is_found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            is_found |= expr.exists(|part| Ok(claims_a_row(part)))?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    if !is_found {
        return Ok(Transformed::no(plan));
    }
    // Columns above the subqueries may be null then, too.
    plan.transform_up_with_subqueries(|node| {
        let node = node.map_expressions(|expr| expr.transform_up(nullable))?;
        Ok(Transformed::yes(node.data.recompute_schema()?))
    })
}

/// Whether an expression is a scalar subquery that DataFusion takes for never null, although it may have no row.
fn claims_a_row(expr: &Expr) -> bool {
    let Expr::ScalarSubquery(Subquery { subquery, .. }) = expr else {
        return false;
    };
    let mut node = &**subquery;
    while let LogicalPlan::Projection(Projection { input, .. }) = node {
        node = input;
    }
    let has_row = matches!(node, LogicalPlan::Aggregate(node) if node.group_expr.is_empty());
    !has_row && !subquery.schema().field(0).is_nullable()
}

fn nullable(expr: Expr) -> Result<Transformed<Expr>> {
    let is_it = claims_a_row(&expr);
    Ok(match expr {
        Expr::ScalarSubquery(subquery) if is_it => {
            let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
            let null = ScalarValue::try_new_null(field.data_type())?;
            let value = Expr::Column(Column::from((qualifier, field)));
            let value = nullif(value, Expr::Literal(null, None));
            let value = value.alias_qualified(qualifier.cloned(), field.name());
            let plan = subquery.subquery.as_ref().clone();
            let plan = LogicalPlanBuilder::from(plan).project([value])?.build()?;
            Transformed::yes(Expr::ScalarSubquery(subquery.with_plan(Arc::new(plan))))
        }
        expr => Transformed::no(expr),
    })
}

/// Writes correlated subqueries in another way where DataFusion changes them. ANY and ALL must be written as EXISTS before.
///
/// # Errors
/// NotImplemented if there is no other way.
pub fn exact_subqueries(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) => with_lateral(join, |subquery, _| {
            if !is_correlated(&subquery) {
                return Ok(Transformed::no(subquery));
            }
            let (subquery, is_new) = without_limit(subquery)?;
            check(&subquery.subquery, true)?;
            let subquery = distinct_names(&subquery, true)?;
            let is_new = is_new || subquery.transformed;
            Ok(Transformed::new_transformed(subquery.data, is_new))
        }),
        node => {
            let names = NamePreserver::new(&node);
            node.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|expr| match expr {
                    Expr::Exists(part) if is_correlated(&part.subquery) => exists(part),
                    Expr::InSubquery(part) if is_correlated(&part.subquery) => is_in(part),
                    Expr::ScalarSubquery(part) if is_correlated(&part) => scalar(&part),
                    expr => Ok(Transformed::no(expr)),
                })?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })
        }
    })
}

/// A join whose right side is what `change` makes of it, if it is LATERAL. `change` also gets the columns of the left side.
pub fn with_lateral(
    mut join: Join,
    change: impl FnOnce(Subquery, &DFSchema) -> Result<Transformed<Subquery>>,
) -> Result<Transformed<LogicalPlan>> {
    let (subquery, alias) = match &*join.right {
        LogicalPlan::Subquery(subquery) => (Some(subquery), None),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => match &**input {
            LogicalPlan::Subquery(subquery) => (Some(subquery), Some(alias)),
            _ => (None, None),
        },
        _ => (None, None),
    };
    let Some(subquery) = subquery else {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    };
    let changed = change(subquery.clone(), join.left.schema())?;
    if changed.transformed {
        let right = LogicalPlan::Subquery(changed.data);
        join.right = Arc::new(match alias {
            Some(alias) => {
                let alias = SubqueryAlias::try_new(Arc::new(right), alias.clone())?;
                LogicalPlan::SubqueryAlias(alias)
            }
            None => right,
        });
    }
    Ok(Transformed::new_transformed(
        LogicalPlan::Join(join),
        changed.transformed,
    ))
}

fn is_correlated(subquery: &Subquery) -> bool {
    !subquery.subquery.all_out_ref_exprs().is_empty()
}

/// A subquery without LIMIT, and whether it had one.
fn without_limit(subquery: Subquery) -> Result<(Subquery, bool)> {
    Ok(match numbered(&subquery.subquery)? {
        Some(plan) => (subquery.with_plan(Arc::new(plan)), true),
        None => (subquery, false),
    })
}

fn exists(part: Exists) -> Result<Transformed<Expr>> {
    let plan = rows_alone(&part.subquery.subquery)?;
    if let Some((_, having)) = ungrouped(plan) {
        let Some(having) = having else {
            return Ok(Transformed::yes(lit(!part.negated)));
        };
        let LogicalPlan::Filter(having) = having else {
            return refused("HAVING");
        };
        if having.predicate.contains_outer() {
            return refused("a comparison with an aggregate");
        }
        let one = when(having.predicate.clone(), lit(1)).end()?;
        let plan = LogicalPlanBuilder::from(having.input.as_ref().clone()).project([one])?;
        let found = part.subquery.with_plan(Arc::new(plan.build()?));
        let found = scalar(&found)?.data;
        return Ok(Transformed::yes(match part.negated {
            true => found.is_null(),
            false => found.is_not_null(),
        }));
    }
    check(plan, false)?;
    let (mut subquery, mut is_new) = (part.subquery.clone(), false);
    // No column of the select list has the name of another one then.
    let one = Projection::try_new(vec![lit(1)], Arc::new(plan.clone()))?;
    let one = LogicalPlan::Projection(one);
    if *subquery.subquery != *plan && *subquery.subquery != one {
        subquery = subquery.with_plan(Arc::new(one));
        is_new = true;
    }
    let subquery = distinct_names(&subquery, false)?;
    is_new |= subquery.transformed;
    let exists = Expr::Exists(Exists::new(subquery.data, part.negated));
    Ok(Transformed::new_transformed(exists, is_new))
}

fn is_in(part: InSubquery) -> Result<Transformed<Expr>> {
    if let Some((_, having)) = ungrouped(&part.subquery.subquery) {
        if having.is_some() {
            return refused("HAVING");
        }
        let (x, value) = (*part.expr, scalar(&part.subquery)?.data);
        return Ok(Transformed::yes(match part.negated {
            true => x.not_eq(value),
            false => x.eq(value),
        }));
    }
    let InSubquery {
        expr,
        subquery,
        negated,
    } = part;
    let (subquery, mut is_new) = without_limit(subquery)?;
    check(&subquery.subquery, false)?;
    let subquery = distinct_names(&subquery, true)?;
    is_new |= subquery.transformed;
    let is_in = Expr::InSubquery(InSubquery::new(expr, subquery.data, negated));
    Ok(Transformed::new_transformed(is_in, is_new))
}

fn scalar(subquery: &Subquery) -> Result<Transformed<Expr>> {
    let (mut subquery, mut is_new) = without_limit(subquery.clone())?;
    if is_new && ungrouped(&subquery.subquery).is_none() {
        // An aggregate tells DataFusion that there is one row.
        let (qualifier, field) = subquery.subquery.schema().qualified_field(0);
        let value = first_value(Expr::Column(Column::from((qualifier, field))), Vec::new());
        let name = value.schema_name().to_string();
        let column = Expr::Column(Column::new_unqualified(name));
        let column = column.alias_qualified(qualifier.cloned(), field.name());
        let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
        let row = rows
            .aggregate(Vec::<Expr>::new(), [value])?
            .project([column])?;
        subquery = subquery.with_plan(Arc::new(row.build()?));
    }
    if let Some((_, Some(_))) = ungrouped(&subquery.subquery) {
        let Some(plan) = with_having_as_case(&subquery.subquery)? else {
            return refused("HAVING");
        };
        subquery = subquery.with_plan(Arc::new(plan));
        is_new = true;
    }
    check(&subquery.subquery, false)?;
    let subquery = distinct_names(&subquery, true)?;
    is_new |= subquery.transformed;
    Ok(Transformed::new_transformed(
        Expr::ScalarSubquery(subquery.data),
        is_new,
    ))
}

/// The aggregate without groups that makes the rows of a plan, and the highest filter above it.
pub fn ungrouped(plan: &LogicalPlan) -> Option<(&Aggregate, Option<&LogicalPlan>)> {
    let (mut node, mut filter) = (plan, None);
    loop {
        node = match node {
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Filter(Filter { input, .. }) => {
                filter = filter.or(Some(node));
                input
            }
            LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
                return Some((aggregate, filter));
            }
            _ => return None,
        };
    }
}

/// A plan with one row, whose columns are null if HAVING does not hold: the projections of a select list and of
/// [`nullable_scalars`] above a filter of an aggregate. `None` for other plans.
fn with_having_as_case(plan: &LogicalPlan) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(None);
    };
    let (exprs, input) = match &*projection.input {
        LogicalPlan::Filter(having) if matches!(*having.input, LogicalPlan::Aggregate(_)) => {
            let columns = projection.expr.iter().zip(projection.schema.iter());
            let cases = columns.map(|(expr, (qualifier, field))| {
                let value = when(having.predicate.clone(), expr.clone().unalias()).end()?;
                Ok(value.alias_qualified(qualifier.cloned(), field.name()))
            });
            (cases.collect::<Result<_>>()?, Arc::clone(&having.input))
        }
        input => {
            let is_column = |expr: &Expr| match expr.clone().unalias() {
                Expr::ScalarFunction(call) => call.name() == "nullif",
                expr => matches!(expr, Expr::Column(_)),
            };
            match with_having_as_case(input)? {
                Some(input) if projection.expr.iter().all(is_column) => {
                    (projection.expr.clone(), Arc::new(input))
                }
                _ => return Ok(None),
            }
        }
    };
    let projection = Projection::try_new(exprs, input)?;
    Ok(Some(LogicalPlan::Projection(projection)))
}

/// What DataFusion must know of the correlated conditions in a plan.
#[derive(Clone, Copy)]
struct Correlation {
    /// Whether all of them are equalities.
    are_equal: bool,
    /// Whether some compare a cast for which several values of a column are equal. DataFusion groups by the column.
    merges: bool,
}

/// Returns an error if DataFusion would move a correlated condition of a subquery to where it means something else.
fn check(plan: &LogicalPlan, is_lateral: bool) -> Result<()> {
    correlation(plan, is_lateral).map(|_| ())
}

fn correlation(plan: &LogicalPlan, is_lateral: bool) -> Result<Option<Correlation>> {
    let below = plan.inputs().into_iter();
    let below = below.map(|input| correlation(input, is_lateral));
    let below = below.collect::<Result<Vec<_>>>()?;
    let both = |a: Correlation, b: Correlation| Correlation {
        are_equal: a.are_equal && b.are_equal,
        merges: a.merges || b.merges,
    };
    let found = below.iter().flatten().copied().reduce(both);
    if let Some(found) = found {
        let is_below = |at: usize| below[at].is_some();
        check_above(plan, found, is_below, is_lateral)?;
    }
    let mut own = Vec::new();
    plan.apply_expressions(|expr| {
        let parts = split_conjunction(expr).into_iter();
        own.extend(parts.filter(|part| part.contains_outer()).cloned());
        Ok(TreeNodeRecursion::Continue)
    })?;
    if own.is_empty() {
        return Ok(found);
    }
    if let LogicalPlan::Join(join) = plan
        && join.join_type != JoinType::Inner
    {
        return refused("the condition of an outer join");
    }
    let schema = merge_schema(&plan.inputs());
    let own = Correlation {
        are_equal: own.iter().all(is_equality),
        merges: own.iter().any(|part| merges(part, &schema)),
    };
    Ok(Some(found.map_or(own, |found| both(found, own))))
}

/// Checks a node above correlated conditions.
fn check_above(
    node: &LogicalPlan,
    found: Correlation,
    is_below: impl Fn(usize) -> bool,
    is_lateral: bool,
) -> Result<()> {
    match node {
        LogicalPlan::Window(_) => refused("a window"),
        LogicalPlan::Limit(limit) if !matches!(limit.get_skip_type()?, SkipType::Literal(0)) => {
            refused("OFFSET")
        }
        LogicalPlan::Join(join) => match join.join_type {
            JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti if is_below(1) => {
                refused("the right side of an outer join, INTERSECT or EXCEPT")
            }
            JoinType::Right if is_below(0) => refused("the left side of a right join"),
            JoinType::Full => refused("a full join"),
            _ => Ok(()),
        },
        LogicalPlan::Distinct(Distinct::All(_)) if is_lateral && !found.are_equal => {
            refused("DISTINCT")
        }
        LogicalPlan::Aggregate(node) if node.aggr_expr.is_empty() => {
            match is_lateral && !found.are_equal {
                true => refused("DISTINCT"),
                false => Ok(()),
            }
        }
        LogicalPlan::Aggregate(_) if found.merges => refused("an aggregate, by a cast"),
        LogicalPlan::Filter(filter) if is_lateral && ungrouped(&filter.input).is_some() => {
            refused("HAVING")
        }
        LogicalPlan::Projection(node) if ungrouped(&node.input).is_some() => {
            for expr in &node.expr {
                if is_constant(expr, node.input.schema())? {
                    return refused("a constant beside an aggregate");
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether an expression is the same in all rows and not null. DataFusion takes it for null where the subquery has no row
/// below its aggregate.
fn is_constant(expr: &Expr, schema: &DFSchemaRef) -> Result<bool> {
    let context = SimplifyContext::builder().with_schema(Arc::clone(schema));
    let expr = ExprSimplifier::new(context.build()).simplify(expr.clone().unalias())?;
    let is_null = matches!(&expr, Expr::Literal(value, _) if value.is_null());
    Ok(expr.column_refs().is_empty() && !is_null)
}

fn is_equality(condition: &Expr) -> bool {
    matches!(condition, Expr::BinaryExpr(equality) if equality.op == Operator::Eq)
}

/// Whether an equality compares a cast of a column that may make different values equal.
fn merges(condition: &Expr, schema: &DFSchema) -> bool {
    let Expr::BinaryExpr(equality) = condition else {
        return false;
    };
    [&equality.left, &equality.right].into_iter().any(|side| {
        let (Expr::Cast(Cast { expr, .. }) | Expr::TryCast(TryCast { expr, .. })) = &**side else {
            return false;
        };
        let types = (expr.get_type(schema), side.get_type(schema));
        match types {
            _ if side.contains_outer() => false,
            (Ok(from), Ok(to)) => !is_wider(&from, &to),
            _ => true,
        }
    })
}

/// Whether a cast keeps different values different.
fn is_wider(from: &DataType, to: &DataType) -> bool {
    let (from_bytes, to_bytes) = (from.primitive_width(), to.primitive_width());
    from == to
        || from.is_string() && to.is_string()
        || from.is_integer() && to.is_integer() && from_bytes <= to_bytes
        || from.is_integer() && to.is_decimal()
        // Only beyond 2^53 do integers become equal.
        || from.is_integer() && to.is_floating() && from_bytes <= to_bytes
        || matches!((from, to), (DataType::Date32, DataType::Timestamp(_, None)))
}

fn refused<T>(what: &str) -> Result<T> {
    not_impl_err!("a correlated subquery whose condition is below {what}: write it as a join")
}

/// A subquery whose correlated conditions name no two columns of one name, and none with the name of a column that the
/// subquery returns, if `returns_columns`.
fn distinct_names(subquery: &Subquery, returns_columns: bool) -> Result<Transformed<Subquery>> {
    let plan = &subquery.subquery;
    let mut columns = Vec::new();
    let mut add = |column: &Column| {
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    };
    if returns_columns && let LogicalPlan::Projection(projection) = &**plan {
        for expr in &projection.expr {
            expr.column_refs().into_iter().for_each(&mut add);
        }
    }
    plan.apply(|node| {
        if let LogicalPlan::Filter(filter) = node {
            for part in correlated(filter) {
                part.column_refs().into_iter().for_each(&mut add);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    let has_other = |column: &Column| {
        let mut others = columns.iter().filter(|other| other.name == column.name);
        others.any(|other| other != column)
    };
    if !columns.iter().any(has_other) {
        return Ok(Transformed::no(subquery.clone()));
    }
    let mut number = 0;
    let plan = plan.as_ref().clone().transform_up(|node| match node {
        LogicalPlan::Filter(filter) if !correlated(&filter).is_empty() => {
            renamed(&filter, has_other, &mut number)
        }
        node => Ok(Transformed::no(node)),
    })?;
    Ok(Transformed::yes(subquery.with_plan(Arc::new(plan.data))))
}

fn correlated(filter: &Filter) -> Vec<&Expr> {
    let parts = split_conjunction(&filter.predicate).into_iter();
    parts.filter(|part| part.contains_outer()).collect()
}

/// A filter whose correlated conditions name copies of some columns.
fn renamed(
    filter: &Filter,
    is_renamed: impl Fn(&Column) -> bool,
    number: &mut usize,
) -> Result<Transformed<LogicalPlan>> {
    let columns = filter.input.schema().columns();
    let mut all: Vec<_> = columns.iter().cloned().map(Expr::Column).collect();
    let mut copies: Vec<(Column, Column)> = Vec::new();
    let parts = split_conjunction(&filter.predicate).into_iter().cloned();
    let parts = parts.map(|part| {
        if !part.contains_outer() {
            return Ok(part);
        }
        let part = part.transform_up(|part| match part {
            Expr::Column(column) if is_renamed(&column) => {
                let known = copies.iter().find(|(of, _)| *of == column);
                let copy = match known {
                    Some((_, copy)) => copy.clone(),
                    None => {
                        *number += 1;
                        let name = format!("__rockmill_{number}");
                        all.push(Expr::Column(column.clone()).alias(&name));
                        copies.push((column, Column::from_name(&name)));
                        Column::from_name(name)
                    }
                };
                Ok(Transformed::yes(Expr::Column(copy)))
            }
            part => Ok(Transformed::no(part)),
        })?;
        Ok(part.data)
    });
    let parts = parts.collect::<Result<Vec<_>>>()?;
    let Some(predicate) = conjunction(parts) else {
        return Ok(Transformed::no(LogicalPlan::Filter(filter.clone())));
    };
    let plan = LogicalPlanBuilder::from(filter.input.as_ref().clone());
    let plan = plan.project(all)?.filter(predicate)?;
    let plan = plan.project(columns.into_iter().map(Expr::Column))?;
    Ok(Transformed::yes(plan.build()?))
}

//! `x in (subquery)` and `x not in (subquery)`, where they may be null.
//!
//! Either is null if no value of the subquery is x, and x or one of these values is null. DataFusion computes joins that return
//! true and false alone. That is right where null has the effect of false, and for `not in` above all other conditions of a
//! WHERE. It is wrong beneath NOT, CASE and IS NULL, for a constant x, and for a `not in` whose subquery names columns of the
//! statement around it. These become, for the values q of the subquery:
//!
//! ```sql
//! exists (q = x) or null and (exists (q is null) or x is null and exists (any row))
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ExprSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator, Subquery,
    lit,
};

use crate::subqueries::ungrouped;

/// Writes IN with EXISTS where it may be null. ANY and ALL must be written as EXISTS before.
pub fn exact_in(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| match node {
        LogicalPlan::Filter(Filter {
            predicate, input, ..
        }) => {
            let exact = exact(predicate, Position::Condition, input.schema())?;
            exact.map_data(|predicate| Ok(LogicalPlan::Filter(Filter::try_new(predicate, input)?)))
        }
        node => Ok(Transformed::no(node)),
    })
}

/// Gives the columns of ANY and ALL a name that no column around them has. DataFusion would compare such a column with itself.
/// The one row of an aggregate without groups is compared without a join.
pub fn named_sets(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| match expr {
                Expr::SetComparison(set) => named_set(set).map(Transformed::yes),
                expr => Ok(Transformed::no(expr)),
            })?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })
    })
}

fn named_set(mut set: SetComparison) -> Result<Expr> {
    if let Some((_, None)) = ungrouped(&set.subquery.subquery) {
        let value = Box::new(Expr::ScalarSubquery(set.subquery));
        return Ok(Expr::BinaryExpr(BinaryExpr::new(set.expr, set.op, value)));
    }
    let rows = LogicalPlanBuilder::from(set.subquery.subquery.as_ref().clone());
    let rows = rows.project([named(&set.subquery)])?.build()?;
    set.subquery.subquery = Arc::new(rows);
    Ok(Expr::SetComparison(set))
}

/// The position of an expression in a filter.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// It is one of the conditions that must all hold.
    Condition,
    /// It is beneath AND and OR alone, so null has the effect of false.
    AndOr,
    Elsewhere,
}

fn exact(expr: Expr, position: Position, schema: &DFSchema) -> Result<Transformed<Expr>> {
    match expr {
        Expr::InSubquery(part) => exact_part(part, position, schema),
        Expr::Not(part) => match *part {
            Expr::InSubquery(mut part) => {
                part.negated = !part.negated;
                exact_part(part, position, schema)
            }
            part => Expr::Not(Box::new(part))
                .map_children(|part| exact(part, Position::Elsewhere, schema)),
        },
        expr => {
            let of_parts = match &expr {
                Expr::BinaryExpr(part) if part.op == Operator::And => position,
                Expr::BinaryExpr(part)
                    if part.op == Operator::Or && position != Position::Elsewhere =>
                {
                    Position::AndOr
                }
                _ => Position::Elsewhere,
            };
            expr.map_children(|part| exact(part, of_parts, schema))
        }
    }
}

fn exact_part(
    part: InSubquery,
    position: Position,
    schema: &DFSchema,
) -> Result<Transformed<Expr>> {
    let (x, subquery) = (&part.expr, &part.subquery);
    let field = Arc::clone(subquery.subquery.schema().field(0));
    let x_may_be_null = x.nullable(schema)?;
    let q_may_be_null = field.is_nullable();
    let is_exact = match position {
        _ if !x_may_be_null && !q_may_be_null => true,
        Position::Elsewhere => false,
        _ if !part.negated => true,
        // DataFusion's join sees that a column may be null, and not that an expression may be.
        Position::Condition => {
            let mut columns = x.column_refs().into_iter();
            let has_nullable = columns.any(|column| {
                let field = schema.field_from_column(column);
                q_may_be_null || field.is_ok_and(|field| field.is_nullable())
            });
            subquery.outer_ref_columns.is_empty() && has_nullable
        }
        Position::AndOr => false,
    };
    if is_exact {
        return Ok(Transformed::no(Expr::InSubquery(part)));
    }
    // An aggregate without groups has one row.
    if let Some((_, None)) = ungrouped(&subquery.subquery) {
        let (x, value) = ((**x).clone(), Expr::ScalarSubquery(subquery.clone()));
        return Ok(Transformed::yes(match part.negated {
            true => x.not_eq(value),
            false => x.eq(value),
        }));
    }
    let q = Expr::Column(Column::from_name(NAME));
    let of_outer = (**x).clone().transform_up(|part| {
        Ok(match part {
            Expr::Column(column) => {
                let field = Arc::clone(schema.field_from_column(&column)?);
                Transformed::yes(Expr::OuterReferenceColumn(field, column))
            }
            part => Transformed::no(part),
        })
    })?;
    let mut is_null = lit(false);
    if q_may_be_null {
        is_null = is_null.or(exists(subquery, Some(q.clone().is_null()))?);
    }
    if x_may_be_null {
        is_null = is_null.or((**x).clone().is_null().and(exists(subquery, None)?));
    }
    let null = Expr::Literal(ScalarValue::Boolean(None), None);
    let is_in = exists(subquery, Some(q.eq(of_outer.data)))?.or(null.and(is_null));
    Ok(Transformed::yes(match part.negated {
        true => Expr::Not(Box::new(is_in)),
        false => is_in,
    }))
}

/// The column of a subquery in [`exists`]. Otherwise it may have the name of a column around it.
const NAME: &str = "__rockmill_in";

/// The column of a subquery, with that name.
fn named(subquery: &Subquery) -> Expr {
    let column = Column::from(subquery.subquery.schema().qualified_field(0));
    Expr::Column(column).alias(NAME)
}

/// Whether a subquery has a row, or one for which `condition` holds.
fn exists(subquery: &Subquery, condition: Option<Expr>) -> Result<Expr> {
    let rows = LogicalPlanBuilder::from(subquery.subquery.as_ref().clone());
    let mut rows = rows.project([named(subquery)])?;
    let names_outer = condition.as_ref().is_some_and(Expr::contains_outer);
    if let Some(condition) = condition {
        rows = rows.filter(condition)?;
    }
    // The same row serves all rows of the statement.
    if !names_outer && subquery.outer_ref_columns.is_empty() {
        rows = rows.limit(0, Some(1))?;
    }
    let rows = rows.build()?;
    let outer_ref_columns = rows.all_out_ref_exprs();
    Ok(Expr::Exists(Exists {
        subquery: Subquery {
            subquery: Arc::new(rows),
            outer_ref_columns,
            spans: subquery.spans.clone(),
        },
        negated: false,
    }))
}

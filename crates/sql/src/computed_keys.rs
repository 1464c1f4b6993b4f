//! Keys of orders that are computed, and keys that an order names twice.
//!
//! DataFusion asks each part of a key for the range of its values, and for many parts that is an error: a comparison with a
//! function, or a root of something without a range. No order satisfies such a key then, and the last check refuses a plan
//! that sorts by it. An aggregate whose order names a key twice is an internal error.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, TableReference, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan, LogicalPlanBuilder};

/// Computes such keys of sorts, windows and ordered aggregates in projections below them.
///
/// # Errors
/// NotImplemented for `string_agg(distinct ..)` beside an aggregate of another order; those of DataFusion.
pub fn computed_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(with_computed_keys)
}

fn with_computed_keys(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let input = match &node {
        LogicalPlan::Sort(sort) => Arc::clone(&sort.input),
        LogicalPlan::Window(window) => Arc::clone(&window.input),
        LogicalPlan::Aggregate(aggregate) => Arc::clone(&aggregate.input),
        LogicalPlan::Distinct(Distinct::On(_)) => return with_distinct_order(node),
        _ => return Ok(Transformed::no(node)),
    };
    let (mut keys, names) = (Keys::default(), NamePreserver::new(&node));
    let (schema, is_aggregate) = (
        Arc::clone(node.schema()),
        matches!(node, LogicalPlan::Aggregate(_)),
    );
    let is_sort = matches!(node, LogicalPlan::Sort(_));
    let node = node.map_expressions(|mut expr| {
        if is_sort {
            keys.replace(&mut expr);
            return Ok(Transformed::yes(expr));
        }
        let name = names.save(&expr);
        let changed = expr.transform_up(|expr| Ok(keys.of_function(expr)))?;
        Ok(changed.update_data(|expr| name.restore(expr)))
    })?;
    let node = node.data;
    keys.check_orders()?;
    if keys.computed.is_empty() {
        return Ok(Transformed::new_transformed(node, keys.is_changed));
    }
    let all: Vec<_> = input.schema().iter().map(column).collect();
    let all = all.into_iter().chain(keys.computed);
    let computed = LogicalPlanBuilder::from(input).project(all)?.build()?;
    let node = node.with_new_exprs(node.expressions(), vec![computed])?;
    let node = match is_aggregate {
        true => node,
        false => LogicalPlanBuilder::from(node)
            .project(schema.iter().map(column))?
            .build()?,
    };
    Ok(Transformed::yes(node))
}

fn with_distinct_order(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(Distinct::On(mut on)) = node else {
        return Ok(Transformed::no(node));
    };
    let keys = on.sort_expr.as_mut();
    let is_changed = keys.is_some_and(|keys| {
        let named = keys.len();
        distinct(keys);
        keys.len() < named
    });
    let on = LogicalPlan::Distinct(Distinct::On(on));
    Ok(Transformed::new_transformed(on, is_changed))
}

fn column(of: (Option<&TableReference>, &FieldRef)) -> Expr {
    Expr::Column(Column::from(of))
}

/// Keys that become columns.
#[derive(Default)]
struct Keys {
    computed: Vec<Expr>,
    /// Whether some were named twice.
    is_changed: bool,
    /// The orders of aggregates, and whether each is one of `string_agg(distinct ..)`.
    orders: Vec<(Vec<Sort>, bool)>,
}

impl Keys {
    /// Replaces the keys of a window or of an aggregate.
    fn of_function(&mut self, mut expr: Expr) -> Transformed<Expr> {
        let before = self.computed.len();
        match &mut expr {
            Expr::WindowFunction(function) => {
                let params = &mut function.params;
                params
                    .partition_by
                    .iter_mut()
                    .for_each(|key| self.replace(key));
                self.replace_all(&mut params.order_by);
            }
            Expr::AggregateFunction(function) => {
                let keys = &mut function.params.order_by;
                let named = keys.len();
                distinct(keys);
                self.is_changed |= keys.len() < named;
                self.replace_all(keys);
                if !keys.is_empty() {
                    let is_text = function.params.distinct && function.func.name() == "string_agg";
                    self.orders
                        .push((function.params.order_by.clone(), is_text));
                }
            }
            _ => {}
        }
        let is_changed = self.is_changed || self.computed.len() > before;
        Transformed::new_transformed(expr, is_changed)
    }

    /// Refuses `string_agg(distinct ..)` beside an aggregate of another order: DataFusion orders it as the other one.
    fn check_orders(&self) -> Result<()> {
        let mut texts = self.orders.iter().filter(|(_, is_text)| *is_text);
        match texts.any(|(order, _)| self.orders.iter().any(|(other, _)| other != order)) {
            true => not_impl_err!(
                "string_agg(distinct ..) beside an aggregate of another order: compute it in a subquery of its own"
            ),
            false => Ok(()),
        }
    }

    fn replace_all(&mut self, keys: &mut [Sort]) {
        keys.iter_mut().for_each(|key| self.replace(&mut key.expr));
    }

    /// Replaces a computed key by a column.
    fn replace(&mut self, key: &mut Expr) {
        if !is_computed(key) || key.contains_outer() {
            return;
        }
        let name = format!("__rockmill_key_{}", self.computed.len());
        let column = Expr::Column(Column::new_unqualified(&name));
        self.computed
            .push(std::mem::replace(key, column).alias(name));
    }
}

/// Whether a key is more than a column or a constant, with casts.
fn is_computed(key: &Expr) -> bool {
    match key {
        Expr::Column(_) | Expr::Literal(..) => false,
        Expr::Alias(alias) => is_computed(&alias.expr),
        Expr::Cast(cast) => is_computed(&cast.expr),
        Expr::TryCast(cast) => is_computed(&cast.expr),
        _ => true,
    }
}

/// Drops the keys that are there before.
fn distinct(keys: &mut Vec<Sort>) {
    let mut known: Vec<Expr> = Vec::new();
    keys.retain(|key| {
        let is_new = !known.contains(&key.expr);
        if is_new {
            known.push(key.expr.clone());
        }
        is_new
    });
}

//! Keys of orders that compare computed values.
//!
//! DataFusion asks each part of a key for the range of its values. A comparison with a function, whose range it does not know,
//! is an error there. No order satisfies such a key then, and the last check refuses a plan that sorts by it.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, TableReference};
use datafusion::error::Result;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator};

/// Computes such keys of sorts, windows and ordered aggregates in projections below them.
///
/// # Errors
/// Those of DataFusion.
pub fn computed_keys(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(with_computed_keys)
}

fn with_computed_keys(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let input = match &node {
        LogicalPlan::Sort(sort) => Arc::clone(&sort.input),
        LogicalPlan::Window(window) => Arc::clone(&window.input),
        LogicalPlan::Aggregate(aggregate) => Arc::clone(&aggregate.input),
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
    if keys.computed.is_empty() {
        return Ok(Transformed::no(node));
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

fn column(of: (Option<&TableReference>, &FieldRef)) -> Expr {
    Expr::Column(Column::from(of))
}

/// Keys that become columns.
#[derive(Default)]
struct Keys {
    computed: Vec<Expr>,
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
            Expr::AggregateFunction(function) => self.replace_all(&mut function.params.order_by),
            _ => {}
        }
        match self.computed.len() > before {
            true => Transformed::yes(expr),
            false => Transformed::no(expr),
        }
    }

    fn replace_all(&mut self, keys: &mut [Sort]) {
        keys.iter_mut().for_each(|key| self.replace(&mut key.expr));
    }

    /// Replaces a key that compares computed values by a column.
    fn replace(&mut self, key: &mut Expr) {
        if !compares_computed(key) || key.contains_outer() {
            return;
        }
        let name = format!("__rockmill_key_{}", self.computed.len());
        let column = Expr::Column(Column::new_unqualified(&name));
        self.computed
            .push(std::mem::replace(key, column).alias(name));
    }
}

/// Whether a part of a key compares something else than columns and constants, or combines conditions.
fn compares_computed(key: &Expr) -> bool {
    let is_plain = |expr: &Expr| matches!(expr, Expr::Column(_) | Expr::Literal(..));
    let found = key.exists(|expr| {
        Ok(match expr {
            Expr::Between(_) => true,
            Expr::BinaryExpr(binary) => match binary.op {
                Operator::And | Operator::Or => true,
                Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                    !is_plain(&binary.left) || !is_plain(&binary.right)
                }
                _ => false,
            },
            _ => false,
        })
    });
    found.unwrap_or(false)
}

//! Filters with many alternatives, `a or b or c ..`.
//!
//! The parser makes a tree of them whose depth is their number. DataFusion computes the type of each node from all
//! nodes below it, and combines `x = 1 or x = 2 ..` one by one. Both take time that grows with the square of their
//! number. A tree of logarithmic depth with the same alternatives in the same order avoids this.

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::{BinaryExpr, Expr, Filter, LogicalPlan, Operator, or};
use datafusion::optimizer::AnalyzerRule;

/// Number of alternatives that stay as they are.
const FEW: usize = 64;

/// Makes trees of many alternatives shallow. It comes before all other rules.
#[derive(Debug)]
pub struct ShallowAlternatives;

impl AnalyzerRule for ShallowAlternatives {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_down_with_subqueries(|node| match node {
            LogicalPlan::Filter(Filter {
                predicate, input, ..
            }) => {
                let predicate = predicate.transform_down(|expr| Ok(shallow(expr)))?;
                let filter = LogicalPlan::Filter(Filter::try_new(predicate.data, input)?);
                Ok(Transformed::new_transformed(filter, predicate.transformed))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &'static str {
        "rockmill_shallow_alternatives"
    }
}

fn shallow(expr: Expr) -> Transformed<Expr> {
    if depth(&expr) <= FEW {
        return Transformed::no(expr);
    }
    let mut alternatives = Vec::new();
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Or,
                right,
            }) => rest.extend([*right, *left]),
            other => alternatives.push(other),
        }
    }
    while alternatives.len() > 1 {
        let mut pairs = alternatives.into_iter();
        let mut halved = Vec::with_capacity(pairs.len().div_ceil(2));
        while let Some(left) = pairs.next() {
            halved.push(match pairs.next() {
                Some(right) => or(left, right),
                None => left,
            });
        }
        alternatives = halved;
    }
    alternatives.pop().map_or_else(
        || unreachable!("an expression is its own alternative"),
        Transformed::yes,
    )
}

/// The depth of the alternatives on the left side.
fn depth(mut expr: &Expr) -> usize {
    let mut depth = 0;
    while let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Or,
        ..
    }) = expr
    {
        depth += 1;
        expr = left;
    }
    depth
}

#[cfg(test)]
mod tests {
    use datafusion::prelude::{col, lit};

    use super::*;

    /// The alternatives of an expression, and their depth.
    fn leaves(expr: &Expr, depth: usize, found: &mut Vec<(Expr, usize)>) {
        match expr {
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Or,
                right,
            }) => {
                leaves(left, depth + 1, found);
                leaves(right, depth + 1, found);
            }
            other => found.push((other.clone(), depth)),
        }
    }

    #[test]
    fn many_alternatives_keep_their_order_and_become_shallow() {
        for number in [1, 2, FEW, FEW + 2, 1000] {
            let alternatives = (0..number as i64).map(|at| col("a").gt(lit(at)));
            let expected: Vec<_> = alternatives.clone().collect();
            let deep = alternatives.reduce(or).unwrap();
            let shallow = shallow(deep.clone());
            let mut found = Vec::new();
            leaves(&shallow.data, 0, &mut found);
            let deepest = found.iter().map(|(_, depth)| *depth).max().unwrap();
            let found: Vec<_> = found.into_iter().map(|(expr, _)| expr).collect();
            assert_eq!(found, expected);
            match number <= FEW {
                true => assert_eq!(shallow.data, deep),
                false => assert_eq!(deepest, number.next_power_of_two().ilog2() as usize),
            }
            assert_eq!(shallow.transformed, number > FEW);
        }
    }
}

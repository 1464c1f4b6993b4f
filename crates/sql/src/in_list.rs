//! `x in (list)` whose list has items that are computed from columns.
//!
//! DataFusion evaluates a list without rows to see whether it is constant. A CASE then seems to be what its THEN says. So such
//! items become comparisons of their own.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{Expr, LogicalPlan, lit};

/// Leaves no item with a column in a list.
pub fn constant_lists(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_down_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|part| match part {
                Expr::InList(part) if !part.list.iter().all(is_constant) => {
                    Ok(Transformed::yes(compared(part)))
                }
                part => Ok(Transformed::no(part)),
            })?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })
    })
}

fn is_constant(item: &Expr) -> bool {
    item.column_refs().is_empty() && !item.contains_outer() && !item.is_volatile()
}

/// `x in (constants) or x = item or ..`, or `x not in (constants) and x <> item and ..`.
fn compared(part: InList) -> Expr {
    let InList {
        expr: x,
        list,
        negated,
    } = part;
    let (constants, computed): (Vec<_>, Vec<_>) = list.into_iter().partition(is_constant);
    let of_constants =
        (!constants.is_empty()).then(|| Expr::InList(InList::new(x.clone(), constants, negated)));
    let of_computed = computed.into_iter().map(|item| match negated {
        true => x.as_ref().clone().not_eq(item),
        false => x.as_ref().clone().eq(item),
    });
    let all = of_constants.into_iter().chain(of_computed);
    let all = match negated {
        true => conjunction(all),
        false => disjunction(all),
    };
    // An empty list has no computed items.
    all.unwrap_or_else(|| lit(negated))
}

//! `select *` over a left join with USING.
//!
//! DataFusion keeps one of the columns that USING compares: the one whose table has the first name in the alphabet. In a left
//! join that may be the right side's, which is null in rows without one.

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::utils::expand_wildcard;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection};

/// Takes the leftmost of these columns. Its name stays.
///
/// # Errors
/// Those of DataFusion.
pub fn left_columns(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Projection(projection) => with_left_columns(projection),
        node => Ok(Transformed::no(node)),
    })
}

fn with_left_columns(mut projection: Projection) -> Result<Transformed<LogicalPlan>> {
    let input = &projection.input;
    let compared = input.using_columns()?;
    if compared.is_empty()
        || !(projection.expr).starts_with(&expand_wildcard(input.schema(), input, None)?)
    {
        return Ok(Transformed::no(LogicalPlan::Projection(projection)));
    }
    let columns = input.schema().columns();
    let mut is_changed = false;
    for expr in &mut projection.expr {
        let Expr::Column(kept) = &*expr else {
            continue;
        };
        let Some(same) = compared.iter().find(|columns| columns.contains(kept)) else {
            continue;
        };
        let mut left = columns.iter();
        let left = left.find(|column| column.name == kept.name && same.contains(column));
        if let Some(left) = left.filter(|left| *left != kept) {
            let value = Expr::Column(left.clone());
            *expr = value.alias_qualified(kept.relation.clone(), kept.name.clone());
            is_changed = true;
        }
    }
    let Projection { expr, input, .. } = projection;
    let projection = LogicalPlan::Projection(Projection::try_new(expr, input)?);
    Ok(Transformed::new_transformed(projection, is_changed))
}

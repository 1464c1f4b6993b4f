//! Types of the columns that a correlated subquery names.
//!
//! DataFusion notes the type of such a column when it plans the subquery, and changes the types of a union's columns later.
//! Then the subquery compares values of two types, which are never equal, or an error.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan, Subquery};
use datafusion::optimizer::AnalyzerRule;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use crate::subqueries::with_lateral;

/// Corrects these types, and lets DataFusion choose the types of comparisons again.
#[derive(Debug)]
pub struct OuterTypes;

impl AnalyzerRule for OuterTypes {
    fn name(&self) -> &'static str {
        "rockmill_outer_types"
    }

    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> Result<LogicalPlan> {
        let plan = plan.transform_up_with_subqueries(|node| {
            if let LogicalPlan::Join(join) = node {
                return with_lateral(join, corrected);
            }
            let schema = merge_schema(&node.inputs());
            node.map_expressions(|expr| {
                expr.transform_up(|expr| match expr {
                    Expr::Exists(Exists { subquery, negated }) => {
                        let subquery = corrected(subquery, &schema)?;
                        Ok(subquery.update_data(|s| Expr::Exists(Exists::new(s, negated))))
                    }
                    Expr::InSubquery(InSubquery {
                        expr,
                        subquery,
                        negated,
                    }) => {
                        let subquery = corrected(subquery, &schema)?;
                        Ok(subquery
                            .update_data(|s| Expr::InSubquery(InSubquery::new(expr, s, negated))))
                    }
                    Expr::ScalarSubquery(subquery) => {
                        let subquery = corrected(subquery, &schema)?;
                        Ok(subquery.update_data(Expr::ScalarSubquery))
                    }
                    expr => Ok(Transformed::no(expr)),
                })
            })
        })?;
        match plan.transformed {
            true => TypeCoercion::new().analyze(plan.data, config),
            false => Ok(plan.data),
        }
    }
}

/// A subquery that names columns with the types that they have in `outer`. Those that are not there are of a statement
/// further out.
fn corrected(subquery: Subquery, outer: &DFSchema) -> Result<Transformed<Subquery>> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(Transformed::no(subquery));
    }
    let plan = subquery.subquery.as_ref().clone();
    let plan = plan.transform_up(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|expr| match expr {
                Expr::OuterReferenceColumn(noted, column) => {
                    let field = outer.field_from_column(&column);
                    let field = field.map_or_else(|_| Arc::clone(&noted), Arc::clone);
                    let is_new = field.data_type() != noted.data_type();
                    let field = if is_new { field } else { noted };
                    let expr = Expr::OuterReferenceColumn(field, column);
                    Ok(Transformed::new_transformed(expr, is_new))
                }
                expr => Ok(Transformed::no(expr)),
            })
        })
    })?;
    Ok(plan.update_data(|plan| {
        let mut subquery = subquery.with_plan(Arc::new(plan));
        subquery.outer_ref_columns = subquery.subquery.all_out_ref_exprs();
        subquery
    }))
}

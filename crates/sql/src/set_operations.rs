//! INTERSECT ALL and EXCEPT ALL, which count rows, and USING, whose column comes from either side.
//!
//! DataFusion computes the first two as joins that keep all rows of a kind, or none. Here the rows of each kind are numbered,
//! and the numbers are compared as well. For USING with RIGHT and FULL JOIN, DataFusion takes the column of the left side,
//! which is null in rows of the right side alone. That is an error here, because the names are resolved already.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{
    Column, JoinConstraint, JoinType, NullEquality, TableReference, not_impl_err,
};
use datafusion::error::Result;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::builder::build_join_schema;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder,
};

/// Numbers the rows of INTERSECT ALL and EXCEPT ALL.
///
/// # Errors
/// NotImplemented for USING with RIGHT or FULL JOIN.
pub fn exact_set_operations(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Join(join) if counts_rows(&join) => counted(join).map(Transformed::yes),
        LogicalPlan::Join(Join {
            join_constraint: JoinConstraint::Using,
            join_type: JoinType::Right | JoinType::Full,
            ..
        }) => not_impl_err!(
            "USING and NATURAL with RIGHT or FULL JOIN: write ON a.k = b.k, and coalesce(a.k, b.k) for the column"
        ),
        node => Ok(Transformed::no(node)),
    })
}

/// The numbers of both sides.
const NAMES: [&str; 2] = ["__rockmill_left", "__rockmill_right"];

/// Whether a join is INTERSECT ALL or EXCEPT ALL: it compares all columns, as no EXISTS does. Without ALL, its left side is
/// distinct. A plan may be analyzed twice, with numbers at the second time.
fn counts_rows(join: &Join) -> bool {
    let (left, right) = (join.left.schema(), join.right.schema());
    let is_of_subquery = |(qualifier, _): (Option<&TableReference>, &FieldRef)| {
        qualifier.is_some_and(|name| name.table().starts_with("__correlated_sq"))
    };
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && [left.fields().len(), right.fields().len()] == [join.on.len(); 2]
        && !matches!(*join.left, LogicalPlan::Distinct(Distinct::All(_)))
        && !left.fields().iter().any(|field| field.name() == NAMES[0])
        && !right.iter().any(is_of_subquery)
}

/// The same join, in which the rows of each kind have numbers.
fn counted(mut join: Join) -> Result<LogicalPlan> {
    let columns = join.left.schema().columns();
    join.left = Arc::new(numbered(&join.left, NAMES[0])?);
    join.right = Arc::new(numbered(&join.right, NAMES[1])?);
    let [left, right] = NAMES.map(|name| Expr::Column(Column::from_name(name)));
    join.on.push((left, right));
    let schema = build_join_schema(join.left.schema(), join.right.schema(), &join.join_type)?;
    join.schema = Arc::new(schema);
    let plan = LogicalPlanBuilder::from(LogicalPlan::Join(join));
    plan.project(columns.into_iter().map(Expr::Column))?.build()
}

/// Rows with the number that each has among those equal to it.
fn numbered(plan: &LogicalPlan, name: &str) -> Result<LogicalPlan> {
    let columns = plan.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<_> = columns.collect();
    let number = row_number().partition_by(columns.clone()).build()?;
    let number_name = number.schema_name().to_string();
    let plan = LogicalPlanBuilder::from(plan.clone()).window([number])?;
    let number = Expr::Column(Column::from_name(number_name)).alias(name);
    plan.project(columns.into_iter().chain([number]))?.build()
}

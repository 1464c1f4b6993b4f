//! Windows that DataFusion computes before it has read the rows that they count, and windows in the order of bytes.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, WindowFrame, WindowFrameBound, WindowFrameUnits,
};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

/// Lets frames in the order of bytes, such as those of keys, count groups of equal rows: DataFusion knows no ranges of bytes.
/// Without an offset, as in the usual frame, both are the same.
///
/// # Errors
/// Those of DataFusion; Plan if there is an offset.
pub fn groups_of_bytes(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::Window(window) = &node else {
            return Ok(Transformed::no(node));
        };
        let (schema, names) = (Arc::clone(window.input.schema()), NamePreserver::new(&node));
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| with_groups(expr, &schema))?;
            Ok(changed.update_data(|expr| name.restore(expr)))
        })
    })
}

fn with_groups(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(function) = &mut expr else {
        return Ok(Transformed::no(expr));
    };
    let params = &mut function.params;
    let frame = &params.window_frame;
    let has_offset = [&frame.start_bound, &frame.end_bound]
        .iter()
        .any(|bound| match bound {
            WindowFrameBound::Preceding(by) | WindowFrameBound::Following(by) => !by.is_null(),
            WindowFrameBound::CurrentRow => false,
        });
    let first = params.order_by.first();
    let kind = first.map(|first| first.expr.get_type(schema)).transpose()?;
    let is_of_bytes = kind.is_some_and(|kind| {
        use DataType as T;
        matches!(
            kind,
            T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_)
        )
    });
    if frame.units != WindowFrameUnits::Range || !is_of_bytes {
        return Ok(Transformed::no(expr));
    }
    if has_offset {
        return plan_err!(
            "a frame of RANGE with an offset needs an order by numbers or times, and this one is by bytes: use ROWS"
        );
    }
    let (start, end) = (frame.start_bound.clone(), frame.end_bound.clone());
    params.window_frame = WindowFrame::new_bounds(WindowFrameUnits::Groups, start, end);
    Ok(Transformed::yes(expr))
}

/// A window that reads a whole partition first, if a frame of RANGE ends before its row and may be of a null: it ends behind
/// the last null then, and DataFusion does not wait for that. Other nodes stay. The rows may lack the order that the window
/// needs.
///
/// # Errors
/// Those of DataFusion if it cannot make the window.
pub fn with_whole_ranges(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() else {
        return Ok(node);
    };
    let input = window.input();
    let schema = input.schema();
    let ends_early = |window: &Arc<dyn WindowExpr>| {
        let frame = window.get_window_frame();
        let is_range = frame.units == WindowFrameUnits::Range;
        let is_before = matches!(frame.end_bound, WindowFrameBound::Preceding(_));
        let mut order = window.order_by().iter();
        is_range && is_before && order.any(|key| key.expr.nullable(&schema).unwrap_or(true))
    };
    if !window.window_expr().iter().any(ends_early) {
        return Ok(node);
    }
    let is_partitioned = !window.partition_keys().is_empty();
    let (windows, input) = (window.window_expr().to_vec(), Arc::clone(input));
    Ok(Arc::new(WindowAggExec::try_new(
        windows,
        input,
        is_partitioned,
    )?))
}

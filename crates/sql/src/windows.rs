//! Windows that DataFusion computes before it has read the rows that they count.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::logical_expr::{WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};

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

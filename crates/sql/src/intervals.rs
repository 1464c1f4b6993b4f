//! Comparisons of intervals by their length.
//!
//! Arrow orders intervals by months, then days, then nanoseconds, so 36 hours are less than a day there. DataFusion makes an
//! interval without days of a difference of timestamps, which is less than any day then. Here a day has 24 hours and a month
//! 30 days, as in PostgreSQL and DuckDB.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Int64Type, IntervalMonthDayNanoType, IntervalUnit, TimeUnit,
};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Between, InList, Sort};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, LogicalPlan, Operator, ScalarFunctionArgs,
    ScalarUDF, ScalarUDFImpl, Signature, Volatility, cast as cast_to,
};

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);

/// Lets comparisons, BETWEEN, IN and ORDER BY take the lengths of intervals.
///
/// # Errors
/// Those of DataFusion.
pub fn compared_by_length(plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    plan.transform_up_with_subqueries(|node| {
        let (schema, names) = (merge_schema(&node.inputs()), NamePreserver::new(&node));
        let is_sort = matches!(node, LogicalPlan::Sort(_));
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let changed = expr.transform_up(|expr| Ok(with_lengths(expr, &schema)))?;
            if is_sort && is_interval(&changed.data, &schema) {
                return Ok(Transformed::yes(length(changed.data)));
            }
            Ok(changed.update_data(|expr| name.restore(expr)))
        })
    })
}

fn with_lengths(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let are_compared = |parts: &mut dyn Iterator<Item = &Expr>| {
        let parts: Vec<_> = parts.collect();
        // DataFusion joins by equal columns of subqueries, and not by functions of them.
        let is_comparable = |part: &&Expr| {
            let kind = part.get_type(schema);
            !part.contains_outer()
                && kind.is_ok_and(|kind| has_length(&kind) || kind.is_string() || kind.is_null())
        };
        parts.iter().any(|part| is_interval(part, schema)) && parts.iter().all(is_comparable)
    };
    match expr {
        Expr::BinaryExpr(of)
            if is_comparison(of.op) && are_compared(&mut [&*of.left, &*of.right].into_iter()) =>
        {
            let [left, right] = [of.left, of.right].map(|part| Box::new(length_of(*part, schema)));
            Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(left, of.op, right)))
        }
        Expr::Between(of) if are_compared(&mut [&*of.expr, &*of.low, &*of.high].into_iter()) => {
            let [expr, low, high] =
                [of.expr, of.low, of.high].map(|part| Box::new(length_of(*part, schema)));
            Transformed::yes(Expr::Between(Between::new(expr, of.negated, low, high)))
        }
        Expr::InList(of) if are_compared(&mut of.list.iter().chain([&*of.expr])) => {
            let expr = Box::new(length_of(*of.expr, schema));
            let list = of.list.into_iter().map(|part| length_of(part, schema));
            Transformed::yes(Expr::InList(InList::new(expr, list.collect(), of.negated)))
        }
        // DataFusion knows no ranges of intervals and durations.
        Expr::WindowFunction(mut of) => {
            let is_changed = with_lengths_of_keys(&mut of.params.order_by, schema);
            Transformed::new_transformed(Expr::WindowFunction(of), is_changed)
        }
        Expr::AggregateFunction(mut of) => {
            let is_changed = with_lengths_of_keys(&mut of.params.order_by, schema);
            Transformed::new_transformed(Expr::AggregateFunction(of), is_changed)
        }
        expr => Transformed::no(expr),
    }
}

fn is_comparison(op: Operator) -> bool {
    use Operator as O;
    let is_order = matches!(op, O::Eq | O::NotEq | O::Lt | O::LtEq | O::Gt | O::GtEq);
    is_order || matches!(op, O::IsDistinctFrom | O::IsNotDistinctFrom)
}

fn is_interval(expr: &Expr, schema: &DFSchema) -> bool {
    matches!(expr.get_type(schema), Ok(DataType::Interval(_)))
}

fn has_length(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_) | DataType::Duration(_))
}

/// Replaces keys that are intervals or durations by their lengths. Returns whether there are some.
fn with_lengths_of_keys(keys: &mut [Sort], schema: &DFSchema) -> bool {
    let mut is_changed = false;
    for Sort { expr, .. } in keys {
        if expr.get_type(schema).is_ok_and(|kind| has_length(&kind)) {
            *expr = length(std::mem::take(expr));
            is_changed = true;
        }
    }
    is_changed
}

/// The length of an interval, of a difference of timestamps, or of a text that says one.
fn length_of(expr: Expr, schema: &DFSchema) -> Expr {
    match expr.get_type(schema) {
        Ok(kind) if has_length(&kind) => length(expr),
        _ => length(cast_to(expr, INTERVAL)),
    }
}

fn length(expr: Expr) -> Expr {
    ScalarUDF::from(Length::default()).call(vec![expr])
}

/// `interval_nanoseconds(interval)`: the length of an interval or duration.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Length {
    signature: Signature,
}

impl Default for Length {
    fn default() -> Self {
        Self {
            signature: Signature::user_defined(Volatility::Immutable),
        }
    }
}

/// Any interval has fewer digits.
const NANOSECONDS: DataType = DataType::Decimal128(38, 0);

impl ScalarUDFImpl for Length {
    fn name(&self) -> &'static str {
        "interval_nanoseconds"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] if has_length(kind) => Ok(vec![kind.clone()]),
            _ => plan_err!("interval_nanoseconds takes an interval"),
        }
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(NANOSECONDS)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        const DAY: i128 = 24 * 60 * 60 * 1_000_000_000;
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let lengths: Decimal128Array = match arrays[0].data_type() {
            DataType::Duration(unit) => {
                let scale: i128 = match unit {
                    TimeUnit::Second => 1_000_000_000,
                    TimeUnit::Millisecond => 1_000_000,
                    TimeUnit::Microsecond => 1_000,
                    TimeUnit::Nanosecond => 1,
                };
                let counts = cast(&arrays[0], &DataType::Int64)?;
                let counts = counts.as_primitive::<Int64Type>().iter();
                counts
                    .map(|count| Some(i128::from(count?) * scale))
                    .collect()
            }
            _ => {
                let intervals = cast(&arrays[0], &INTERVAL)?;
                let intervals = intervals.as_primitive::<IntervalMonthDayNanoType>().iter();
                let length = |of: Option<_>| {
                    let of: datafusion::arrow::datatypes::IntervalMonthDayNano = of?;
                    let days = i128::from(of.months) * 30 + i128::from(of.days);
                    Some(days * DAY + i128::from(of.nanoseconds))
                };
                intervals.map(length).collect()
            }
        };
        Ok(ColumnarValue::Array(Arc::new(
            lengths.with_data_type(NANOSECONDS),
        )))
    }
}

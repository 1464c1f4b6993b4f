//! Aggregates that a scan computes.
//!
//! DataFusion cannot ask a table for aggregates. So this rule runs last. It replaces the first half of an aggregate
//! over a scan by a scan that returns the same states.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::Result;
use datafusion::functions_aggregate::average::avg_udaf;
use datafusion::functions_aggregate::count::count_udaf;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Literal as Constant;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, InputOrderMode, Partitioning};
use rockmill_core::scan::{
    Aggregate, Aggregation, ColumnType, Instruction, IntegerRange, Literal, OutputColumn, ValueKind,
};
use rockmill_layout::column_type;

use crate::guard::inline;
use crate::program::{Program, Reason};
use crate::scan::{Aggregates, ScanExec};
use crate::{extremes, sums};

/// Maximum number of groups of a scan.
const MAX_GROUPS: u32 = 4096;

/// Replaces aggregates over scans.
///
/// # Errors
/// Those of DataFusion if a node does not accept its inputs.
pub fn aggregate_in_scan(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let replaced = plan.transform_down(|node| {
        let Some(aggregate) = node.downcast_ref::<AggregateExec>() else {
            return Ok(Transformed::no(node));
        };
        if let Some(replaced) = replace(aggregate)? {
            return Ok(Transformed::yes(replaced));
        }
        if *aggregate.input_order_mode() == InputOrderMode::Linear {
            return Ok(Transformed::no(node));
        }
        let input = with_limited_batches(aggregate.input())?;
        let same = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        node.replace_children(vec![input], same)
            .map(Transformed::yes)
    })?;
    Ok(replaced.data)
}

/// The input of an aggregate that emits groups early. It returns a batch of groups for each batch of rows, and keeps
/// the others. So it would keep most groups of large batches until the end.
fn with_limited_batches(plan: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let limited = Arc::clone(plan).transform_down(|node| {
        if let Some(scan) = node.downcast_ref::<ScanExec>() {
            return Ok(Transformed::yes(Arc::new(scan.with_limited_batches()) as _));
        }
        let passes = node.is::<ProjectionExec>() || node.is::<FilterExec>();
        let recursion = match passes {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        };
        Ok(Transformed::new(node, false, recursion))
    })?;
    Ok(limited.data)
}

fn replace(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    // DataFusion may take groups early if they come in the order of the keys. A scan does not give such an order.
    let is_plain = *aggregate.input_order_mode() == InputOrderMode::Linear
        && aggregate.limit_options().is_none()
        && aggregate.group_expr().is_single()
        && aggregate.filter_expr().iter().all(Option::is_none);
    if !is_plain {
        return Ok(None);
    }
    match aggregate.mode() {
        AggregateMode::Partial => partial(aggregate),
        AggregateMode::Single | AggregateMode::SinglePartitioned => {
            let first = AggregateExec::try_new(
                AggregateMode::Partial,
                aggregate.group_expr().clone(),
                aggregate.aggr_expr().to_vec(),
                aggregate.filter_expr().to_vec(),
                Arc::clone(aggregate.input()),
                aggregate.input_schema(),
            )?;
            let Some(scan) = partial(&first)? else {
                return Ok(None);
            };
            // Rows of a group may be in several pieces, but never in two partitions of one piece.
            let mode = match aggregate.mode() {
                AggregateMode::Single => AggregateMode::Final,
                _ => AggregateMode::FinalPartitioned,
            };
            let last = AggregateExec::try_new(
                mode,
                aggregate.group_expr().as_final(),
                aggregate.aggr_expr().to_vec(),
                aggregate.filter_expr().to_vec(),
                scan,
                aggregate.input_schema(),
            )?;
            Ok(Some(Arc::new(last)))
        }
        _ => Ok(None),
    }
}

/// The scan that returns the states of a partial aggregate.
fn partial(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let Some((scan, projection)) = scan_below(aggregate.input()) else {
        return Ok(None);
    };
    if scan.planned_rows().is_none() {
        return Ok(None);
    }
    let over_table = |expression: &Arc<dyn PhysicalExpr>| {
        let expression = Arc::clone(expression);
        let expression = match projection {
            Some(projection) => inline(expression, projection)?,
            None => expression,
        };
        scan.over_table(expression)
    };
    let groups = aggregate.group_expr().expr().iter();
    let groups = groups.map(|(expression, _)| over_table(expression));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let mut calls = Vec::new();
    for call in aggregate.aggr_expr() {
        let arguments = call.expressions();
        let arguments = arguments
            .iter()
            .map(over_table)
            .collect::<Result<Vec<_>>>()?;
        calls.push((Arc::clone(call), arguments));
    }
    let schema = aggregate.schema();
    let states = Arc::clone(&schema);
    let aggregates = Aggregates {
        schema,
        compile: Box::new(move |program| compile(program, &groups, &calls, &states)),
    };
    // DataFusion computes the aggregates that a scan does not.
    let scan = scan.with_aggregates(aggregates).ok();
    Ok(scan.map(|scan| Arc::new(scan) as Arc<dyn ExecutionPlan>))
}

/// The scan of which a plan takes all rows, and the plan's expressions over them.
fn scan_below(plan: &Arc<dyn ExecutionPlan>) -> Option<(&ScanExec, Option<&ProjectionExec>)> {
    let plan = without_repartition(plan);
    if let Some(scan) = plan.downcast_ref::<ScanExec>() {
        return Some((scan, None));
    }
    let projection = plan.downcast_ref::<ProjectionExec>()?;
    let scan = without_repartition(projection.input()).downcast_ref::<ScanExec>()?;
    Some((scan, Some(projection)))
}

/// The plan below a repartition of rows: there is nothing to spread when the scan aggregates.
fn without_repartition(plan: &Arc<dyn ExecutionPlan>) -> &Arc<dyn ExecutionPlan> {
    match plan.downcast_ref::<RepartitionExec>() {
        Some(repartition)
            if matches!(repartition.partitioning(), Partitioning::RoundRobinBatch(_)) =>
        {
            repartition.input()
        }
        _ => plan,
    }
}

type Call = (Arc<AggregateFunctionExpr>, Vec<Arc<dyn PhysicalExpr>>);

fn compile(
    program: &mut Program,
    groups: &[Arc<dyn PhysicalExpr>],
    calls: &[Call],
    states: &Schema,
) -> std::result::Result<Aggregation, Reason> {
    let keys = groups.iter().map(|group| program.comparable(group));
    let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut aggregates = Vec::new();
    for (call, arguments) in calls {
        if call.is_distinct() || !call.order_bys().is_empty() || !is_known(call.fun()) {
            return Err(format!("scans do not compute {}", call.name()));
        }
        let next = keys.len() + aggregates.len();
        let state = |offset: usize| {
            let field = states.fields().get(next + offset);
            field.map(|field| field.data_type().clone())
        };
        match (call.fun().name(), &arguments[..]) {
            ("count", [of]) => aggregates.push(count(program, of)?),
            ("sum", [of]) => aggregates.push(sum(program, of, state(0))?),
            ("avg", [of]) => {
                aggregates.push(count_or_null(program, of)?);
                aggregates.push(sum(program, of, state(1))?);
            }
            ("min", [of]) => aggregates.push(Aggregate::Min(extreme(program, of, state(0))?)),
            ("max", [of]) => aggregates.push(Aggregate::Max(extreme(program, of, state(0))?)),
            (other, _) => return Err(format!("scans do not compute {other}")),
        }
    }
    if states.fields().len() != keys.len() + aggregates.len() {
        return Err("the states of an aggregate are not those expected".to_owned());
    }
    Ok(Aggregation {
        keys,
        aggregates,
        max_groups: MAX_GROUPS,
    })
}

/// Methods that Rockmill's aggregates take from those of DataFusion.
macro_rules! as_own {
    () => {
        fn name(&self) -> &str {
            self.own.name()
        }

        fn signature(&self) -> &Signature {
            self.own.signature()
        }

        fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
            self.own.return_type(arguments)
        }

        fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
            self.own.groups_accumulator_supported(args)
        }

        fn order_sensitivity(&self) -> AggregateOrderSensitivity {
            self.own.order_sensitivity()
        }

        fn reverse_expr(&self) -> ReversedUDAF {
            self.own.reverse_udf()
        }

        fn documentation(&self) -> Option<&Documentation> {
            self.own.documentation()
        }

        fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
            self.own.inner().set_monotonicity(data_type)
        }
    };
}
pub(crate) use as_own;

/// Rockmill's aggregates, which have the names of DataFusion's.
pub(crate) fn own() -> impl Iterator<Item = AggregateUDF> {
    extremes::all().into_iter().chain([sums::sum()])
}

/// Whether a function is one of Rockmill's aggregates.
pub(crate) fn is_own(function: &AggregateUDF) -> bool {
    extremes::is_own(function) || sums::is_own(function)
}

/// Whether a function is DataFusion's or Rockmill's. Programs have functions of any name.
pub(crate) fn is_known(function: &AggregateUDF) -> bool {
    let known = [count_udaf(), sum_udaf(), avg_udaf(), min_udaf(), max_udaf()];
    is_own(function) || known.iter().any(|known| **known == *function)
}

fn count(
    program: &mut Program,
    of: &Arc<dyn PhysicalExpr>,
) -> std::result::Result<Aggregate, Reason> {
    let constant = of.downcast_ref::<Constant>();
    if constant.is_some_and(|constant| !constant.value().is_null()) {
        return Ok(Aggregate::Count(None));
    }
    Ok(Aggregate::Count(Some(program.add(of)?)))
}

/// The count that DataFusion keeps for a mean: null where there is no value.
fn count_or_null(
    program: &mut Program,
    of: &Arc<dyn PhysicalExpr>,
) -> std::result::Result<Aggregate, Reason> {
    let value = program.add(of)?;
    let when = program.push(Instruction::IsNull(value));
    let one = program.push(Instruction::Constant(Literal::Integer(1)));
    let null = program.push(Instruction::Constant(Literal::Null(ValueKind::Integer)));
    let of = program.push(Instruction::Select {
        when,
        then: null,
        otherwise: one,
    });
    Ok(Aggregate::Sum {
        of,
        range: IntegerRange::WrapUnsigned { bytes: 8 },
        stored: ColumnType::Integer { bytes: 8 },
    })
}

fn sum(
    program: &mut Program,
    of: &Arc<dyn PhysicalExpr>,
    state: Option<DataType>,
) -> std::result::Result<Aggregate, Reason> {
    let (bytes, range) = match state {
        // A sum of DataFusion's, such as that of counts.
        Some(DataType::Int64) => (8, IntegerRange::WrapSigned { bytes: 8 }),
        Some(DataType::UInt64) => (8, IntegerRange::WrapUnsigned { bytes: 8 }),
        Some(DataType::Decimal128(..)) => (16, IntegerRange::Exact),
        other => return Err(format!("scans do not sum {other:?}")),
    };
    let of = program.add(of)?;
    let stored = ColumnType::Integer { bytes };
    Ok(Aggregate::Sum { of, range, stored })
}

fn extreme(
    program: &mut Program,
    of: &Arc<dyn PhysicalExpr>,
    state: Option<DataType>,
) -> std::result::Result<OutputColumn, Reason> {
    // Floats are in total order, as in the `min` and `max` of `extremes`.
    let column = program.output(of)?;
    // DataFusion's least text may be of another type than its argument's.
    let expected = state.as_ref().and_then(column_type);
    match expected == Some(column.stored) {
        true => Ok(column),
        false => Err(format!("scans do not compute with {state:?}")),
    }
}

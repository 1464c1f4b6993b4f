//! Filters that protect expressions which may fail.
//!
//! `select a / b from t where b <> 0` has to compute the quotient only for rows that satisfy the filter. DataFusion
//! moves a projection below a filter if the filter's columns pass through it. It does so more often after a scan has
//! taken a part of the filter, because the rest names fewer columns. So this rule comes after DataFusion's own and puts
//! filters back.
//!
//! DataFusion evaluates the right side of `and` for all rows, unless the left one holds for few. After a scan has taken
//! a condition, the others hold for more of the rows. So this rule runs conditions that cannot fail first. Then it runs
//! those that may fail one after another, each for the remaining rows.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NotExpr, TryCastExpr,
};
use datafusion::physical_expr::utils::{collect_columns, conjunction, split_conjunction};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;

use crate::claims::with_true_claims;
use crate::functions;
use crate::program::{integer_digits, widens};

/// Maximum decimal digits that always fit into 128 bits.
const MAX_DIGITS: i32 = 38;

/// Maximum number of conditions that may fail and run one after another.
const MAX_STAGES: usize = 32;

/// Puts filters before the expressions that they protect.
///
/// # Errors
/// Those of DataFusion if a node does not accept its inputs.
pub fn guarded_by_filters(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let guarded = plan.transform_up(|node| {
        let Some(filter) = node.downcast_ref::<FilterExec>() else {
            return Ok(Transformed::no(node));
        };
        Ok(match guarded(filter)? {
            Some(guarded) => Transformed::yes(guarded),
            None => Transformed::no(node),
        })
    })?;
    Ok(guarded.data)
}

/// The same rows. Conditions run one after another, those that cannot fail first, and before a projection that may fail
/// where possible. `None` if the plan is so already.
fn guarded(filter: &FilterExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let projection = filter.input().downcast_ref::<ProjectionExec>();
    let projection = projection
        .filter(|projection| (0..projection.expr().len()).any(|at| risks(projection, at)));
    let (mut below, mut above) = (Stages::default(), Stages::default());
    let schema = filter.input().schema();
    for condition in split_conjunction(filter.predicate()) {
        let may_fail = may_fail(condition, &schema);
        // A condition that may fail runs after those in front of it.
        let moves = |projection: &&ProjectionExec| {
            let columns = collect_columns(condition);
            let mut columns = columns.iter();
            let is_risky = columns.any(|column| risks(projection, column.index()));
            let stays = is_risky || (may_fail && above.has_risks());
            !stays
        };
        match projection.filter(moves) {
            Some(projection) => below.add(inline(Arc::clone(condition), projection)?, may_fail),
            None => above.add(Arc::clone(condition), may_fail),
        }
    }
    let above = above.finish();
    let Some(projection) = projection.filter(|_| !below.is_empty()) else {
        return match above.len() {
            0 | 1 => Ok(None),
            _ => behind_stages(above, filter, Arc::clone(filter.input())).map(Some),
        };
    };
    let mut input = Arc::clone(projection.input());
    for condition in below.finish() {
        input = stage(condition, filter, input)?;
    }
    let mut computed = projection.expr().to_vec();
    if !above.is_empty() {
        input = Arc::new(ProjectionExec::try_new(computed, input)?);
        return behind_stages(above, filter, input).map(Some);
    }
    if let Some(kept) = filter.projection() {
        computed = kept.iter().map(|&at| computed[at].clone()).collect();
    }
    // The rows of a projection are those of its input.
    let limited = match filter.fetch() {
        None => Some(Arc::clone(&input)),
        fetch => input.with_fetch(fetch),
    };
    let Some(input) = limited else {
        return Ok(None);
    };
    Ok(Some(Arc::new(ProjectionExec::try_new(computed, input)?)))
}

/// The conditions of a filter in the order in which they run.
#[derive(Default)]
struct Stages {
    safe: Vec<Arc<dyn PhysicalExpr>>,
    risky: Vec<Arc<dyn PhysicalExpr>>,
}

impl Stages {
    fn add(&mut self, condition: Arc<dyn PhysicalExpr>, may_fail: bool) {
        match may_fail {
            true => self.risky.push(condition),
            false => self.safe.push(condition),
        }
    }

    fn has_risks(&self) -> bool {
        !self.risky.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.safe.is_empty() && self.risky.is_empty()
    }

    /// Conditions, each of which is evaluated for the rows that passed the one before.
    fn finish(self) -> Vec<Arc<dyn PhysicalExpr>> {
        let mut risky = self.risky.into_iter();
        let mut stages: Vec<_> = Vec::new();
        if !self.safe.is_empty() {
            stages.push(conjunction(self.safe));
        }
        stages.extend(risky.by_ref().take(MAX_STAGES));
        let rest: Vec<_> = risky.collect();
        if !rest.is_empty() {
            stages.push(conjunction(rest));
        }
        stages
    }
}

/// All stages over an input. The last one replaces a filter.
fn behind_stages(
    mut stages: Vec<Arc<dyn PhysicalExpr>>,
    filter: &FilterExec,
    mut input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let last = stages.pop();
    for condition in stages {
        input = stage(condition, filter, input)?;
    }
    let last = last.unwrap_or_else(|| conjunction([]));
    let last = FilterExecBuilder::from(filter)
        .with_predicate(last)
        .with_input(input);
    Ok(with_true_claims(Arc::new(last.build()?)))
}

fn stage(
    condition: Arc<dyn PhysicalExpr>,
    filter: &FilterExec,
    input: Arc<dyn ExecutionPlan>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let stage = FilterExecBuilder::new(condition, input)
        .with_default_selectivity(filter.default_selectivity())
        .with_batch_size(filter.batch_size());
    Ok(with_true_claims(Arc::new(stage.build()?)))
}

/// Whether a column of a projection may fail.
fn risks(projection: &ProjectionExec, column: usize) -> bool {
    let schema = projection.input().schema();
    let computed = projection.expr().get(column);
    computed.is_none_or(|computed| may_fail(&computed.expr, &schema))
}

/// An expression over the columns of a projection as one over its input.
pub fn inline(
    expression: Arc<dyn PhysicalExpr>,
    projection: &ProjectionExec,
) -> Result<Arc<dyn PhysicalExpr>> {
    let inlined = expression.transform_up(|expression| {
        let column = expression.downcast_ref::<Column>();
        let computed = column.and_then(|column| projection.expr().get(column.index()));
        Ok(match computed {
            Some(computed) => Transformed::yes(Arc::clone(&computed.expr)),
            None => Transformed::no(expression),
        })
    })?;
    Ok(inlined.data)
}

/// Whether there may be rows for which an expression is an error. Unknown expressions may fail.
pub fn may_fail(expression: &Arc<dyn PhysicalExpr>, schema: &Schema) -> bool {
    let type_of = |of: &Arc<dyn PhysicalExpr>| of.data_type(schema).ok();
    let is_sound = if let Some(binary) = expression.downcast_ref::<BinaryExpr>() {
        // Computing the type of a long chain takes time proportional to its length.
        is_condition(*binary.op())
            || match (type_of(binary.left()), type_of(binary.right())) {
                (Some(left), Some(right)) => is_sound(*binary.op(), &left, &right),
                _ => false,
            }
    } else if let Some(cast) = expression.downcast_ref::<CastExpr>() {
        type_of(cast.expr()).is_some_and(|from| is_lossless(&from, cast.cast_type()))
    } else if let Some(function) = expression.downcast_ref::<ScalarFunctionExpr>() {
        functions::is_known(function.fun())
    } else {
        expression.is::<Column>()
            || expression.is::<Literal>()
            || expression.is::<NotExpr>()
            || expression.is::<IsNullExpr>()
            || expression.is::<IsNotNullExpr>()
            || expression.is::<InListExpr>()
            || expression.is::<LikeExpr>()
            || expression.is::<CaseExpr>()
            || expression.is::<TryCastExpr>()
    };
    let mut operands = expression.children().into_iter();
    !is_sound || operands.any(|operand| may_fail(operand, schema))
}

/// Whether the result of an operator is always true, false or null.
pub fn is_condition(operator: Operator) -> bool {
    matches!(
        operator,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
            | Operator::And
            | Operator::Or
    )
}

/// Whether arithmetic has a result for any operands of these types.
fn is_sound(operator: Operator, left: &DataType, right: &DataType) -> bool {
    match operator {
        Operator::Plus | Operator::Minus => match (left, right) {
            (DataType::Decimal128(p, s), DataType::Decimal128(other_p, other_s)) => {
                let [p, s, other_p, other_s] = [
                    i32::from(*p),
                    i32::from(*s),
                    i32::from(*other_p),
                    i32::from(*other_s),
                ];
                (p - s).max(other_p - other_s) + s.max(other_s) < MAX_DIGITS
            }
            _ => wraps_or_is_float(left, right),
        },
        Operator::Multiply => match (left, right) {
            (DataType::Decimal128(p, s), DataType::Decimal128(other_p, other_s)) => {
                i32::from(*p) + i32::from(*other_p) <= MAX_DIGITS
                    && i32::from(*s) + i32::from(*other_s) <= MAX_DIGITS
            }
            _ => wraps_or_is_float(left, right),
        },
        Operator::Divide => left == right && left.is_floating(),
        _ => false,
    }
}

/// Whether numbers of a type wrap around, or have infinities.
fn wraps_or_is_float(left: &DataType, right: &DataType) -> bool {
    left == right && (left.is_integer() || left.is_floating())
}

/// Whether each value of a type is one of another.
fn is_lossless(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Binary, BinaryView, Decimal128, Float32, Float64, LargeBinary, LargeUtf8, Utf8, Utf8View,
    };
    match (from, to) {
        _ if from == to || widens(from, to) => true,
        (Decimal128(p, s), Decimal128(to_p, to_s)) => {
            let (p, s) = (i32::from(*p), i32::from(*s));
            let (to_p, to_s) = (i32::from(*to_p), i32::from(*to_s));
            to_s >= s && to_p - to_s >= p - s
        }
        (_, Decimal128(precision, scale)) => integer_digits(from).is_some_and(|digits| {
            *scale >= 0 && i32::from(*precision) - i32::from(*scale) >= digits
        }),
        (_, Float32 | Float64) => from.is_integer() || from.is_floating(),
        (Utf8 | LargeUtf8 | Utf8View, Utf8 | Utf8View) => true,
        (Binary | LargeBinary | BinaryView, Binary | BinaryView) => true,
        _ => false,
    }
}

//! `sum` of integers and decimals that does not wrap.
//!
//! DataFusion keeps the lowest bits of a sum that its type does not hold, and says nothing. Here such a sum is an error. Values
//! are added in 128 bits, or 256 for decimals of more than 38 digits, and parts of a statement pass on such sums. So the order
//! of rows does not matter: a sum of integers may exceed its type for a while.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::{
    Array, ArrayRef, ArrowNativeTypeOp, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray,
};
use datafusion::arrow::datatypes::{
    ArrowNativeType, DECIMAL128_MAX_PRECISION, DECIMAL256_MAX_PRECISION, DataType, Decimal32Type,
    Decimal64Type, Decimal128Type, Decimal256Type, Field, FieldRef, Int64Type, UInt64Type,
};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{ScalarValue, exec_datafusion_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions_aggregate::sum::sum_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::{AggregateOrderSensitivity, format_state_name};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, EmitTo, GroupsAccumulator,
    ReversedUDAF, SetMonotonicity, Signature,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::aggregate::as_own;

/// The function `sum`.
pub fn sum() -> AggregateUDF {
    AggregateUDF::from(Sum { own: sum_udaf() })
}

/// Whether a function is [`sum`].
pub fn is_own(function: &AggregateUDF) -> bool {
    function.inner().downcast_ref::<Sum>().is_some()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sum {
    /// DataFusion's `sum`, which adds other types.
    own: Arc<AggregateUDF>,
}

/// The type of sums while values are added.
fn wide(data_type: &DataType) -> Option<DataType> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    match *data_type {
        DataType::Int64 | DataType::UInt64 => Some(Decimal128(DECIMAL128_MAX_PRECISION, 0)),
        Decimal32(_, scale) | Decimal64(_, scale) | Decimal128(_, scale) => {
            Some(Decimal128(DECIMAL128_MAX_PRECISION, scale))
        }
        Decimal256(_, scale) => Some(Decimal256(DECIMAL256_MAX_PRECISION, scale)),
        _ => None,
    }
}

/// A type whose values are added in a wider one.
trait Summed: ArrowPrimitiveType + Debug {
    /// The type of the sum while values are added.
    type Wide: ArrowPrimitiveType<Native: From<Self::Native> + TryInto<Self::Native>> + Send;
}

/// A value of the wider type.
type Wide<T> = <<T as Summed>::Wide as ArrowPrimitiveType>::Native;

macro_rules! summed {
    ($($type:ty => $wide:ty),* $(,)?) => {
        $(impl Summed for $type {
            type Wide = $wide;
        })*
    };
}

summed! {
    Int64Type => Decimal128Type,
    UInt64Type => Decimal128Type,
    Decimal32Type => Decimal128Type,
    Decimal64Type => Decimal128Type,
    Decimal128Type => Decimal128Type,
    Decimal256Type => Decimal256Type,
}

/// Calls a macro with the type of a sum.
macro_rules! by_type {
    ($data_type:expr, $call:ident, $other:expr) => {
        match $data_type {
            DataType::Int64 => $call!(Int64Type),
            DataType::UInt64 => $call!(UInt64Type),
            DataType::Decimal32(..) => $call!(Decimal32Type),
            DataType::Decimal64(..) => $call!(Decimal64Type),
            DataType::Decimal128(..) => $call!(Decimal128Type),
            DataType::Decimal256(..) => $call!(Decimal256Type),
            _ => $other,
        }
    };
}

impl AggregateUDFImpl for Sum {
    as_own!();

    fn state_fields(&self, args: StateFieldsArgs) -> Result<Vec<FieldRef>> {
        match wide(args.return_type()) {
            Some(wide) if !args.is_distinct => {
                let name = format_state_name(args.name, "sum");
                Ok(vec![Arc::new(Field::new(name, wide, true))])
            }
            _ => self.own.state_fields(args),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        accumulator(args, |args| self.own.accumulator(args))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        accumulator(args, |args| self.own.create_sliding_accumulator(args))
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        macro_rules! groups {
            ($type:ty) => {
                groups::<$type>(Range::of(&args)?)
            };
        }
        let data_type = args.return_field.data_type().clone();
        by_type!(data_type, groups, self.own.create_groups_accumulator(args))
    }
}

/// The accumulator of all rows or of a window. That of DataFusion collects distinct values, and adds other types.
fn accumulator(
    args: AccumulatorArgs,
    own: impl FnOnce(AccumulatorArgs) -> Result<Box<dyn Accumulator>>,
) -> Result<Box<dyn Accumulator>> {
    macro_rules! total {
        ($type:ty) => {{
            let total = Total::<$type>::new(Range::of(&args)?);
            match args.is_distinct {
                false => Ok(Box::new(total)),
                true => Ok(Box::new(Distinct {
                    values: own(args)?,
                    total,
                })),
            }
        }};
    }
    let data_type = args.return_field.data_type().clone();
    by_type!(data_type, total, own(args))
}

/// The type of a sum, and the expression that has it.
#[derive(Debug)]
struct Range<T: Summed> {
    name: String,
    data_type: DataType,
    wide: DataType,
    /// The smallest number with more digits than the type, which is a decimal.
    limit: Option<Wide<T>>,
}

impl<T: Summed> Range<T> {
    fn of(args: &AccumulatorArgs) -> Result<Self> {
        let data_type = args.return_field.data_type().clone();
        let limit = match data_type {
            DataType::Decimal32(digits, _)
            | DataType::Decimal64(digits, _)
            | DataType::Decimal128(digits, _)
            | DataType::Decimal256(digits, _) => {
                Some(Wide::<T>::usize_as(10).pow_checked(digits.into())?)
            }
            _ => None,
        };
        let Some(wide) = wide(&data_type) else {
            return internal_err!("{data_type} is added as it is");
        };
        Ok(Self {
            name: args.name.to_owned(),
            data_type,
            wide,
            limit,
        })
    }

    /// The sum in its own type.
    fn narrow(&self, sum: Wide<T>) -> Result<T::Native> {
        let is_below = |limit: Wide<T>| limit.neg_wrapping().is_lt(sum) && sum.is_lt(limit);
        let narrow: Option<T::Native> = sum.try_into().ok();
        let narrow = narrow.filter(|_| self.limit.is_none_or(is_below));
        narrow.ok_or_else(|| self.exceeded())
    }

    fn exceeded(&self) -> DataFusionError {
        let holds = match self.data_type {
            DataType::Int64 => "bigint".to_owned(),
            DataType::UInt64 => "bigint unsigned".to_owned(),
            DataType::Decimal32(digits, scale)
            | DataType::Decimal64(digits, scale)
            | DataType::Decimal128(digits, scale)
            | DataType::Decimal256(digits, scale) => format!("decimal({digits}, {scale})"),
            ref other => other.to_string(),
        };
        exec_datafusion_err!("{} exceeds the range of its type {holds}", self.name)
    }
}

/// The sum of rows. Rows may be taken away again, as a window does.
#[derive(Debug)]
struct Total<T: Summed> {
    sum: Wide<T>,
    /// Number of its values.
    count: u64,
    range: Range<T>,
}

impl<T: Summed> Total<T> {
    fn new(range: Range<T>) -> Self {
        Self {
            sum: Wide::<T>::ZERO,
            count: 0,
            range,
        }
    }

    /// Folds the values that are not null into the sum. Returns their number.
    fn fold<V: ArrowPrimitiveType>(
        &mut self,
        values: &ArrayRef,
        fold: impl Fn(Wide<T>, Wide<T>) -> std::result::Result<Wide<T>, ArrowError>,
    ) -> Result<u64>
    where
        V::Native: Into<Wide<T>>,
    {
        let values = values.as_primitive::<V>();
        let fold = |sum: Wide<T>, value: V::Native| fold(sum, value.into());
        let folded = match values.null_count() {
            0 => values.values().iter().copied().try_fold(self.sum, fold),
            _ => values.iter().flatten().try_fold(self.sum, fold),
        };
        self.sum = folded.map_err(|_| self.range.exceeded())?;
        Ok((values.len() - values.null_count()) as u64)
    }

    fn add<V: ArrowPrimitiveType>(&mut self, values: &ArrayRef) -> Result<()>
    where
        V::Native: Into<Wide<T>>,
    {
        self.count += self.fold::<V>(values, ArrowNativeTypeOp::add_checked)?;
        Ok(())
    }

    fn sum(&self) -> Option<Wide<T>> {
        (self.count > 0).then_some(self.sum)
    }
}

impl<T: Summed> Accumulator for Total<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.add::<T>(&values[0])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.add::<T::Wide>(&states[0])
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.count -= self.fold::<T>(&values[0], ArrowNativeTypeOp::sub_checked)?;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let state = ScalarValue::new_primitive::<T::Wide>(self.sum(), &self.range.wide)?;
        Ok(vec![state])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let sum = self.sum().map(|sum| self.range.narrow(sum));
        ScalarValue::new_primitive::<T>(sum.transpose()?, &self.range.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }
}

/// The sum of the values that DataFusion's accumulator has collected, each once.
#[derive(Debug)]
struct Distinct<T: Summed> {
    values: Box<dyn Accumulator>,
    /// Empty.
    total: Total<T>,
}

impl<T: Summed> Accumulator for Distinct<T> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.update_batch(values)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.values.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.values.supports_retract_batch()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.values.state()
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let state = self.values.state()?;
        let [ScalarValue::List(values)] = &state[..] else {
            return internal_err!("distinct values are not a list");
        };
        self.total.add::<T>(values.values())?;
        let sum = self.total.evaluate();
        (self.total.sum, self.total.count) = (Wide::<T>::ZERO, 0);
        sum
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.values.size()
    }
}

/// The sums of groups. `A` adds to a sum.
struct Groups<T, A>
where
    T: Summed,
    A: Fn(&mut Wide<T>, Wide<T>) + Send + Sync + 'static,
{
    sums: PrimitiveGroupsAccumulator<T::Wide, A>,
    /// Whether a sum did not fit into the wider type.
    is_over: Arc<AtomicBool>,
    range: Range<T>,
}

fn groups<T: Summed>(range: Range<T>) -> Result<Box<dyn GroupsAccumulator>> {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let add = move |sum: &mut Wide<T>, value: Wide<T>| match sum.add_checked(value) {
        Ok(more) => *sum = more,
        Err(_) => over.store(true, Ordering::Relaxed),
    };
    Ok(Box::new(Groups {
        sums: PrimitiveGroupsAccumulator::<T::Wide, _>::new(&range.wide, add),
        is_over,
        range,
    }))
}

/// The same values in the wider type.
fn widened<T: Summed>(values: &ArrayRef) -> ArrayRef {
    match values.as_primitive_opt::<T::Wide>() {
        Some(_) => Arc::clone(values),
        None => {
            let wide: PrimitiveArray<T::Wide> = values.as_primitive::<T>().unary(Into::into);
            Arc::new(wide)
        }
    }
}

impl<T, A> GroupsAccumulator for Groups<T, A>
where
    T: Summed,
    A: Fn(&mut Wide<T>, Wide<T>) + Send + Sync + 'static,
{
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = [widened::<T>(&values[0])];
        let sums = &mut self.sums;
        sums.update_batch(&values, group_indices, opt_filter, total_num_groups)?;
        self.check()
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums
            .merge_batch(values, group_indices, total_num_groups)?;
        self.check()
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let sums = self.sums.evaluate(emit_to)?;
        let sums = sums.as_primitive::<T::Wide>();
        let narrow = sums.try_unary::<_, T, _>(|sum| self.range.narrow(sum))?;
        Ok(Arc::new(
            narrow.with_data_type(self.range.data_type.clone()),
        ))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        self.sums.state(emit_to)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = [widened::<T>(&values[0])];
        self.sums.convert_to_state(&values, opt_filter)
    }

    fn size(&self) -> usize {
        self.sums.size()
    }
}

impl<T, A> Groups<T, A>
where
    T: Summed,
    A: Fn(&mut Wide<T>, Wide<T>) + Send + Sync + 'static,
{
    fn check(&self) -> Result<()> {
        match self.is_over.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(self.range.exceeded()),
        }
    }
}

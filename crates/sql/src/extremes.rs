//! `min` and `max` of floats that do not depend on the order of rows.
//!
//! Without groups, DataFusion compares floats in total order, as scans do: NaN is above infinity, and -0.0 is below
//! 0.0. With groups, it replaces a NaN by the next value. So groups of floats have their own accumulators here.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::min_max::{max_udaf, min_udaf};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, ReversedUDAF,
    SetMonotonicity, Signature, StatisticsArgs,
};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::prim_op::PrimitiveGroupsAccumulator;

use crate::aggregate::as_own;

/// `min` and `max`.
pub fn all() -> [AggregateUDF; 2] {
    let extreme = |own: Arc<AggregateUDF>, wins| AggregateUDF::from(Extreme { own, wins });
    [
        extreme(min_udaf(), Ordering::Less),
        extreme(max_udaf(), Ordering::Greater),
    ]
}

/// Whether a function is one of [`all`].
pub fn is_own(function: &AggregateUDF) -> bool {
    function.inner().downcast_ref::<Extreme>().is_some()
}

/// One of [`all`].
#[derive(Debug, PartialEq, Eq, Hash)]
struct Extreme {
    /// DataFusion's function of that name.
    own: Arc<AggregateUDF>,
    /// The ordering with which a value replaces the best one so far.
    wins: Ordering,
}

/// The accumulator for a type of floats.
macro_rules! of_groups {
    ($arrow:ty, $float:ty, $data_type:expr, $wins:expr) => {{
        let wins = $wins;
        // A NaN with all bits set except the sign is the last in total order. So every value replaces it or equals it.
        let greatest = <$float>::from_bits(!<$float>::to_bits(-0.0));
        let last = match wins {
            Ordering::Less => greatest,
            _ => -greatest,
        };
        let take = move |kept: &mut $float, value: $float| {
            if value.total_cmp(kept) == wins {
                *kept = value;
            }
        };
        let groups = PrimitiveGroupsAccumulator::<$arrow, _>::new($data_type, take);
        Ok(Box::new(groups.with_starting_value(last)))
    }};
}

impl AggregateUDFImpl for Extreme {
    as_own!();

    fn accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.own.accumulator(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> Result<Box<dyn GroupsAccumulator>> {
        match args.return_field.data_type() {
            data_type @ DataType::Float32 => of_groups!(Float32Type, f32, data_type, self.wins),
            data_type @ DataType::Float64 => of_groups!(Float64Type, f64, data_type, self.wins),
            _ => self.own.create_groups_accumulator(args),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> Result<Box<dyn Accumulator>> {
        self.own.create_sliding_accumulator(args)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        self.own.coerce_types(arguments)
    }

    fn is_descending(&self) -> Option<bool> {
        self.own.is_descending()
    }

    fn value_from_stats(&self, args: &StatisticsArgs) -> Option<ScalarValue> {
        self.own.value_from_stats(args)
    }
}

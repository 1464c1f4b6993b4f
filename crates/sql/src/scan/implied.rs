//! Conditions of dynamic filters that scans can compute.
//!
//! A hash join with several partitions gives a filter of the form `CASE hash(key) % 2 WHEN 0 THEN .. WHEN 1 THEN ..`, with
//! the smallest key, the largest key and perhaps all keys of each partition. Scans do not compute DataFusion's hash. But
//! where the filter holds, one of its results holds, so the key is in one of these ranges and lists.

use std::cmp::Ordering;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, InListExpr, Literal, in_list, lit,
};
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};

use crate::program::Program;

/// Maximum number of values of a list, from all partitions of a join.
const MOST_VALUES: usize = 16 << 10;

type Expr = Arc<dyn PhysicalExpr>;

/// Adds a filter over the columns of a table, or else conditions that hold wherever it holds. There may be none.
pub fn add_implied(program: &mut Program, filter: &Expr, table: &Schema) {
    if program.filter(filter).is_ok() {
        return;
    }
    let conjuncts = split_conjunction(filter);
    if conjuncts.len() > 1 {
        for conjunct in conjuncts {
            add_implied(program, conjunct, table);
        }
        return;
    }
    if let Some(case) = filter.downcast_ref::<CaseExpr>() {
        let computes = |of: &Expr| program.clone().add(of).is_ok();
        for condition in implied(case, table, computes) {
            // Not all types have a form in programs.
            let _ = program.filter(&condition);
        }
    }
}

/// Conditions of expressions that scans compute, which hold where one of the results holds.
fn implied(case: &CaseExpr, table: &Schema, computes: impl Fn(&Expr) -> bool) -> Vec<Expr> {
    let results = case.when_then_expr().iter().map(|(_, result)| result);
    let results = results.chain(case.else_expr());
    let mut results = results.filter(|result| !is_never_true(result)).map(bounds);
    let mut common = results.next().unwrap_or_default();
    // Lists of several columns at once are long, and have structs.
    common.retain(|bound| computes(&bound.of));
    for result in results {
        common.retain_mut(|bound| result.iter().any(|other| bound.widen(other)));
    }
    let conditions = common.into_iter().map(|bound| bound.condition(table));
    // A scan may leave one out.
    conditions.filter_map(Result::ok).collect()
}

/// Whether an expression is false or null.
fn is_never_true(expr: &Expr) -> bool {
    let constant = expr.downcast_ref::<Literal>().map(Literal::value);
    constant.is_some_and(|value| value.is_null() || *value == ScalarValue::from(false))
}

/// A condition of an expression.
struct Bound {
    of: Expr,
    limit: Limit,
}

enum Limit {
    AtLeast(ScalarValue),
    AtMost(ScalarValue),
    OneOf(Vec<Expr>),
}

/// The conjuncts of a condition that are bounds.
fn bounds(condition: &Expr) -> Vec<Bound> {
    let bound = |conjunct: &Expr| {
        if let Some(list) = conjunct.downcast_ref::<InListExpr>() {
            return (!list.negated()).then(|| Bound {
                of: Arc::clone(list.expr()),
                limit: Limit::OneOf(list.list().to_vec()),
            });
        }
        let binary = conjunct.downcast_ref::<BinaryExpr>()?;
        let value = binary.right().downcast_ref::<Literal>()?.value().clone();
        let limit = match binary.op() {
            Operator::GtEq => Limit::AtLeast(value),
            Operator::LtEq => Limit::AtMost(value),
            _ => return None,
        };
        let of = Arc::clone(binary.left());
        Some(Bound { of, limit })
    };
    let conjuncts = split_conjunction(condition);
    conjuncts.into_iter().filter_map(bound).collect()
}

impl Bound {
    /// Makes it hold where another bound holds too. Returns whether it could.
    fn widen(&mut self, other: &Self) -> bool {
        if !self.of.eq(&other.of) {
            return false;
        }
        match (&mut self.limit, &other.limit) {
            (Limit::AtLeast(least), Limit::AtLeast(value)) => {
                widen_to(least, value, Ordering::Greater)
            }
            (Limit::AtMost(most), Limit::AtMost(value)) => widen_to(most, value, Ordering::Less),
            (Limit::OneOf(values), Limit::OneOf(more))
                if values.len() + more.len() <= MOST_VALUES =>
            {
                values.extend_from_slice(more);
                true
            }
            _ => false,
        }
    }

    fn condition(self, table: &Schema) -> Result<Expr> {
        let (operator, value) = match self.limit {
            Limit::AtLeast(value) => (Operator::GtEq, value),
            Limit::AtMost(value) => (Operator::LtEq, value),
            Limit::OneOf(values) => return in_list(self.of, values, &false, table),
        };
        Ok(Arc::new(BinaryExpr::new(self.of, operator, lit(value))))
    }
}

/// Takes another value if its own is `beyond` it. Returns false if they cannot be compared.
fn widen_to(own: &mut ScalarValue, other: &ScalarValue, beyond: Ordering) -> bool {
    let order = (*own).partial_cmp(other);
    if order == Some(beyond) {
        *own = other.clone();
    }
    order.is_some() && !own.is_null()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::physical_expr::expressions::{case, col};
    use proptest::prelude::*;

    use super::*;

    /// Bounds of a key, and some keys.
    type Drawn = (Option<i64>, Option<i64>, Option<Vec<i64>>);

    fn result((least, most, keys): &Drawn, table: &Schema) -> Expr {
        let key = || col("key", table).unwrap();
        let compare = |operator, value: i64| -> Expr {
            Arc::new(BinaryExpr::new(key(), operator, lit(value)))
        };
        let mut all: Vec<Expr> = Vec::new();
        all.extend(least.map(|least| compare(Operator::GtEq, least)));
        all.extend(most.map(|most| compare(Operator::LtEq, most)));
        // As the lookup of a join, which scans do not compute.
        all.push(compare(Operator::NotEq, 3));
        all.extend(keys.as_ref().map(|keys| {
            let keys = keys.iter().map(|key| lit(*key)).collect();
            in_list(key(), keys, &false, table).unwrap()
        }));
        let both = |a, b| -> Expr { Arc::new(BinaryExpr::new(a, Operator::And, b)) };
        all.into_iter().reduce(both).unwrap()
    }

    fn holds(condition: &Expr, rows: &RecordBatch) -> Vec<bool> {
        let values = condition.evaluate(rows).unwrap();
        let values = values.into_array(rows.num_rows()).unwrap();
        let values = values.as_boolean();
        (0..values.len())
            .map(|row| values.is_valid(row) && values.value(row))
            .collect()
    }

    proptest! {
        #[test]
        fn implied_conditions_hold_where_a_result_holds(
            drawn in proptest::collection::vec(
                (
                    proptest::option::of(0_i64..10),
                    proptest::option::of(0_i64..10),
                    proptest::option::of(proptest::collection::vec(0_i64..10, 1..4)),
                ),
                1..4,
            ),
            otherwise in 0..4,
        ) {
            let table = Schema::new(vec![Field::new("key", DataType::Int64, true)]);
            let keys = (0..10).map(Some).chain([None]);
            let keys = Arc::new(Int64Array::from_iter(keys));
            let rows = RecordBatch::try_new(Arc::new(table.clone()), vec![keys]).unwrap();
            let mut results: Vec<_> = drawn.iter().map(|drawn| result(drawn, &table)).collect();
            let arms = (0_i64..).zip(results.clone());
            let arms = arms.map(|(number, result)| (lit(number), result)).collect();
            let otherwise = match otherwise {
                0 => None,
                1 => Some(lit(true)),
                2 => Some(lit(ScalarValue::Boolean(None))),
                _ => Some(lit(false)),
            };
            results.extend(otherwise.clone());
            let filter = case(Some(col("key", &table).unwrap()), arms, otherwise).unwrap();
            let filter = filter.downcast_ref::<CaseExpr>().unwrap();
            for condition in implied(filter, &table, |_| true) {
                let found = holds(&condition, &rows);
                for result in &results {
                    for (row, holds) in holds(result, &rows).into_iter().enumerate() {
                        prop_assert!(!holds || found[row], "{condition} of {filter}");
                    }
                }
            }
            // Bounds that all results have are kept.
            if drawn.iter().all(|(least, ..)| least.is_some()) && results.len() == drawn.len() {
                prop_assert!(!implied(filter, &table, |_| true).is_empty());
            }
        }
    }
}

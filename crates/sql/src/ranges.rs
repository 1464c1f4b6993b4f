//! Which keys can satisfy a filter.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal as Constant};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use rockmill_core::KeyRange;
use rockmill_core::scan::Literal;

use crate::stored::literal;

/// Most ranges that are kept apart: each costs a look into every index.
const MAX_RANGES: usize = 1000;

/// The ranges of keys, ascending and apart, outside of which no key satisfies all `filters`. `key` is the position of the
/// column that is the key.
pub fn key_ranges(filters: &[Arc<dyn PhysicalExpr>], key: usize) -> Vec<KeyRange> {
    let mut ranges = vec![KeyRange::default()];
    for filter in filters {
        if let Some(of_filter) = of_filter(filter, key) {
            ranges = intersect(&ranges, &of_filter);
        }
    }
    ranges
}

/// The keys that begin so.
pub fn prefix_range(prefix: Vec<u8>) -> KeyRange {
    KeyRange {
        end: after_prefix(&prefix),
        begin: Some(prefix).filter(|prefix| !prefix.is_empty()),
    }
}

/// Those of one filter; `None` if any key may satisfy it.
fn of_filter(filter: &Arc<dyn PhysicalExpr>, key: usize) -> Option<Vec<KeyRange>> {
    let is_key = |expression: &Arc<dyn PhysicalExpr>| {
        let column = expression.downcast_ref::<Column>();
        column.is_some_and(|column| column.index() == key)
    };
    if let Some(binary) = filter.downcast_ref::<BinaryExpr>() {
        let (left, right) = (binary.left(), binary.right());
        return match binary.op() {
            Operator::And => match (of_filter(left, key), of_filter(right, key)) {
                (Some(left), Some(right)) => Some(intersect(&left, &right)),
                (left, right) => left.or(right),
            },
            Operator::Or => Some(union(of_filter(left, key)?, of_filter(right, key)?)),
            op if is_key(left) => compared(*op, constant(right)?),
            op if is_key(right) => compared(op.swap()?, constant(left)?),
            _ => None,
        };
    }
    if let Some(list) = filter.downcast_ref::<InListExpr>()
        && !list.negated()
        && is_key(list.expr())
    {
        let keys = list
            .list()
            .iter()
            .map(|item| match constant_or_null(item)? {
                Literal::Bytes(bytes) => Some(Some(single(bytes))),
                _ => Some(None),
            });
        let keys = keys.collect::<Option<Vec<_>>>()?;
        return Some(union(keys.into_iter().flatten().collect(), Vec::new()));
    }
    if let Some(function) = filter.downcast_ref::<ScalarFunctionExpr>()
        && let ("starts_with", [of, prefix]) = (function.fun().name(), function.args())
        && is_key(of)
    {
        return Some(vec![prefix_range(constant(prefix)?)]);
    }
    None
}

fn constant_or_null(expression: &Arc<dyn PhysicalExpr>) -> Option<Literal> {
    literal(expression.downcast_ref::<Constant>()?.value())
}

fn constant(expression: &Arc<dyn PhysicalExpr>) -> Option<Vec<u8>> {
    match constant_or_null(expression)? {
        Literal::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

/// The keys that compare so with a constant.
fn compared(operator: Operator, bytes: Vec<u8>) -> Option<Vec<KeyRange>> {
    let from = |begin| KeyRange {
        begin: Some(begin),
        end: None,
    };
    let until = |end| KeyRange {
        begin: None,
        end: Some(end),
    };
    Some(vec![match operator {
        Operator::Eq => single(bytes),
        Operator::Lt => until(bytes),
        Operator::LtEq => until(next(bytes)),
        Operator::Gt => from(next(bytes)),
        Operator::GtEq => from(bytes),
        _ => return None,
    }])
}

/// The first key above.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

fn single(key: Vec<u8>) -> KeyRange {
    KeyRange {
        begin: Some(key.clone()),
        end: Some(next(key)),
    }
}

/// The first key above all that begin so; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The keys of both; each is ascending and apart.
fn intersect(left: &[KeyRange], right: &[KeyRange]) -> Vec<KeyRange> {
    let mut both = Vec::new();
    for a in left {
        for b in right {
            let begin = a.begin.clone().max(b.begin.clone());
            let end = match (&a.end, &b.end) {
                (Some(a), Some(b)) => Some(a.min(b).clone()),
                (a, b) => a.clone().or_else(|| b.clone()),
            };
            let is_empty = matches!((&begin, &end), (_, Some(end)) if begin.as_deref().unwrap_or_default() >= &end[..]);
            if !is_empty {
                both.push(KeyRange { begin, end });
            }
        }
    }
    both
}

/// The keys of either.
fn union(mut ranges: Vec<KeyRange>, more: Vec<KeyRange>) -> Vec<KeyRange> {
    ranges.extend(more);
    ranges.sort_by(|a, b| a.begin.cmp(&b.begin));
    let mut all: Vec<KeyRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match all.last_mut() {
            Some(last) if touches(last, &range) => {
                let reaches_further = match (&last.end, &range.end) {
                    (None, _) => false,
                    (_, None) => true,
                    (Some(last), Some(end)) => end > last,
                };
                if reaches_further {
                    last.end = range.end;
                }
            }
            _ => all.push(range),
        }
    }
    if all.len() > MAX_RANGES {
        let end = all.last().and_then(|last| last.end.clone());
        let begin = all[0].begin.clone();
        return vec![KeyRange { begin, end }];
    }
    all
}

/// Whether a range begins before another one has ended.
fn touches(first: &KeyRange, second: &KeyRange) -> bool {
    let begin = second.begin.as_deref().unwrap_or_default();
    first.end.as_deref().is_none_or(|end| begin <= end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(begin: Option<&[u8]>, end: Option<&[u8]>) -> KeyRange {
        KeyRange {
            begin: begin.map(<[u8]>::to_vec),
            end: end.map(<[u8]>::to_vec),
        }
    }

    #[test]
    fn prefixes_end_before_the_next_one() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let ranges = vec![
            range(Some(b"x"), None),
            range(Some(b"a"), Some(b"c")),
            range(Some(b"c"), Some(b"d")),
            range(Some(b"b"), Some(b"bb")),
        ];
        let expected = vec![range(Some(b"a"), Some(b"d")), range(Some(b"x"), None)];
        assert_eq!(union(ranges, Vec::new()), expected);
        let all = vec![range(None, None), range(Some(b"a"), Some(b"b"))];
        assert_eq!(union(all, Vec::new()), [range(None, None)]);
    }

    #[test]
    fn ranges_are_cut_to_what_both_have() {
        let left = [range(None, Some(b"c")), range(Some(b"m"), None)];
        let right = [range(Some(b"b"), Some(b"n"))];
        let expected = [range(Some(b"b"), Some(b"c")), range(Some(b"m"), Some(b"n"))];
        assert_eq!(intersect(&left, &right), expected);
        assert_eq!(
            intersect(&[single(b"a".to_vec())], &[single(b"b".to_vec())]),
            []
        );
    }
}

//! Finds the keys that can satisfy a filter.

use std::sync::Arc;

use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, InListExpr, Literal as Constant};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use rockmill_core::KeyRange;
use rockmill_core::scan::Literal;
use rockmill_layout::{Layout, LeadingColumn};

use crate::functions::is_known;
use crate::stored::literal;

/// Maximum number of separate ranges: each costs a search of every index.
const MAX_RANGES: usize = 1000;

/// The disjoint ranges of keys, ascending, outside of which no row of the table satisfies all `filters`. The filters
/// are over all columns of the table.
pub fn key_ranges(layout: &Layout, filters: &[Arc<dyn PhysicalExpr>]) -> Vec<KeyRange> {
    if let Some(key) = layout.key_column() {
        let ranges = of_filters(filters, &Leading::Key(key));
        return ranges.unwrap_or_else(|| vec![KeyRange::default()]);
    }
    let mut prefixes = vec![layout.key_prefix()];
    for column in layout.leading_columns() {
        let Some(ranges) = of_filters(filters, &Leading::Column(column)) else {
            break;
        };
        if ranges.len() * prefixes.len() > MAX_RANGES {
            break;
        }
        let single = |range| single_prefix(range).filter(|value| column.is_value(value));
        let values: Option<Vec<_>> = ranges.iter().map(single).collect();
        let Some(values) = values else {
            let of_prefix = |prefix: &Vec<u8>| -> Vec<_> {
                let behind = |range| behind(prefix, range);
                ranges.iter().map(behind).collect()
            };
            return prefixes.iter().flat_map(of_prefix).collect();
        };
        let longer = |prefix: &Vec<u8>| -> Vec<_> {
            let values = values.iter();
            values.map(|value| [&prefix[..], value].concat()).collect()
        };
        prefixes = prefixes.iter().flat_map(longer).collect();
    }
    prefixes.into_iter().map(prefix_range).collect()
}

/// A column whose values keys begin with.
enum Leading<'a> {
    /// The key itself.
    Key(usize),
    /// A column that other parts of the key follow.
    Column(LeadingColumn<'a>),
}

impl Leading<'_> {
    fn is(&self, expression: &Arc<dyn PhysicalExpr>) -> bool {
        let position = match self {
            Self::Key(position) => *position,
            Self::Column(column) => column.position,
        };
        let column = expression.downcast_ref::<Column>();
        column.is_some_and(|column| column.index() == position)
    }

    /// The bytes with which keys of a value begin; `None` if there are none or they are not known.
    fn encode(&self, value: &Literal) -> Option<Vec<u8>> {
        match (self, value) {
            (Self::Key(_), Literal::Bytes(bytes)) => Some(bytes.clone()),
            (Self::Key(_), _) => None,
            (Self::Column(column), value) => column.encode(value),
        }
    }

    fn constant(&self, expression: &Arc<dyn PhysicalExpr>) -> Option<Vec<u8>> {
        self.encode(&constant(expression)?)
    }

    /// The first key above those of a value; `None` if there is none.
    fn after(&self, value: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Key(_) => Some(next(value.to_vec())),
            Self::Column(_) => after_prefix(value),
        }
    }

    fn single(&self, value: Vec<u8>) -> KeyRange {
        KeyRange {
            end: self.after(&value),
            begin: Some(value),
        }
    }

    /// The keys whose values compare with a constant as the operator says.
    fn compared(&self, operator: Operator, value: Vec<u8>) -> Option<Vec<KeyRange>> {
        let from = |begin| KeyRange {
            begin: Some(begin),
            end: None,
        };
        let until = |end| KeyRange { begin: None, end };
        Some(match operator {
            Operator::Eq => vec![self.single(value)],
            Operator::Lt => vec![until(Some(value))],
            Operator::LtEq => vec![until(self.after(&value))],
            Operator::Gt => self.after(&value).map(from).into_iter().collect(),
            Operator::GtEq => vec![from(value)],
            _ => return None,
        })
    }
}

/// The keys that begin with a prefix.
fn prefix_range(prefix: Vec<u8>) -> KeyRange {
    KeyRange {
        end: after_prefix(&prefix),
        begin: Some(prefix).filter(|prefix| !prefix.is_empty()),
    }
}

/// The bytes with which all keys of a range begin, and no others.
fn single_prefix(range: &KeyRange) -> Option<&[u8]> {
    let begin = range.begin.as_deref()?;
    (after_prefix(begin) == range.end).then_some(begin)
}

/// The keys that begin with a prefix and continue like those of a range.
fn behind(prefix: &[u8], range: &KeyRange) -> KeyRange {
    let begin = range.begin.as_deref().unwrap_or_default();
    let end = range.end.as_ref().map(|end| [prefix, end].concat());
    KeyRange {
        begin: Some([prefix, begin].concat()).filter(|begin| !begin.is_empty()),
        end: end.or_else(|| after_prefix(prefix)),
    }
}

/// The ranges of filters; `None` if any key may satisfy all of them.
fn of_filters(filters: &[Arc<dyn PhysicalExpr>], leading: &Leading<'_>) -> Option<Vec<KeyRange>> {
    let ranges = filters
        .iter()
        .filter_map(|filter| of_filter(filter, leading));
    ranges.reduce(|all, of_filter| intersect(&all, &of_filter))
}

/// The ranges of one filter; `None` if any key may satisfy it.
fn of_filter(filter: &Arc<dyn PhysicalExpr>, leading: &Leading<'_>) -> Option<Vec<KeyRange>> {
    if let Some(binary) = filter.downcast_ref::<BinaryExpr>() {
        let (left, right) = (binary.left(), binary.right());
        return match binary.op() {
            Operator::And => match (of_filter(left, leading), of_filter(right, leading)) {
                (Some(left), Some(right)) => Some(intersect(&left, &right)),
                (left, right) => left.or(right),
            },
            Operator::Or => Some(union(of_filter(left, leading)?, of_filter(right, leading)?)),
            op if leading.is(left) => leading.compared(*op, leading.constant(right)?),
            op if leading.is(right) => leading.compared(op.swap()?, leading.constant(left)?),
            _ => None,
        };
    }
    if let Some(list) = filter.downcast_ref::<InListExpr>()
        && !list.negated()
        && leading.is(list.expr())
    {
        let keys = list.list().iter().map(|item| match constant(item)? {
            Literal::Null(_) => Some(None),
            value => Some(Some(leading.single(leading.encode(&value)?))),
        });
        let keys = keys.collect::<Option<Vec<_>>>()?;
        return Some(union(keys.into_iter().flatten().collect(), Vec::new()));
    }
    if let Some(function) = filter.downcast_ref::<ScalarFunctionExpr>()
        && let Leading::Key(_) = leading
        && is_known(function.fun())
        && let ("starts_with", [of, prefix]) = (function.fun().name(), function.args())
        && leading.is(of)
    {
        return Some(vec![prefix_range(leading.constant(prefix)?)]);
    }
    None
}

fn constant(expression: &Arc<dyn PhysicalExpr>) -> Option<Literal> {
    literal(expression.downcast_ref::<Constant>()?.value())
}

/// The first key above another one.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The first key above all that begin with a prefix; `None` if there is none.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

/// The keys of both, where each is ascending and disjoint.
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
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::DFSchema;
    use datafusion::prelude::SessionContext;

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
            intersect(
                &[range(Some(b"a"), Some(b"a\0"))],
                &[range(Some(b"b"), Some(b"b\0"))]
            ),
            []
        );
    }

    /// The ranges of keys that the layout `literal tenant ordered(day) ordered(name)` has for a filter.
    fn of_layout(filter: &str) -> Vec<KeyRange> {
        let columns = [
            ("tenant", DataType::Int64),
            ("day", DataType::Int64),
            ("name", DataType::Utf8),
            ("body", DataType::Utf8),
        ];
        let columns = columns.map(|(name, data_type)| Field::new(name, data_type, false));
        let schema = Arc::new(Schema::new(columns.to_vec()));
        let key = "'k', u16be tenant, ordered(i32) day, ordered(string) name";
        let layout = Layout::parse(Arc::clone(&schema), key, "rest body").unwrap();
        let session = SessionContext::new();
        let columns = DFSchema::try_from(schema).unwrap();
        let filter = session.parse_sql_expr(filter, &columns).unwrap();
        let filter = session.create_physical_expr(filter, &columns).unwrap();
        key_ranges(&layout, &[filter])
    }

    #[test]
    fn leading_columns_limit_keys() {
        let of = |begin: &[u8], end: &[u8]| range(Some(begin), Some(end));
        assert_eq!(of_layout("body = 'x'"), [of(b"k", b"l")]);
        assert_eq!(of_layout("day = 5"), [of(b"k", b"l")]);
        assert_eq!(of_layout("tenant = 258"), [of(b"k\x01\x02", b"k\x01\x03")]);
        assert_eq!(of_layout("tenant > 258"), [of(b"k\x01\x03", b"l")]);
        assert_eq!(of_layout("tenant <= 255"), [of(b"k", b"k\x01")]);
        assert_eq!(of_layout("tenant > 65535"), []);
        // These keys have a prefix in common that is shorter than the column.
        assert_eq!(
            of_layout("tenant > 255 and tenant <= 511 and day = 5"),
            [of(b"k\x01", b"k\x02")]
        );
        assert_eq!(of_layout("tenant < 1 and tenant > 3"), []);
        let [one, three] = [1, 3].map(|tenant| {
            let key = |day| [b'k', 0, tenant, 0x80, 0, 0, day];
            of(&key(2), &key(5))
        });
        assert_eq!(
            of_layout("tenant in (3, 1) and day between 2 and 4"),
            [one, three]
        );
        assert_eq!(
            of_layout("tenant = 1 and day = -1 and name < 'abcdefghi'"),
            [of(
                b"k\0\x01\x7f\xff\xff\xff",
                b"k\0\x01\x7f\xff\xff\xffabcdefgh\x09i\0\0\0\0\0\0\0\x01"
            )]
        );
    }
}

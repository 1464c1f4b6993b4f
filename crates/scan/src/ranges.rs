//! Ranges of keys as sets.

use rockmill_core::KeyRange;
use rockmill_format::key::KeyOrder;

/// The same keys as disjoint ranges in ascending order, none empty.
pub fn disjoint(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let mut sorted: Vec<_> = ranges.iter().filter(|range| !is_empty(range)).collect();
    sorted.sort_by(|a, b| a.begin.cmp(&b.begin));
    let mut disjoint: Vec<KeyRange> = Vec::new();
    for range in sorted {
        match disjoint.last_mut() {
            Some(last) if !begins_behind(range, last) => {
                if ends_behind(range, last) {
                    last.end.clone_from(&range.end);
                }
            }
            _ => disjoint.push(range.clone()),
        }
    }
    disjoint
}

/// The keys from one to another, both included.
pub fn closed(first: &[u8], last: &[u8]) -> KeyRange {
    KeyRange {
        begin: Some(first.to_vec()),
        end: Some([last, &[0]].concat()),
    }
}

/// Cuts a range where it enters or leaves one of the [`disjoint`] ranges `others`. The parts are in ascending order, each
/// with whether it lies in one.
pub fn cut(range: &KeyRange, others: &[KeyRange]) -> Vec<(KeyRange, bool)> {
    let mut parts = Vec::new();
    let mut rest = range.clone();
    let first = others.partition_point(|other| match (&other.end, &range.begin) {
        (Some(end), Some(begin)) => end <= begin,
        (Some(_), None) | (None, _) => false,
    });
    for other in &others[first..] {
        if let Some(begin) = other.begin.as_ref().filter(|begin| rest.contains(begin))
            && rest.begin.as_deref().unwrap_or_default() != begin.as_slice()
        {
            let before = KeyRange {
                begin: rest.begin.replace(begin.clone()),
                end: Some(begin.clone()),
            };
            parts.push((before, false));
        } else if (other.begin.as_ref())
            .is_some_and(|begin| rest.is_before(KeyOrder::Bytewise, begin))
        {
            break;
        }
        match other.end.as_ref().filter(|end| rest.contains(end)) {
            Some(end) => {
                let inside = KeyRange {
                    begin: rest.begin.replace(end.clone()),
                    end: Some(end.clone()),
                };
                parts.push((inside, true));
            }
            None => {
                parts.push((rest, true));
                return parts;
            }
        }
    }
    parts.push((rest, false));
    parts
}

/// Splits a range at some of its keys, which ascend and are not its first.
pub fn split(range: &KeyRange, borders: Vec<Vec<u8>>) -> Vec<KeyRange> {
    let mut rest = range.clone();
    let mut parts = Vec::with_capacity(borders.len() + 1);
    for border in borders {
        let begin = rest.begin.replace(border.clone());
        parts.push(KeyRange {
            begin,
            end: Some(border),
        });
    }
    parts.push(rest);
    parts
}

fn is_empty(range: &KeyRange) -> bool {
    match (&range.begin, &range.end) {
        (Some(begin), Some(end)) => begin >= end,
        (None, Some(end)) => end.is_empty(),
        (_, None) => false,
    }
}

fn begins_behind(range: &KeyRange, other: &KeyRange) -> bool {
    let begin = range.begin.as_deref().unwrap_or_default();
    other.end.as_deref().is_some_and(|end| end < begin)
}

fn ends_behind(range: &KeyRange, other: &KeyRange) -> bool {
    match (&range.end, &other.end) {
        (Some(end), Some(other)) => end > other,
        (None, Some(_)) => true,
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys of one byte, and the empty one; 5 stands for an open end.
    fn ranges() -> impl Strategy<Value = Vec<KeyRange>> {
        let bound = |at: u8| match at {
            0 => Some(vec![]),
            1..5 => Some(vec![at]),
            _ => None,
        };
        let range = (0u8..6, 0u8..6).prop_map(move |(begin, end)| KeyRange {
            begin: bound(begin),
            end: bound(end),
        });
        prop::collection::vec(range, 0..5)
    }

    fn keys() -> Vec<Vec<u8>> {
        let some = (1u8..6).flat_map(|at| [vec![at], vec![at, 0]]);
        some.chain([vec![], vec![0]]).collect()
    }

    fn ascend(parts: &[KeyRange]) -> bool {
        parts
            .windows(2)
            .all(|pair| match (&pair[0].end, &pair[1].begin) {
                (Some(end), Some(begin)) => end <= begin,
                _ => false,
            })
    }

    proptest! {
        #[test]
        fn disjoint_ranges_have_the_same_keys(ranges in ranges()) {
            let found = disjoint(&ranges);
            prop_assert!(ascend(&found) && !found.iter().any(is_empty));
            for key in keys() {
                let is_in = |ranges: &[KeyRange]| ranges.iter().filter(|range| range.contains(&key)).count();
                prop_assert_eq!(is_in(&found), is_in(&ranges).min(1));
            }
        }

        #[test]
        fn a_range_is_cut_where_it_meets_others(ranges in ranges(), others in ranges()) {
            let others = disjoint(&others);
            for range in disjoint(&ranges) {
                let parts = cut(&range, &others);
                let of_parts: Vec<_> = parts.iter().map(|(part, _)| part.clone()).collect();
                prop_assert!(ascend(&of_parts) && !of_parts.iter().any(is_empty));
                prop_assert_eq!(&of_parts[0].begin, &range.begin);
                prop_assert_eq!(&of_parts[of_parts.len() - 1].end, &range.end);
                for key in keys().iter().filter(|key| range.contains(key)) {
                    let part = parts.iter().find(|(part, _)| part.contains(key));
                    let meets = others.iter().any(|other| other.contains(key));
                    prop_assert_eq!(part.map(|(_, meets)| *meets), Some(meets));
                }
            }
        }
    }
}

//! An order of keys to which the comparator of the application has to agree.
//!
//! A job compares keys by their bytes. Its result is that of the comparator if both have one order on all keys that the job
//! compares. So these keys form a chain in the order of bytes, and the comparator is asked about each pair of neighbours:
//!
//! ```text
//!   bounds   of files, of range tombstones and of the job
//!   entries  that are read, also those that are dropped
//!   borders  between subcompactions
//! ```
//!
//! A comparator is transitive. If each key comes before the next one, the orders are equal.

use std::cmp::Ordering;

use rockmill_format::key::KeyOrder;

use crate::comparators::CustomComparator;
use crate::decline::DeclineReason;
use crate::error::{Error, Result};
use crate::plan::KeyRange;
use crate::table::InputTable;

/// An order of keys, and the comparator that has to agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedOrder {
    order: KeyOrder,
    comparator: CustomComparator,
    /// Keys beside those of entries, strictly in order. The comparator agrees.
    bounds: Vec<Vec<u8>>,
}

impl CheckedOrder {
    /// The order in which the comparator has these keys: that of bytes, or its reverse. The first two of them decide.
    ///
    /// # Errors
    /// Declined if it has another order, or fails.
    pub fn find(comparator: CustomComparator, mut bounds: Vec<Vec<u8>>) -> Result<Self> {
        bounds.sort_unstable();
        bounds.dedup();
        let order = match &bounds[..] {
            [first, second, ..] if comparator.0.compare(first, second)?.is_gt() => {
                KeyOrder::ReverseBytewise
            }
            _ => KeyOrder::Bytewise,
        };
        if order == KeyOrder::ReverseBytewise {
            bounds.reverse();
        }
        let found = Self {
            order,
            comparator,
            bounds,
        };
        (found.bounds.windows(2)).try_for_each(|pair| found.require(&pair[0], &pair[1]))?;
        Ok(found)
    }

    /// The same order with more bounds.
    ///
    /// # Errors
    /// Declined if the comparator does not agree, or fails.
    pub fn with(&self, more: impl IntoIterator<Item = Vec<u8>>) -> Result<Self> {
        let mut bounds = self.bounds.clone();
        bounds.extend(more);
        let found = Self::find(self.comparator.clone(), bounds)?;
        match found.order == self.order {
            true => Ok(found),
            false => Err(self.contradicted()),
        }
    }

    /// The order.
    pub fn order(&self) -> KeyOrder {
        self.order
    }

    /// Bytes of the bounds.
    pub fn memory_bytes(&self) -> u64 {
        let bounds = self.bounds.iter();
        bounds
            .map(|key| (size_of_val(key) + key.len()) as u64)
            .sum()
    }

    /// Requires that the comparator has `a` before `b`, which is the order of their bytes.
    ///
    /// # Errors
    /// Declined if it has another order, or fails.
    pub fn require(&self, a: &[u8], b: &[u8]) -> Result<()> {
        match self.comparator.0.compare(a, b)? {
            Ordering::Less => Ok(()),
            Ordering::Equal | Ordering::Greater => Err(self.contradicted()),
        }
    }

    /// The same for keys that may be equal.
    ///
    /// # Errors
    /// Those of [`CheckedOrder::require`].
    pub fn require_not_behind(&self, a: &[u8], b: &[u8]) -> Result<()> {
        match a == b {
            true => Ok(()),
            false => self.require(a, b),
        }
    }

    /// Requires that the comparator passes over the same blocks of a table as the bytes do: those before and behind a range.
    ///
    /// # Errors
    /// Those of [`CheckedOrder::require`].
    pub fn check_blocks(&self, table: &InputTable, range: &KeyRange) -> Result<()> {
        let (index, blocks) = (&table.meta.index, table.blocks_in_range(range));
        let before = blocks.start.checked_sub(1).map(|at| &index[at].separator);
        if let (Some(begin), Some(before)) = (&range.begin, before) {
            self.require(before, begin)?;
        }
        match (&range.end, index.get(blocks.clone()).and_then(<[_]>::last)) {
            (Some(end), Some(last)) if blocks.end < index.len() => {
                self.require_not_behind(end, &last.separator)
            }
            _ => Ok(()),
        }
    }

    fn contradicted(&self) -> Error {
        let own = String::from_utf8_lossy(self.order.comparator());
        let what = format!("the comparator orders keys of the job otherwise than {own}");
        Error::declined(DeclineReason::Comparator, what)
    }
}

/// The chain of the keys of a range.
#[derive(Debug)]
pub struct KeyChain<'a> {
    checked: &'a CheckedOrder,
    /// The bounds inside the range behind the last key.
    bounds: &'a [Vec<u8>],
    end: Option<&'a [u8]>,
    /// The last key, if there is one.
    last: Vec<u8>,
    any: bool,
}

impl<'a> KeyChain<'a> {
    /// A chain that begins with the range.
    pub fn new(checked: &'a CheckedOrder, range: &'a KeyRange) -> Self {
        let (begin, end) = (range.begin.as_deref(), range.end.as_deref());
        let at = |key: &[u8]| {
            let bounds = &checked.bounds;
            bounds.partition_point(|bound| checked.order.is_before(bound, key))
        };
        let from = begin.map_or(0, at);
        let to = end.map_or(checked.bounds.len(), at);
        Self {
            checked,
            bounds: checked.bounds.get(from..to).unwrap_or_default(),
            end,
            last: begin.unwrap_or_default().to_vec(),
            any: begin.is_some(),
        }
    }

    /// Adds the user key of the next entry, or the end if there is none.
    ///
    /// # Errors
    /// Those of [`CheckedOrder::require`].
    pub fn add(&mut self, user_key: Option<&[u8]>) -> Result<()> {
        let order = self.checked.order;
        while let Some((bound, others)) = self.bounds.split_first()
            && user_key.is_none_or(|key| !order.is_before(key, bound))
        {
            self.step(bound)?;
            self.bounds = others;
        }
        match user_key.or(self.end) {
            Some(key) => self.step(key),
            None => Ok(()),
        }
    }

    fn step(&mut self, key: &[u8]) -> Result<()> {
        if self.any && self.last == key {
            return Ok(());
        }
        if self.any {
            self.checked.require(&self.last, key)?;
        }
        self.any = true;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

    use super::*;
    use crate::comparators::Compare;
    use crate::error::ErrorKind;

    /// Compares keys as numbers.
    #[derive(Debug, Default)]
    struct Numeric {
        is_reverse: bool,
        calls: AtomicUsize,
    }

    impl Compare for Numeric {
        fn compare(&self, a: &[u8], b: &[u8]) -> Result<Ordering> {
            self.calls.fetch_add(1, Atomic::Relaxed);
            let number = |key| String::from_utf8_lossy(key).parse::<u32>().ok();
            let order = number(a).cmp(&number(b));
            Ok(if self.is_reverse {
                order.reverse()
            } else {
                order
            })
        }
    }

    fn keys(all: &[&str]) -> Vec<Vec<u8>> {
        all.iter().map(|key| key.as_bytes().to_vec()).collect()
    }

    fn find(is_reverse: bool, bounds: &[&str]) -> Result<CheckedOrder> {
        let own = Numeric {
            is_reverse,
            ..Numeric::default()
        };
        CheckedOrder::find(CustomComparator(Arc::new(own)), keys(bounds))
    }

    fn is_contradicted<T>(found: Result<T>) -> bool {
        found.is_err_and(|error| error.kind == ErrorKind::Declined(DeclineReason::Comparator))
    }

    #[test]
    fn two_bounds_tell_the_order_and_the_others_agree() {
        let order =
            |is_reverse, bounds: &[&str]| find(is_reverse, bounds).map(|found| found.order());
        assert_eq!(order(false, &["3", "1", "2", "3"]), Ok(KeyOrder::Bytewise));
        assert_eq!(order(true, &["3", "1", "2"]), Ok(KeyOrder::ReverseBytewise));
        assert_eq!(order(true, &["3", "3"]), Ok(KeyOrder::Bytewise));
        for is_reverse in [false, true] {
            assert!(is_contradicted(order(is_reverse, &["1", "2", "10"])));
            // Equal keys have equal bytes.
            assert!(is_contradicted(order(is_reverse, &["1", "01", "2"])));
            let found = find(is_reverse, &["3", "5"]).expect("they agree");
            assert!(is_contradicted(found.with(keys(&["10"]))));
            let more = found.with(keys(&["4", "2"])).expect("they agree");
            assert_eq!(more.order(), found.order());
        }
    }

    #[test]
    fn a_chain_has_the_bounds_inside_its_range() {
        let chained = |range: &KeyRange, entries: &[&str]| {
            let checked = find(false, &["10", "20", "30", "40"])?;
            let mut chain = KeyChain::new(&checked, range);
            for key in entries {
                chain.add(Some(key.as_bytes()))?;
            }
            chain.add(None)
        };
        let range = |begin: Option<&str>, end: Option<&str>| KeyRange {
            begin: begin.map(Into::into),
            end: end.map(Into::into),
        };
        assert_eq!(
            chained(&range(None, None), &["10", "10", "25", "30", "35"]),
            Ok(())
        );
        assert_eq!(
            chained(&range(Some("25"), Some("35")), &["26", "29", "33"]),
            Ok(())
        );
        assert_eq!(chained(&range(None, None), &[]), Ok(()));
        // Before a bound, behind the last one, before the end, and behind the begin.
        for (begin, end, key) in [
            (None, None, "1x"),
            (None, None, "200"),
            (None, None, "5"),
            (None, Some("15"), "100"),
            (Some("15"), None, "150000"),
        ] {
            let found = chained(&range(begin, end), &[key]);
            assert!(is_contradicted(found), "{begin:?} {end:?} {key}");
        }
    }

    #[test]
    fn equal_bytes_take_no_call() {
        let own = Arc::new(Numeric::default());
        let comparator = CustomComparator(Arc::clone(&own) as _);
        let checked = CheckedOrder::find(comparator, keys(&["1", "1"])).expect("there is one");
        let range = KeyRange::default();
        let mut chain = KeyChain::new(&checked, &range);
        for key in ["1", "1", "2", "2"] {
            chain.add(Some(key.as_bytes())).expect("they agree");
        }
        assert_eq!(own.calls.load(Atomic::Relaxed), 1);
    }
}

//! Lookups in a list of integers.

use rockmill_core::scan::Literal;

/// Maximum number of integers from the least to the greatest one of a list that has a bit for each.
const MAX_BITS: u64 = 1 << 20;

/// The integers of 64 bits of a list.
#[derive(Debug)]
pub enum IntegerSet {
    /// A bit for each integer from the first one on.
    Bits { first: i64, words: Vec<u64> },
    /// Ascending.
    Sorted(Vec<i64>),
}

impl IntegerSet {
    /// The integers of a list, which ascends; `None` if it has other values.
    pub fn new(list: &[Literal]) -> Option<Self> {
        let mut integers = Vec::with_capacity(list.len());
        for value in list {
            let Literal::Integer(integer) = value else {
                return None;
            };
            integers.extend(i64::try_from(*integer));
        }
        let (Some(&first), Some(&last)) = (integers.first(), integers.last()) else {
            return Some(Self::Sorted(integers));
        };
        let bits = last.abs_diff(first);
        if bits >= MAX_BITS {
            return Some(Self::Sorted(integers));
        }
        let mut words = vec![0; (bits / u64::from(u64::BITS)) as usize + 1];
        for integer in integers {
            let bit = integer.abs_diff(first);
            words[(bit / u64::from(u64::BITS)) as usize] |= 1 << (bit % u64::from(u64::BITS));
        }
        Some(Self::Bits { first, words })
    }

    /// Whether an integer is in the list.
    #[inline]
    pub fn has(&self, integer: i64) -> bool {
        match self {
            Self::Bits { first, words } => {
                let bit = integer.wrapping_sub(*first) as u64;
                let word = words.get((bit / u64::from(u64::BITS)) as usize);
                word.is_some_and(|word| word >> (bit % u64::from(u64::BITS)) & 1 == 1)
            }
            Self::Sorted(integers) => integers.binary_search(&integer).is_ok(),
        }
    }

    /// Maximum memory of the set of a list.
    pub fn memory_bytes(list: &[Literal]) -> u64 {
        (size_of_val(list) as u64).max(MAX_BITS / u64::from(u8::BITS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn a_set_has_the_integers_of_its_list(
            list in proptest::collection::btree_set(
                prop_oneof![
                    -20_i128..20,
                    Just(i128::from(i64::MIN)),
                    Just(i128::from(i64::MAX)),
                    Just(i128::from(i64::MAX) + 1),
                ],
                0..12,
            ),
            around in -25_i64..25,
        ) {
            let literals: Vec<_> = list.iter().map(|integer| Literal::Integer(*integer)).collect();
            let set = IntegerSet::new(&literals).expect("integers");
            for integer in [around, i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1] {
                prop_assert_eq!(set.has(integer), list.contains(&i128::from(integer)));
            }
            let others = BTreeSet::from([Literal::Integer(1), Literal::Bytes(vec![1])]);
            prop_assert!(IntegerSet::new(&others.into_iter().collect::<Vec<_>>()).is_none());
        }
    }
}

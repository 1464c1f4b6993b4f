//! Range tombstones of a compaction, split into fragments that do not overlap
//! (`db/range_tombstone_fragmenter.cc:FragmentTombstones`).

use std::collections::BTreeMap;

use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::RangeTombstone;

use crate::keys::{key_prefix, prefix_mask};
use crate::plan::{CompactionRules, KeyRange};

/// A range of keys, and the tombstones that cover all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// First user key.
    pub begin: &'a [u8],
    /// User key behind the fragment's last key.
    pub end: &'a [u8],
    /// Sequence number of the newest tombstone of each stripe that has one, descending. Older tombstones of a stripe
    /// delete nothing more.
    pub sequences: &'a [u64],
}

impl Fragment<'_> {
    /// Counts a tombstone for each sequence number.
    fn memory_bytes(&self) -> u64 {
        let keys = self.begin.len() + self.end.len();
        let of_tombstones = self.sequences.len() * (size_of::<RangeTombstone>() + keys);
        (size_of::<Bounds>() + keys + size_of_val(self.sequences) + of_tombstones) as u64
    }

    /// Whether a tombstone deletes an entry with this sequence number of a key of the fragment. It does if no snapshot sees
    /// the entry without the tombstone (`CompactionRangeDelAggregator::ShouldDelete`).
    pub fn deletes(&self, sequence: u64, rules: &CompactionRules) -> bool {
        let visible_to = rules.visible_to(sequence);
        let at = self.sequences.partition_point(|&own| own > visible_to);
        self.sequences.get(at).is_some_and(|&own| own > sequence)
    }
}

/// The fragments of all range tombstones, in key order. Neighbours differ in their sequence numbers. A job may have 100,000,
/// and one thread makes them, so they lie in few buffers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fragments {
    order: KeyOrder,
    /// Positions of each fragment, and of one behind the last.
    all: Vec<Bounds>,
    /// Keys where each fragment begins and ends, contiguous.
    keys: Vec<u8>,
    /// Sequence numbers of each fragment, contiguous.
    sequences: Vec<u64>,
}

/// Positions of a fragment's parts, which end where the next one's begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    begin: usize,
    end: usize,
    sequences: usize,
}

/// Counts and bytes of some fragments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FragmentSizes {
    /// Number of fragments.
    pub fragments: u64,
    /// Bytes of the keys where they begin and end.
    pub key_bytes: u64,
    /// Number of their sequence numbers.
    pub sequences: u64,
}

/// A key at which a tombstone begins or ends.
struct Border<'a> {
    /// [`key_prefix`] of the key, with the [`prefix_mask`] of the order.
    prefix: u128,
    key: &'a [u8],
    sequence: u64,
}

/// The borders at which tombstones begin, and those at which they end, both in key order. Tombstones that delete nothing
/// have none.
fn borders<K: AsRef<[u8]>>(
    order: KeyOrder,
    tombstones: &[RangeTombstone<K>],
) -> [Vec<Border<'_>>; 2] {
    let of = |key: fn(&RangeTombstone<K>) -> &K| {
        let border = |one| {
            let key = key(one).as_ref();
            Border {
                prefix: key_prefix(key) ^ prefix_mask(order),
                key,
                sequence: one.sequence,
            }
        };
        let some =
            (tombstones.iter()).filter(|one| order.is_before(one.begin.as_ref(), one.end.as_ref()));
        let mut borders: Vec<_> = some.map(border).collect();
        // Files have their tombstones in order, which a stable sort makes use of.
        borders.sort_by(|a, b| {
            let by_prefix = a.prefix.cmp(&b.prefix);
            by_prefix.then_with(|| order.compare(a.key, b.key))
        });
        borders
    };
    [of(|one| &one.begin), of(|one| &one.end)]
}

impl Fragments {
    /// Splits tombstones, which may overlap, by snapshots, which ascend strictly.
    pub fn new<K: AsRef<[u8]>>(
        order: KeyOrder,
        tombstones: &[RangeTombstone<K>],
        snapshots: &[u64],
    ) -> Self {
        Self::at_most(order, tombstones, snapshots, u64::MAX).unwrap_or_default()
    }

    /// [`Fragments::new`], but `None` if the fragments take more than `most_bytes`: each may have as many sequence
    /// numbers as there are snapshots.
    pub fn at_most<K: AsRef<[u8]>>(
        order: KeyOrder,
        tombstones: &[RangeTombstone<K>],
        snapshots: &[u64],
        most_bytes: u64,
    ) -> Option<Self> {
        let [begins, ends] = borders(order, tombstones);
        let (mut begins, mut ends) = (begins.iter().peekable(), ends.iter().peekable());
        // Number of tombstones with each sequence number that cover the keys from a border to the next one.
        let mut open: BTreeMap<u64, u32> = BTreeMap::new();
        let mut made = Self {
            order,
            ..Self::default()
        };
        let (mut bytes, mut sequences, mut last) = (0_u64, Vec::new(), &[][..]);
        // The last border is an end.
        while let Some(end) = ends.peek() {
            let key = match begins.peek() {
                Some(begin) if order.is_before(begin.key, end.key) => begin.key,
                _ => end.key,
            };
            if !sequences.is_empty() {
                bytes = bytes.saturating_add(made.add(last, key, &sequences));
                if bytes > most_bytes {
                    return None;
                }
            }
            while let Some(begin) = begins.next_if(|border| border.key == key) {
                *open.entry(begin.sequence).or_default() += 1;
            }
            while let Some(end) = ends.next_if(|border| border.key == key) {
                // It began before.
                if let Some(count) = open.get_mut(&end.sequence) {
                    *count -= 1;
                    if *count == 0 {
                        open.remove(&end.sequence);
                    }
                }
            }
            newest_of_stripes(&open, snapshots, &mut sequences);
            last = key;
        }
        if !made.all.is_empty() {
            made.all.push(made.behind());
        }
        Some(made)
    }

    /// Adds a fragment behind all others, or lengthens the last one. Returns the memory that it takes.
    fn add(&mut self, begin: &[u8], end: &[u8], sequences: &[u64]) -> u64 {
        if let Some(last) = self.all.last()
            && (&self.keys[last.end..], &self.sequences[last.sequences..]) == (begin, sequences)
        {
            self.keys.truncate(last.end);
            self.keys.extend_from_slice(end);
            return 0;
        }
        let mut bounds = self.behind();
        self.keys.extend_from_slice(begin);
        bounds.end = self.keys.len();
        self.keys.extend_from_slice(end);
        self.sequences.extend_from_slice(sequences);
        self.all.push(bounds);
        let added = Fragment {
            begin,
            end,
            sequences,
        };
        added.memory_bytes()
    }

    /// The position behind all fragments.
    fn behind(&self) -> Bounds {
        Bounds {
            begin: self.keys.len(),
            end: self.keys.len(),
            sequences: self.sequences.len(),
        }
    }

    /// Memory of the fragments, and of the tombstones that are made of them for output files.
    pub fn memory_bytes(&self) -> u64 {
        self.iter().map(|one| one.memory_bytes()).sum()
    }

    /// Whether there is no tombstone.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Number of fragments.
    pub fn len(&self) -> usize {
        self.all.len().saturating_sub(1)
    }

    /// The fragment at a position.
    pub fn get(&self, at: usize) -> Option<Fragment<'_>> {
        let (own, next) = (self.all.get(at)?, self.all.get(at + 1)?);
        Some(Fragment {
            begin: &self.keys[own.begin..own.end],
            end: &self.keys[own.end..next.begin],
            sequences: &self.sequences[own.sequences..next.sequences],
        })
    }

    /// All fragments.
    pub fn iter(&self) -> impl Iterator<Item = Fragment<'_>> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Position of the first fragment from position `from` on for which `is_before` is false. It is true for all before that.
    fn first_from(&self, from: usize, is_before: impl Fn(Fragment<'_>) -> bool) -> usize {
        let (mut first, mut behind) = (from, self.len());
        while first < behind {
            let middle = first.midpoint(behind);
            match self.get(middle).is_some_and(&is_before) {
                true => first = middle + 1,
                false => behind = middle,
            }
        }
        first
    }

    /// Position of the first fragment from position `from` on that ends behind a user key. All before `from` end before it.
    pub fn ending_behind(&self, user_key: &[u8], from: usize) -> usize {
        let ends_before = |one: Fragment<'_>| !self.order.is_before(user_key, one.end);
        match self.get(from) {
            Some(next) if ends_before(next) => self.first_from(from, ends_before),
            _ => from,
        }
    }

    /// The fragment that has a user key, if there is one. `from` is 0 at first, and may be used for keys behind it then.
    pub fn covering(&self, user_key: &[u8], from: &mut usize) -> Option<Fragment<'_>> {
        *from = self.ending_behind(user_key, *from);
        let next = self.get(*from)?;
        (!self.order.is_before(user_key, next.begin)).then_some(next)
    }

    /// Whether a fragment has keys of a range.
    pub fn meets(&self, range: &KeyRange) -> bool {
        self.sizes_in(range).fragments > 0
    }

    /// Sizes of the fragments that have keys of a range. Their keys have at most these bytes once they are cut to it.
    pub fn sizes_in(&self, range: &KeyRange) -> FragmentSizes {
        let (begin, end) = (range.begin.as_deref(), range.end.as_deref());
        let from = begin.map_or(0, |begin| self.ending_behind(begin, 0));
        let begins_before = |end| self.first_from(0, |one| self.order.is_before(one.begin, end));
        let to = end.map_or(self.len(), begins_before);
        let (Some(first), Some(behind)) = (self.all.get(from), self.all.get(to)) else {
            return FragmentSizes::default();
        };
        let is_empty = matches!((begin, end), (Some(a), Some(b)) if !self.order.is_before(a, b));
        if is_empty || to <= from {
            return FragmentSizes::default();
        }
        let bounds = [begin, end].into_iter().flatten().map(<[u8]>::len);
        FragmentSizes {
            fragments: (to - from) as u64,
            key_bytes: (behind.begin - first.begin + bounds.sum::<usize>()) as u64,
            sequences: (behind.sequences - first.sequences) as u64,
        }
    }

    /// The fragments that have keys of a range, cut to it.
    pub fn in_range<'a>(&'a self, range: &'a KeyRange) -> impl Iterator<Item = Fragment<'a>> {
        let from = (range.begin.as_deref()).map_or(0, |begin| self.ending_behind(begin, 0));
        let order = self.order;
        let cut = (from..self.len()).filter_map(move |at| {
            let one = self.get(at)?;
            Some(Fragment {
                begin: (range.begin.as_deref()).map_or(one.begin, |to| order.last(one.begin, to)),
                end: (range.end.as_deref()).map_or(one.end, |to| order.first(one.end, to)),
                ..one
            })
        });
        cut.take_while(move |one| order.is_before(one.begin, one.end))
    }
}

/// Makes `newest` the newest of the sequence numbers in each stripe, descending.
fn newest_of_stripes(open: &BTreeMap<u64, u32>, snapshots: &[u64], newest: &mut Vec<u64>) {
    newest.clear();
    let mut below = u64::MAX;
    while let Some((&sequence, _)) = open.range(..=below).next_back() {
        newest.push(sequence);
        let at = snapshots.partition_point(|&snapshot| snapshot < sequence);
        match at.checked_sub(1) {
            Some(at) => below = snapshots[at],
            None => break,
        }
    }
}

impl CompactionRules {
    /// The tombstones that stay in a range, cut to it, in the order in which a file has them. Tombstones that every
    /// snapshot sees are dropped where no deeper level can have one of their keys
    /// (`compaction_outputs.cc:AddRangeDels`).
    pub fn kept_tombstones(&self, range: &KeyRange) -> Vec<RangeTombstone> {
        let mut kept = Vec::new();
        for one in self.tombstones.in_range(range) {
            for &sequence in one.sequences {
                let is_obsolete = sequence <= self.earliest()
                    && (self.bottommost
                        || (self.deeper).absent_range(self.order, one.begin, one.end));
                if !is_obsolete {
                    kept.push(RangeTombstone {
                        begin: one.begin.to_vec(),
                        end: one.end.to_vec(),
                        sequence,
                    });
                }
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DeeperLevels;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn tombstone(begin: u8, end: u8, sequence: u64) -> RangeTombstone {
        RangeTombstone {
            begin: vec![begin],
            end: vec![end],
            sequence,
        }
    }

    fn rules(order: KeyOrder, tombstones: &[RangeTombstone], snapshots: &[u64]) -> CompactionRules {
        CompactionRules {
            snapshots: snapshots.to_vec(),
            tombstones: Arc::new(Fragments::new(order, tombstones, snapshots)),
            order,
            ..CompactionRules::default()
        }
    }

    #[test]
    fn fragments_have_the_newest_tombstone_of_each_stripe() {
        let all = [
            tombstone(1, 9, 5),
            tombstone(3, 6, 7),
            tombstone(3, 4, 12),
            tombstone(20, 20, 3),
            tombstone(21, 20, 3),
        ];
        let fragments = Fragments::new(KeyOrder::Bytewise, &all, &[10]);
        let found: Vec<_> = (fragments.iter())
            .map(|one| (one.begin[0], one.end[0], one.sequences))
            .collect();
        let expected: [(u8, u8, &[u64]); 4] =
            [(1, 3, &[5]), (3, 4, &[12, 7]), (4, 6, &[7]), (6, 9, &[5])];
        assert_eq!(found, expected);
        let joined = Fragments::new(
            KeyOrder::Bytewise,
            &[tombstone(1, 4, 5), tombstone(4, 9, 5)],
            &[],
        );
        assert_eq!(
            joined,
            Fragments::new(KeyOrder::Bytewise, &[tombstone(1, 9, 5)], &[])
        );
    }

    #[test]
    fn fragments_of_many_snapshots_take_no_more_than_they_may() {
        let all: Vec<_> = (0..100)
            .map(|n| tombstone(n, 200, 1 + u64::from(n)))
            .collect();
        let snapshots: Vec<_> = (1..100).collect();
        let some =
            Fragments::at_most(KeyOrder::Bytewise, &all, &snapshots, u64::MAX).expect("no limit");
        let bytes = some.memory_bytes();
        assert_eq!(some.iter().last().map(|one| one.sequences.len()), Some(100));
        assert!(bytes > 5_000 * size_of::<RangeTombstone>() as u64);
        assert_eq!(
            Fragments::at_most(KeyOrder::Bytewise, &all, &snapshots, bytes),
            Some(some)
        );
        assert_eq!(
            Fragments::at_most(KeyOrder::Bytewise, &all, &snapshots, bytes - 1),
            None
        );
    }

    #[test]
    fn tombstones_that_all_see_stay_only_above_deeper_keys() {
        let all = [tombstone(1, 9, 5), tombstone(2, 4, 12)];
        let key = |key: u8| vec![key];
        let with = |deeper, bottommost| CompactionRules {
            deeper,
            bottommost,
            ..rules(KeyOrder::Bytewise, &all, &[10])
        };
        let kept = |rules: &CompactionRules, begin, end| -> Vec<_> {
            let range = KeyRange {
                begin: Some(key(begin)),
                end: Some(key(end)),
            };
            let kept = rules.kept_tombstones(&range).into_iter();
            kept.map(|one| (one.begin[0], one.end[0], one.sequence))
                .collect()
        };
        let unknown = with(DeeperLevels::Unknown, false);
        let all_of_it = [(1, 2, 5), (2, 4, 12), (2, 4, 5), (4, 9, 5)];
        assert_eq!(kept(&unknown, 0, 200), all_of_it);
        assert_eq!(kept(&unknown, 3, 5), [(3, 4, 12), (3, 4, 5), (4, 5, 5)]);
        let deeper = DeeperLevels::Files(vec![vec![(key(0), key(0)), (key(8), key(8))]]);
        assert_eq!(
            kept(&with(deeper.clone(), false), 0, 200),
            [(2, 4, 12), (4, 9, 5)]
        );
        assert_eq!(kept(&with(deeper, false), 0, 8), [(2, 4, 12)]);
        assert_eq!(
            kept(&with(DeeperLevels::Nothing, true), 0, 200),
            [(2, 4, 12)]
        );
    }

    proptest! {
        #[test]
        fn a_key_is_deleted_if_a_newer_tombstone_of_its_stripe_covers_it(
            drawn in proptest::collection::vec((0u8..12, 0u8..12, 1u64..20), 0..12),
            snapshots in proptest::collection::btree_set(1u64..20, 0..4),
            key in 0u8..12,
            sequence in 0u64..20,
            order in prop::sample::select(vec![KeyOrder::Bytewise, KeyOrder::ReverseBytewise]),
        ) {
            let all: Vec<_> = drawn.iter().map(|&(begin, end, own)| tombstone(begin, end, own)).collect();
            let snapshots: Vec<_> = snapshots.into_iter().collect();
            let rules = rules(order, &all, &snapshots);
            let expected = drawn.iter().any(|&(begin, end, own)| {
                let covers = match order {
                    KeyOrder::Bytewise => begin <= key && key < end,
                    KeyOrder::ReverseBytewise => begin >= key && key > end,
                };
                covers
                    && own > sequence
                    && rules.visible_to(own) == rules.visible_to(sequence)
            });
            let range = KeyRange { begin: Some(vec![key]), end: Some(vec![key ^ 5]) };
            let in_range: Vec<_> = rules.tombstones.in_range(&range).collect();
            let sizes = rules.tombstones.sizes_in(&range);
            let bytes = in_range.iter().map(|one| (one.begin.len() + one.end.len()) as u64);
            let sequences = in_range.iter().map(|one| one.sequences.len() as u64);
            prop_assert_eq!(sizes.fragments, in_range.len() as u64);
            prop_assert_eq!(sizes.sequences, sequences.sum::<u64>());
            prop_assert!(sizes.key_bytes >= bytes.sum::<u64>());
            prop_assert_eq!(rules.tombstones.meets(&range), !in_range.is_empty());
            let at = rules.tombstones.ending_behind(&[key], 0);
            let found = rules.tombstones.get(at);
            let found = found.filter(|fragment| !order.is_before(&[key], fragment.begin));
            prop_assert_eq!(found.is_some_and(|fragment| fragment.deletes(sequence, &rules)), expected);
        }
    }
}

//! `FileSplitter` against the steps of RocksDB's `ShouldStopBefore`, called once for each user key.

use rockmill_testkit::cases as common;

use common::config;
use proptest::prelude::*;
use rockmill_core::{Grandparent, OutputSplitting};
use rockmill_cpu::split::FileSplitter;
use rockmill_format::key::KeyOrder;

/// `compaction_outputs.cc:CompactionOutputs`, the members that splitting at grandparents uses, step by
/// step.
struct Model<'a> {
    order: KeyOrder,
    splitting: &'a OutputSplitting,
    index: usize,
    gap: bool,
    overlap: u64,
    seen: bool,
    switched: u64,
}

impl<'a> Model<'a> {
    fn new(order: KeyOrder, splitting: &'a OutputSplitting) -> Self {
        Self {
            order,
            splitting,
            index: 0,
            gap: true,
            overlap: 0,
            seen: false,
            switched: 0,
        }
    }

    /// `GetCurrentKeyGrandparentOverlappedBytes`.
    fn current_overlap(&self, key: &[u8]) -> u64 {
        if self.gap {
            return 0;
        }
        let files = &self.splitting.grandparents;
        let mut bytes = files[self.index].size;
        for i in (0..self.index).rev() {
            if files[i].largest != key {
                break;
            }
            bytes += files[i].size;
        }
        bytes
    }

    /// `UpdateGrandparentBoundaryInfo`.
    fn cross(&mut self, key: &[u8]) -> u64 {
        let files = &self.splitting.grandparents;
        if files.is_empty() {
            return 0;
        }
        let mut crossed = 0;
        while self.index < files.len() {
            let file = &files[self.index];
            if self.gap {
                if self.order.is_before(key, &file.smallest) {
                    break;
                }
                if self.seen {
                    crossed += 1;
                    self.switched += 1;
                    self.overlap += file.size;
                }
                self.gap = false;
            } else {
                let last = self.index + 1 == files.len();
                let stays_on_boundary =
                    || last || self.order.is_before(key, &files[self.index + 1].smallest);
                if self.order.is_before(key, &file.largest)
                    || (key == file.largest.as_slice() && stays_on_boundary())
                {
                    break;
                }
                if self.seen {
                    crossed += 1;
                    self.switched += 1;
                }
                self.gap = true;
                self.index += 1;
            }
        }
        if !self.seen && !self.gap {
            self.overlap = self.current_overlap(key);
        }
        self.seen = true;
        crossed
    }

    /// `ShouldStopBefore`, and the actions of `AddToOutput` at a stop. No file is open if `size` is `None`.
    fn stops_before(&mut self, key: &[u8], size: Option<u64>) -> bool {
        let splitting = self.splitting;
        let overlap_before = self.overlap;
        let crossed = if splitting.single_file {
            0
        } else {
            self.cross(key)
        };
        let Some(size) = size else { return false };
        let stops = self.decides(size, crossed, overlap_before);
        if stops {
            self.switched = 0;
            self.overlap = self.current_overlap(key);
        }
        stops
    }

    fn decides(&self, size: u64, crossed: u64, overlap_before: u64) -> bool {
        let splitting = self.splitting;
        if splitting.single_file {
            return false;
        }
        if size >= splitting.max_output_file_size {
            return true;
        }
        if crossed == 0 {
            return false;
        }
        let wide = |n: u64| u128::from(n);
        if wide(self.overlap) + wide(size) > wide(splitting.max_compaction_bytes) {
            return true;
        }
        if !splitting.level_style {
            return false;
        }
        let skipped = self.overlap - overlap_before;
        if crossed >= if self.gap { 2 } else { 3 } && skipped > splitting.target_file_size / 8 {
            return true;
        }
        let percent = 50 + (self.switched * 5).min(40);
        wide(size) >= wide(splitting.target_file_size).div_ceil(100) * wide(percent)
    }
}

/// Grandparents in order; neighbours may share a boundary key, and several may have one and the same key.
fn grandparents() -> impl Strategy<Value = Vec<Grandparent>> {
    let file = (0u8..3, 0u8..4, 0u64..3000);
    proptest::collection::vec(file, 0..14).prop_map(|files| {
        let mut at = 1u8;
        files
            .into_iter()
            .map(|(gap, width, size)| {
                let smallest = at + gap;
                at = smallest + width;
                Grandparent {
                    smallest: vec![smallest],
                    largest: vec![at],
                    size,
                }
            })
            .collect()
    })
}

fn splittings() -> impl Strategy<Value = OutputSplitting> {
    let limits = (
        prop::sample::select(vec![0u64, 99, 1000, 1001, 8000, u64::MAX]),
        prop::sample::select(vec![1u64, 2, u64::MAX]),
        prop::sample::select(vec![2000u64, 6000, u64::MAX]),
    );
    let switches = (prop::bool::weighted(0.05), any::<bool>());
    (grandparents(), limits, switches).prop_map(|(grandparents, limits, switches)| {
        let (target, times, max_compaction_bytes) = limits;
        OutputSplitting {
            target_file_size: target,
            max_output_file_size: target.saturating_mul(times),
            single_file: switches.0,
            level_style: switches.1,
            grandparents,
            max_compaction_bytes,
            ..common::splitting(0)
        }
    })
}

/// Keys of one byte or two, ascending, with the bytes that each adds to its file.
fn keys() -> impl Strategy<Value = Vec<(Vec<u8>, u64)>> {
    let key = (0u8..70, proptest::option::weighted(0.3, any::<u8>()));
    proptest::collection::btree_map(key, 0u64..700, 1..60).prop_map(|keys| {
        keys.into_iter()
            .map(|((first, second), size)| {
                let mut key = vec![first];
                key.extend(second);
                (key, size)
            })
            .collect()
    })
}

/// A key with a common prefix: without it, most keys differ in their first 16 bytes.
fn behind(common: usize, key: &[u8]) -> Vec<u8> {
    [&vec![9; common][..], key].concat()
}

/// The same splitting if all keys begin with `common` equal bytes.
fn all_behind(common: usize, mut splitting: OutputSplitting) -> OutputSplitting {
    for file in &mut splitting.grandparents {
        file.smallest = behind(common, &file.smallest);
        file.largest = behind(common, &file.largest);
    }
    splitting
}

fn orders() -> impl Strategy<Value = KeyOrder> {
    prop::sample::select(vec![KeyOrder::Bytewise, KeyOrder::ReverseBytewise])
}

/// What is in the order of bytes, in another order.
fn in_order<T>(
    order: KeyOrder,
    mut splitting: OutputSplitting,
    mut keys: Vec<T>,
) -> (OutputSplitting, Vec<T>) {
    if order == KeyOrder::ReverseBytewise {
        keys.reverse();
        splitting.grandparents.reverse();
        for file in &mut splitting.grandparents {
            std::mem::swap(&mut file.smallest, &mut file.largest);
        }
    }
    (splitting, keys)
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn files_end_where_rocksdb_would_end_them(
        splitting in splittings(),
        keys in keys(),
        common in 0usize..18,
        order in orders(),
    ) {
        let splitting = all_behind(common, splitting);
        let keys = keys.into_iter().map(|(key, bytes)| (behind(common, &key), bytes));
        let (splitting, keys) = in_order(order, splitting, keys.collect());
        let mut splitter = FileSplitter::new(order, &splitting);
        let mut model = Model::new(order, &splitting);
        let mut size = None;
        for (key, bytes) in &keys {
            let stops = model.stops_before(key, size);
            prop_assert_eq!(splitter.ends_before(key, size), stops, "before {:?} at {:?}", key, size);
            size = Some(bytes + if stops { 0 } else { size.unwrap_or(0) });
        }
    }

    #[test]
    fn files_may_end_for_other_reasons(
        splitting in splittings(),
        keys in keys(),
        sizes in proptest::collection::vec(proptest::option::of(0u64..3000), 60),
        order in orders(),
    ) {
        let (splitting, keys) = in_order(order, splitting, keys);
        let mut splitter = FileSplitter::new(order, &splitting);
        let mut model = Model::new(order, &splitting);
        for ((key, _), &size) in keys.iter().zip(&sizes) {
            let stops = model.stops_before(key, size);
            prop_assert_eq!(splitter.ends_before(key, size), stops, "before {:?} at {:?}", key, size);
        }
    }
}

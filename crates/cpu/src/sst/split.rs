//! Where output files end (`compaction_outputs.cc:ShouldStopBefore`).
//!
//! RocksDB decides before each record. Here the decision is made before each new user key, so that a user key is never
//! in two files.

use rockmill_core::{KeyRange, OutputSplitting, key_prefix, prefix_mask};
use rockmill_format::key::KeyOrder;

/// RocksDB's thresholds for splitting at a grandparent's boundary: boundaries crossed at once, and
/// percentages of the target size by boundaries crossed in all.
const BOUNDARIES_IN_FILE: usize = 3;
const BOUNDARIES_IN_GAP: usize = 2;
const SKIPPED_SHARE: u64 = 8;
const BASE_PERCENT: u64 = 50;
const PERCENT_PER_BOUNDARY: u64 = 5;
const MAX_EXTRA_PERCENT: u64 = 40;

/// Decides before each user key whether the current file ends.
#[derive(Debug)]
pub struct FileSplitter<'a> {
    order: KeyOrder,
    splitting: &'a OutputSplitting,
    /// Grandparent at or behind the last key.
    at: usize,
    /// Whether the last key lies before that grandparent rather than in it.
    in_gap: bool,
    /// [`key_prefix`] of that grandparent's next boundary, with the [`prefix_mask`] of the order: keys with a smaller
    /// prefix cross no boundary. 0 at first.
    next_boundary: u128,
    /// Whether a key was seen.
    seen: bool,
    /// Bytes of grandparents that the current file overlaps.
    overlapped: u64,
    /// Boundaries crossed since the file began.
    crossed_in_file: u64,
    /// The last key's leading bytes, by which a partitioner separates keys.
    partition: Vec<u8>,
    /// The key from which on no file ends because of its size.
    tail: Option<&'a [u8]>,
}

impl<'a> FileSplitter<'a> {
    /// A splitter at the start of a task.
    pub fn new(order: KeyOrder, splitting: &'a OutputSplitting) -> Self {
        Self {
            order,
            splitting,
            at: 0,
            in_gap: true,
            next_boundary: 0,
            seen: false,
            overlapped: 0,
            crossed_in_file: 0,
            partition: Vec::new(),
            tail: None,
        }
    }

    /// The same splitter for the subcompaction of `range`.
    #[must_use]
    pub fn in_range(self, range: &KeyRange) -> Self {
        let tail = self.splitting.tail_of(range);
        Self { tail, ..self }
    }

    /// Whether a file of `file_size` stored bytes ends before `user_key`. `file_size` is `None` if no file is open.
    /// Every user key must be passed, in order.
    #[inline]
    pub fn ends_before(&mut self, user_key: &[u8], file_size: Option<u64>) -> bool {
        if self.splitting.single_file {
            return false;
        }
        let overlapped_before = self.overlapped;
        let crossed = match self.prefix(user_key) < self.next_boundary {
            true => 0,
            false => self.cross_boundaries(user_key),
        };
        let parts = self.begins_partition(user_key);
        let ends = file_size.is_some_and(|size| {
            parts
                || (size >= self.splitting.max_output_file_size && !self.is_in_tail(user_key))
                || (crossed > 0 && self.ends_at_boundary(size, crossed, overlapped_before))
        });
        if ends {
            self.crossed_in_file = 0;
            self.overlapped = self.overlapped_at(user_key);
        }
        ends
    }

    fn is_in_tail(&self, user_key: &[u8]) -> bool {
        let tail = self.tail;
        tail.is_some_and(|tail| !self.order.is_before(user_key, tail))
    }

    #[inline]
    fn prefix(&self, user_key: &[u8]) -> u128 {
        key_prefix(user_key) ^ prefix_mask(self.order)
    }

    /// Whether a partitioner separates `user_key` from the previous key (`sst_partitioner.cc:ShouldPartition`).
    #[inline]
    fn begins_partition(&mut self, user_key: &[u8]) -> bool {
        let Some(bytes) = self.splitting.partition_bytes else {
            return false;
        };
        let own = &user_key[..bytes.min(user_key.len())];
        let parts = self.partition != own;
        if parts {
            self.partition.clear();
            self.partition.extend_from_slice(own);
        }
        parts
    }

    /// Moves past the grandparents that end before `user_key`; returns how many of their boundaries
    /// were crossed.
    fn cross_boundaries(&mut self, user_key: &[u8]) -> usize {
        let (files, order) = (&self.splitting.grandparents, self.order);
        let mut crossed = 0;
        while let Some(file) = files.get(self.at) {
            if self.in_gap {
                if order.is_before(user_key, &file.smallest) {
                    break;
                }
                if self.seen {
                    crossed += 1;
                    self.overlapped = self.overlapped.saturating_add(file.size);
                }
                self.in_gap = false;
            } else {
                let next = files.get(self.at + 1);
                let inside = order.is_before(user_key, &file.largest);
                let on_shared_key = user_key == file.largest.as_slice()
                    && next.is_none_or(|next| order.is_before(user_key, &next.smallest));
                if inside || on_shared_key {
                    break;
                }
                crossed += usize::from(self.seen);
                self.in_gap = true;
                self.at += 1;
            }
        }
        if !self.seen && !self.in_gap {
            self.overlapped = self.overlapped_at(user_key);
        }
        self.seen = true;
        self.crossed_in_file += crossed as u64;
        let boundary = files.get(self.at).map(|file| match self.in_gap {
            true => file.smallest.as_slice(),
            false => file.largest.as_slice(),
        });
        self.next_boundary = boundary.map_or(u128::MAX, |key| self.prefix(key));
        crossed
    }

    fn overlapped_at(&self, user_key: &[u8]) -> u64 {
        if self.in_gap {
            return 0;
        }
        let files = &self.splitting.grandparents;
        let ending_here = files[..self.at]
            .iter()
            .rev()
            .take_while(|file| file.largest == user_key);
        ending_here.fold(files[self.at].size, |sum, file| {
            sum.saturating_add(file.size)
        })
    }

    fn ends_at_boundary(&self, size: u64, crossed: usize, overlapped_before: u64) -> bool {
        let splitting = self.splitting;
        if self.overlapped.saturating_add(size) > splitting.max_compaction_bytes {
            return true;
        }
        if !splitting.level_style {
            return false;
        }
        let enough = if self.in_gap {
            BOUNDARIES_IN_GAP
        } else {
            BOUNDARIES_IN_FILE
        };
        let skipped = self.overlapped.saturating_sub(overlapped_before);
        if crossed >= enough && skipped > splitting.target_file_size / SKIPPED_SHARE {
            return true;
        }
        let percent =
            BASE_PERCENT + (self.crossed_in_file * PERCENT_PER_BOUNDARY).min(MAX_EXTRA_PERCENT);
        size >= splitting
            .target_file_size
            .div_ceil(100)
            .saturating_mul(percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rockmill_core::Grandparent;

    fn splitting(grandparents: &[(&str, &str, u64)]) -> OutputSplitting {
        OutputSplitting {
            target_file_size: 1000,
            max_output_file_size: 2000,
            grandparents: grandparents
                .iter()
                .map(|&(smallest, largest, size)| Grandparent {
                    smallest: smallest.into(),
                    largest: largest.into(),
                    size,
                })
                .collect(),
            max_compaction_bytes: 5000,
            ..OutputSplitting::default()
        }
    }

    #[test]
    fn files_end_at_the_target_size_and_not_before() {
        let splitting = splitting(&[]);
        let mut splitter = FileSplitter::new(KeyOrder::Bytewise, &splitting);
        assert!(!splitter.ends_before(b"a", None));
        assert!(!splitter.ends_before(b"b", Some(1999)));
        assert!(splitter.ends_before(b"c", Some(2000)));
    }

    #[test]
    fn files_do_not_end_at_the_target_size_where_a_subcompaction_ends_soon() {
        let splitting = OutputSplitting {
            tails: [(b"m".to_vec(), b"c".to_vec())].into(),
            ..splitting(&[("c", "d", 9000)])
        };
        let range = |end: &[u8]| KeyRange {
            begin: None,
            end: Some(end.to_vec()),
        };
        let mut splitter = FileSplitter::new(KeyOrder::Bytewise, &splitting).in_range(&range(b"m"));
        assert!(!splitter.ends_before(b"a", None));
        assert!(splitter.ends_before(b"b", Some(2000)));
        assert!(!splitter.ends_before(b"bc", Some(1000)));
        // It would overlap too much of the grandparent.
        assert!(splitter.ends_before(b"c", Some(1999)));
        assert!(!splitter.ends_before(b"d", Some(9000)));
        let mut other = FileSplitter::new(KeyOrder::Bytewise, &splitting).in_range(&range(b"z"));
        assert!(!other.ends_before(b"c", None));
        assert!(other.ends_before(b"d", Some(2000)));
    }

    #[test]
    fn a_single_file_never_ends() {
        let splitting = OutputSplitting {
            single_file: true,
            ..splitting(&[("a", "b", 1 << 40)])
        };
        assert!(
            !FileSplitter::new(KeyOrder::Bytewise, &splitting).ends_before(b"a", Some(u64::MAX))
        );
    }

    #[test]
    fn overlapping_too_many_grandparent_bytes_ends_a_file() {
        let splitting = splitting(&[("b", "c", 3000), ("d", "e", 3000), ("f", "g", 3000)]);
        let mut splitter = FileSplitter::new(KeyOrder::Bytewise, &splitting);
        assert!(!splitter.ends_before(b"b", None));
        assert!(!splitter.ends_before(b"c", Some(100)));
        // Into the second grandparent: 6000 bytes would be overlapped.
        assert!(splitter.ends_before(b"d", Some(200)));
        // The new file overlaps only the second.
        assert!(!splitter.ends_before(b"e", Some(100)));
        assert!(splitter.ends_before(b"f", Some(200)));
    }

    #[test]
    fn skipping_grandparents_ends_a_file_in_level_style() {
        let grandparents = [("b", "c", 300), ("d", "e", 300), ("f", "g", 300)];
        for level_style in [true, false] {
            let splitting = OutputSplitting {
                level_style,
                ..splitting(&grandparents)
            };
            let mut splitter = FileSplitter::new(KeyOrder::Bytewise, &splitting);
            assert!(!splitter.ends_before(b"a", None));
            assert_eq!(splitter.ends_before(b"h", Some(10)), level_style);
        }
    }

    #[test]
    fn a_file_near_its_target_ends_at_the_next_boundary() {
        let splitting = splitting(&[("b", "c", 10), ("e", "f", 10)]);
        let mut splitter = FileSplitter::new(KeyOrder::Bytewise, &splitting);
        assert!(!splitter.ends_before(b"b", None));
        assert!(!splitter.ends_before(b"bb", Some(900)));
        assert!(splitter.ends_before(b"d", Some(900)));
    }
}

//! Free ranges in a region of device memory.

use std::ops::Range;

/// Alignment of allocations: more than any access or copy needs.
pub const ALIGNMENT: u64 = 512;

/// A region of device memory, parts of which are allocated.
#[derive(Debug)]
pub struct Region {
    len: u64,
    /// The free ranges, ascending; no two are adjacent.
    free: Vec<Range<u64>>,
}

impl Region {
    /// A region without allocations.
    pub fn new(len: u64) -> Self {
        let whole = 0..len;
        Self {
            len,
            free: vec![whole],
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing is allocated.
    pub fn is_idle(&self) -> bool {
        self.free.first().is_some_and(|free| *free == (0..self.len))
    }

    /// Allocates `bytes` in the first range with room for them, and returns their offset.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        let has_room = |free: &Range<u64>| free.end - free.start >= bytes;
        let at = self.free.iter().position(has_room)?;
        let start = self.free[at].start;
        self.free[at].start += bytes;
        if self.free[at].is_empty() {
            self.free.remove(at);
        }
        Some(start)
    }

    /// Frees an allocation.
    pub fn give_back(&mut self, allocation: Range<u64>) {
        let at = self
            .free
            .partition_point(|free| free.start < allocation.start);
        debug_assert!(at == 0 || self.free[at - 1].end <= allocation.start);
        self.free.insert(at, allocation);
        if at + 1 < self.free.len() && self.free[at].end == self.free[at + 1].start {
            self.free[at].end = self.free.remove(at + 1).end;
        }
        if at > 0 && self.free[at - 1].end == self.free[at].start {
            self.free[at - 1].end = self.free.remove(at).end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_do_not_overlap_and_what_comes_back_is_one_again() {
        let mut region = Region::new(100);
        let starts = [30, 30, 40].map(|bytes| region.take(bytes));
        assert_eq!(starts, [Some(0), Some(30), Some(60)]);
        assert_eq!(region.take(1), None);
        region.give_back(0..30);
        region.give_back(60..100);
        assert_eq!((region.take(41), region.is_idle()), (None, false));
        region.give_back(30..60);
        assert!(region.is_idle());
        assert_eq!(region.take(100), Some(0));
    }

    #[test]
    fn the_first_place_with_room_is_taken() {
        let mut region = Region::new(100);
        for _ in 0..5 {
            region.take(20);
        }
        region.give_back(20..40);
        region.give_back(60..100);
        assert_eq!(region.take(30), Some(60));
        assert_eq!(region.take(15), Some(20));
        assert_eq!((region.take(10), region.take(5)), (Some(90), Some(35)));
    }
}

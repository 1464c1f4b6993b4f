//! Free ranges in a region of device memory.

use std::ops::Range;

/// Pieces begin on multiples of this: more than any access or copy asks for.
pub const ALIGNMENT: u64 = 512;

/// Bytes of a region, of which pieces are lent out.
#[derive(Debug)]
pub struct Region {
    len: u64,
    /// What is not lent, ascending and not touching one another.
    free: Vec<Range<u64>>,
}

impl Region {
    /// A region of which nothing is lent.
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

    /// Whether nothing is lent.
    pub fn is_idle(&self) -> bool {
        self.free.first().is_some_and(|free| *free == (0..self.len))
    }

    /// Lends `bytes` from the first place that has room for them, and says where they begin.
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

    /// Takes back what was lent.
    pub fn give_back(&mut self, piece: Range<u64>) {
        let at = self.free.partition_point(|free| free.start < piece.start);
        debug_assert!(at == 0 || self.free[at - 1].end <= piece.start);
        self.free.insert(at, piece);
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

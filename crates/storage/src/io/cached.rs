//! Reads through the page cache that leave it as they found it.
//!
//! The system reads ahead by itself once it is told that a file is read front to back: two to three times
//! as fast, from a cold disk, as asking for pieces ahead of a subcompaction and reading without waiting what is
//! there. What the cache had before stays, since readers of the database use it until the outputs take its
//! place; a part of a file of which it had next to nothing leaves it again behind the subcompaction.

use std::ops::Range;

use crate::{Advice, ReadableFile};

/// Bytes that are dropped with one call.
const DROP_BYTES: u64 = 1 << 20;

/// The cache holds whole pages.
const PAGE_BYTES: u64 = 4096;

/// A part of a file is cold if the cache has no more than one page in so many: the system reads a little
/// beyond the part before it.
const COLD_SHARE: u64 = 8;

/// How a subcompaction reads its part of one file.
#[derive(Debug)]
pub struct CachedReads<'a> {
    file: &'a dyn ReadableFile,
    /// Whether what is read leaves the cache again.
    is_cold: bool,
    /// Start of what was read and is still there.
    kept: u64,
    /// End of what was read.
    end: u64,
}

impl<'a> CachedReads<'a> {
    /// Of these bytes of the file.
    pub fn new(file: &'a dyn ReadableFile, bytes: Range<u64>) -> Self {
        let pages = (bytes.end - bytes.start).div_ceil(PAGE_BYTES);
        let cached = file.cached_pages(bytes.clone());
        let reads = Self {
            file,
            is_cold: cached.is_ok_and(|cached| cached <= pages / COLD_SHARE),
            kept: bytes.start,
            end: bytes.start,
        };
        reads.advise(Advice::Sequential, bytes);
        reads
    }

    /// The subcompaction has what it needs of the bytes before `end`.
    pub fn passed(&mut self, end: u64) {
        self.end = end;
        if self.end >= self.kept + DROP_BYTES {
            self.drop_behind();
        }
    }

    fn drop_behind(&mut self) {
        if self.is_cold && self.kept < self.end {
            self.advise(Advice::DontNeed, self.kept..self.end);
            self.kept = self.end & !(PAGE_BYTES - 1);
        }
    }

    fn advise(&self, advice: Advice, bytes: Range<u64>) {
        // Advice that is not taken costs time, nothing else.
        let _ = self.file.advise(advice, bytes);
    }
}

impl Drop for CachedReads<'_> {
    fn drop(&mut self) {
        self.drop_behind();
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CHUNK: u64 = 64 << 10;

    /// A file of which some is cached, and what was dropped of it.
    #[derive(Debug)]
    struct Half {
        cached_pages: Option<u64>,
        dropped: Mutex<Vec<Range<u64>>>,
    }

    impl ReadableFile for Half {
        fn read_at(&self, buf: &mut [u8], _offset: u64) -> io::Result<usize> {
            Ok(buf.len())
        }

        fn cached_pages(&self, _bytes: Range<u64>) -> io::Result<u64> {
            self.cached_pages.ok_or(io::ErrorKind::Unsupported.into())
        }

        fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
            if advice == Advice::DontNeed {
                self.dropped.lock().expect("no panic").push(bytes);
            }
            Ok(())
        }

        fn size(&self) -> io::Result<u64> {
            Ok(8 * MIB)
        }
    }

    /// What is dropped when a part of three MiB and a half is read.
    fn dropped(cached_pages: Option<u64>) -> Vec<Range<u64>> {
        let file = Half {
            cached_pages,
            dropped: Mutex::default(),
        };
        let part = MIB..9 * MIB / 2;
        let mut reads = CachedReads::new(&file, part.clone());
        for end in part.step_by(CHUNK as usize).map(|start| start + CHUNK) {
            reads.passed(end);
        }
        drop(reads);
        file.dropped.into_inner().expect("no panic")
    }

    #[test]
    fn what_was_cold_leaves_the_cache_again() {
        let all = [MIB..2 * MIB, 2 * MIB..3 * MIB, 3 * MIB..4 * MIB];
        let last = 4 * MIB..9 * MIB / 2;
        let expected: Vec<_> = all.into_iter().chain([last]).collect();
        assert_eq!(dropped(Some(0)), expected);
        assert_eq!(dropped(Some(100)), expected);
    }

    #[test]
    fn what_others_have_stays_and_what_nobody_can_tell() {
        for cached in [Some(200), Some(896), None] {
            assert_eq!(dropped(cached), [], "{cached:?}");
        }
    }
}

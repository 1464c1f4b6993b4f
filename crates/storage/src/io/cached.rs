//! Reads through the page cache that leave its contents as they were.
//!
//! After the advice `Sequential`, the system reads ahead by itself. From a cold disk this is two to three times as fast
//! as requesting pieces ahead of the subcompaction and then reading the cached ones without waiting. Pages that were
//! cached before stay cached, because readers of the database use them until the outputs replace the inputs. If almost
//! none of a file's part was cached, its pages are dropped again behind the subcompaction.

use std::ops::Range;

use crate::{Advice, ReadableFile};

/// Number of bytes that one call drops.
const DROP_BYTES: u64 = 1 << 20;

/// Page size of the page cache.
const PAGE_BYTES: u64 = 4096;

/// A part of a file is cold if at most 1/`COLD_SHARE` of its pages are cached. The system reads a little beyond the
/// previous part.
const COLD_SHARE: u64 = 8;

/// Reads by a subcompaction of its part of one file.
#[derive(Debug)]
pub struct CachedReads<'a> {
    file: &'a dyn ReadableFile,
    /// Whether pages are dropped from the cache after they were read.
    is_cold: bool,
    /// Start of the bytes that were read and not dropped yet.
    kept: u64,
    /// End of the bytes that were read.
    end: u64,
}

impl<'a> CachedReads<'a> {
    /// Begins to read the part `bytes` of the file.
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

    /// The subcompaction does not need the bytes before `end` any more.
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
        // Advice that fails only costs time.
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

    /// A file with some cached pages, and a record of the ranges that were dropped.
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

    /// Ranges that are dropped while a part of 3.5 MiB is read.
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

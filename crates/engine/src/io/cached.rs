//! Reads through the page cache that leave it as they found it.
//!
//! ```text
//!        dropped          at hand       read ahead
//!   |----------------|--------------|----------------|
//! cold               dropped        taken            ahead
//! ```
//!
//! What is in the cache already is read from there and stays: readers of the database use it until the
//! outputs take its place. What is not is asked for ahead of its turn, so that the disk works while the
//! slice computes, and leaves the cache once it was read.

use std::io;
use std::ops::Range;

use crate::storage::{Advice, ReadableFile};

/// Bytes that are asked for behind those at hand.
const WINDOW_BYTES: u64 = 1 << 20;

/// Bytes asked for with one call: Linux reads no more at once than the device's `read_ahead_kb`, or its
/// largest request, and forgets the rest.
const ADVICE_BYTES: u64 = 128 << 10;

/// The cache holds whole pages.
const PAGE_BYTES: u64 = 4096;

/// How a slice reads one file.
#[derive(Debug)]
pub struct CachedReads<'a> {
    file: &'a dyn ReadableFile,
    /// Where the slice's part of the file ends.
    end: u64,
    /// End of what was brought into the cache here.
    ahead: u64,
    /// End of what has left it again.
    dropped: u64,
    /// Whether the file system can tell what is cached; nobody asked yet if `None`.
    can_tell: Option<bool>,
    /// Whether others have none of what was brought here.
    can_drop: bool,
}

impl<'a> CachedReads<'a> {
    /// Of a part of the file that ends at `end`.
    pub fn new(file: &'a dyn ReadableFile, end: u64) -> Self {
        Self {
            file,
            end,
            ahead: 0,
            dropped: 0,
            can_tell: None,
            can_drop: true,
        }
    }

    /// Reads some bytes at `offset`, as far as nobody has to wait for them, and asks for those behind.
    /// What is left of `buffer` has to be read.
    pub fn read_cached(&mut self, buffer: &mut [u8], offset: u64) -> usize {
        let end = offset + buffer.len() as u64;
        if self.can_tell.is_none() {
            // The system's own reading ahead would look as if somebody else had wanted it.
            self.advise(Advice::Random, offset..self.end);
            self.can_tell = Some(true);
        }
        if self.can_tell == Some(false) {
            return 0;
        }
        if offset < self.ahead {
            if self.ahead < end + WINDOW_BYTES / 2 {
                self.ask(end + WINDOW_BYTES);
            }
            return 0;
        }
        let done = match self.file.read_cached_at(buffer, offset) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {
                self.advise(Advice::Sequential, offset..self.end);
                self.can_tell = Some(false);
                return 0;
            }
            // Not cached, or whatever the read will say.
            Err(_) => 0,
            Ok(done) => done,
        };
        if done < buffer.len() {
            self.dropped = offset + done as u64;
            // The system is reading these already.
            self.ahead = end.next_multiple_of(PAGE_BYTES);
            self.ask(end + WINDOW_BYTES);
        }
        done
    }

    /// Forgets what was brought into the cache for the bytes before `end`.
    pub fn drop_behind(&mut self, end: u64) {
        let end = end.min(self.ahead);
        if self.can_drop && self.dropped < end {
            self.advise(Advice::DontNeed, self.dropped..end);
            self.dropped = end & !(PAGE_BYTES - 1);
        }
    }

    /// Asks for bytes up to `to`, or to where somebody has them in the cache already.
    fn ask(&mut self, to: u64) {
        let to = to.min(self.end);
        while self.ahead < to {
            let piece = self.ahead..to.min(self.ahead + ADVICE_BYTES);
            match self.file.cached_pages(piece.clone()) {
                Ok(0) => {}
                Ok(_) => return,
                Err(_) => self.can_drop = false,
            }
            self.ahead = piece.end.next_multiple_of(PAGE_BYTES);
            self.advise(Advice::WillNeed, piece);
        }
    }

    fn advise(&self, advice: Advice, bytes: Range<u64>) {
        // Advice that is not taken costs time, nothing else.
        let _ = self.file.advise(advice, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const MIB: u64 = 1 << 20;
    const CHUNK: u64 = 256 << 10;

    /// A file of which some is cached, and what it was told.
    #[derive(Debug)]
    struct Half {
        cached: Range<u64>,
        can_tell: bool,
        advice: Mutex<Vec<(Advice, Range<u64>)>>,
    }

    impl ReadableFile for Half {
        fn read_at(&self, buf: &mut [u8], _offset: u64) -> io::Result<usize> {
            Ok(buf.len())
        }

        fn read_cached_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            if !self.cached.contains(&offset) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(buf.len().min((self.cached.end - offset) as usize))
        }

        fn cached_pages(&self, bytes: Range<u64>) -> io::Result<u64> {
            let start = bytes.start.max(self.cached.start);
            let end = bytes.end.min(self.cached.end);
            match self.can_tell {
                true => Ok(end.saturating_sub(start).div_ceil(PAGE_BYTES)),
                false => Err(io::ErrorKind::Unsupported.into()),
            }
        }

        fn advise(&self, advice: Advice, bytes: Range<u64>) -> io::Result<()> {
            let mut told = self.advice.lock().expect("no panic");
            match told.last_mut() {
                Some((last, range)) if *last == advice && range.end == bytes.start => {
                    range.end = bytes.end;
                }
                _ => told.push((advice, bytes)),
            }
            Ok(())
        }

        fn size(&self) -> io::Result<u64> {
            Ok(8 * MIB)
        }
    }

    /// Reads the first two MiB; what is asked for and what is dropped, in all.
    fn read(cached: Range<u64>, can_tell: bool) -> [Vec<(u64, u64)>; 2] {
        let file = Half {
            cached,
            can_tell,
            advice: Mutex::default(),
        };
        let mut reads = CachedReads::new(&file, 2 * MIB);
        let mut buffer = vec![0; CHUNK as usize];
        for offset in (0..2 * MIB).step_by(CHUNK as usize) {
            reads.read_cached(&mut buffer, offset);
            reads.drop_behind(offset + CHUNK);
        }
        [Advice::WillNeed, Advice::DontNeed].map(|wanted| {
            let mut ranges: Vec<(u64, u64)> = Vec::new();
            for (advice, bytes) in file.advice.lock().expect("no panic").iter() {
                match ranges.last_mut() {
                    _ if *advice != wanted => {}
                    Some(last) if last.1 == bytes.start => last.1 = bytes.end,
                    _ => ranges.push((bytes.start, bytes.end)),
                }
            }
            ranges
        })
    }

    #[test]
    fn what_is_not_cached_is_asked_for_once_and_leaves_again() {
        let [asked, dropped] = read(0..0, true);
        // Nobody needs to ask for the first chunk.
        assert_eq!(
            (asked, dropped),
            (vec![(CHUNK, 2 * MIB)], vec![(0, 2 * MIB)])
        );
    }

    #[test]
    fn what_is_cached_stays() {
        assert_eq!(read(0..2 * MIB, true), [vec![], vec![]]);
        let [asked, dropped] = read(0..100_000, true);
        assert_eq!(
            (asked, dropped),
            (vec![(CHUNK, 2 * MIB)], vec![(100_000, 2 * MIB)])
        );
        let [asked, dropped] = read(MIB..2 * MIB, true);
        assert_eq!((asked, dropped), (vec![(CHUNK, MIB)], vec![(0, MIB)]));
    }

    #[test]
    fn all_stays_where_nobody_can_tell_what_others_brought() {
        let [asked, dropped] = read(0..0, false);
        assert_eq!(asked, [(CHUNK, 2 * MIB)]);
        assert!(dropped.is_empty());
    }
}

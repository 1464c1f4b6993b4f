//! Direct files return the bytes that were written, for any cuts between writes and reads.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use rockmill_core::{Chunk, ErrorKind, LeasedBytes};

use super::direct_read::{DirectInput, DirectReads};
use super::direct_write::DirectOutput;
use crate::direct::{DirectFile, DirectStorage, Direction, InTransfer, LocalDirect};

/// Opens the file; `None` if the file system has no direct I/O.
fn opened(path: &Path, direction: Direction) -> Option<Box<dyn DirectFile>> {
    let local = LocalDirect::new().expect("threads");
    match local.open(path, direction) {
        Err(e) if e.kind() == io::ErrorKind::Unsupported => None,
        opened => Some(opened.expect("it is there")),
    }
}

/// Moves only a part of the requested bytes, and every other call is interrupted.
#[derive(Debug, Default, Clone)]
struct Halting {
    /// The bytes of the file and the number of calls.
    bytes: Arc<Mutex<(Vec<u8>, u64)>>,
}

impl Halting {
    fn transfer(&self, direction: Direction, memory: &mut [u8], start: usize) -> io::Result<usize> {
        let mut state = self.bytes.lock().expect("no panic");
        let (bytes, calls) = &mut *state;
        *calls += 1;
        if calls.is_multiple_of(2) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let most = memory.len().min(self.alignment());
        match direction {
            Direction::Read => {
                let found = bytes.get(start..).unwrap_or_default();
                let n = found.len().min(most);
                memory[..n].copy_from_slice(&found[..n]);
                Ok(n)
            }
            Direction::Write => {
                let end = bytes.len().max(start + most);
                bytes.resize(end, 0);
                bytes[start..start + most].copy_from_slice(&memory[..most]);
                Ok(most)
            }
        }
    }
}

impl DirectFile for Halting {
    fn alignment(&self) -> usize {
        512
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().expect("no panic").0.len() as u64)
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.bytes.lock().expect("no panic");
        let len = state.0.len().max(bytes as usize);
        state.0.resize(len, 0);
        Ok(())
    }

    fn read(&self, mut chunk: Chunk, offset: u64) -> Box<dyn InTransfer<Chunk>> {
        let bytes = chunk.bytes.clone();
        let done = self.transfer(Direction::Read, &mut chunk.memory[bytes], offset as usize);
        Box::new(Done(chunk, done))
    }

    fn write(&self, mut bytes: LeasedBytes, offset: u64) -> Box<dyn InTransfer<LeasedBytes>> {
        let range = bytes.bytes.clone();
        let memory = &mut bytes.as_mut()[range];
        let is_aligned = |number: usize| number.is_multiple_of(self.alignment());
        assert!(is_aligned(memory.as_ptr().addr()) && is_aligned(memory.len()));
        let done = self.transfer(Direction::Write, memory, offset as usize);
        Box::new(Done(bytes, done))
    }

    fn finish(&self, size: u64) -> io::Result<()> {
        let mut state = self.bytes.lock().expect("no panic");
        state.0.truncate(size as usize);
        Ok(())
    }
}

#[derive(Debug)]
struct Done<M>(M, io::Result<usize>);

impl<M: Debug + Send> InTransfer<M> for Done<M> {
    fn wait(self: Box<Self>) -> (Option<M>, io::Result<usize>) {
        (Some(self.0), self.1)
    }
}

/// A storage with one file that can be opened once.
#[derive(Debug)]
struct Only(Mutex<Option<Box<dyn DirectFile>>>);

impl DirectStorage for Only {
    fn open(&self, _path: &Path, _direction: Direction) -> io::Result<Box<dyn DirectFile>> {
        let file = self.0.lock().expect("no panic").take();
        file.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn stop(&self) -> Duration {
        Duration::ZERO
    }
}

fn input(file: Box<dyn DirectFile>) -> DirectInput {
    let storage = Only(Mutex::new(Some(file)));
    DirectInput::open(&storage, Path::new("/db/000007.sst")).expect("it is there")
}

fn noise(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * i / 127) as u8).collect()
}

/// A way to append bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Copied,
    /// Borrowed, at an address that needs no copy.
    Leased,
    /// Borrowed, at an arbitrary address.
    LeasedAnyhow,
}

const WAYS: [Way; 3] = [Way::Copied, Way::Leased, Way::LeasedAnyhow];

/// Appends bytes that begin at `at` in the file. Returns the number of leased pieces of memory.
fn append(output: &mut DirectOutput, bytes: &[u8], at: usize, way: Way) -> usize {
    let alignment = output.alignment();
    let mut memory = vec![0; bytes.len() + 3 * alignment];
    let first = memory.as_ptr().align_offset(alignment);
    let start = match way {
        Way::Copied => {
            output.append(bytes).expect("room");
            return 0;
        }
        Way::Leased => first + alignment + at % alignment,
        Way::LeasedAnyhow => 7,
    };
    memory[start..start + bytes.len()].copy_from_slice(bytes);
    let leased = LeasedBytes {
        memory: Box::new(memory),
        bytes: start..start + bytes.len(),
    };
    output.append_leased(leased).expect("room");
    1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn what_is_written_in_any_pieces_is_read_in_any_pieces(
        pieces in prop::collection::vec((1usize..700_000, prop::sample::select(&WAYS[..])), 0..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        is_real: bool,
        reserves: bool,
        is_expected: bool,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("file");
        fs::write(&path, b"").expect("room");
        let whole = noise(pieces.iter().map(|(len, _)| len).sum());
        let halting = Halting::default();
        let open = |direction| {
            let real = opened(&path, direction).filter(|_| is_real);
            real.unwrap_or_else(|| Box::new(halting.clone()))
        };
        let mut output = DirectOutput::new(open(Direction::Write), reserves);
        if is_expected {
            output.expect(whole.len() as u64);
        }
        let mut at = 0;
        let mut leased = 0;
        for (len, way) in pieces {
            leased += append(&mut output, &whole[at..at + len], at, way);
            at += len;
            if leased > 2 {
                prop_assert!(output.take_back().expect("room").is_some());
                leased -= 1;
            }
        }
        for _ in 0..leased {
            prop_assert!(output.take_back().expect("room").is_some());
        }
        prop_assert!(output.take_back().expect("room").is_none());
        let (file, size) = output.end().expect("room");
        file.finish(size).expect("room");
        let written = fs::read(&path).expect("it is there");
        let halting_bytes = halting.bytes.lock().expect("no panic").0.clone();
        prop_assert!(written == whole || halting_bytes == whole);
        let input = input(open(Direction::Read));
        prop_assert_eq!(input.len, whole.len() as u64);
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        ends.push(whole.len());
        ends.sort_unstable();
        let mut reads = DirectReads::new(&input);
        let mut chunk = Chunk::default();
        let mut start = 0;
        for &end in &ends {
            reads.expect(start as u64..end as u64);
            start = end;
        }
        start = 0;
        for end in ends {
            reads.take(&mut chunk).expect("a sound file");
            prop_assert!(chunk.memory[chunk.bytes.clone()] == whole[start..end]);
            let mut buffer = vec![0; end - start];
            input.read_exact_at(&mut buffer, start as u64).expect("a sound file");
            prop_assert!(buffer == whole[start..end]);
            start = end;
        }
        let error = input.read_exact_at(&mut [0; 2], whole.len() as u64).expect_err("its end");
        prop_assert_eq!(error.kind, ErrorKind::Corruption);
        prop_assert_eq!(error.file.as_deref(), Some("000007.sst"));
        prop_assert_eq!(error.offset, Some(whole.len() as u64));
    }
}

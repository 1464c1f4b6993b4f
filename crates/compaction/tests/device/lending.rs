//! Files written from the chunks into which they were copied back equal those that are copied once more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rockmill_core::{
    Borrower, CancelToken, Error, ErrorKind, InputTable, KeyRange, LeasedBytes, Memory, Plan,
    Result, SstFile, SstSink,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings};

use super::target;
use crate::common::{self, Entry, MemOutput, MemSink, open};

const CHUNK_BYTES: usize = 16 << 10;

fn device() -> CudaBackend {
    let settings = CudaSettings {
        chunk_bytes: CHUNK_BYTES,
        ..CudaSettings::default()
    };
    CudaBackend::new(target(), settings).expect("the device opens")
}

/// Files that borrow memory and keep it as long as possible.
#[derive(Debug)]
struct Borrowing {
    alignment: usize,
    /// The failing append, counted over all files, if there is one.
    fails_at: Option<u64>,
    files: MemSink,
    leased: Arc<AtomicU64>,
}

impl Borrowing {
    fn new(alignment: usize, fails_at: Option<u64>) -> Self {
        Self {
            alignment,
            fails_at,
            files: MemSink::numbered_from(1),
            leased: Arc::default(),
        }
    }
}

struct File {
    file: Box<dyn SstFile>,
    len: usize,
    alignment: usize,
    fails_at: Option<u64>,
    kept: VecDeque<Box<dyn Memory>>,
    leased: Arc<AtomicU64>,
}

impl SstSink for Borrowing {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let (number, file) = self.files.create()?;
        let file = File {
            file,
            len: 0,
            alignment: self.alignment,
            fails_at: self.fails_at,
            kept: VecDeque::new(),
            leased: Arc::clone(&self.leased),
        };
        Ok((number, Box::new(file)))
    }
}

impl SstFile for File {
    fn borrower(&mut self) -> Option<&mut dyn Borrower> {
        Some(self)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.len += bytes.len();
        self.file.append(bytes)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.kept.is_empty(), "memory is left with a file");
        self.file.finish()
    }
}

impl Borrower for File {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn append(&mut self, mut leased: LeasedBytes) -> Result<()> {
        let range = leased.bytes.clone();
        let past = |address: usize| address % self.alignment;
        let memory = leased.as_mut().as_ptr().addr();
        assert_eq!(past(memory + range.start), past(self.len));
        assert!(range.start >= past(self.len), "there is room before");
        SstFile::append(self, &leased.as_mut()[range.clone()])?;
        // A later reader sees what a write would have found.
        leased.as_mut()[range].fill(0xee);
        self.kept.push_back(leased.memory);
        let before = self.leased.fetch_add(1, Ordering::Relaxed);
        match self.fails_at == Some(before + 1) {
            true => Err(Error::new(ErrorKind::Storage, "no room")),
            false => Ok(()),
        }
    }

    fn take_back(&mut self) -> Result<Option<Box<dyn Memory>>> {
        Ok(self.kept.pop_front())
    }
}

/// A run with values of all sizes, also larger than a chunk.
fn job() -> (Vec<InputTable>, Plan) {
    let run = |run: u64| {
        let entry = |i: u64| {
            let len = match i % 97 {
                0 => CHUNK_BYTES * 2 + i as usize,
                rest => (rest * rest % 700) as usize,
            };
            let key = format!("key{i:06}");
            let value = common::noise(i + run, len);
            Entry::new(key.as_bytes(), 2 * i + run + 1, common::PUT, &value)
        };
        let entries: Vec<_> = (0..900).filter(|i| i % 3 != run).map(entry).collect();
        open(common::one_file(&common::plan(), &entries)).expect("sound")
    };
    let mut plan = common::plan();
    plan.rules.bottommost = true;
    plan.output.file_checksum = true;
    plan.output.splitting = common::splitting(200 << 10);
    (vec![run(0), run(1)], plan)
}

fn compact(
    device: &CudaBackend,
    (inputs, plan): &(Vec<InputTable>, Plan),
    sink: &mut dyn SstSink,
) -> Result<()> {
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    let task = common::task(inputs, plan, &range, &cancel);
    common::make(device, task, &plan.output, sink).map(drop)
}

fn expected(job: &(Vec<InputTable>, Plan)) -> Vec<MemOutput> {
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    let done = common::compact(&CpuBackend, &job.0, &job.1, &range, &cancel);
    done.expect("sound inputs").1
}

#[test]
fn files_are_the_same_whatever_their_alignment() {
    let (device, job) = (device(), job());
    let expected = expected(&job);
    assert!(expected.len() > 1);
    // With the last, no part fits a chunk wherever it begins.
    for (alignment, lends) in [(512, true), (4096, true), (CHUNK_BYTES, false)] {
        let mut sink = Borrowing::new(alignment, None);
        compact(&device, &job, &mut sink).expect("sound inputs");
        let leased = sink.leased.load(Ordering::Relaxed);
        assert!(sink.files.into_files() == expected, "alignment {alignment}");
        assert_eq!(leased > 0, lends, "alignment {alignment}");
    }
}

#[test]
fn a_file_that_fails_takes_no_chunk_along() {
    let (device, job) = (device(), job());
    for fails_at in [1, 2, 5, 9] {
        let mut sink = Borrowing::new(4096, Some(fails_at));
        let error = compact(&device, &job, &mut sink).expect_err("it fails");
        assert_eq!(error.kind, ErrorKind::Storage);
    }
    let mut sink = Borrowing::new(4096, None);
    compact(&device, &job, &mut sink).expect("sound inputs");
    assert!(sink.files.into_files() == expected(&job));
}

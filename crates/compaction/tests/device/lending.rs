//! Files written from the chunks into which they were copied back equal those that are copied once more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use rockmill_core::{
    Borrower, CancelToken, Error, ErrorKind, InputTable, KeyRange, LeasedBytes, Memory, Plan,
    Result, SstFile, SstSink,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings};

use super::target;
use crate::common::{self, Entry, MemOutput, open};

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
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<MemOutput>,
    leased: u64,
}

struct File {
    at: usize,
    alignment: usize,
    fails_at: Option<u64>,
    kept: VecDeque<Box<dyn Memory>>,
    state: Arc<Mutex<State>>,
}

impl SstSink for Borrowing {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let mut state = self.state.lock().expect("no panic");
        let number = state.files.len() as u64 + 1;
        state.files.push(MemOutput {
            number,
            ..MemOutput::default()
        });
        let file = File {
            at: state.files.len() - 1,
            alignment: self.alignment,
            fails_at: self.fails_at,
            kept: VecDeque::new(),
            state: Arc::clone(&self.state),
        };
        Ok((number, Box::new(file)))
    }
}

impl SstFile for File {
    fn borrower(&mut self) -> Option<&mut dyn Borrower> {
        Some(self)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock().expect("no panic");
        state.files[self.at].bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        assert!(self.kept.is_empty(), "memory is left with a file");
        self.state.lock().expect("no panic").files[self.at].finished = true;
        Ok(())
    }
}

impl Borrower for File {
    fn alignment(&self) -> usize {
        self.alignment
    }

    fn append(&mut self, mut leased: LeasedBytes) -> Result<()> {
        let mut state = self.state.lock().expect("no panic");
        let range = leased.bytes.clone();
        let file = &mut state.files[self.at].bytes;
        let past = |address: usize| address % self.alignment;
        let memory = leased.as_mut().as_ptr().addr();
        assert_eq!(past(memory + range.start), past(file.len()));
        assert!(range.start >= past(file.len()), "there is room before");
        file.extend_from_slice(&leased.as_mut()[range.clone()]);
        // A later reader sees what a write would have found.
        leased.as_mut()[range].fill(0xee);
        self.kept.push_back(leased.memory);
        state.leased += 1;
        match self.fails_at == Some(state.leased) {
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
        let state = Arc::<Mutex<State>>::default();
        let mut sink = Borrowing {
            alignment,
            fails_at: None,
            state: Arc::clone(&state),
        };
        compact(&device, &job, &mut sink).expect("sound inputs");
        let state = state.lock().expect("no panic");
        assert!(state.files == expected, "alignment {alignment}");
        assert_eq!(state.leased > 0, lends, "alignment {alignment}");
    }
}

#[test]
fn a_file_that_fails_takes_no_chunk_along() {
    let (device, job) = (device(), job());
    for fails_at in [1, 2, 5, 9] {
        let mut sink = Borrowing {
            alignment: 4096,
            fails_at: Some(fails_at),
            state: Arc::default(),
        };
        let error = compact(&device, &job, &mut sink).expect_err("it fails");
        assert_eq!(error.kind, ErrorKind::Storage);
    }
    let state = Arc::<Mutex<State>>::default();
    let mut sink = Borrowing {
        alignment: 4096,
        fails_at: None,
        state: Arc::clone(&state),
    };
    compact(&device, &job, &mut sink).expect("sound inputs");
    assert!(state.lock().expect("no panic").files == expected(&job));
}

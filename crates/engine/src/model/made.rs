//! A workload's files, made some runs at a time: who makes them can give way and keeps those that are done.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{Backend, CancelToken, Error, InputTable, Plan, Result, kv_hash, open_table};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::key::{ValueType, pack_tag};

use super::shape::SliceShape;
use super::workload::{Workload, fill, plan};
use crate::io::{JobInput, JobIo};
use crate::staging::{StagingDir, StagingSink, file_number};
use crate::storage::{LocalStorage, base_name};

/// A workload's files before all of them are there.
#[derive(Debug)]
pub struct Draft {
    workload: Workload,
    plan: Plan,
    io: Arc<JobIo>,
    dir: StagingDir,
}

/// A workload's files, which go away when dropped, and what a slice over them is to do.
#[derive(Debug)]
pub struct Made {
    /// The files, in a folder of their own.
    pub(crate) tables: Vec<InputTable>,
    pub(crate) plan: Plan,
    shape: SliceShape,
    _dir: StagingDir,
}

impl Draft {
    /// Makes a folder `name` in `dir`.
    ///
    /// # Errors
    /// Storage.
    pub fn new(workload: &Workload, dir: &Path, name: &str) -> Result<Self> {
        let mut plan = plan(workload);
        plan.cutting.single_file = true;
        Ok(Self {
            workload: *workload,
            plan,
            io: job_io(),
            dir: StagingDir::create(Arc::new(LocalStorage), dir, name)?,
        })
    }

    /// Writes the files of some runs, anew if that was begun before; run 0 is the oldest. `set_key` makes keys of their
    /// numbers, in their order.
    ///
    /// # Errors
    /// Storage; Cancelled once `cancel` is set.
    pub fn write(
        &self,
        runs: &Range<u32>,
        set_key: impl Fn(u64, &mut [u8]),
        cancel: &CancelToken,
    ) -> Result<()> {
        let of_runs = || runs.clone().map(|run| run as usize);
        of_runs().try_for_each(|run| self.dir.remove_slice(run))?;
        let mut sinks: Vec<StagingSink> = of_runs()
            .map(|run| StagingSink::new(&self.dir, Arc::clone(&self.io), run))
            .collect();
        let writers: Result<Vec<_>> = sinks
            .iter_mut()
            .map(|sink| SstWriter::new(&self.plan, sink))
            .collect();
        let mut writers = writers?;
        let mut entry = Entry::new(&self.workload);
        let keys = self.workload.keys();
        for i in 0..keys {
            cancel.check()?;
            let chosen = self.workload.chosen_runs(i);
            let mut has_key = false;
            for (run, writer) in runs.clone().zip(&mut writers) {
                if chosen >> run & 1 == 0 {
                    continue;
                }
                if !has_key {
                    set_key(i, &mut entry.key);
                    has_key = true;
                }
                let sequence = 1 + u64::from(run) * keys + i;
                entry.set_value(sequence);
                let tag = pack_tag(sequence, ValueType::Value as u8);
                let hash = kv_hash(&entry.key, &entry.value);
                writer.emit(&entry.key, tag, &entry.value, hash, true)?;
            }
        }
        let mut writers = writers.into_iter();
        writers.try_for_each(|writer| writer.finish().map(drop))
    }

    /// Opens the files once all are written.
    ///
    /// # Errors
    /// Storage.
    pub fn open(mut self) -> Result<Made> {
        let mut tables = Vec::new();
        for run in 0..self.workload.runs as usize {
            let path = self.dir.file(file_number(run, 0)?);
            match JobInput::open(&self.io, &path) {
                Ok(file) => tables.push(open_table(Box::new(file))?),
                // A run to which no key was drawn.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Error::storage(&base_name(&path), "open it", &e)),
            }
        }
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).sum::<u64>();
        let bytes_in = sum(|table| table.meta.properties.data_size);
        self.plan.cutting.single_file = false;
        self.plan.cutting.compression_ratio = (
            bytes_in,
            sum(|table| table.meta.properties.uncompressed_data_size),
        );
        let shape = SliceShape {
            bytes_out: bytes_in / u64::from(self.workload.versions),
            ..SliceShape::of_inputs(&tables, self.workload.compression)
        };
        Ok(Made {
            tables,
            plan: self.plan,
            shape,
            _dir: self.dir,
        })
    }
}

impl Made {
    /// Makes the files in a folder `name` in `dir`.
    ///
    /// # Errors
    /// Storage; Cancelled once `cancel` is set, as by what follows.
    pub fn new(workload: &Workload, dir: &Path, name: &str, cancel: &CancelToken) -> Result<Self> {
        let set_key = |i, key: &mut [u8]| workload.set_key(i, key);
        Self::with_keys(workload, dir, name, set_key, cancel)
    }

    /// The same with keys that `set_key` makes of their numbers, in their order.
    ///
    /// # Errors
    /// Storage.
    pub fn with_keys(
        workload: &Workload,
        dir: &Path,
        name: &str,
        set_key: impl Fn(u64, &mut [u8]),
        cancel: &CancelToken,
    ) -> Result<Self> {
        let draft = Draft::new(workload, dir, name)?;
        draft.write(&(0..workload.runs), set_key, cancel)?;
        draft.open()
    }

    /// Whether a backend does such slices.
    pub fn is_for<B: Backend>(&self, backend: &B) -> bool {
        backend.accepts(&self.plan, &self.tables).is_ok()
    }

    /// The inputs.
    pub fn tables(&self) -> &[InputTable] {
        &self.tables
    }

    /// What is to be done with them.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a model is told of the slice; of the output it knows how many versions a key has.
    pub fn shape(&self) -> &SliceShape {
        &self.shape
    }
}

pub(super) fn job_io() -> Arc<JobIo> {
    Arc::new(JobIo::new(Arc::new(LocalStorage), CancelToken::new()))
}

/// The entry at hand.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    random_value_bytes: usize,
}

impl Entry {
    fn new(workload: &Workload) -> Self {
        Self {
            key: vec![0; workload.key_bytes],
            value: vec![0; workload.value_bytes],
            random_value_bytes: workload.random_value_bytes(),
        }
    }

    fn set_value(&mut self, seed: u64) {
        fill(&mut self.value[..self.random_value_bytes], seed);
    }
}

#[cfg(test)]
mod tests {
    use rockmill_core::ErrorKind;
    use rockmill_format::compression::CompressionType;

    use super::*;

    fn workload(key_bytes: usize, value_bytes: usize, versions: u32, runs: u32) -> Workload {
        Workload {
            key_bytes,
            value_bytes,
            runs,
            versions,
            compression: CompressionType::None,
            raw_bytes: 300_000,
        }
    }

    #[test]
    fn what_gave_way_is_made_anew_and_what_was_done_stays() {
        let dir = tempfile::tempdir().expect("a folder");
        let workload = workload(16, 100, 2, 5);
        let never = CancelToken::new();
        let set_key = |i, key: &mut [u8]| workload.set_key(i, key);
        let at_once = Made::new(&workload, dir.path(), "whole", &never).expect("there is room");
        let draft = Draft::new(&workload, dir.path(), "parts").expect("there is room");
        draft
            .write(&(0..2), set_key, &never)
            .expect("there is room");
        let gives_way = CancelToken::new();
        let then_cancel = |i, key: &mut [u8]| {
            workload.set_key(i, key);
            if i == 100 {
                gives_way.cancel();
            }
        };
        let error = draft.write(&(2..5), then_cancel, &gives_way);
        assert_eq!(error.expect_err("a job came").kind, ErrorKind::Cancelled);
        draft
            .write(&(2..5), set_key, &never)
            .expect("there is room");
        let files = |name: &str| {
            let files = std::fs::read_dir(dir.path().join(name)).expect("it is there");
            let mut files: Vec<_> = files
                .map(|file| file.expect("a file").path())
                .map(|path| std::fs::read(path).expect("a file"))
                .collect();
            files.sort();
            files
        };
        assert_eq!(files("parts"), files("whole"));
        let made = draft.open().expect("all are there");
        assert_eq!(made.shape(), at_once.shape());
        assert_eq!(made.shape().runs, 5);
    }

    #[test]
    fn files_take_no_more_than_is_said_and_not_much_less() {
        let dir = tempfile::tempdir().expect("a folder");
        for (key, value, versions, runs) in [
            (4, 0, 1, 8),
            (8, 32, 4, 8),
            (16, 100, 1, 2),
            (64, 512, 8, 10),
            (16, 4096, 1, 2),
        ] {
            let workload = workload(key, value, versions, runs);
            let made = Made::new(&workload, dir.path(), "made", &CancelToken::new());
            let _made = made.expect("there is room");
            let files = std::fs::read_dir(dir.path().join("made")).expect("it is there");
            let sizes = files.map(|file| file.and_then(|file| file.metadata()));
            let bytes: u64 = sizes.map(|size| size.expect("a file").len()).sum();
            // Properties and other blocks of a file.
            let most = workload.input_bytes() + u64::from(runs) * 2000;
            assert!(
                (most / 3..=most).contains(&bytes),
                "{workload}: {bytes} of {most}"
            );
        }
    }

    #[test]
    fn parts_are_all_runs_and_small_where_there_are_many() {
        for (runs, megabytes) in [(1, 1), (2, 48), (8, 64), (40, 24), (40, 1), (64, 1000)] {
            let workload = Workload {
                raw_bytes: megabytes * 1_000_000,
                ..workload(16, 100, 1, runs)
            };
            let parts: Vec<_> = workload.parts().collect();
            let all: Vec<u32> = parts.iter().cloned().flatten().collect();
            assert_eq!(all, (0..runs).collect::<Vec<_>>());
            let run_bytes = workload.raw_bytes / u64::from(runs);
            let is_small = |part: &Range<u32>| part.len() as u64 * run_bytes <= 4_000_000;
            assert!(parts.iter().all(|part| part.len() == 1 || is_small(part)));
        }
    }
}

//! A workload's files, and what a slice over them is to do.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{CancelToken, Error, InputTable, Plan, Result, kv_hash, open_table};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::key::{ValueType, pack_tag};

use super::workload::{Workload, fill, plan};
use crate::io::{JobInput, JobIo};
use crate::staging::{StagingDir, StagingSink, file_number};
use crate::storage::{LocalStorage, base_name};

/// A workload's files, which go away when dropped, and what a slice over them is to do.
#[derive(Debug)]
pub struct Made {
    /// The files, in a folder of their own.
    tables: Vec<InputTable>,
    plan: Plan,
    _dir: StagingDir,
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

    /// The same with keys that `set_key` makes of their numbers, in their order. Run 0 is the oldest.
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
        let mut plan = plan(workload);
        plan.cutting.single_file = true;
        let io = job_io();
        let dir = StagingDir::create(Arc::new(LocalStorage), dir, name)?;
        write(workload, &plan, &dir, &io, set_key, cancel)?;
        let tables = open(workload, &dir, &io)?;
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).sum::<u64>();
        plan.cutting.single_file = false;
        plan.cutting.compression_ratio = (
            sum(|table| table.meta.properties.data_size),
            sum(|table| table.meta.properties.uncompressed_data_size),
        );
        Ok(Self {
            tables,
            plan,
            _dir: dir,
        })
    }

    /// The inputs.
    pub fn tables(&self) -> &[InputTable] {
        &self.tables
    }

    /// What is to be done with them.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// Writes the files of all runs.
fn write(
    workload: &Workload,
    plan: &Plan,
    dir: &StagingDir,
    io: &Arc<JobIo>,
    set_key: impl Fn(u64, &mut [u8]),
    cancel: &CancelToken,
) -> Result<()> {
    let mut sinks: Vec<StagingSink> = (0..workload.runs as usize)
        .map(|run| StagingSink::new(dir, Arc::clone(io), run))
        .collect();
    let writers: Result<Vec<_>> = sinks
        .iter_mut()
        .map(|sink| SstWriter::new(plan, sink))
        .collect();
    let mut writers = writers?;
    let mut entry = Entry::new(workload);
    let keys = workload.keys();
    for i in 0..keys {
        cancel.check()?;
        let chosen = workload.chosen_runs(i);
        set_key(i, &mut entry.key);
        for (run, writer) in (0_u64..).zip(&mut writers) {
            if chosen >> run & 1 == 0 {
                continue;
            }
            let sequence = 1 + run * keys + i;
            entry.set_value(sequence);
            let tag = pack_tag(sequence, ValueType::Value as u8);
            let hash = kv_hash(&entry.key, &entry.value);
            writer.emit(&entry.key, tag, &entry.value, hash, true)?;
        }
    }
    let mut writers = writers.into_iter();
    writers.try_for_each(|writer| writer.finish().map(drop))
}

fn open(workload: &Workload, dir: &StagingDir, io: &Arc<JobIo>) -> Result<Vec<InputTable>> {
    let mut tables = Vec::new();
    for run in 0..workload.runs as usize {
        let path = dir.file(file_number(run, 0)?);
        match JobInput::open(io, &path) {
            Ok(file) => tables.push(open_table(Box::new(file))?),
            // A run to which no key was drawn.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::storage(&base_name(&path), "open it", &e)),
        }
    }
    Ok(tables)
}

fn job_io() -> Arc<JobIo> {
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
    use rockmill_format::compression::CompressionType;

    use super::*;

    #[test]
    fn files_hold_what_was_asked_for_and_go_away() {
        let dir = tempfile::tempdir().expect("a folder");
        let workload = Workload {
            key_bytes: 12,
            value_bytes: 88,
            runs: 5,
            versions: 3,
            compression: CompressionType::None,
            raw_bytes: 60_000,
        };
        let made = Made::new(&workload, dir.path(), "input", &CancelToken::new());
        let made = made.expect("there is room");
        let sum = |of: fn(&InputTable) -> u64| made.tables().iter().map(of).sum::<u64>();
        assert_eq!(made.tables().len(), 5);
        assert_eq!(sum(|table| table.meta.properties.num_entries), 600);
        assert_eq!(sum(|table| table.meta.properties.raw_key_size), 600 * 20);
        assert_eq!(sum(|table| table.meta.properties.raw_value_size), 600 * 88);
        drop(made);
        assert!(!dir.path().join("input").exists());
    }
}

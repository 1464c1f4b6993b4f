//! A workload's files, and the plan of a subcompaction over them.

mod workload;

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{CancelToken, Error, InputTable, Plan, Result, kv_hash, open_table};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::key::{ValueType, pack_tag};

use rockmill_compaction::staging::{StagingDir, StagingSink, file_number};
use rockmill_storage::io::{JobInput, JobIo, TaskFiles};
use rockmill_storage::{LocalStorage, base_name};
pub use workload::Workload;
use workload::{fill, plan};

/// A workload's files, which are removed when dropped, and the plan of a subcompaction over them.
#[derive(Debug)]
pub struct Inputs {
    /// The files, in a separate folder.
    tables: Vec<InputTable>,
    plan: Plan,
    _dir: StagingDir,
}

impl Inputs {
    /// Creates the files in a folder `name` in `dir`.
    ///
    /// # Errors
    /// Storage; Cancelled if `cancel` is set.
    pub fn new(workload: &Workload, dir: &Path, name: &str, cancel: &CancelToken) -> Result<Self> {
        let set_key = |i, key: &mut [u8]| workload.set_key(i, key);
        Self::with_keys(workload, dir, name, set_key, cancel)
    }

    /// Does the same with keys that `set_key` creates from their numbers, in order. Run 0 is the oldest.
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
        plan.output.splitting.single_file = true;
        let io = job_io();
        let dir = StagingDir::create(Arc::new(LocalStorage), dir, name)?;
        write(workload, &plan, &dir, &io, set_key, cancel)?;
        let tables = open(workload, &dir, &io)?;
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).sum::<u64>();
        plan.output.splitting.single_file = false;
        plan.output.splitting.compression_ratio = (
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

    /// The plan.
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
        .map(|run| StagingSink::new(dir.files(), Arc::clone(io), TaskFiles::new(run)))
        .collect();
    let writers: Result<Vec<_>> = sinks
        .iter_mut()
        .map(|sink| SstWriter::new(&plan.output, sink))
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
        let path = dir.files().file(file_number(run, 0)?);
        match JobInput::open(io, &path) {
            Ok(file) => tables.push(open_table(Box::new(file))?),
            // A run without keys.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(Error::storage(&base_name(&path), "open it", &e)),
        }
    }
    Ok(tables)
}

fn job_io() -> Arc<JobIo> {
    Arc::new(JobIo::new(Arc::new(LocalStorage), CancelToken::new()))
}

/// The current entry.
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

//! Tables in memory, and tasks over them.

mod entry;
mod memory;

use rockmill_core::{
    Backend, CancelToken, CompactionRules, Fragments, InputTable, KeyRange, Operator, OutputFile,
    OutputPlan, OutputSplitting, Plan, PropertiesPlan, Purpose, ReadTask, Request, Result, SstSink,
    TaskReport, kv_hash,
};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::range_tombstone::RangeTombstone;

pub use entry::{DELETE, Entry, MERGE, PUT, SINGLE_DELETE, hash_sum, noise};
pub use memory::{FILE_NAME, MemFile, MemOutput, MemSink, open};

/// A plan that keeps everything, in one file without compression and filter.
pub fn plan() -> Plan {
    Plan {
        output: OutputPlan {
            properties: PropertiesPlan {
                db_id: b"some-db".to_vec(),
                session_id: "ABCDEFGHIJKLMNOPQRST".to_owned(),
                host: "host".to_owned(),
                checksum_seed: 0x1234_5678_9abc_def0,
                column_family_name: b"default".to_vec(),
                output_level: 3,
                whole_key_filtering: true,
                now: 1_700_000_000,
                ..PropertiesPlan::default()
            },
            ..OutputPlan::default()
        },
        ..Plan::default()
    }
}

pub fn splitting(max_output_file_size: u64) -> OutputSplitting {
    OutputSplitting {
        target_file_size: max_output_file_size,
        max_output_file_size,
        ..OutputSplitting::default()
    }
}

/// Writes `entries`, which must be in order; returns the writer's description beside the bytes.
pub fn write(plan: &Plan, entries: &[Entry]) -> Result<Vec<(OutputFile, Vec<u8>)>> {
    write_with(plan, entries, &[])
}

/// Writes range tombstones as well. The newest one of those that overlap stays.
pub fn write_with(
    plan: &Plan,
    entries: &[Entry],
    tombstones: &[RangeTombstone],
) -> Result<Vec<(OutputFile, Vec<u8>)>> {
    let rules = CompactionRules {
        order: plan.rules.order,
        tombstones: Fragments::new(plan.rules.order, tombstones, &[]).into(),
        ..CompactionRules::default()
    };
    let mut sink = MemSink::numbered_from(1);
    let writer = SstWriter::new(&plan.output, &mut sink)?;
    let mut writer = writer.in_range(Some(&rules), &KeyRange::default());
    let mut before: Option<&[u8]> = None;
    for entry in entries {
        let first = before != Some(&entry.key);
        let hash = kv_hash(&entry.key, &entry.value);
        writer.emit(&entry.key, entry.tag, &entry.value, hash, first)?;
        before = Some(&entry.key);
    }
    let files = writer.finish()?;
    let outputs = sink.into_files();
    assert_eq!(files.len(), outputs.len());
    assert!(outputs.iter().all(|output| output.finished));
    Ok(files
        .into_iter()
        .zip(outputs.into_iter().map(|output| output.bytes))
        .collect())
}

/// One file of `entries`, of which there is at least one.
pub fn one_file(plan: &Plan, entries: &[Entry]) -> Vec<u8> {
    let mut files = write(plan, entries).expect("entries can be written");
    assert_eq!(files.len(), 1);
    files.remove(0).1
}

/// Each run as a table of its own.
pub fn tables(plan: &Plan, runs: &[Vec<Entry>]) -> Vec<InputTable> {
    let table = |run: &Vec<Entry>| open(one_file(plan, run)).expect("sound");
    runs.iter().map(table).collect()
}

/// A task that reads 64 KiB ahead.
pub fn task<'a>(
    inputs: &'a [InputTable],
    plan: &'a Plan,
    range: &'a KeyRange,
    cancel: &'a CancelToken,
) -> ReadTask<'a> {
    ReadTask {
        reading: plan.reading(inputs, range, 64 << 10),
        cancel,
        progress: None,
    }
}

/// Makes a task's files on a backend that supports it.
pub fn make(
    backend: &impl Backend,
    task: ReadTask<'_>,
    plan: &OutputPlan,
    sink: &mut dyn SstSink,
) -> Result<TaskReport> {
    let request = Request {
        reading: task.reading,
        purpose: Purpose::WriteSst(plan),
    };
    backend.supports(&request).check()?;
    backend.run(task, Operator::WriteSst { plan, sink })
}

/// Compacts the entries of `inputs` in `range`: the backend's report, and the files from number 1 on.
pub fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
    cancel: &CancelToken,
) -> Result<(TaskReport, Vec<MemOutput>)> {
    let mut sink = MemSink::numbered_from(1);
    let report = make(
        backend,
        task(inputs, plan, range, cancel),
        &plan.output,
        &mut sink,
    )?;
    Ok((report, sink.into_files()))
}

/// A range of user keys from two optional bounds.
pub fn range(begin: Option<&[u8]>, end: Option<&[u8]>) -> KeyRange {
    KeyRange {
        begin: begin.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
    }
}

//! After any failure on the device, a task ends with an error or with the right files, no memory or handle leaks, and
//! the next task is done.

mod flips;

use std::sync::Arc;

use rockmill_core::scan::{
    Aggregate, Aggregation, Batch, BatchSink, ColumnType, Comparison, Instruction, IntegerRange,
    Literal, Number, NumberFormat, OutputColumn, ScanOutput, ScanPlan,
};
use rockmill_core::{
    Backend, CancelToken, DeclineReason, Error, ErrorKind, Fragments, InputTable, KeyRange,
    Merging, NeedsMerge, Operator, Plan, ReadTask, Reading, Row, RowSink, SnapshotRules,
    Tombstones, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::faults::{BitAddress, Call, DeviceUsage, Faults, Moment, Region};
use rockmill_cuda::{
    CudaBackend, CudaSettings, Delta, DeviceTable, LookupResult, TableSettings, Target,
};
use rockmill_format::compression::{CompressionType, Implementation};
use rockmill_format::filter::FilterOptions;
use rockmill_format::handle::BLOCK_TRAILER_SIZE;
use rockmill_format::index::IndexShortening;
use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::RangeTombstone;

use crate::common::{self, Entry, MemOutput, open};

/// Range tombstones over some keys of the inputs, whose middle run has both older and newer entries.
fn deletions() -> Fragments {
    let key = |key: u32| [[b'k'; 8].as_slice(), &key.to_be_bytes()].concat();
    let tombstone = |begin, end, sequence| RangeTombstone {
        begin: key(begin),
        end: key(end),
        sequence,
    };
    let all = [tombstone(50, 90, 20_000), tombstone(80, 400, 5200)];
    Fragments::new(KeyOrder::Bytewise, &all, &[])
}

/// Inputs and plan of a task that makes several files, and the files.
struct Job {
    inputs: Vec<InputTable>,
    plan: Plan,
    files: Vec<MemOutput>,
    /// Bytes per copy of the devices.
    chunk_bytes: usize,
}

impl Job {
    /// Inputs and files are compressed with `kind` by Rockmill's own code.
    fn new(kind: CompressionType) -> Self {
        Self::compressed_by(Implementation::Rockmill1, kind)
    }

    fn compressed_by(implementation: Implementation, kind: CompressionType) -> Self {
        let run = |run: u32| {
            let mut plan = common::plan();
            plan.output.table.compression.kind = kind;
            let entry = |key: u32| {
                let mut value = common::noise(u64::from(key + run), 60);
                if kind != CompressionType::None {
                    value[30..].fill(0);
                }
                let seq = u64::from(key + 5000 * run) + 1;
                let key = [[b'k'; 8].as_slice(), &key.to_be_bytes()].concat();
                Entry::new(&key, seq, common::PUT, &value)
            };
            let entries: Vec<_> = (run..600).step_by(1 + run as usize).map(entry).collect();
            open(common::one_file(&plan, &entries)).expect("sound")
        };
        let mut plan = common::plan();
        plan.rules.bottommost = true;
        plan.rules.tombstones = deletions().into();
        plan.output.splitting = common::splitting(20 << 10);
        plan.output.paranoid_hash = kind == CompressionType::None;
        let table = &mut plan.output.table;
        table.compression.kind = kind;
        if kind != CompressionType::None {
            table.compression.implementation = implementation;
        }
        plan.output.table.block_size = 1000;
        plan.output.table.filter = Some(FilterOptions::whole_keys(10_000));
        let mut job = Self {
            inputs: (0..3).map(run).collect(),
            plan,
            files: Vec::new(),
            chunk_bytes: match implementation {
                Implementation::Rockmill1 => CudaSettings::default().chunk_bytes,
                // Each of the threads that compress gets some blocks.
                Implementation::Library => 8 << 10,
            },
        };
        job.files = job
            .compact(&CpuBackend, &CancelToken::new())
            .expect("sound");
        assert!(job.files.len() > 1);
        job
    }

    fn compact(
        &self,
        backend: &impl Backend,
        cancel: &CancelToken,
    ) -> Result<Vec<MemOutput>, Error> {
        let range = KeyRange::default();
        common::compact(backend, &self.inputs, &self.plan, &range, cancel).map(|(_, files)| files)
    }

    fn device(&self) -> Result<CudaBackend, Error> {
        let settings = CudaSettings {
            chunk_bytes: self.chunk_bytes,
            ..CudaSettings::default()
        };
        CudaBackend::new(Target::Faulty, settings)
    }

    /// The error of a compaction, or `None` if the files are right.
    fn trouble(&self, backend: &CudaBackend) -> Option<Error> {
        match self.compact(backend, &CancelToken::new()) {
            Ok(files) => {
                assert!(files == self.files, "wrong files");
                None
            }
            Err(error) => Some(error),
        }
    }

    /// The error of passing on rows, or `None` if the right number arrives.
    fn trouble_with_rows(&self, backend: &CudaBackend) -> Option<Error> {
        let (range, cancel) = (KeyRange::default(), CancelToken::new());
        let task = ReadTask {
            reading: self.plan.reading(&self.inputs, &range, 0),
            cancel: &cancel,
            progress: None,
        };
        let mut rows = Count(0);
        let operator = Operator::Inspect { rows: &mut rows };
        match backend.run(task, operator) {
            Ok(report) => {
                assert_eq!(report.read.kept, rows.0);
                None
            }
            Err(error) => Some(error),
        }
    }
}

impl Job {
    /// The error of a scan of the rows, or `None` if the batches are right.
    fn trouble_with_scan(&self, backend: &CudaBackend) -> Option<Error> {
        self.trouble_with(&scan_plan(), backend)
    }

    /// The same with groups on the device.
    fn trouble_with_groups(&self, backend: &CudaBackend) -> Option<Error> {
        self.trouble_with(&group_plan(), backend)
    }

    fn trouble_with(&self, plan: &ScanPlan, backend: &CudaBackend) -> Option<Error> {
        let scan = |backend: &dyn Backend| {
            let (range, cancel) = (KeyRange::default(), CancelToken::new());
            let task = ReadTask {
                reading: Reading {
                    tables: &self.inputs,
                    range: &range,
                    visibility: Visibility::Snapshot(SnapshotRules {
                        sequence: u64::from(u32::MAX),
                        tombstones: Tombstones::Drop,
                        needs_merge: NeedsMerge::Error,
                        deleted: Some(&self.plan.rules.tombstones),
                    }),
                    read_ahead_bytes: 0,
                },
                cancel: &cancel,
                progress: None,
            };
            let mut kept = CollectedBatches(Vec::new());
            let batches = &mut kept;
            let done = backend.run(task, Operator::Scan { plan, batches });
            done.map(|_| kept.0)
        };
        match scan(backend) {
            Ok(batches) => {
                assert!(
                    batches == scan(&CpuBackend).expect("sound"),
                    "wrong batches"
                );
                assert_eq!(batches.len(), 1);
                None
            }
            Err(error) => Some(error),
        }
    }
}

impl Job {
    /// The error of filling a table with rows, or `None` if the table finds them.
    fn trouble_with_table(&self, backend: &CudaBackend) -> Option<Error> {
        let fill = || {
            let settings = TableSettings {
                keys: 1000,
                memory_bytes: 1 << 20,
                reservation: None,
                seed: 1,
                hash_mask: u64::MAX,
                outside: &[KeyRange {
                    begin: Some(b"z".to_vec()),
                    end: None,
                }],
            };
            let table = DeviceTable::new(backend.device(), &settings)?;
            let (range, cancel) = (KeyRange::default(), CancelToken::new());
            let task = ReadTask {
                reading: Reading {
                    tables: &self.inputs,
                    range: &range,
                    visibility: Visibility::Snapshot(SnapshotRules {
                        sequence: u64::from(u32::MAX),
                        tombstones: Tombstones::Drop,
                        needs_merge: NeedsMerge::Mark,
                        deleted: Some(&self.plan.rules.tombstones),
                    }),
                    read_ahead_bytes: 0,
                },
                cancel: &cancel,
                progress: None,
            };
            let report = backend.run(task, Operator::Resident { table: &table })?;
            let last = [&[b'k'; 8][..], &599u32.to_be_bytes()].concat();
            let answers = table.get(&[&last, b"absent", b"z"])?;
            let contents = table.contents();
            // Half of the records are removed, and the rest moves.
            let delta = Delta::new(&Arc::new(table.with_slots(2000, 2)?), &[])?;
            let half = KeyRange {
                begin: Some([&[b'k'; 8][..], &300u32.to_be_bytes()].concat()),
                end: None,
            };
            delta.erase_missing(&[half])?;
            let few = delta.finish()?;
            let first = [&[b'k'; 8][..], &0u32.to_be_bytes()].concat();
            let left = few.get(&[&last, &first])?;
            assert!(matches!(
                &left[..],
                [LookupResult::NotFound, LookupResult::Found(_)]
            ));
            Ok((report.read.kept, contents, answers))
        };
        match fill() {
            Ok((kept, contents, answers)) => {
                assert_eq!((contents.keys, contents.left_over), (kept, 0));
                assert!(matches!(
                    &answers[..],
                    [LookupResult::Found(value), LookupResult::NotFound, LookupResult::NeedsHost] if value.len() == 60
                ));
                None
            }
            Err(error) => Some(error),
        }
    }
}

/// A plan that selects the rows with small numbers in their keys, with their keys, values and numbers.
fn scan_plan() -> ScanPlan {
    let number = Number {
        bytes: 4,
        is_big_endian: true,
        format: NumberFormat::Unsigned,
    };
    let int = |integer| Instruction::Constant(Literal::Integer(integer));
    let compare = Instruction::Compare {
        comparison: Comparison::Less,
        left: 3,
        right: 4,
    };
    let (from, at) = (0, 2);
    ScanPlan {
        checks: Vec::new(),
        instructions: vec![
            Instruction::Key,
            Instruction::Value,
            int(8),
            Instruction::Load { from, at, number },
            int(400),
            compare,
        ],
        filter: Some(5),
        output: ScanOutput::Rows(
            [
                (0, ColumnType::Bytes),
                (1, ColumnType::Bytes),
                (3, ColumnType::Integer { bytes: 8 }),
            ]
            .map(|(register, stored)| OutputColumn { register, stored })
            .to_vec(),
        ),
    }
}

/// A plan that groups these rows by whether the number is odd, with its sum and its maximum.
fn group_plan() -> ScanPlan {
    let mut plan = scan_plan();
    let bit = Instruction::Constant(Literal::Integer(11 * 8));
    let is_odd = Instruction::Bit { from: 0, at: 6 };
    plan.instructions.extend([bit, is_odd]);
    let stored = ColumnType::Integer { bytes: 8 };
    let range = IntegerRange::Exact;
    plan.output = ScanOutput::Groups(Aggregation {
        keys: vec![OutputColumn {
            register: 7,
            stored: ColumnType::Boolean,
        }],
        aggregates: vec![
            Aggregate::Sum {
                of: 3,
                range,
                stored,
            },
            Aggregate::Max(OutputColumn {
                register: 3,
                stored,
            }),
        ],
        max_groups: 2,
    });
    plan
}

/// Keeps batches.
struct CollectedBatches(Vec<Batch>);

impl BatchSink for CollectedBatches {
    fn batch(&mut self, batch: Batch) -> Result<(), Error> {
        self.0.push(batch);
        Ok(())
    }
}

/// Counts rows.
struct Count(u64);

impl RowSink for Count {
    fn row(&mut self, _: Row<'_>) -> Result<(), Error> {
        self.0 += 1;
        Ok(())
    }
}

/// A way to run a job.
type Trouble = fn(&Job, &CudaBackend) -> Option<Error>;
const WAYS: [Trouble; 5] = [
    Job::trouble,
    Job::trouble_with_rows,
    Job::trouble_with_scan,
    Job::trouble_with_groups,
    Job::trouble_with_table,
];

fn device() -> Result<CudaBackend, Error> {
    CudaBackend::new(Target::Faulty, CudaSettings::default())
}

/// Opens a device and runs a job on it in all ways, with each call failing in turn. Returns how many runs end with an
/// error.
fn fail_each(call: Call, plan: impl Fn(&Faults, u64)) -> u64 {
    let by_library = Job::compressed_by(Implementation::Library, CompressionType::Lz4);
    fail_each_so(call, &by_library, &plan, Job::trouble);
    let jobs = [CompressionType::Lz4, CompressionType::None].map(Job::new);
    let errors = WAYS.map(|trouble| {
        fail_each_so(call, &jobs[0], &plan, trouble);
        fail_each_so(call, &jobs[1], &plan, trouble)
    });
    errors.into_iter().min().unwrap_or(0)
}

fn fail_each_so(call: Call, job: &Job, plan: &impl Fn(&Faults, u64), trouble: Trouble) -> u64 {
    let faults = Faults::none();
    let mut errors = 0;
    for nth in 0.. {
        plan(&faults, nth);
        let backend = job.device();
        let found = match &backend {
            Ok(backend) => trouble(job, backend),
            Err(error) => Some(error.clone()),
        };
        let struck = faults.struck();
        faults.end();
        if let Some(error) = &found {
            assert_eq!(error.kind, ErrorKind::Device, "{call:?} {nth}: {error}");
            assert!(error.what.contains("planned to fail"), "{error}");
            errors += 1;
        }
        if let Ok(backend) = &backend {
            let trouble = trouble(job, backend);
            assert!(trouble.is_none(), "after {call:?} {nth}: {trouble:?}");
        }
        drop(backend);
        assert_eq!(faults.usage(), DeviceUsage::default(), "{call:?} {nth}");
        if struck == 0 {
            assert!(found.is_none());
            return errors;
        }
    }
    errors
}

#[test]
fn without_memory_streams_or_events_a_task_ends_with_an_error() {
    // After one failed allocation, a device gets smaller requests.
    fail_each(Call::Allocate, |faults, nth| {
        faults.fail(Call::Allocate, nth);
    });
    let errors = fail_each(Call::Allocate, |faults, nth| {
        faults.break_down(Call::Allocate, nth);
    });
    assert!(errors >= 1);
    for (call, least) in [(Call::Pin, 3), (Call::Stream, 3), (Call::Event, 10)] {
        let errors = fail_each(call, |faults, nth| faults.fail(call, nth));
        assert!(errors >= least, "{call:?}: {errors}");
    }
}

#[test]
fn a_launch_a_copy_or_a_wait_that_fails_ends_the_task() {
    for (call, least) in [(Call::Stage, 15), (Call::Copy, 20), (Call::Wait, 20)] {
        let errors = fail_each(call, |faults, nth| faults.fail(call, nth));
        assert!(errors >= least, "{call:?}: {errors}");
    }
}

#[test]
fn a_device_that_breaks_down_gives_all_back_and_may_recover() {
    let errors = fail_each(Call::Stage, |faults, nth| {
        faults.break_down(Call::Stage, nth)
    });
    assert!(errors >= 15, "{errors}");
}

#[test]
fn a_task_larger_than_the_devices_memory_is_refused_and_a_smaller_one_done() {
    let (faults, job) = (Faults::none(), Job::new(CompressionType::None));
    let backend = device().expect("it opens");
    let (mut refused, mut done) = (0, 0);
    for bits in 12..26 {
        faults.limit_memory(1 << bits);
        match job.trouble(&backend) {
            None => done += 1,
            Some(error) => {
                let memory = ErrorKind::Declined(DeclineReason::MemoryBudget);
                assert_eq!(error.kind, memory, "{error}");
                assert!(error.what.contains("device memory"), "{error}");
                refused += 1;
            }
        }
        assert!(faults.usage().bytes <= 1 << bits);
    }
    assert!(refused > 3 && done > 3, "{refused} {done}");
    drop(backend);
    assert_eq!(faults.usage(), DeviceUsage::default());
}

#[test]
fn cancelling_at_any_call_ends_the_task_and_leaves_the_device_usable() {
    cancel_each(&Job::new(CompressionType::None));
    cancel_each(&Job::compressed_by(
        Implementation::Library,
        CompressionType::Zstd,
    ));
}

fn cancel_each(job: &Job) {
    let faults = Faults::none();
    let backend = job.device().expect("it opens");
    let before = faults.all_calls();
    assert!(job.trouble(&backend).is_none());
    let calls = faults.all_calls() - before;
    let mut cancelled = 0;
    for nth in 0..calls {
        let cancel = CancelToken::new();
        faults.cancel(nth, &cancel);
        match job.compact(&backend, &cancel) {
            Ok(files) => assert!(files == job.files),
            Err(error) => {
                assert_eq!(error.kind, ErrorKind::Cancelled, "{nth}: {error}");
                cancelled += 1;
            }
        }
        faults.end();
        if nth % 16 == 0 {
            assert!(job.trouble(&backend).is_none());
        }
    }
    assert!(cancelled > 10, "{cancelled} of {calls}");
    drop(backend);
    assert_eq!(faults.usage(), DeviceUsage::default());
}

//! Tasks share the device's memory: within the budget, without further allocations, and with the same files as alone.

use std::sync::Arc;

use rockmill_core::{
    Backend, CancelToken, DeclineReason, Error, ErrorKind, Fragments, InputTable, KeyRange,
    Merging, Plan,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};
use rockmill_format::compression::CompressionType;
use rockmill_format::filter::FilterOptions;
use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::RangeTombstone;

use super::target;
use crate::common::{self, Entry, MemOutput, open};

/// A device without a cache, which takes what tasks leave.
fn device(settings: CudaSettings) -> CudaBackend {
    let settings = CudaSettings {
        cache_bytes: Some(0),
        ..settings
    };
    CudaBackend::new(target(), settings).expect("the device opens")
}

/// A device with a limit on the memory of tasks.
fn device_of(memory_bytes: u64) -> CudaBackend {
    device(CudaSettings {
        memory_bytes: Some(memory_bytes),
        ..CudaSettings::default()
    })
}

fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
    cancel: &CancelToken,
) -> Result<Vec<MemOutput>, Error> {
    common::compact(backend, inputs, plan, range, cancel).map(|(_, files)| files)
}

fn all(backend: &impl Backend, job: &(Vec<InputTable>, Plan)) -> Result<Vec<MemOutput>, Error> {
    let (range, cancel) = (KeyRange::default(), CancelToken::new());
    compact(backend, &job.0, &job.1, &range, &cancel)
}

fn table(plan: &Plan, entries: impl Iterator<Item = (u32, u64, usize)>) -> InputTable {
    let entry = |(key, seq, value_len): (u32, u64, usize)| {
        let key = [[b'k'; 12].as_slice(), &key.to_be_bytes()].concat();
        let mut value = common::noise(seq, value_len);
        if plan.output.table.compression.kind != CompressionType::None {
            value[value_len / 2..].fill(0);
        }
        Entry::new(&key, seq, common::PUT, &value)
    };
    let entries: Vec<_> = entries.map(entry).collect();
    open(common::one_file(plan, &entries)).expect("sound")
}

/// A job with three runs; no two jobs are alike.
fn job(seed: u64) -> (Vec<InputTable>, Plan) {
    job_of(seed, &common::plan())
}

/// The same with inputs written by another plan.
fn job_of(seed: u64, inputs: &Plan) -> (Vec<InputTable>, Plan) {
    let entries = 2000 + seed as u32 * 170;
    let value_len = 20 + 10 * seed as usize;
    let runs = (0..3u32).map(|run| {
        let keys = (run..entries).step_by(1 + run as usize);
        let sequence = |key: u32| u64::from(key) + 10_000 * u64::from(run) + 1;
        table(inputs, keys.map(|key| (key, sequence(key), value_len)))
    });
    let mut plan = common::plan();
    plan.rules.bottommost = true;
    plan.output.splitting = common::splitting(64 << 10);
    (runs.collect(), plan)
}

/// Estimated device memory of a job's one task.
fn need(job: &(Vec<InputTable>, Plan)) -> u64 {
    let error = all(&device_of(1), job).expect_err("one byte is not enough");
    let words = error.what.split(' ').map(str::parse);
    words.flatten().next().expect("the error tells the need")
}

/// Scratch memory is allocated for the groups that run at once. The host runs one at a time, so the difference shows.
#[test]
fn zstd_takes_little_more_memory_than_lz4() {
    let need_with = |kind| {
        let (inputs, mut plan) = job(30);
        plan.output.table.compression.kind = kind;
        let own = plan.output.table.compression.with_rockmill();
        plan.output.table.compression = own.expect("there is code for it");
        need(&(inputs, plan))
    };
    if target() == Target::Host {
        let (lz4, zstd) = (
            need_with(CompressionType::Lz4),
            need_with(CompressionType::Zstd),
        );
        assert!((lz4..lz4 + (1 << 20)).contains(&zstd), "{lz4}, {zstd}");
    }
}

#[test]
fn jobs_at_once_make_the_files_that_each_makes_alone() {
    const ROUNDS: usize = 3;
    let jobs: Vec<_> = (0..4).map(job).collect();
    let alone: Vec<_> = jobs.iter().map(|job| all(&CpuBackend, job)).collect();
    // There is room for one or two of them at a time.
    let backend = device(CudaSettings {
        memory_bytes: jobs.iter().map(need).max(),
        pinned_bytes: Some(0),
        ..CudaSettings::default()
    });
    std::thread::scope(|scope| {
        for (job, alone) in jobs.iter().zip(&alone) {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    assert!(all(&backend, job) == *alone);
                }
            });
        }
    });
    let (held, most) = backend.memory_bytes();
    assert!(held <= most, "{held} of {most}");
}

#[test]
fn what_is_foreseen_is_enough() {
    let changes: [fn(&mut Plan); 8] = [
        |_| {},
        |plan| plan.output.table.filter = Some(filter()),
        |plan| plan.output.table.restart_interval = 1,
        |plan| plan.output.table.delta_keys = false,
        |plan| plan.output.table.block_size = 1,
        |plan| plan.output.splitting = common::splitting(2000),
        |plan| plan.output.table.keys_per_bucket = Some(0.1),
        |plan| plan.rules.tombstones = tombstones(),
    ];
    for (seed, change) in (0..).zip(changes) {
        let mut job = job(seed);
        change(&mut job.1);
        assert!(all(&device_of(need(&job)), &job) == all(&CpuBackend, &job));
    }
}

/// Range tombstones over some of a job's keys.
fn tombstones() -> Arc<Fragments> {
    let key = |key: u32| [[b'k'; 12].as_slice(), &key.to_be_bytes()].concat();
    let tombstone = |n: u32| RangeTombstone {
        begin: key(7 * n),
        end: key(7 * n + 3),
        sequence: 40_000 - u64::from(n),
    };
    let all: Vec<_> = (0..300).map(tombstone).collect();
    Arc::new(Fragments::new(KeyOrder::Bytewise, &all, &[]))
}

#[test]
fn what_is_foreseen_of_merge_operands_is_enough() {
    let append = Merging::Append {
        delimiter: vec![b','; 50],
        partial: true,
    };
    for (merging, kind) in [
        (Merging::UInt64Add, CompressionType::None),
        (Merging::Max, CompressionType::Lz4),
        (Merging::BytesXor, CompressionType::None),
        (append.clone(), CompressionType::None),
        (append, CompressionType::Lz4),
    ] {
        let mut plan = common::plan();
        plan.output.table.compression.kind = kind;
        let run = |run: u64| -> Vec<_> {
            let operand = |key: u64| {
                let seq = key + 10_000 * run + 1;
                Entry::new(&key.to_be_bytes(), seq, common::MERGE, &key.to_le_bytes())
            };
            (0..2000).map(operand).collect()
        };
        let file = |n| open(common::one_file(&plan, &run(n))).expect("sound");
        let inputs: Vec<_> = (0..3).map(file).collect();
        plan.output.table.compression.kind = CompressionType::None;
        plan.rules.merging = Some(merging);
        let job = (inputs, plan);
        let files = all(&device_of(need(&job)), &job);
        assert!(files.is_ok() && files == all(&CpuBackend, &job));
    }
}

#[test]
fn what_is_foreseen_of_few_merge_operands_among_long_values_is_enough() {
    for kind in [CompressionType::None, CompressionType::Lz4] {
        let mut plan = common::plan();
        plan.output.table.compression.kind = kind;
        // Values that do not compress, so that the blocks themselves are most of the memory.
        let value = |key: u64| -> Vec<u8> {
            let mut state = key;
            let byte = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 56) as u8
            };
            std::iter::repeat_with(byte).take(1024).collect()
        };
        let entries: Vec<_> = (0..2000_u64)
            .map(|key| match key % 100 {
                0 => Entry::new(
                    &key.to_be_bytes(),
                    key + 1,
                    common::MERGE,
                    &key.to_le_bytes(),
                ),
                _ => Entry::new(&key.to_be_bytes(), key + 1, common::PUT, &value(key)),
            })
            .collect();
        let inputs = vec![open(common::one_file(&plan, &entries)).expect("sound")];
        plan.output.table.compression.kind = CompressionType::None;
        plan.rules.merging = Some(Merging::UInt64Add);
        let job = (inputs, plan);
        let files = all(&device_of(need(&job)), &job);
        assert!(files.is_ok() && files == all(&CpuBackend, &job));
    }
}

#[test]
fn what_is_foreseen_of_compressed_tables_is_enough() {
    let kinds = [
        CompressionType::Lz4,
        CompressionType::Snappy,
        CompressionType::Zstd,
    ];
    for (seed, kind) in (0..).zip(kinds) {
        // Only files of the newest version contain the uncompressed size of their blocks.
        for version in [[10, 10, 1], [11, 12, 0]] {
            let mut inputs = common::plan();
            inputs.output.properties.rocksdb_version = version;
            inputs.output.table.compression.kind = kind;
            let mut job = job_of(seed, &inputs);
            let own = inputs.output.table.compression.with_rockmill();
            job.1.output.table.compression = own.expect("there is own code");
            assert!(all(&device_of(need(&job)), &job) == all(&CpuBackend, &job));
        }
    }
}

fn filter() -> FilterOptions {
    FilterOptions {
        optimize_filters_for_memory: true,
        ..FilterOptions::whole_keys(20_000)
    }
}

#[test]
fn nothing_is_allocated_once_as_many_tasks_have_run_as_run_at_once() {
    const ROUNDS: usize = 20;
    // A region, memory for small copies, and three writing rings of four chunks.
    const A_TASK: u64 = 1 + 1 + 3 * 4;
    let jobs: Vec<_> = (0..4).map(job).collect();
    let backend = device(CudaSettings::default());
    let before = backend.device().allocations();
    std::thread::scope(|scope| {
        for job in &jobs {
            let backend = &backend;
            scope.spawn(move || (0..ROUNDS).for_each(|_| assert!(all(backend, job).is_ok())));
        }
    });
    let allocations = backend.device().allocations() - before;
    assert!(allocations <= jobs.len() as u64 * A_TASK, "{allocations}");
    for job in &jobs {
        let before = backend.device().allocations();
        all(&backend, job).expect("there is memory");
        assert_eq!(backend.device().allocations(), before);
    }
}

#[test]
fn a_task_that_never_fits_is_refused_at_once() {
    let job = job(1);
    let backend = device_of(64 << 10);
    let error = all(&backend, &job).expect_err("too large");
    let refused = ErrorKind::Declined(DeclineReason::MemoryBudget);
    assert_eq!(error.kind, refused);
    assert!(error.what.contains("may have 65536"), "{error}");
    assert_eq!(backend.memory_bytes(), (0, 64 << 10));
}

/// A table whose last keys have many more entries per byte than the rest, so that the estimate for them is too low.
#[test]
fn a_task_with_more_entries_than_foreseen_gets_more_memory_if_there_is_some() {
    const LARGE: u32 = 400;
    const SMALL: u32 = 20_000;
    let value_len = |key| if key < LARGE { 20_000 } else { 0 };
    let inputs = [table(
        &common::plan(),
        (0..SMALL).map(|key| (key, 1, value_len(key))),
    )];
    let begin = [[b'k'; 12].as_slice(), &LARGE.to_be_bytes()].concat();
    let range = KeyRange {
        begin: Some(begin),
        end: None,
    };
    let (plan, cancel) = (common::plan(), CancelToken::new());
    let run = |backend: &CudaBackend| compact(backend, &inputs, &plan, &range, &cancel);
    let expected = compact(&CpuBackend, &inputs, &plan, &range, &cancel);
    let plenty = device(CudaSettings::default());
    assert!(run(&plenty) == expected);
    let results = (16..24).map(|bits| run(&device_of(1 << bits)));
    let (mut refused, mut done) = (0, 0);
    for result in results {
        match result {
            Err(error) => {
                let memory = ErrorKind::Declined(DeclineReason::MemoryBudget);
                assert_eq!(error.kind, memory, "{error}");
                refused += usize::from(error.what.contains("estimated"));
            }
            files => {
                assert!(files == expected);
                done += 1;
            }
        }
    }
    assert!(refused > 0 && done > 0, "{refused} refused, {done} done");
}

#[test]
fn a_cancelled_task_gives_everything_back() {
    let job = job(2);
    let backend = device_of(need(&job));
    let cancel = CancelToken::new();
    cancel.cancel();
    for _ in 0..3 {
        let ended = compact(&backend, &job.0, &job.1, &KeyRange::default(), &cancel);
        assert_eq!(ended.expect_err("cancelled").kind, ErrorKind::Cancelled);
        assert!(all(&backend, &job).is_ok());
    }
}

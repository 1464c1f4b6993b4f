//! Files in the cache of a device: the same results cold, warm, and while files are evicted; and never others if the cached
//! bytes have changed.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use proptest::prelude::*;
use rockmill_core::{
    Backend, Cacheable, CachedOutput, CancelToken, Error, ErrorKind, FileIdentity, Footprint,
    InputTable, KeyRange, NeedsMerge, Operator, Purpose, ReadTask, Request, Result, Row, RowSink,
    SnapshotRules, Support, TaskReport, Tombstones, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings, FileCache};
use rockmill_format::key::MAX_SEQUENCE;

use super::same_files::cases::{plans, runs, tables};
use super::target;
use crate::common::{self, Entry, MemOutput, config, open};

/// Small, so that small files have several.
const CHUNK_BYTES: u64 = 512;

pub const LIMIT: u64 = 1 << 20;

pub fn backend(cache_bytes: u64) -> CudaBackend {
    let settings = CudaSettings {
        cache_bytes: Some(cache_bytes),
        cache_chunk_bytes: CHUNK_BYTES,
        ..CudaSettings::default()
    };
    CudaBackend::new(target(), settings).expect("the device opens")
}

/// A backend whose tasks are run cold, warm, and while another thread evicts files, in turn.
#[derive(Debug)]
pub struct Warmed {
    backend: CudaBackend,
    tasks: AtomicU64,
}

impl Warmed {
    pub fn open() -> Self {
        Self {
            backend: backend(LIMIT),
            tasks: AtomicU64::new(0),
        }
    }
}

impl Deref for Warmed {
    type Target = CudaBackend;

    fn deref(&self) -> &CudaBackend {
        &self.backend
    }
}

/// Takes rows and drops them.
#[derive(Debug)]
struct Ignored;

impl RowSink for Ignored {
    fn row(&mut self, _: Row<'_>) -> Result<()> {
        Ok(())
    }
}

/// Reads a task's input until it is cached. The task may be one that fails.
fn warm(backend: &CudaBackend, task: &ReadTask<'_>) {
    for _ in 0..3 {
        let mut reading = task.reading;
        reading.visibility = Visibility::Snapshot(SnapshotRules {
            sequence: MAX_SEQUENCE,
            tombstones: Tombstones::Keep,
            needs_merge: NeedsMerge::Mark,
            deleted: None,
        });
        let request = Request {
            reading,
            purpose: Purpose::Inspect,
        };
        if backend.supports(&request) == Support::Yes {
            let task = ReadTask {
                reading,
                progress: None,
                ..*task
            };
            let rows = &mut Ignored;
            // What fails here fails in the task as well.
            let _ = backend.run(task, Operator::Inspect { rows });
        }
    }
}

impl Backend for Warmed {
    fn name(&self) -> &str {
        self.backend.name()
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        self.backend.supports(request)
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        self.backend.footprint(request)
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        const COLD: u64 = 0;
        const EVICTED: u64 = 1;
        const WAYS: u64 = 3;
        match self.tasks.fetch_add(1, Ordering::Relaxed) % WAYS {
            COLD => self.backend.run(task, operator),
            EVICTED => {
                warm(&self.backend, &task);
                while_evicted(self.backend.cache(), || self.backend.run(task, operator))
            }
            _ => {
                warm(&self.backend, &task);
                self.backend.run(task, operator)
            }
        }
    }
}

/// Runs `work` while another thread evicts all files again and again.
pub fn while_evicted<T>(cache: &FileCache, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                cache.give_back(u64::MAX);
                std::thread::yield_now();
            }
        });
        let done = work();
        is_done.store(true, Ordering::Relaxed);
        done
    })
}

/// Whether the CPU does a task again that fails with this error.
fn is_redone(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::Corruption | ErrorKind::Device | ErrorKind::Unsupported
    )
}

fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &rockmill_core::Plan,
) -> Result<(TaskReport, Vec<MemOutput>)> {
    let range = KeyRange::default();
    common::compact(backend, inputs, plan, &range, &CancelToken::new())
}

/// The files as inputs of the next job, as its device names them.
fn opened(files: &[MemOutput]) -> Vec<InputTable> {
    let table = |file: &MemOutput| {
        let table = open(file.bytes.clone()).expect("sound");
        let cacheable = FileIdentity::own(&table);
        let cacheable = cacheable.map(|identity| Cacheable {
            identity,
            level: 3,
            database: 1,
        });
        table.with_cacheable(cacheable)
    };
    files.iter().map(table).collect()
}

fn installed(report: &TaskReport) -> Vec<Arc<dyn CachedOutput>> {
    let cached = &report.output.ssts().expect("files").cached;
    for output in cached {
        output.installed(1);
    }
    cached.clone()
}

proptest! {
    #![proptest_config(config(150))]

    /// With the limit, some or all chunks of a file are cached.
    #[test]
    fn a_job_over_files_that_the_device_has_written_makes_the_files_of_the_cpu(
        runs in runs(),
        plan in plans(),
        limit in prop_oneof![Just(LIMIT), 0..20_000u64],
        bit in any::<u64>(),
    ) {
        let inputs = tables(&runs, &common::plan().output.table);
        let device = backend(limit);
        let Ok((report, files)) = compact(&device, &inputs, &plan) else {
            return Ok(());
        };
        let outputs = opened(&files);
        let meant = compact(&CpuBackend, &outputs, &plan);
        let check = |hits: Option<bool>| -> std::result::Result<(), TestCaseError> {
            match (&meant, compact(&device, &outputs, &plan)) {
                (Ok((_, meant)), Ok((report, found))) => {
                    prop_assert_eq!(meant, &found);
                    if let Some(hits) = hits {
                        prop_assert_eq!(report.read.cached_bytes > 0, hits);
                    }
                }
                (Err(_), Err(_)) => {}
                (meant, found) => prop_assert!(false, "{:?} {:?}", meant, found),
            }
            Ok(())
        };
        check(Some(false))?;
        let handles = installed(&report);
        let bytes = device.cache().accounts().bytes;
        prop_assert!(bytes <= limit);
        let has_data = outputs.iter().any(|table| !table.meta.index.is_empty());
        if limit == LIMIT {
            prop_assert_eq!(bytes > 0, has_data && outputs[0].cacheable().is_some());
        }
        check(Some(bytes > 0))?;
        while_evicted(device.cache(), || check(None))?;
        device.cache().give_back(u64::MAX);
        check(Some(false))?;
        drop(handles);

        // A bit of each chunk of files that are cached once more.
        let (report, _) = compact(&device, &inputs, &plan).expect("as before");
        installed(&report);
        let flipped = device.cache().flip(bit)?;
        match (&meant, compact(&device, &outputs, &plan)) {
            // The bit may be one between blocks, or beyond those that are read.
            (Ok((_, meant)), Ok((_, found))) => prop_assert_eq!(meant, &found),
            (_, Err(error)) => {
                if meant.is_ok() {
                    prop_assert!(flipped > 0);
                    prop_assert!(is_redone(&error), "{}", error);
                    prop_assert!(device.cache().accounts().mismatches > 0);
                    check(Some(false))?;
                }
            }
            (Err(_), Ok(_)) => prop_assert!(false, "it fails on the CPU"),
        }
    }
}

#[test]
fn a_flipped_bit_of_any_chunk_is_noticed_and_the_file_is_read_again() {
    let plan = common::plan();
    let entries: Vec<_> = (0..200u64)
        .map(|n| Entry::new(&n.to_be_bytes(), n + 1, common::PUT, &common::noise(n, 40)))
        .collect();
    let inputs = [open(common::one_file(&plan, &entries)).expect("sound")];
    let device = backend(LIMIT);
    let cache = device.cache();
    let meant = compact(&CpuBackend, &inputs, &plan).expect("files").1;
    let mut noticed = 0;
    for bit in 0..CHUNK_BYTES * 8 {
        let range = KeyRange::default();
        warm(
            &device,
            &common::task(&inputs, &plan, &range, &CancelToken::new()),
        );
        let chunks = cache.flip(bit).expect("the device works");
        assert!(chunks > 2);
        let error = compact(&device, &inputs, &plan).expect_err("other bytes");
        assert!(is_redone(&error), "{error}");
        noticed += 1;
        assert_eq!(cache.accounts().mismatches, noticed);
        let (report, found) = compact(&device, &inputs, &plan).expect("from the file");
        assert_eq!((report.read.cached_bytes, &found), (0, &meant));
    }
}

#[test]
fn an_output_that_is_not_installed_leaves_the_cache() {
    let plan = common::plan();
    let entry = Entry::new(b"a", 1, common::PUT, b"b");
    let inputs = [open(common::one_file(&plan, &[entry])).expect("sound")];
    let device = backend(LIMIT);
    let (report, files) = compact(&device, &inputs, &plan).expect("files");
    assert_eq!(device.cache().accounts().bytes, CHUNK_BYTES);
    let outputs = opened(&files);
    let cached = || {
        compact(&device, &outputs, &plan)
            .expect("files")
            .0
            .read
            .cached_bytes
    };
    assert_eq!(cached(), 0, "it is not installed");
    drop(report);
    assert_eq!(device.cache().accounts().bytes, 0);
    let (report, _) = compact(&device, &inputs, &plan).expect("files");
    installed(&report);
    drop(report);
    assert!(cached() > 0);
    let identity = outputs[0].cacheable().expect("it may be cached").identity;
    // The version before lists it not yet; the next one does; a later one no more.
    for (has, is_cached) in [(false, true), (true, true), (false, false)] {
        device.cache().look(2, &|_| false);
        device
            .cache()
            .look(1, &|id| has && id == identity.unique_id());
        assert_eq!(cached() > 0, is_cached, "{has}");
    }
}

#[test]
fn tasks_and_the_cache_stay_within_the_memory_of_tasks() {
    const MEMORY: u64 = 4 << 20;
    let settings = CudaSettings {
        memory_bytes: Some(MEMORY),
        cache_bytes: Some(u64::MAX),
        cache_chunk_bytes: 4096,
        ..CudaSettings::default()
    };
    let device = CudaBackend::new(target(), settings).expect("the device opens");
    let plan = common::plan();
    let mut hits = 0;
    for round in 0..60u64 {
        // Small files, which fill the cache, and now and then a task that needs most of the memory.
        let entries = if round % 10 == 9 { 9000 } else { 500 };
        let entries: Vec<_> = (0..entries)
            .map(|n: u64| {
                let value = common::noise(n ^ round, 100);
                Entry::new(&n.to_be_bytes(), n + 1, common::PUT, &value)
            })
            .collect();
        let inputs = [open(common::one_file(&plan, &entries)).expect("sound")];
        let range = KeyRange::default();
        let cancel = CancelToken::new();
        warm(&device, &common::task(&inputs, &plan, &range, &cancel));
        let meant = compact(&CpuBackend, &inputs, &plan).expect("files").1;
        let (report, found) = compact(&device, &inputs, &plan).expect("files");
        assert_eq!(meant, found, "{round}");
        hits += u64::from(report.read.cached_bytes > 0);
        assert!(device.memory_bytes().0 <= MEMORY);
    }
    let accounts = device.cache().accounts();
    assert!(
        hits > 10 && accounts.evicted_bytes > 0,
        "{hits} {accounts:?}"
    );
}

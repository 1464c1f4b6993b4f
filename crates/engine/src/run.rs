//! One job: open the inputs, plan, run the slices on several threads, verify, gather.

mod slice;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, InputTable, Job, OutputFile, Plan, Progress, Result,
    Slice, SliceReport, SliceWork, StageTime, thread_cpu,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::key;
use tracing::Span;

use crate::admit::{Admitted, LearnedFilter};
use crate::budget::{Budget, JobShare};
use crate::device::{Offload, is_device_trouble};
use crate::io::{FinishQueue, JobIo, RateLimiter, SliceFiles, Stage, Task};
use crate::prepare::{Prepared, host_stage, prepare};
use crate::staging::StagingDir;
use crate::stats::{JobProgress, StatsCell};
use crate::storage::Storage;
use crate::verification::{Verification, Verifier};

/// What a job came to.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Output files in key order.
    pub files: Vec<OutputFile>,
    /// Sums over the slices, of stages by name; `files` and `entries_read` are empty.
    pub totals: SliceReport,
    /// Entries read in all.
    pub entries_read: u64,
    /// Number of slices.
    pub slices: usize,
    /// From start to end.
    pub elapsed: Duration,
    /// Processor time of all threads.
    pub cpu: Duration,
    /// Thousandths of a bit a key that the inputs' filters were found to have, if they were asked
    /// and left no doubt.
    pub learned_filter: Option<u32>,
    /// Name of the device that did the job, if only some of its slices.
    pub device: String,
    /// Why the configured device did not do all of them, if the CPU did some or all instead.
    pub device_refused: Option<String>,
}

impl Outcome {
    /// Bytes of the output files.
    pub fn bytes_written(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// What a job runs with.
#[derive(Debug)]
pub struct RunContext<'a, B> {
    /// What slices run on, where it can do them.
    pub device: Option<Offload<'a, B>>,
    /// What does the others, and makes slices again to verify them.
    pub cpu: &'a CpuBackend,
    /// How sure to be of the output.
    pub verification: Verification,
    /// The file system.
    pub storage: &'a Arc<dyn Storage>,
    /// Shared with other jobs.
    pub budget: &'a Budget,
    /// Shared with other jobs.
    pub limiter: &'a Arc<RateLimiter>,
    /// Threads that sync and check finished files.
    pub sync_threads: usize,
    /// Bytes to read at a time from each input.
    pub read_ahead_bytes: usize,
    /// Told when the database closes.
    pub cancel: &'a CancelToken,
    /// Told of progress.
    pub counters: &'a StatsCell,
}

impl<B> RunContext<'_, B> {
    /// What the files of a job share.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn files(&self, admitted: &Admitted<'_>) -> Result<Arc<JobIo>> {
        let io =
            JobIo::new(Arc::clone(self.storage), self.cancel.child()).with_options(admitted.io()?);
        // A slice that is made again to verify it takes the place of one that is made, and a file that is
        // written directly holds memory of its slice until it is synced.
        let most_waiting = match (self.sync_threads, self.verification) {
            (1.., Verification::Default) if io.direct_writes().is_none() => self.budget.slots(),
            _ => 0,
        };
        Ok(Arc::new(JobIo {
            limiter: Arc::clone(self.limiter),
            finishing: FinishQueue::new(most_waiting),
            ..io
        }))
    }
}

/// Runs an admitted job over the input files in `input_dir`, leaving output in `staging`.
///
/// # Errors
/// Any of [`rockmill_core::ErrorKind`]; what lies in `staging` is of no use then.
pub fn run<B: Backend>(
    context: RunContext<'_, B>,
    job: &Job,
    admitted: &Admitted<'_>,
    input_dir: &Path,
    staging: &StagingDir,
) -> Result<Outcome> {
    let started = Instant::now();
    let cpu = thread_cpu();
    let share = context.budget.enter(context.cancel)?;
    let files = context.files(admitted)?;
    let prepared = prepare(&context, &files, &share, job, admitted, input_dir)?;
    share.admit(prepared.slice_memory_bytes, context.cancel)?;
    let Prepared {
        tables,
        plan,
        slices,
        slice_bytes,
        ..
    } = &prepared;
    let shared = Shared {
        context: RunContext {
            device: (context.device).filter(|_| prepared.device_refused.is_none()),
            read_ahead_bytes: prepared.read_ahead_bytes,
            ..context
        },
        plan,
        tables,
        slices,
        verifier: Verifier {
            level: context.verification,
            cpu: context.cpu,
            files: &files,
            staging,
            session_id: &job.identity.session_id,
            slices: slices.len(),
        },
        share: &share,
        slice_memory_bytes: prepared.slice_memory_bytes,
        staging,
        next: AtomicUsize::new(0),
        workers: AtomicUsize::new(1),
        at_work: AtomicUsize::new(0),
        files: Arc::clone(&files),
        progress: context.counters.begin(slice_bytes.iter().sum()),
        span: Span::current(),
        slice_bytes,
        on_device: slices.iter().map(|_| AtomicBool::new(false)).collect(),
        given_up: AtomicBool::new(false),
        done: Mutex::default(),
    };
    if let Some(error) = &prepared.device_refused {
        shared.refused(error.to_string());
    }
    shared.run_all()?;
    let device = shared.device_name().to_owned();
    let files = shared.files;
    let done = shared
        .done
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let entries_by_input = entries_by_input(&done.reports, tables.len());
    let mut outcome = gather(done.reports);
    outcome.device_refused = done.device_refused;
    check_accounts(&outcome, &entries_by_input, plan, job, tables)?;
    let syncing = Instant::now();
    staging.sync(&files.syncs)?;
    let moved = files.meter.stages(!outcome.totals.stages.is_empty());
    StageTime::add_all(&mut outcome.totals.stages, &moved);
    StageTime::add_all(&mut outcome.totals.stages, &prepared.stages);
    let synced = host_stage("sync folder", syncing);
    StageTime::add_all(&mut outcome.totals.stages, &[synced]);
    outcome.slices = slices.len();
    outcome.device = device;
    outcome.elapsed = started.elapsed();
    outcome.cpu = prepared.cpu_elsewhere
        + done.cpu
        + outcome.totals.cpu_elsewhere
        + files.syncs.cpu()
        + files.direct.as_ref().map_or(Duration::ZERO, |d| d.stop())
        + thread_cpu().saturating_sub(cpu);
    outcome.learned_filter = match prepared.learned_filter {
        LearnedFilter::Certain(millibits) => Some(millibits),
        LearnedFilter::No | LearnedFilter::Likely(_) => None,
    };
    Ok(outcome)
}

/// First version whose property `rocksdb.num.entries` RocksDB relies upon
/// (`compaction_job.cc:UpdateInternalStatsFromInputFiles`).
const FIRST_COUNTED_VERSION: u64 = 5;

#[derive(Default)]
struct Done {
    /// By slice.
    reports: Vec<(usize, SliceReport)>,
    error: Option<Error>,
    /// Slices of the device whose finished files did not pass verification.
    again: Vec<(usize, Error)>,
    /// The first thing that the device did not do, and why.
    device_refused: Option<String>,
    /// Processor time of other threads than the caller's.
    cpu: Duration,
}

/// What the threads of a job share.
struct Shared<'a, B> {
    context: RunContext<'a, B>,
    plan: &'a Plan,
    tables: &'a [InputTable],
    slices: &'a [Slice],
    /// Stored bytes of each slice's input.
    slice_bytes: &'a [u64],
    verifier: Verifier<'a>,
    share: &'a JobShare<'a>,
    slice_memory_bytes: u64,
    staging: &'a StagingDir,
    /// The slice to begin next.
    next: AtomicUsize,
    /// Threads that work on the job or have.
    workers: AtomicUsize,
    /// Threads that may still begin a slice.
    at_work: AtomicUsize,
    /// Its token is set when a slice has failed or the database closes, so that all stop.
    files: Arc<JobIo>,
    progress: JobProgress<'a>,
    /// The job's, which is the parent of the slices' on any thread.
    span: Span,
    /// Whether it is the device that makes or has made a slice.
    on_device: Vec<AtomicBool>,
    /// Whether the device has been set aside: the rest is the CPU's.
    given_up: AtomicBool,
    done: Mutex<Done>,
}

/// A thread that may still begin a slice. When none is left, nothing comes to be synced any more. One that
/// panics stops the others at once.
struct AtWork<'s, 'a, B>(&'s Shared<'a, B>);

impl<'s, 'a, B> AtWork<'s, 'a, B> {
    fn new(shared: &'s Shared<'a, B>) -> Self {
        shared.at_work.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl<B> Drop for AtWork<'_, '_, B> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.files.stop.cancel();
            self.0.share.end();
        }
        if self.0.at_work.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.files.finishing.close();
        }
    }
}

impl<B: Backend> Shared<'_, B> {
    fn run_all(&self) -> Result<()> {
        std::thread::scope(|scope| {
            for _ in 0..self.context.sync_threads {
                let thread = std::thread::Builder::new().name("rockmill".to_owned());
                if thread.spawn_scoped(scope, || self.finish_files()).is_err() {
                    break;
                }
            }
            // The calling thread is one of those that work; where the system has no more, it does all.
            self.work(scope);
        });
        let again = {
            let mut done = self.done();
            if let Some(error) = done.error.take() {
                return Err(error);
            }
            std::mem::take(&mut done.again)
        };
        // In the memory of one slice, which is the job's until it ends.
        for (index, error) in again {
            let report = self.redo(&self.slices[index], &error)?;
            self.keep(index, report);
        }
        Ok(())
    }

    fn done(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        let device = self.context.cpu.name();
        self.context.counters.slice_failed(device, &error);
        self.done().error.get_or_insert(error);
        self.files.stop.cancel();
        self.share.end();
    }

    /// Starts as many threads as there are slots by now, if there are slices left for them.
    fn recruit<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        // Those that the memory does not suffice for would take turns, and each leave what its slices took
        // to an arena of the allocator.
        let at_once = self.share.slices_in_memory();
        let wanted = self
            .context
            .budget
            .slots()
            .min(self.slices.len())
            .min(at_once);
        let one_more = |workers: usize| (workers < wanted).then_some(workers + 1);
        while self.next.load(Ordering::Relaxed) < self.slices.len()
            && self
                .workers
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
        {
            let work = || {
                self.work(scope);
                self.done().cpu += thread_cpu();
            };
            let thread = std::thread::Builder::new().name("rockmill".to_owned());
            if thread.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
    }

    /// Takes slices until none is left, then what others have left to do.
    fn work<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        let _at_work = AtWork::new(self);
        self.take_slices(scope);
        while let Some(task) = self.files.finishing.try_next() {
            self.finish(task);
        }
    }

    /// Syncs and checks files until no slice is at work.
    fn finish_files(&self) {
        while let Some(task) = self.files.finishing.next() {
            self.finish(task);
        }
        self.done().cpu += thread_cpu();
    }

    fn finish(&self, task: Task) {
        if let Err(error) = self.files.stop.check().and_then(|()| self.try_finish(task)) {
            self.fail(error);
        }
    }

    fn try_finish(&self, task: Task) -> Result<()> {
        let next = match task {
            Task::Sync(unsynced) => unsynced.sync(&self.files)?,
            check @ Task::Check(_) => Some(check),
        };
        match next {
            Some(Task::Check(files)) => self.check(&files),
            _ => Ok(()),
        }
    }

    /// Verifies a slice's files, all of them durable.
    fn check(&self, files: &SliceFiles) -> Result<()> {
        let Some(report) = files.take() else {
            return Err(Error::internal("a slice is checked twice"));
        };
        let work = self.work_on(&self.slices[files.slice], None);
        let bytes = report.files.iter().map(|file| file.size).sum();
        let meter = &self.files.meter;
        let verified = meter.time(Stage::Verify, bytes, || self.verifier.verify(work, &report));
        match verified {
            Err(error) if is_device_trouble(&error) && self.is_on_device(files.slice) => {
                self.done().again.push((files.slice, error));
                Ok(())
            }
            verified => verified,
        }
    }

    fn work_on<'s>(
        &'s self,
        slice: &'s Slice,
        progress: Option<&'s Progress<'s>>,
    ) -> SliceWork<'s> {
        SliceWork {
            inputs: self.tables,
            plan: self.plan,
            slice,
            read_ahead_bytes: self.context.read_ahead_bytes,
            cancel: &self.files.stop,
            progress,
        }
    }

    fn take_slices<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        loop {
            self.recruit(scope);
            let waiting = Instant::now();
            let worked = self
                .share
                .slice(&self.files.stop)
                .and_then(|grant| match grant {
                    Some(_grant) => self.next_slice(waiting.elapsed()),
                    None => Ok(false),
                });
            match worked {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Does the next slice, which has `waited` for threads and memory; false if there is none.
    fn next_slice(&self, waited: Duration) -> Result<bool> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index + 1 >= self.slices.len() {
            self.share.end();
        }
        let Some(slice) = self.slices.get(index) else {
            return Ok(false);
        };
        let report = self.slice(slice, waited)?;
        self.keep(slice.index, report);
        Ok(true)
    }

    /// Keeps what a slice came to, in place of what it came to before.
    fn keep(&self, index: usize, report: SliceReport) {
        let reports = &mut self.done().reports;
        reports.retain(|(of, _)| *of != index);
        reports.push((index, report));
    }
}

/// Entries read of each input.
fn entries_by_input(reports: &[(usize, SliceReport)], inputs: usize) -> Vec<u64> {
    let mut sums = vec![0; inputs];
    for (_, report) in reports {
        for (sum, entries) in sums.iter_mut().zip(&report.entries_read) {
            *sum += entries;
        }
    }
    sums
}

fn gather(mut reports: Vec<(usize, SliceReport)>) -> Outcome {
    reports.sort_by_key(|(index, _)| *index);
    let mut outcome = Outcome::default();
    for (_, report) in reports {
        let totals = &mut outcome.totals;
        outcome.entries_read += report.entries_read.iter().sum::<u64>();
        outcome.files.extend(report.files);
        totals.tombstones_read += report.tombstones_read;
        totals.key_bytes_read += report.key_bytes_read;
        totals.value_bytes_read += report.value_bytes_read;
        totals.bytes_read += report.bytes_read;
        totals.entries_replaced += report.entries_replaced;
        totals.tombstones_dropped += report.tombstones_dropped;
        totals.entries_written += report.entries_written;
        totals.cpu_elsewhere += report.cpu_elsewhere;
        StageTime::add_all(&mut totals.stages, &report.stages);
    }
    outcome
}

/// What a backend says of its output cannot be true.
fn unbalanced(what: &str) -> Error {
    Error::new(ErrorKind::Verification, what)
}

/// The sums that RocksDB verifies, where a mistake would stop the database: every entry of every
/// input was read, and files are in order.
fn check_accounts(
    outcome: &Outcome,
    entries_by_input: &[u64],
    plan: &Plan,
    job: &Job,
    tables: &[InputTable],
) -> Result<()> {
    let inside = |internal_key: &[u8]| {
        key::split(internal_key).is_some_and(|(user_key, _)| plan.range.contains(user_key))
    };
    for ((input, table), &read) in job.tree.inputs.iter().zip(tables).zip(entries_by_input) {
        let properties = &table.meta.properties;
        let expected = properties.num_entries;
        // RocksDB does not trust the counts of older files either.
        if properties.format_version < FIRST_COUNTED_VERSION {
            continue;
        }
        if inside(&input.smallest) && inside(&input.largest) && read != expected {
            return Err(Error::corruption(
                &input.name,
                table.meta.file_size,
                format!("{read} entries were read where the properties say {expected}"),
            ));
        }
    }
    let written: u64 = outcome.files.iter().map(|f| f.content.entries()).sum();
    let in_order = outcome.files.windows(2).all(|pair| {
        let keys = (key::split(&pair[0].largest), key::split(&pair[1].smallest));
        matches!(keys, (Some((a, _)), Some((b, _))) if a < b)
    });
    if written != outcome.totals.entries_written || !in_order {
        return Err(unbalanced("output files do not add up"));
    }
    Ok(())
}

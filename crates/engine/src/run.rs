//! One job: open the inputs, plan, run the slices on several threads, verify, gather.

mod accounts;
mod call;
mod pick;
mod shape;
mod slice;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use rockmill_core::{
    CancelToken, Error, InputTable, Job, OutputFile, Plan, Progress, Result, Slice, SliceReport,
    SliceWork, StageTime, thread_cpu,
};
use rockmill_cpu::CpuBackend;
use tracing::Span;

use crate::admit::{Admitted, LearnedFilter};
use crate::budget::{Budget, HOST, JobShare, Urgency, Work};
use crate::clock::{Clock, Worker};
use crate::compute::{Compute, is_device_trouble};
use crate::fleet::Offload;
use crate::io::{FinishQueue, JobIo, RateLimiter, SliceFiles, Stage, Task};
use crate::predict::Predict;
use crate::prepare::{Prepared, host_stage, prepare};
use crate::settings::{OutputCache, Patience};
use crate::staging::StagingDir;
use crate::stats::{JobProgress, StatsCell};
use crate::storage::Storage;
use crate::verification::{Verification, Verifier};
use accounts::{check_accounts, entries_by_input, gather, unbalanced};
use pick::{Left, Taken};
pub use shape::Shapes;

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
    /// Names of the devices that did the job's slices, joined by `+`.
    pub device: String,
    /// What each of them did, the CPU first.
    pub devices: Vec<DeviceWork>,
    /// Files that were to pass by the page cache and could not.
    pub files_cached_instead: u64,
    /// Why a configured device did not do all that it was to do, if the CPU did some of it instead.
    pub device_refused: Option<String>,
}

impl Outcome {
    /// Bytes of the output files.
    pub fn bytes_written(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }
}

/// What a device did of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWork {
    /// Its name.
    pub device: String,
    /// Slices.
    pub slices: u64,
    /// Stored bytes of their input.
    pub bytes: u64,
}

/// What a job runs with.
#[derive(Debug)]
pub struct RunContext<'a> {
    /// What slices run on beside the CPU, where it can do them.
    pub devices: Vec<Offload<'a>>,
    /// What does the others, and makes slices again to verify them.
    pub cpu: &'a CpuBackend,
    /// The part of a job's slices that the CPU takes at most where other devices can do them, from 0 to 100.
    pub host_percent: u8,
    /// Says how long slices take.
    pub model: &'a dyn Predict,
    /// How long a slice on another device than the CPU is waited for at least.
    pub patience: Patience,
    /// How sure to be of the output.
    pub verification: Verification,
    /// Whether output goes through the page cache.
    pub output_cache: OutputCache,
    /// The file system.
    pub storage: &'a Arc<dyn Storage>,
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// Shared with other jobs.
    pub budget: &'a Arc<Budget>,
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

impl RunContext<'_> {
    /// What the files of a job share.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn files(&self, admitted: &Admitted<'_>) -> Result<Arc<JobIo>> {
        let options = admitted.io()?.with_outputs(self.output_cache);
        let io = JobIo::new(Arc::clone(self.storage), self.cancel.child()).with_options(options);
        // A slice that is made again to verify it takes the place of one that is made.
        let most_waiting = match (self.sync_threads, self.verification) {
            (1.., Verification::Default) => self.budget.slots(),
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
pub fn run(
    mut context: RunContext<'_>,
    job: &Job,
    admitted: &Admitted<'_>,
    input_dir: &Path,
    staging: &StagingDir,
) -> Result<Outcome> {
    let started = Instant::now();
    let cpu = thread_cpu();
    let share = context
        .budget
        .enter(Urgency::of(&job.info), context.cancel)?;
    let files = context.files(admitted)?;
    let prepared = prepare(&context, &files, &share, job, admitted, input_dir)?;
    let prepared = Arc::new(prepared);
    share.admit(prepared.slice_memory_bytes, context.cancel)?;
    let devices = std::mem::take(&mut context.devices).into_iter();
    let devices = devices.filter(|device| prepared.devices.contains(&device.number));
    let Prepared {
        tables,
        plan,
        slices,
        slice_bytes,
        shapes,
        ..
    } = &*prepared;
    let all = slices.len() as u64;
    share.plan(Work {
        slices: all,
        slice_bytes: shapes.mean_bytes(),
        host_slices: all * u64::from(context.host_percent) / ALL_PERCENT,
    });
    let shared = Shared {
        devices: devices.collect(),
        prepared: &prepared,
        context: RunContext {
            read_ahead_bytes: prepared.read_ahead_bytes,
            ..context
        },
        shapes,
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
        left: Left::all(slices.len()),
        workers: AtomicUsize::new(1),
        at_work: AtomicUsize::new(0),
        files: Arc::clone(&files),
        progress: context.counters.begin(slice_bytes.iter().sum()),
        span: Span::current(),
        slice_bytes,
        done_by: slices.iter().map(|_| AtomicUsize::new(HOST)).collect(),
        done: Mutex::default(),
    };
    if let Some(error) = &prepared.device_refused {
        shared.refused(error.to_string());
    }
    shared.run_all()?;
    let devices = shared.devices_work();
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
    outcome.files_cached_instead = files.cached_instead();
    let names: Vec<_> = devices.iter().map(|work| &*work.device).collect();
    outcome.device = names.join("+");
    outcome.devices = devices;
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

const ALL_PERCENT: u64 = 100;

#[derive(Default)]
struct Done {
    /// By slice.
    reports: Vec<(usize, SliceReport)>,
    error: Option<Error>,
    /// Slices of devices whose finished files did not pass verification.
    again: Vec<(usize, Error)>,
    /// The first thing that a device did not do, and why.
    device_refused: Option<String>,
    /// Processor time of other threads than the caller's.
    cpu: Duration,
}

/// What the threads of a job share.
struct Shared<'a> {
    /// Without its devices.
    context: RunContext<'a>,
    /// Those that do such jobs.
    devices: Vec<Offload<'a>>,
    /// What calls take with them.
    prepared: &'a Arc<Prepared>,
    shapes: &'a Shapes,
    plan: &'a Plan,
    tables: &'a [InputTable],
    slices: &'a [Slice],
    /// Stored bytes of each slice's input.
    slice_bytes: &'a [u64],
    verifier: Verifier<'a>,
    share: &'a JobShare<'a>,
    slice_memory_bytes: u64,
    staging: &'a StagingDir,
    left: Left,
    /// Threads that work on the job or have.
    workers: AtomicUsize,
    /// Threads that may still begin a slice.
    at_work: AtomicUsize,
    /// Its token is set when a slice has failed or the database closes, so that all stop.
    files: Arc<JobIo>,
    progress: JobProgress<'a>,
    /// The job's, which is the parent of the slices' on any thread.
    span: Span,
    /// Number of the device that makes or has made a slice.
    done_by: Vec<AtomicUsize>,
    done: Mutex<Done>,
}

/// A thread that may still begin a slice. When none is left, nothing comes to be synced any more. One that
/// panics stops the others at once.
struct AtWork<'s, 'a>(&'s Shared<'a>);

impl<'s, 'a> AtWork<'s, 'a> {
    fn new(shared: &'s Shared<'a>) -> Self {
        shared.at_work.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for AtWork<'_, '_> {
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

impl Shared<'_> {
    fn run_all(&self) -> Result<()> {
        std::thread::scope(|scope| {
            for _ in 0..self.context.sync_threads {
                let thread = std::thread::Builder::new().name("rockmill".to_owned());
                if thread.spawn_scoped(scope, || self.finish_files()).is_err() {
                    break;
                }
            }
            // The calling thread is one of those that work; where the system has no more, it does all.
            Worker::new(&self.context.clock).run(|| self.work(scope));
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
        self.context.counters.slice_failed(self.cpu_name(), &error);
        self.done().error.get_or_insert(error);
        self.files.stop.cancel();
        self.share.end();
    }

    fn cpu_name(&self) -> &str {
        Compute::name(self.context.cpu)
    }

    /// What each device has done.
    fn devices_work(&self) -> Vec<DeviceWork> {
        let others = self.devices.iter();
        let others = others.map(|other| (other.number, other.device.backend.name()));
        let all = std::iter::once((HOST, self.cpu_name())).chain(others);
        let work = all.map(|(number, name)| {
            let made = |(by, _): &(&AtomicUsize, &u64)| by.load(Ordering::Acquire) == number;
            let slices = self.done_by.iter().zip(self.slice_bytes).filter(made);
            let (count, bytes) =
                slices.fold((0, 0), |(count, sum), (_, bytes)| (count + 1, sum + bytes));
            DeviceWork {
                device: name.to_owned(),
                slices: count,
                bytes,
            }
        });
        work.filter(|work| work.slices > 0).collect()
    }

    /// Starts as many threads as there is room for by now, if there are slices left for them.
    fn recruit<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        // Those that the memory does not suffice for would take turns, and each leave what its slices took
        // to an arena of the allocator.
        let at_once = self.share.slices_in_memory();
        let host = usize::from(self.context.host_percent > 0 || self.devices.is_empty());
        let room = (self.context.budget.slots()).saturating_mul(self.devices.len() + host);
        let wanted = room.min(self.slices.len()).min(at_once);
        let one_more = |workers: usize| (workers < wanted).then_some(workers + 1);
        while !self.left.is_empty()
            && self
                .workers
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
                .is_ok()
        {
            let worker = Worker::new(&self.context.clock);
            let work = move || {
                worker.run(|| self.work(scope));
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
            Err(error) if is_device_trouble(&error) && self.is_a_devices(files.slice) => {
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
            match self.next_slice() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Does the next slice on the device that should, as soon as it may; false if there is none.
    fn next_slice(&self) -> Result<bool> {
        let waiting = Instant::now();
        let share = self.share;
        let Some(grant) = share.slice(&self.candidates(), &self.files.stop)? else {
            return Ok(false);
        };
        let device = self.offload(grant.place().device);
        let slice = match self.take(device) {
            Taken::Slice(index) => &self.slices[index],
            Taken::Nothing => return Ok(false),
            Taken::Distrusted => {
                grant.put_back();
                return Ok(true);
            }
        };
        let report = self.slice(slice, device, &grant, waiting.elapsed())?;
        self.keep(slice.index, report);
        Ok(true)
    }

    /// Whether a device beside the CPU makes or has made a slice.
    fn is_a_devices(&self, slice: usize) -> bool {
        self.done_by[slice].load(Ordering::Acquire) != HOST
    }

    /// Keeps what a slice came to, in place of what it came to before.
    fn keep(&self, index: usize, report: SliceReport) {
        let reports = &mut self.done().reports;
        reports.retain(|(of, _)| *of != index);
        reports.push((index, report));
    }
}

//! One job: open the inputs, plan, run the subcompactions on several threads, verify, gather.

mod accounts;
mod call;
mod context;
mod finish;
mod inputs;
mod late_hash;
mod outcome;
mod pick;
mod subcompaction;
mod workers;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rockmill_core::{
    DynBackend, Error, InputTable, Job, JobInfo, Plan, Progress, ReadTask, Result, StageTime,
    Subcompaction, TaskReport, thread_cpu,
};
use tracing::Span;

use crate::eligibility::{Admitted, LearnedFilter};
use crate::prepare::{Prepared, entry, host_stage, prepare};
use crate::staging::StagingDir;
use crate::stats::JobProgress;
use crate::verify::Verifier;
use accounts::{check_accounts, entries_by_input, gather, unbalanced};
pub use context::RunContext;
pub use inputs::Inputs;
pub use outcome::{DeviceWork, Outcome};
use pick::Left;
use rockmill_exec::budget::{HOST, JobShare, Priority, Work};
use rockmill_exec::device_health::Attempt;
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::pace::JobSize;
use rockmill_storage::clock::{Crew, Worker};
use rockmill_storage::descriptors::Held;
use rockmill_storage::io::{JobIo, Stage};

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
        .enter(entry(job, input_dir), priority(&job.info), context.cancel)?;
    let files = context.files(admitted)?;
    let prepared = prepare(&context, &files, &share, job, admitted, input_dir)?;
    let prepared = Arc::new(prepared);
    share.admit(prepared.subcompaction_memory_bytes, context.cancel)?;
    let devices = std::mem::take(&mut context.devices).into_iter();
    let devices = devices.filter(|device| prepared.devices.contains(&device.number));
    let Prepared {
        tables,
        closed,
        plan,
        subcompactions,
        subcompaction_bytes,
        size,
        ..
    } = &*prepared;
    share.plan(Work {
        tasks: subcompactions.len() as u64,
        task_bytes: size.mean().bytes,
    });
    let crew = Crew::new(&context.clock);
    let shared = Shared {
        devices: devices.collect(),
        prepared: &prepared,
        context: RunContext {
            read_ahead_bytes: prepared.read_ahead_bytes,
            ..context
        },
        size,
        plan,
        tables,
        inputs: Inputs::new(tables, closed, context.descriptors),
        subcompactions,
        verifier: Verifier {
            level: context.verification,
            cpu: context.cpu,
            files: &files,
            staging,
            session_id: &job.identity.session_id,
            subcompactions: subcompactions.len(),
        },
        share: &share,
        subcompaction_memory_bytes: prepared.subcompaction_memory_bytes,
        staging,
        left: Left::all(subcompactions.len()),
        workers: AtomicUsize::new(1),
        crew,
        at_work: AtomicUsize::new(0),
        files: Arc::clone(&files),
        progress: context.counters.begin(subcompaction_bytes.iter().sum()),
        span: Span::current(),
        subcompaction_bytes,
        done_by: subcompactions
            .iter()
            .map(|_| AtomicUsize::new(HOST))
            .collect(),
        attempts: subcompactions.iter().map(|_| OnceLock::new()).collect(),
        done: Mutex::default(),
    };
    if let Some(error) = &prepared.device_refused {
        shared.refused(error.to_string());
    }
    shared.run_all()?;
    let devices = shared.devices_work();
    let done = std::mem::take(&mut *shared.done());
    let entries_by_input = entries_by_input(&done.reports, tables.len());
    let mut outcome = gather(done.reports);
    outcome.device_refused = done.device_refused;
    check_accounts(&outcome, &entries_by_input, plan, job, tables)?;
    let syncing = Instant::now();
    staging.sync(&files.syncs)?;
    let hashing = shared.hash_if_asked(job, &admitted.input, input_dir, &mut outcome.files)?;
    let moved = files.meter.stages(!outcome.totals.stages.is_empty());
    StageTime::add_all(&mut outcome.totals.stages, &moved);
    StageTime::add_all(&mut outcome.totals.stages, &prepared.stages);
    let synced = host_stage("sync folder", syncing);
    StageTime::add_all(&mut outcome.totals.stages, &[synced]);
    outcome.subcompactions = subcompactions.len();
    outcome.files_cached_instead = files.cached_instead();
    let names: Vec<_> = devices.iter().map(|work| &*work.device).collect();
    outcome.device = names.join("+");
    outcome.devices = devices;
    outcome.elapsed = started.elapsed();
    outcome.cpu = prepared.cpu_elsewhere
        + done.cpu
        + hashing
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

/// How urgent a job is, as RocksDB describes it.
fn priority(info: &JobInfo) -> Priority {
    match (info.base_input_level == 0, info.is_in_bottom_pool) {
        // It makes room in level 0, where writers stall.
        (true, false) => Priority::High,
        (true, true) | (false, false) => Priority::Normal,
        // RocksDB runs it where it runs what can wait, in the pool of bottommost compactions.
        (false, true) => Priority::Low,
    }
}

#[derive(Default)]
struct Done {
    /// By subcompaction.
    reports: Vec<(usize, TaskReport)>,
    error: Option<Error>,
    /// Subcompactions of devices whose finished files did not pass verification, or that were abandoned there.
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
    devices: Vec<DeviceEntry<'a>>,
    /// What calls take with them.
    prepared: &'a Arc<Prepared>,
    size: &'a JobSize,
    plan: &'a Plan,
    /// Closed.
    tables: &'a [InputTable],
    inputs: Inputs<'a>,
    subcompactions: &'a [Subcompaction],
    /// Stored bytes of each subcompaction's input.
    subcompaction_bytes: &'a [u64],
    verifier: Verifier<'a>,
    share: &'a JobShare<'a>,
    subcompaction_memory_bytes: u64,
    staging: &'a StagingDir,
    left: Left,
    /// Threads that work on the job or have.
    workers: AtomicUsize,
    /// All threads of the job but the calling one.
    crew: Crew,
    /// Threads that may still begin a subcompaction.
    at_work: AtomicUsize,
    /// Its token is set when a subcompaction has failed or the database closes, so that all stop.
    files: Arc<JobIo>,
    progress: JobProgress<'a>,
    /// The job's, which is the parent of the subcompactions' on any thread.
    span: Span,
    /// Number of the device that makes or has made a subcompaction.
    done_by: Vec<AtomicUsize>,
    /// What subcompactions tell of the devices that they began on.
    attempts: Vec<OnceLock<Attempt<'a>>>,
    done: Mutex<Done>,
}

impl Shared<'_> {
    fn run_all(&self) -> Result<()> {
        std::thread::scope(|scope| {
            Worker::new(&self.context.clock).run(|| {
                for _ in 0..self.context.sync_threads {
                    let member = self.crew.enlist();
                    let finish = || member.run(|| self.finish_files());
                    let thread = std::thread::Builder::new().name("rockmill".to_owned());
                    if thread.spawn_scoped(scope, finish).is_err() {
                        break;
                    }
                }
                // The calling thread is one of those that work; where the system has no more, it does all.
                self.work(scope);
                self.crew.wait();
            });
        });
        let again = {
            let mut done = self.done();
            if let Some(error) = done.error.take() {
                return Err(error);
            }
            std::mem::take(&mut done.again)
        };
        self.redo_all(&again)
    }

    fn done(&self) -> std::sync::MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, error: Error) {
        self.context
            .counters
            .subcompaction_failed(self.cpu_name(), &error);
        self.done().error.get_or_insert(error);
        self.files.stop.cancel();
        self.share.end();
    }

    fn cpu_name(&self) -> &str {
        DynBackend::name(self.context.cpu)
    }

    /// What each device has done.
    fn devices_work(&self) -> Vec<DeviceWork> {
        let others = self.devices.iter();
        let others = others.map(|other| (other.number, &*other.device.backend));
        let cpu: &dyn DynBackend = self.context.cpu;
        let all = std::iter::once((HOST, cpu)).chain(others);
        let done = self.done();
        let work = all.map(|(number, backend)| {
            let made = |subcompaction: &usize| {
                self.done_by[*subcompaction].load(Ordering::Acquire) == number
            };
            let subcompactions = (0..self.subcompactions.len()).filter(made);
            let (count, bytes) = subcompactions.fold((0, 0), |(count, sum), subcompaction| {
                (count + 1, sum + self.subcompaction_bytes[subcompaction])
            });
            let reports = done
                .reports
                .iter()
                .filter(|(subcompaction, _)| made(subcompaction));
            let files = reports.flat_map(|(_, report)| report.files());
            DeviceWork {
                device: backend.name().to_owned(),
                subcompactions: count,
                bytes,
                near_data_bytes: match backend.is_near_data() {
                    true => files.map(|file| file.size).sum(),
                    false => 0,
                },
            }
        });
        work.filter(|work| work.subcompactions > 0).collect()
    }

    /// A subcompaction's inputs, open, and what they and its outputs count until it has ended.
    fn open_inputs(&self, subcompaction: &Subcompaction) -> Result<(Vec<InputTable>, Held)> {
        let open = || self.inputs.open(&subcompaction.range, &self.files.stop);
        self.files.meter.time(Stage::WaitForBudget, 0, open)
    }

    fn work_on<'s>(
        &'s self,
        subcompaction: &'s Subcompaction,
        inputs: &'s [InputTable],
        progress: Option<&'s Progress<'s>>,
    ) -> ReadTask<'s> {
        let read_ahead_bytes = self.context.read_ahead_bytes;
        ReadTask {
            request: (self.plan).request(inputs, &subcompaction.range, read_ahead_bytes),
            cancel: &self.files.stop,
            progress,
        }
    }

    /// What a subcompaction tells of the device beside the CPU that makes it or has made it.
    fn attempt_at(&self, subcompaction: usize) -> Option<(DeviceEntry<'_>, &Attempt<'_>)> {
        let device = self.entry(self.done_by[subcompaction].load(Ordering::Acquire));
        device.zip(self.attempts[subcompaction].get())
    }

    /// Keeps what a subcompaction came to, in place of what it came to before.
    fn keep(&self, index: usize, report: TaskReport) {
        let reports = &mut self.done().reports;
        reports.retain(|(of, _)| *of != index);
        reports.push((index, report));
    }
}

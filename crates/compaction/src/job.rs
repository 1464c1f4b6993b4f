//! One job: opens the inputs, plans, lets the executor run the subcompactions, verifies, and sums up.

mod accounts;
mod finish;
mod inputs;
mod late_hash;
mod running;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rockmill_core::{Backend, JobInfo, Result, StageTime, thread_cpu};
use tracing::Span;

use crate::eligibility::{EligibleJob, LearnedFilter};
use crate::known_tables::Keeper;
use crate::outcome::{DeviceWork, Outcome};
use crate::prepare::{Prepared, entry, host_stage, prepare};
use crate::run_context::RunContext;
use crate::staging::StagingDir;
use crate::verify::Verifier;
use accounts::{check_accounts, entries_by_input, gather, unbalanced};
pub use inputs::Inputs;
use rockmill_exec::budget::{HOST, Priority};
use rockmill_exec::device_registry::DeviceEntry;
use rockmill_exec::executor::{FinishedTask, OwnedTasks};
use rockmill_storage::clock::Worker;
use running::RunningJob;

/// Runs a job over the input files in `input_dir` and leaves the output in `staging`.
///
/// # Errors
/// Any of [`rockmill_core::ErrorKind`]; then the files in `staging` must not be used.
pub fn run(
    context: &RunContext<'_>,
    eligible: &EligibleJob,
    input_dir: &Path,
    staging: &StagingDir,
) -> Result<Outcome> {
    let (started, cpu) = (Instant::now(), thread_cpu());
    let (job, cancel) = (&eligible.job, context.cancel);
    let budget = context.executor.budget();
    let share = budget.enter(entry(job, input_dir), priority(&job.info), cancel)?;
    let files = context.files(eligible)?;
    let prepared = prepare(context, &files, &share, eligible, input_dir)?;
    share.admit(prepared.admitted.task_bytes, cancel)?;
    let progress = (context.counters).begin(prepared.subcompaction_bytes.iter().sum());
    let verifier = Verifier {
        level: context.settings.verification,
        files: Arc::clone(&files),
        staging: staging.files().clone(),
        session_id: job.identity.session_id.clone(),
        subcompactions: prepared.subcompactions.len(),
        is_repeatable: prepared.plan.is_repeatable(),
        keeper: Some(Arc::new(Keeper {
            tables: Arc::clone(context.known_tables),
            budget: Arc::clone(budget),
            session: job.info.db_session_id.clone(),
            attempt: job.identity.session_id.clone(),
            are_taken: AtomicBool::new(false),
        })),
    };
    let running = Arc::new(RunningJob::new(
        prepared,
        verifier,
        &progress,
        context.limiter,
        Span::current(),
    ));
    let owned = OwnedTasks {
        tasks: Arc::clone(&running) as _,
        devices: running.prepared.admitted.devices.clone(),
        task_memory_bytes: running.prepared.admitted.task_bytes,
        stop: files.stop.clone(),
    };
    // A device must not get ahead in virtual time of the thread that watches its calls.
    let handle = Worker::new(&context.clock).run(|| {
        let handle = context.executor.submit(&share, owned);
        if let Some(error) = &running.prepared.admitted.refused {
            handle.refused(error.to_string());
        }
        running.finish_all(context.sync_threads, &context.clock, &handle)?;
        Ok(handle)
    })?;
    let Prepared {
        inputs,
        admitted,
        plan,
        subcompactions,
        subcompaction_bytes,
        ..
    } = &running.prepared;
    let made = handle.take();
    let tables = inputs.tables();
    let devices = devices_work(
        &made,
        &admitted.devices,
        context.executor.cpu(),
        subcompaction_bytes,
    );
    let entries_by_input = entries_by_input(&made, tables.len());
    let mut outcome = gather(made);
    outcome.device_refused = handle.device_refused();
    let cacheable = tables.iter().filter_map(|table| table.cacheable());
    outcome.cached.inputs = cacheable.map(|cacheable| cacheable.identity).collect();
    let ids = job.tree.inputs.iter().filter_map(|input| input.unique_id);
    outcome.cached.input_ids = ids.collect();
    outcome.cached.session.clone_from(&job.info.db_session_id);
    outcome.cached.keeper = running.verifier.keeper.clone();
    check_accounts(&outcome, &entries_by_input, plan, job, tables)?;
    let syncing = Instant::now();
    staging.sync(&files.syncs)?;
    let hashing = running.hash_if_asked(context, eligible, input_dir, &mut outcome.files)?;
    let moved = files.meter.stages(!outcome.totals.stages.is_empty());
    StageTime::add_all(&mut outcome.totals.stages, &moved);
    StageTime::add_all(&mut outcome.totals.stages, &running.prepared.stages);
    let synced = host_stage("sync folder", syncing);
    StageTime::add_all(&mut outcome.totals.stages, &[synced]);
    outcome.subcompactions = subcompactions.len();
    outcome.compressed_by = plan.output.table.compression.implementation;
    outcome.compressor = plan.output.table.compression.compressor();
    outcome.files_cached_instead = files.cached_instead();
    let names: Vec<_> = devices.iter().map(|work| &*work.device).collect();
    outcome.device = names.join("+");
    outcome.devices = devices;
    outcome.elapsed = started.elapsed();
    outcome.cpu = running.prepared.cpu_elsewhere
        + handle.cpu()
        + running.cpu()
        + hashing
        + outcome.totals.cpu_elsewhere
        + files.syncs.cpu()
        + files.direct.as_ref().map_or(Duration::ZERO, |d| d.stop())
        + thread_cpu().saturating_sub(cpu);
    outcome.has_plugins = plan.has_plugins();
    outcome.learned_filter = match running.prepared.learned_filter {
        LearnedFilter::Certain(millibits) => Some(millibits),
        LearnedFilter::No | LearnedFilter::Likely(_) => None,
    };
    Ok(outcome)
}

/// Returns the priority of a job.
fn priority(info: &JobInfo) -> Priority {
    match (info.base_input_level == 0, info.is_in_bottom_pool) {
        // It makes room in level 0; writers stall if it is late.
        (true, false) => Priority::High,
        (true, true) | (false, false) => Priority::Normal,
        // RocksDB runs it in the bottom-priority pool, so it can wait.
        (false, true) => Priority::Low,
    }
}

/// Returns the work of each device on a job, the CPU first.
fn devices_work(
    made: &[FinishedTask],
    devices: &[DeviceEntry],
    cpu: &dyn Backend,
    input_bytes: &[u64],
) -> Vec<DeviceWork> {
    let others = devices.iter();
    let others = others.map(|other| (other.number, &*other.device.backend));
    let all = std::iter::once((HOST, cpu)).chain(others);
    let work = all.map(|(number, backend)| {
        let of_it = made.iter().zip(input_bytes);
        let of_it = of_it.filter(|(task, _)| task.device == number);
        let mut work = DeviceWork {
            device: backend.name().to_owned(),
            subcompactions: 0,
            bytes: 0,
            near_data_bytes: 0,
        };
        for (task, bytes) in of_it {
            work.subcompactions += 1;
            work.bytes += bytes;
            if backend.is_near_data() {
                let files = task.report.files().iter();
                work.near_data_bytes += files.map(|file| file.size).sum::<u64>();
            }
        }
        work
    });
    work.filter(|work| work.subcompactions > 0).collect()
}

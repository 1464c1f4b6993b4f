//! Preparation of a job, in three steps.
//!
//! ```text
//!   open    inputs => tables: footers, properties, indexes, range tombstones
//!   plan    tables => rules, output, subcompactions
//!   place   plan => devices, compressor, read-ahead, memory of a subcompaction
//! ```

mod admission;
mod open;

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rockmill_core::{CheckedOrder, Job, Plan, Resource, Result, StageTime, Subcompaction, borders};
use twox_hash::XxHash3_64;

use crate::eligibility::{self, EligibleJob, LearnedFilter};
use crate::job::Inputs;
use crate::run_context::RunContext;
use crate::subcompactions;
use rockmill_exec::admit::Admitted;
use rockmill_exec::budget::{Entry, JobShare};
use rockmill_exec::throughput::JobSize;
use rockmill_storage::io::JobIo;

pub use open::{open_input, tombstones_in};

/// A job that is ready to run.
#[derive(Debug)]
pub struct Prepared {
    /// The inputs, which are closed: each subcompaction opens those that it reads.
    pub inputs: Inputs,
    /// The plan.
    pub plan: Plan,
    /// How the filter's size was found.
    pub learned_filter: LearnedFilter,
    /// The subcompactions in key order.
    pub subcompactions: Vec<Subcompaction>,
    /// Stored bytes of each subcompaction's data blocks. A block that two subcompactions share counts for both.
    pub subcompaction_bytes: Vec<u64>,
    /// Known sizes of the subcompactions.
    pub size: JobSize,
    /// Devices, read-ahead and memory of the subcompactions.
    pub admitted: Admitted,
    /// CPU time of threads other than the caller's.
    pub cpu_elsewhere: Duration,
    /// Times of opening and planning.
    pub stages: [StageTime; 2],
}

/// Returns the job's request to enter the budget, before it opens the files in `dir`.
pub fn entry(job: &Job, dir: &Path) -> Entry {
    /// Bytes of data per byte of index in memory: an index entry of some 64 bytes per block of 4 KiB.
    const DATA_PER_INDEX: u64 = 64;
    let sizes = job.tree.inputs.iter().map(|input| input.size);
    let bytes = sizes.fold(0, u64::saturating_add);
    Entry {
        database: Some(XxHash3_64::oneshot(dir.as_os_str().as_bytes())),
        expected_bytes: bytes / DATA_PER_INDEX,
    }
}

/// Opens the inputs in `dir`, plans and splits into subcompactions. The indexes count towards the job's `share` of the
/// budget.
///
/// # Errors
/// Declined, or Corruption or Storage if an input cannot be read.
pub fn prepare(
    context: &RunContext<'_>,
    files: &Arc<JobIo>,
    share: &JobShare,
    eligible: &EligibleJob,
    dir: &Path,
) -> Result<Prepared> {
    let budget = context.executor.budget();
    let opening = Instant::now();
    context.descriptors.job_begins(&**context.storage);
    let (inputs, cpu_of_opening) = open::inputs(context, files, share, eligible, dir)?;
    let (tables, closed): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
    let opened = host_stage("open inputs", opening);
    let planning = Instant::now();
    let room = budget.all_bytes().saturating_sub(share.held_bytes());
    let mut planned = eligibility::with_inputs(eligible, &tables, room, context.cancel)?;
    let rules = &planned.plan.rules;
    share.hold(rules.tombstones.memory_bytes())?;
    let checked = rules.checked_order.as_deref();
    share.hold(checked.map_or(0, CheckedOrder::memory_bytes))?;
    let threads = budget.slots();
    let (subcompactions, cpu_of_splitting) =
        subcompactions::split(&mut planned.plan, &tables, threads, context.cancel)?;
    let inputs = |subcompaction: &Subcompaction| {
        borders::overlapping(&subcompaction.range, &tables).count() as u64
    };
    let max_inputs = subcompactions.iter().map(inputs).max();
    context.descriptors.require(max_inputs.unwrap_or(0))?;
    let bytes =
        |subcompaction: &Subcompaction| borders::stored_bytes(&subcompaction.range, &tables);
    let subcompaction_bytes: Vec<u64> = subcompactions.iter().map(bytes).collect();
    let mut planned_job = admission::PlannedJob {
        context,
        files,
        share,
        job: &eligible.job,
        tables: &tables,
        subcompaction_bytes: &subcompaction_bytes,
        plan: &mut planned.plan,
        on_cpu: None,
    };
    let admitted = planned_job.admit()?;
    let size = planned_job.size();
    Ok(Prepared {
        admitted,
        plan: planned.plan,
        learned_filter: planned.learned_filter,
        subcompactions,
        subcompaction_bytes,
        size,
        cpu_elsewhere: cpu_of_opening + cpu_of_splitting,
        stages: [opened, host_stage("plan", planning)],
        inputs: Inputs::new(tables, closed, context.descriptors),
    })
}

/// Returns the time of a stage of the host that began at `since`.
pub fn host_stage(stage: &'static str, since: Instant) -> StageTime {
    StageTime {
        stage,
        resource: Resource::Host,
        seconds: since.elapsed().as_secs_f64(),
        bytes: 0,
    }
}

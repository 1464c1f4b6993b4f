//! Simulated devices: the CPU backend compacts a task, and the task takes the time that a profile gives.
//!
//! A task uses these resources in order:
//!
//! 1. Device memory: waits until enough is free.
//! 2. The link to the device, shared by all tasks.
//! 3. One of `n` units.
//! 4. The link back, shared by all tasks.
//!
//! Stages of one task follow each other; stages of different tasks overlap. If the host takes longer than the profile,
//! the extra time is not compensated.

mod damage;
mod memory;
mod profile;
#[cfg(test)]
mod tests;
mod timeline;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, Footprint, Lock, Operator, OutputPlan, ReadTask,
    Request, Result, SstSink, Support, TaskReport, Unsupported,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::key::TAG_SIZE;
use twox_hash::XxHash3_64;

use crate::{Fault, UnitProfile};
use damage::Images;
use memory::Memory;
pub use profile::Profile;
use rockmill_storage::clock::CANCEL_POLL;
use rockmill_storage::clock::Clock;
use timeline::{Stages, Timeline};

/// Time in which a driver replaces a broken context.
const CONTEXT_TIME: Duration = Duration::from_secs(30);

/// Time after which a hanging call returns; the job has abandoned it long before.
const HANG_TIME: Duration = Duration::from_secs(60 * 60);

/// Factor by which a slow task takes longer.
const SLOW_TIMES: f64 = 10.0;

/// Device memory relative to the input size: the outputs are no larger than the inputs.
const MEMORY_TIMES: u64 = 2;

/// A simulated device.
#[derive(Debug)]
pub struct Simulated {
    name: String,
    profile: UnitProfile,
    clock: Arc<dyn Clock>,
    memory: Memory,
    state: Lock<State>,
}

#[derive(Debug)]
struct State {
    timeline: Timeline,
    /// Time at which the context works again.
    broken_until: Duration,
    faults: BTreeMap<&'static str, u64>,
}

impl Simulated {
    /// Creates a device for `profile` with at most `memory_bytes` of memory, in the time of `clock`.
    pub fn new(profile: &Profile, memory_bytes: Option<u64>, clock: Arc<dyn Clock>) -> Self {
        let name = profile.device_name();
        let profile = profile.parameters().clone();
        let bytes =
            memory_bytes.map_or(profile.memory_bytes, |most| most.min(profile.memory_bytes));
        Self {
            name,
            memory: Memory::new(bytes, Arc::clone(&clock)),
            state: Lock::new(State {
                timeline: Timeline::new(profile.units),
                broken_until: Duration::ZERO,
                faults: BTreeMap::new(),
            }),
            profile,
            clock,
        }
    }

    /// Random number of a task. It is the same in each repetition of its job.
    fn lot(&self, task: &ReadTask<'_>, plan: &OutputPlan) -> u64 {
        let session = &plan.properties.session_id;
        let begin = task.reading.range.begin.as_deref().unwrap_or_default();
        let of = [session.as_bytes(), begin].concat();
        XxHash3_64::oneshot_with_seed(self.profile.fault_seed, &of)
    }

    fn count(&self, fault: Fault) {
        *self.state.lock().faults.entry(fault.name()).or_default() += 1;
    }

    /// Returns the error of `fault`, if it makes the call fail.
    fn strike(&self, fault: Fault) -> Result<()> {
        let what = match fault {
            Fault::Allocation => "there is no device memory for a task",
            Fault::Launch => "a kernel did not start",
            Fault::Context => {
                self.state.lock().broken_until = self.clock.now() + CONTEXT_TIME;
                "the context broke"
            }
            Fault::Hang => {
                self.count(fault);
                self.clock.pause(HANG_TIME);
                return Err(trouble("a call hung"));
            }
            Fault::Slow | Fault::Truncated | Fault::Flipped | Fault::WrongResult => return Ok(()),
        };
        self.count(fault);
        Err(trouble(what))
    }

    /// Lets the CPU write the files, and damages them according to the fault.
    fn make(
        &self,
        task: ReadTask<'_>,
        plan: &OutputPlan,
        sink: &mut dyn SstSink,
        fault: Option<Fault>,
        lot: u64,
    ) -> Result<TaskReport> {
        let Some(fault) = fault.filter(|fault| fault.damages()) else {
            return CpuBackend.run(task, Operator::WriteSst { plan, sink });
        };
        let mut images = Images::new(sink);
        let operator = Operator::WriteSst {
            plan,
            sink: &mut images,
        };
        let report = CpuBackend.run(task, operator)?;
        if images.give_back(fault, &mut SmallRng::seed_from_u64(lot))? {
            self.count(fault);
        }
        Ok(report)
    }

    /// Returns the times of the stages of a task with this report.
    fn stages(&self, report: &TaskReport) -> Stages {
        let pairs = report.read.entries.iter().sum::<u64>() as f64;
        let mean = |bytes: u64| {
            if pairs > 0.0 {
                bytes as f64 / pairs
            } else {
                0.0
            }
        };
        let key_bytes = (mean(report.read.key_bytes) - TAG_SIZE as f64).max(0.0);
        let kept = mean(report.read.rows());
        let speeds = (self.profile).stage_speeds(key_bytes, mean(report.read.value_bytes), kept);
        let slowest = speeds.into_iter().fold(f64::INFINITY, f64::min);
        let written = report.files().iter().map(|file| file.size).sum::<u64>() as f64;
        let link = self.profile.link.map(|link| {
            let there = report.read.bytes as f64 / link.to_device;
            (there, written / link.from_device)
        });
        let (there, back) = link.unwrap_or_default();
        Stages {
            there,
            unit: pairs / slowest,
            back,
        }
    }

    fn wait_until(&self, end: Duration, cancel: &CancelToken) -> Result<()> {
        loop {
            cancel.check()?;
            match end.saturating_sub(self.clock.now()) {
                Duration::ZERO => return Ok(()),
                left => self.clock.pause(left.min(CANCEL_POLL)),
            }
        }
    }
}

fn trouble(what: &str) -> Error {
    Error::new(ErrorKind::Device, format!("simulated: {what}"))
}

impl Backend for Simulated {
    fn name(&self) -> &str {
        &self.name
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        match request.purpose.output_plan() {
            Some(_) => request.support(),
            None => Support::No(Unsupported::Purpose),
        }
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        CpuBackend.footprint(request)
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let Operator::WriteSst { plan, sink } = operator else {
            return Err(operator.unsupported());
        };
        if self.clock.now() < self.state.lock().broken_until {
            return Err(trouble("the context is broken"));
        }
        let lot = self.lot(&task, plan);
        let fault = self.profile.faults.draw(share(lot));
        fault.map_or(Ok(()), |fault| self.strike(fault))?;
        let tables = task.reading.tables.iter();
        let bytes: u64 = tables
            .map(|table| table.stored_bytes(task.reading.range))
            .sum();
        let _held = self
            .memory
            .take(bytes.saturating_mul(MEMORY_TIMES), task.cancel)?;
        let begun = self.clock.now();
        let mut report = self.make(task, plan, sink, fault, lot)?;
        // The host has verified its own files, but not the damage on the way back.
        if let Some(ssts) = report.output.ssts_mut() {
            ssts.verified &= !self.profile.faults.damage();
        }
        let mut stages = self.stages(&report);
        if fault == Some(Fault::Slow) {
            self.count(Fault::Slow);
            stages.unit *= SLOW_TIMES;
        }
        let end = self.state.lock().timeline.add(begun, &stages);
        self.wait_until(end, task.cancel)?;
        Ok(report)
    }

    /// A device without a link is at the data.
    fn is_near_data(&self) -> bool {
        self.profile.link.is_none()
    }

    fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().faults.clone()
    }
}

/// Maps a random number to a share, from 0 to below 1.
fn share(lot: u64) -> f64 {
    const SPARE_BITS: u32 = u64::BITS - f64::MANTISSA_DIGITS;
    (lot >> SPARE_BITS) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}

//! Upper bounds of a case's memory and time.

use std::time::Duration;

use rockmill_compaction::Device;
use rockmill_cuda::Target;
use rockmill_testkit::{FaultRates, UnitProfile, UnitStage};

use super::request::{Baseline, Request};
use super::watch::Watch;
use super::world::{Ending, World};
use crate::family::Family;

impl World {
    /// Checks the memory beyond the budget. It is at most the sum of three things: one subcompaction; the difference
    /// between actual and estimated sizes of indexes and checks; and one subcompaction for each job and device that was
    /// abandoned in the job's own memory.
    pub fn memory_was_bounded(&self, watch: &Watch, ending: &Ending) {
        let jobs = || self.requests.iter().zip(&ending.alone);
        let subcompaction = jobs().map(|(request, alone)| self.subcompaction_bytes(request, alone));
        let subcompaction = subcompaction.max().unwrap_or(0);
        let kept: u64 = jobs()
            .map(|(request, alone)| self.kept_bytes(request, alone))
            .sum();
        // A device gets nothing else before these calls return.
        let devices = self.settings.device.iter().count() as u64;
        let abandoned =
            (ending.stats.subcompactions_abandoned).min(devices * jobs().count() as u64);
        let most = subcompaction + kept + abandoned * subcompaction;
        let beyond = watch.max_beyond();
        let seed = self.seed;
        assert!(
            beyond <= most,
            "seed {seed}: {beyond} beyond the budget, not {most}"
        );
    }

    /// Returns the maximum memory of a subcompaction, with the full read-ahead of the settings.
    fn subcompaction_bytes(&self, request: &Request, alone: &Baseline) -> u64 {
        /// Number of pieces of an input that direct reads have in flight.
        const PIECES: u64 = 4;
        if self.settings.device.contains(Device::Kernels(Target::Host)) {
            // They need more than the CPU, but at most the budget.
            return self.budgets(Duration::ZERO, Duration::MAX).1;
        }
        let ahead = self.settings.mutable.read_ahead_bytes as u64 * PIECES;
        alone.subcompaction_bytes + self.of(request).1.files * ahead
    }

    /// Returns the memory that a job keeps until it ends: its indexes, and the memory for verifying files in parallel
    /// with subcompactions.
    fn kept_bytes(&self, request: &Request, alone: &Baseline) -> u64 {
        /// Bytes of a filter per entry, rounded up.
        const FILTER_BYTES: u64 = 2;
        /// An index in stored and in decoded form.
        const INDEX_TIMES: u64 = 2;
        let checks = self.settings.mutable.sync_threads.unwrap_or(0) as u64;
        let entries = self.of(request).1.entries;
        let check = FILTER_BYTES * entries + INDEX_TIMES * alone.index_bytes;
        alone.index_bytes + checks * check
    }

    /// Checks that each job ends before all work of its time could have been done sequentially. The CPU computes in no
    /// time. Time is needed for moving bytes, for a device's units, and for calls that do not return. A thread that
    /// waits for a late device may notice one check later.
    pub fn nobody_idled(&self, times: &[Duration], ending: &Ending, moved_bytes: u64) {
        /// Per subcompaction, for the waits for a slot, an answer and the I/O limit.
        const LOOK: f64 = 3.0 * 0.02;
        /// A call may take this many times the expected time, which is the time of earlier, similar subcompactions.
        const DEADLINE: f64 = 2.0 * 20.0;
        let limit = self.settings.mutable.io_bytes_per_second;
        let paces = [
            self.storage_speed.map(f64::recip),
            (limit > 0).then(|| (limit as f64).recip()),
            self.profiles
                .iter()
                .filter_map(slowest_link)
                .reduce(f64::max),
        ];
        let moving = moved_bytes as f64 * paces.into_iter().flatten().sum::<f64>();
        for (i, request) in self.requests.iter().enumerate() {
            let ends = times[i];
            let met = (0..times.len()).filter(|&other| {
                self.requests[other].begins <= ends && times[other] >= request.begins
            });
            let (units, subcompactions) = met.fold((0.0, 0), |(seconds, subcompactions), other| {
                let family = self.of(&self.requests[other]).1;
                let unit = self
                    .profiles
                    .iter()
                    .map(|profile| unit_seconds(profile, family));
                let slowest = unit.fold(0.0, f64::max);
                (
                    seconds + slowest,
                    subcompactions + ending.alone[other].subcompactions,
                )
            });
            let work = moving + units + (subcompactions + 1) as f64 * LOOK;
            let task_deadline = self
                .settings
                .task_deadline
                .known
                .as_secs_f64()
                .max(DEADLINE * work);
            let most = work + ending.stats.subcompactions_abandoned as f64 * task_deadline;
            let took = (ends.saturating_sub(request.begins)).as_secs_f64();
            let seed = self.seed;
            assert!(
                took <= most,
                "seed {seed}: job {i} took {took} s, not {most}"
            );
        }
    }
}

/// Returns seconds per byte.
fn slowest_link(profile: &UnitProfile) -> Option<f64> {
    let link = profile.link?;
    Some(link.to_device.min(link.from_device).recip())
}

/// Returns the seconds in which a unit does all subcompactions of a job, each of them slowly if slow faults are
/// possible.
fn unit_seconds(profile: &UnitProfile, family: &Family) -> f64 {
    const SLOW_TIMES: f64 = 10.0;
    let cycles = |stage: UnitStage| {
        let bytes = stage.key_passes * family.key_bytes as f64
            + stage.value_passes * family.value_bytes as f64;
        family.entries as f64 * stage.base_cycles + bytes / profile.bus_bytes
    };
    let stages = [
        profile.decoder,
        profile.transfer,
        profile.merger,
        profile.encoder,
    ];
    // The slowest stage of a subcompaction may differ from that of the job.
    let cycles: f64 = stages.map(cycles).iter().sum();
    let may_be_slow = profile.faults != FaultRates::default();
    let times = if may_be_slow { SLOW_TIMES } else { 1.0 };
    times * cycles / profile.clock_hz
}

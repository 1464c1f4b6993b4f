//! What a case may take at most: of memory, and of time.

use std::time::Duration;

use rockmill_compaction::Device;
use rockmill_cuda::Target;
use rockmill_testkit::{FaultRates, UnitProfile, UnitStage};

use super::request::{Alone, Request};
use super::watch::Watch;
use super::world::{Ending, World};
use crate::family::Family;

impl World {
    /// What is held goes beyond the budget by one subcompaction at most, by what indexes and checks take beyond what the sizes of
    /// files let expect, and by a subcompaction of each job that was abandoned in the job's own memory, on each device.
    pub fn memory_was_bounded(&self, watch: &Watch, ending: &Ending) {
        let jobs = || self.requests.iter().zip(&ending.alone);
        let subcompaction = jobs().map(|(request, alone)| self.subcompaction_bytes(request, alone));
        let subcompaction = subcompaction.max().unwrap_or(0);
        let kept: u64 = jobs()
            .map(|(request, alone)| self.kept_bytes(request, alone))
            .sum();
        // Nothing else goes to a device before such calls come back.
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

    /// What a subcompaction takes at most, with all that the settings let it read ahead.
    fn subcompaction_bytes(&self, request: &Request, alone: &Alone) -> u64 {
        /// Direct reads have so many pieces of an input on their way.
        const PIECES: u64 = 4;
        if self.settings.device.contains(Device::Kernels(Target::Host)) {
            // They take more than the CPU, but no more than there is.
            return self.budgets(Duration::ZERO, Duration::MAX).1;
        }
        let ahead = self.settings.mutable.read_ahead_bytes as u64 * PIECES;
        alone.subcompaction_bytes + self.of(request).1.files * ahead
    }

    /// What a job keeps in memory until it ends: its indexes, and room for the filters and indexes that are looked at
    /// beside subcompactions.
    fn kept_bytes(&self, request: &Request, alone: &Alone) -> u64 {
        /// Bytes of a filter for each entry, rounded up.
        const FILTER_BYTES: u64 = 2;
        /// An index as it is stored and as it is kept.
        const INDEX_TIMES: u64 = 2;
        let checks = self.settings.mutable.sync_threads.unwrap_or(0) as u64;
        let entries = self.of(request).1.entries;
        let check = FILTER_BYTES * entries + INDEX_TIMES * alone.index_bytes;
        alone.index_bytes + checks * check
    }

    /// Each job ends before all work could have been done one after another that was there in its time. The CPU computes in
    /// no time. What takes time is moving bytes, a device's units, and to wait for calls that do not come back; and who
    /// waits for a device that is late may see that a look later.
    pub fn nobody_idled(&self, times: &[Duration], ending: &Ending, moved_bytes: u64) {
        /// For each subcompaction, of those that wait for a place, an answer, and the limit of I/O.
        const LOOK: f64 = 3.0 * 0.02;
        /// So many times what was expected is waited for a call, and what was expected is what subcompactions took, which are about
        /// alike.
        const PATIENCE: f64 = 2.0 * 20.0;
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
            let patience = self
                .settings
                .patience
                .known
                .as_secs_f64()
                .max(PATIENCE * work);
            let most = work + ending.stats.subcompactions_abandoned as f64 * patience;
            let took = (ends.saturating_sub(request.begins)).as_secs_f64();
            let seed = self.seed;
            assert!(
                took <= most,
                "seed {seed}: job {i} took {took} s, not {most}"
            );
        }
    }
}

/// Seconds for a byte.
fn slowest_link(profile: &UnitProfile) -> Option<f64> {
    let link = profile.link?;
    Some(link.to_device.min(link.from_device).recip())
}

/// Seconds in which a unit does all subcompactions of a job, each of them slowly if that may happen.
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
    // The slowest stage of a subcompaction need not be that of the job.
    let cycles: f64 = stages.map(cycles).iter().sum();
    let may_be_slow = profile.faults != FaultRates::default();
    let times = if may_be_slow { SLOW_TIMES } else { 1.0 };
    times * cycles / profile.clock_hz
}

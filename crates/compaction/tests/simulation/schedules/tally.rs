//! Results of all cases.

use std::collections::BTreeMap;
use std::time::Duration;

use rockmill_testkit::Fault;

use super::crowd::Priority;
use super::world::{Ending, TOO_LARGE, World};

/// Sums over all cases.
#[derive(Debug, Default)]
pub struct Tally {
    crowds: u64,
    changes: u64,
    jobs: BTreeMap<String, u64>,
    subcompactions: u64,
    subcompactions_by: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, u64>,
    redone: u64,
    abandoned: u64,
    quarantine: u64,
    moved: u64,
    discarded: u64,
}

impl Tally {
    pub fn add(&mut self, world: &World, ending: &Ending) {
        let stats = &ending.stats;
        self.add_jobs(world, ending);
        for (sum, more) in [
            (&mut self.crowds, u64::from(world.crowd.is_some())),
            (&mut self.changes, world.changes.len() as u64),
            (&mut self.subcompactions, stats.subcompactions),
            (&mut self.redone, stats.subcompactions_redone_by_cpu),
            (&mut self.abandoned, stats.subcompactions_abandoned),
            (&mut self.quarantine, stats.device_quarantined),
            (&mut self.moved, stats.subcompactions_moved),
            (&mut self.discarded, stats.verification_failures),
        ] {
            *sum += more;
        }
        for (name, did) in &stats.devices {
            let kind = match name.starts_with("sim:") {
                true => "simulated",
                false if name == "cpu" => "cpu",
                false => "kernels",
            };
            *self.subcompactions_by.entry(kind).or_default() += did.subcompactions;
        }
        for (fault, times) in &stats.simulated_faults {
            *self.faults.entry(fault.clone()).or_default() += times;
        }
    }

    /// Counts jobs by result, priority, and number of subcompactions that fitted the first budget at once.
    fn add_jobs(&mut self, world: &World, ending: &Ending) {
        const MANY: u64 = 3;
        let jobs = world.requests.iter().zip(&ending.jobs);
        for ((request, ended), alone) in jobs.zip(&ending.alone) {
            let how = match ended {
                Ok(()) => "done",
                Err(TOO_LARGE) => "declined, too large",
                Err(_) => "cancelled",
            };
            let fitting = alone.fitting(world.settings.mutable.memory_budget_bytes);
            let priority = Priority::of(world, request);
            for kind in [
                format!("jobs {how}"),
                format!("jobs {how}: {priority:?}"),
                format!("jobs {how}: {} subcompactions fit", fitting.min(MANY)),
            ] {
                *self.jobs.entry(kind).or_default() += 1;
            }
        }
    }

    pub fn print(&self, cases: u64, took: Duration) {
        let minute = 60.0 * cases as f64 / took.as_secs_f64();
        println!("{cases} cases, {minute:.0} a minute");
        let rows = [
            ("crowds", self.crowds),
            ("changes of settings", self.changes),
            ("subcompactions of jobs done", self.subcompactions),
            ("subcompactions redone by the CPU", self.redone),
            ("subcompactions abandoned", self.abandoned),
            ("subcompactions discarded", self.discarded),
            ("subcompactions moved", self.moved),
            ("devices quarantined", self.quarantine),
        ];
        let by = self.subcompactions_by.iter();
        let by = by
            .map(|(kind, subcompactions)| (format!("subcompactions on: {kind}"), *subcompactions));
        let faults = self.faults.iter();
        let faults = faults.map(|(fault, times)| (format!("fault: {fault}"), *times));
        let rows = rows.map(|(what, count)| (what.to_owned(), count));
        let jobs = self.jobs.clone().into_iter();
        for (what, count) in jobs.chain(rows).chain(by).chain(faults) {
            println!("{what:36} {count:>9}");
        }
    }

    /// The cases are only useful if they covered everything.
    pub fn assert_all_was_met(&self) {
        for fault in Fault::ALL {
            assert!(
                self.faults.contains_key(fault.name()),
                "nothing met {fault}"
            );
        }
        let least = [self.crowds, self.changes, self.abandoned, self.quarantine];
        assert!(least.iter().all(|&count| count > 0), "{self:?}");
        let met = ["done", "cancelled", "declined, too large"].map(|how| {
            let priorities =
                ["High", "Normal", "Low"].map(|priority| format!("jobs {how}: {priority}"));
            priorities.iter().all(|kind| self.jobs.contains_key(kind))
        });
        assert_eq!(met, [true; 3], "{self:?}");
        for fitting in 0..=3 {
            let kind = format!("jobs done: {fitting} subcompactions fit");
            assert!(self.jobs.contains_key(&kind), "{self:?}");
        }
        assert_eq!(self.subcompactions_by.len(), 3, "{self:?}");
    }
}

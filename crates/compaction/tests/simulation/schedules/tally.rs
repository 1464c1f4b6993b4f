//! What all cases came to.

use std::collections::BTreeMap;
use std::time::Duration;

use rockmill_testkit::Fault;

use super::crowd::Urgency;
use super::world::{Ending, TOO_LARGE, World};

/// Sums over all cases.
#[derive(Debug, Default)]
pub struct Tally {
    crowds: u64,
    changes: u64,
    jobs: BTreeMap<String, u64>,
    slices: u64,
    slices_by: BTreeMap<&'static str, u64>,
    faults: BTreeMap<String, u64>,
    redone: u64,
    left_behind: u64,
    set_aside: u64,
    moved: u64,
    thrown_out: u64,
}

impl Tally {
    pub fn add(&mut self, world: &World, ending: &Ending) {
        let stats = &ending.stats;
        self.add_jobs(world, ending);
        for (sum, more) in [
            (&mut self.crowds, u64::from(world.crowd.is_some())),
            (&mut self.changes, world.changes.len() as u64),
            (&mut self.slices, stats.slices),
            (&mut self.redone, stats.slices_redone),
            (&mut self.left_behind, stats.slices_left_behind),
            (&mut self.set_aside, stats.devices_set_aside),
            (&mut self.moved, stats.slices_moved),
            (&mut self.thrown_out, stats.verification_failures),
        ] {
            *sum += more;
        }
        for (name, did) in &stats.devices {
            let kind = match name.starts_with("sim:") {
                true => "simulated",
                false if name == "cpu" => "cpu",
                false => "kernels",
            };
            *self.slices_by.entry(kind).or_default() += did.slices;
        }
        for (fault, times) in &stats.simulated_faults {
            *self.faults.entry(fault.clone()).or_default() += times;
        }
    }

    /// Jobs by what became of them, how urgent they were, and how many of their slices fitted the first budget at once.
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
            let urgency = Urgency::of(world, request);
            for kind in [
                format!("jobs {how}"),
                format!("jobs {how}: {urgency:?}"),
                format!("jobs {how}: {} slices fit", fitting.min(MANY)),
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
            ("slices of jobs done", self.slices),
            ("slices redone by the CPU", self.redone),
            ("slices left behind", self.left_behind),
            ("slices thrown out", self.thrown_out),
            ("slices moved", self.moved),
            ("devices set aside", self.set_aside),
        ];
        let by = self.slices_by.iter();
        let by = by.map(|(kind, slices)| (format!("slices on: {kind}"), *slices));
        let faults = self.faults.iter();
        let faults = faults.map(|(fault, times)| (format!("fault: {fault}"), *times));
        let rows = rows.map(|(what, count)| (what.to_owned(), count));
        let jobs = self.jobs.clone().into_iter();
        for (what, count) in jobs.chain(rows).chain(by).chain(faults) {
            println!("{what:36} {count:>9}");
        }
    }

    /// Cases are worth something only if they came to it.
    pub fn assert_all_was_met(&self) {
        for fault in Fault::ALL {
            assert!(
                self.faults.contains_key(fault.name()),
                "nothing met {fault}"
            );
        }
        let least = [self.crowds, self.changes, self.left_behind, self.set_aside];
        assert!(least.iter().all(|&count| count > 0), "{self:?}");
        let met = ["done", "cancelled", "declined, too large"].map(|how| {
            let urgencies =
                ["First", "Usual", "Last"].map(|urgency| format!("jobs {how}: {urgency}"));
            urgencies.iter().all(|kind| self.jobs.contains_key(kind))
        });
        assert_eq!(met, [true; 3], "{self:?}");
        for fitting in 0..=3 {
            let kind = format!("jobs done: {fitting} slices fit");
            assert!(self.jobs.contains_key(&kind), "{self:?}");
        }
        assert_eq!(self.slices_by.len(), 3, "{self:?}");
    }
}

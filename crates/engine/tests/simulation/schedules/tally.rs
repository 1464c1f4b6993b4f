//! What all cases came to.

use std::collections::BTreeMap;
use std::time::Duration;

use rockmill_engine::model::Fault;

use super::world::Ending;

/// Sums over all cases.
#[derive(Debug, Default)]
pub struct Tally {
    done: u64,
    cancelled: u64,
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
    pub fn add(&mut self, ending: &Ending) {
        let stats = &ending.stats;
        for (sum, more) in [
            (&mut self.done, ending.done),
            (&mut self.cancelled, ending.cancelled),
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

    pub fn print(&self, cases: u64, took: Duration) {
        let minute = 60.0 * cases as f64 / took.as_secs_f64();
        println!("{cases} cases, {minute:.0} a minute");
        let rows = [
            ("jobs done", self.done),
            ("jobs cancelled", self.cancelled),
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
        for (what, count) in rows.into_iter().chain(by).chain(faults) {
            println!("{what:28} {count:>9}");
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
        let least = [self.done, self.cancelled, self.left_behind, self.set_aside];
        assert!(least.iter().all(|&count| count > 0), "{self:?}");
        assert_eq!(self.slices_by.len(), 3, "{self:?}");
    }
}

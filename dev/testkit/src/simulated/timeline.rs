//! Times at which the resources of a device are busy.

use std::time::Duration;

/// Time that a task uses each resource, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stages {
    /// Link to the device.
    pub there: f64,
    /// One unit.
    pub unit: f64,
    /// Link back.
    pub back: f64,
}

/// Times from which the resources are free.
#[derive(Debug)]
pub struct Timeline {
    there: Duration,
    units: Vec<Duration>,
    back: Duration,
}

impl Timeline {
    /// Creates `units` idle units and an idle link.
    pub fn new(units: u32) -> Self {
        Self {
            there: Duration::ZERO,
            units: vec![Duration::ZERO; units as usize],
            back: Duration::ZERO,
        }
    }

    /// Adds a task that arrives at `begun`, after all earlier ones. Returns the time of its end.
    pub fn add(&mut self, begun: Duration, stages: &Stages) -> Duration {
        let there = pass(&mut self.there, begun, stages.there);
        let computed = match self.units.iter_mut().min() {
            Some(unit) => pass(unit, there, stages.unit),
            None => there,
        };
        pass(&mut self.back, computed, stages.back)
    }
}

/// Reserves a resource for `seconds`, from the time at which it is free.
fn pass(free: &mut Duration, from: Duration, seconds: f64) -> Duration {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    *free = from.max(*free).saturating_add(time);
    *free
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAGES: Stages = Stages {
        there: 1.0,
        unit: 10.0,
        back: 2.0,
    };

    fn ends(units: u32, tasks: usize, stages: &Stages) -> Vec<u64> {
        let mut timeline = Timeline::new(units);
        let tasks = 0..tasks;
        tasks
            .map(|_| timeline.add(Duration::ZERO, stages).as_secs())
            .collect()
    }

    #[test]
    fn stages_of_a_task_follow_each_other_and_those_of_several_overlap() {
        assert_eq!(ends(1, 3, &STAGES), [13, 23, 33]);
        assert_eq!(ends(2, 4, &STAGES), [13, 15, 23, 25]);
        let linked = Stages {
            back: 20.0,
            ..STAGES
        };
        assert_eq!(ends(8, 3, &linked), [31, 51, 71]);
    }

    #[test]
    fn what_comes_later_finds_idle_parts() {
        let mut timeline = Timeline::new(1);
        timeline.add(Duration::ZERO, &STAGES);
        let later = Duration::from_secs(100);
        assert_eq!(timeline.add(later, &STAGES).as_secs(), 113);
    }
}

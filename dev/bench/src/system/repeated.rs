//! A cell that was measured several times.

use std::collections::BTreeSet;

use rockmill_side_by_side::running_system::Consumption;

use super::cell::{Cell, Interval, Outcome, Phase};
use super::metric::{Course, Metric};

/// A cell and the results of its measurements, in order.
#[derive(Debug)]
pub struct Measured {
    pub cell: Cell,
    pub outcomes: Vec<Outcome>,
}

/// One phase of all measurements.
#[derive(Debug)]
pub struct Phases<'a> {
    cell: &'a Cell,
    of: Vec<&'a Phase>,
}

impl Measured {
    /// Returns the phases in order.
    pub fn phases(&self) -> Vec<Phases<'_>> {
        let phases = self.outcomes.first().map_or(0, |first| first.phases.len());
        let at = |number| Phases {
            cell: &self.cell,
            of: (self.outcomes.iter())
                .filter_map(|outcome| outcome.phases.get(number))
                .collect(),
        };
        (0..phases).map(at).collect()
    }
}

impl Phases<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        self.of.first().map_or("", |phase| phase.name.as_str())
    }

    fn each(&self, metric: &Metric) -> impl Iterator<Item = f64> {
        let phases = self.of.iter();
        phases.filter_map(|phase| (metric.of)(self.cell, phase))
    }

    /// Median of a metric, over the measurements that have it.
    pub fn median(&self, metric: &Metric) -> Option<f64> {
        median(self.each(metric))
    }

    /// Median of a count.
    pub fn count(&self, of: fn(&Consumption) -> u64) -> u64 {
        median_count(self.of.iter().map(|phase| of(&phase.taken)))
    }

    /// Lowest and highest value of a metric, if there is any.
    pub fn spread(&self, metric: &Metric) -> Option<(f64, f64)> {
        self.each(metric).fold(None, |spread, value| {
            let (least, most) = spread.unwrap_or((value, value));
            Some((value.min(least), value.max(most)))
        })
    }

    /// Median number of subcompactions per device, without devices that did none.
    pub fn subcompactions(&self) -> Vec<(&str, u64)> {
        let names: BTreeSet<_> = (self.of.iter())
            .flat_map(|phase| phase.taken.subcompactions.keys())
            .collect();
        let subcompactions = |name: &String| {
            let each = self.of.iter().map(|phase| &phase.taken.subcompactions);
            median_count(each.map(|subcompactions| subcompactions.get(name).copied().unwrap_or(0)))
        };
        let each = names
            .into_iter()
            .map(|name| (name.as_str(), subcompactions(name)));
        each.filter(|(_, subcompactions)| *subcompactions > 0)
            .collect()
    }

    /// Points over time. Each is the median of the intervals with the same number, as long as most measurements have
    /// one.
    pub fn course(&self, course: &Course) -> Vec<(f64, f64)> {
        let most = self.of.len() / 2 + 1;
        let point = |number| {
            let each = self.of.iter();
            let each = each.filter_map(|phase| whole_intervals(phase).nth(number));
            let each: Vec<_> = each.collect();
            let values = each.iter().filter_map(|at| (course.of)(at));
            let until_s = median(each.iter().map(|at| at.until_s))?;
            (each.len() >= most).then_some((until_s, median(values)))
        };
        let points = (0..).map_while(point);
        points.filter_map(|(x, y)| Some((x, y?))).collect()
    }
}

/// Returns all intervals except a shorter last one, which may have only a few operations.
fn whole_intervals(phase: &Phase) -> impl Iterator<Item = &Interval> {
    let whole_s = phase.timeline.first().map_or(0.0, |first| first.seconds);
    let intervals = phase.timeline.iter();
    intervals.filter(move |at| at.seconds >= whole_s / 2.0)
}

/// Returns the middle value; for an even number of values, the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    Some(f64::midpoint(*lower, *upper))
}

fn median_count(counts: impl Iterator<Item = u64>) -> u64 {
    let median = median(counts.map(|count| count as f64));
    median.unwrap_or(0.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::args::Experiment;
    use crate::system::metric::{RATE_COURSE, READ_P99, SETTLE, WALL};
    use crate::system::tests::{args, phase};

    /// A cell with one phase; each number in `times` is the seconds, intervals and subcompactions of one measurement.
    fn measured(times: &[u32]) -> Measured {
        let outcome = |&seconds: &u32| {
            let mut phase = phase();
            phase.wall_s = f64::from(seconds);
            let interval = |number| Interval {
                seconds: 1.0,
                until_s: f64::from(number + 1),
                reads: phase.reads,
                writes: phase.writes,
                cpu_use: 0.5,
                gpu_use: None,
                traffic: phase.traffic,
            };
            phase.timeline = (0..seconds).map(interval).collect();
            phase.taken.subcompactions = [("cpu".to_owned(), u64::from(seconds))].into();
            if seconds == 9 {
                phase.taken.subcompactions.insert("cuda:0".to_owned(), 1);
            }
            phase.taken.jobs_too_small = u64::from(seconds);
            Outcome {
                phases: vec![phase],
            }
        };
        let cells = Experiment::Contention.cells(&args(&[])).expect("cells");
        Measured {
            cell: cells[0].clone(),
            outcomes: times.iter().map(outcome).collect(),
        }
    }

    #[test]
    fn one_time_is_shown_as_it_was() {
        let once = measured(&[5]);
        let phases = once.phases();
        assert_eq!((phases.len(), phases[0].name()), (1, "run"));
        assert_eq!(phases[0].median(&WALL), Some(5.0));
        assert_eq!(phases[0].spread(&WALL), Some((5.0, 5.0)));
        assert_eq!(phases[0].course(&RATE_COURSE).len(), 5);
        assert_eq!(
            (
                phases[0].count(|taken| taken.jobs_too_small),
                phases[0].subcompactions()
            ),
            (5, vec![("cpu", 5)])
        );
    }

    #[test]
    fn several_times_are_shown_by_their_median_and_spread() {
        let thrice = measured(&[9, 2, 4]);
        let phases = &thrice.phases()[0];
        assert_eq!(phases.median(&WALL), Some(4.0));
        assert_eq!(phases.spread(&WALL), Some((2.0, 9.0)));
        assert_eq!(phases.median(&SETTLE), Some(2.0));
        // A device used in one measurement of three is not typical.
        assert_eq!(phases.subcompactions(), [("cpu", 4)]);
        let course = phases.course(&RATE_COURSE);
        assert_eq!(course.last().map(|point| point.0), Some(4.0));
        let four = measured(&[9, 2, 4, 5]);
        assert_eq!(four.phases()[0].median(&WALL), Some(4.5));
        assert_eq!(four.phases()[0].course(&RATE_COURSE).len(), 4);
        assert_eq!(four.phases()[0].count(|taken| taken.jobs_too_small), 5);
    }

    #[test]
    fn what_was_never_measured_has_no_median() {
        let mut once = measured(&[1]);
        once.outcomes[0].phases[0].reads = None;
        let phases = &once.phases()[0];
        assert_eq!(
            (phases.median(&READ_P99), phases.spread(&READ_P99)),
            (None, None)
        );
    }
}

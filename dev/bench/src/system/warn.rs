//! Warnings about misleading comparisons in a report.

use rockmill_side_by_side::system::System;
use rockmill_terminal::output;

use super::metric::Metric;
use super::repeated::{Measured, Phases};

/// Returns warnings, each wrapped to lines, for a report that compares by `rate`.
pub fn warnings(rate: &Metric, measured: &[Measured]) -> Vec<String> {
    let swings = swings(rate, measured);
    let all = small_jobs(measured).into_iter().chain(swings);
    all.map(|text| output::wrapped(&text)).collect()
}

/// Warns about each system whose jobs were mostly left to RocksDB because of their size.
fn small_jobs(measured: &[Measured]) -> Vec<String> {
    let mut ways: Vec<(String, u64, u64)> = Vec::new();
    for of in measured {
        let name = of.cell.series();
        let at = ways.iter().position(|way| way.0 == name);
        let at = at.unwrap_or_else(|| {
            ways.push((name, 0, 0));
            ways.len() - 1
        });
        for phases in of.phases() {
            ways[at].1 += phases.count(|taken| taken.jobs_too_small);
            ways[at].2 += phases.count(|taken| taken.jobs_offered);
        }
    }
    // Results of older builds do not contain the number of jobs.
    let mostly_small = ways
        .iter()
        .filter(|(_, small, all)| small <= all && 2 * small > *all);
    let sentence = |(name, small, all): &(String, u64, u64)| {
        format!(
            "Warning: {small} of {all} jobs of {name} were below min_job_bytes, so RocksDB did them. The table \
             compares RocksDB mostly with itself; a larger --scale makes larger jobs."
        )
    };
    mostly_small.map(sentence).collect()
}

/// Warns about comparisons with RocksDB in which repeated measurements differ by more than the two medians.
fn swings(rate: &Metric, measured: &[Measured]) -> Option<String> {
    let (mut all, mut unclear) = (0, Vec::new());
    for point in measured.chunk_by(|a, b| a.cell.point == b.cell.point) {
        let is_rocksdb = |of: &&Measured| of.cell.system == System::Rocksdb && of.cell.compacts();
        let Some(rocksdb) = point.iter().find(is_rocksdb) else {
            continue;
        };
        let others = point.iter().filter(|of| of.cell.system != System::Rocksdb);
        for other in others.filter(|of| of.outcomes.len().min(rocksdb.outcomes.len()) > 1) {
            for (theirs, ours) in rocksdb.phases().iter().zip(&other.phases()) {
                all += 1;
                if is_unclear(rate, theirs, ours) {
                    let axes = other.cell.point.iter();
                    let mut place: Vec<_> = axes
                        .map(|(axis, value)| format!("{axis} {value}"))
                        .collect();
                    place.extend([other.cell.series(), ours.name().to_owned()]);
                    unclear.push(place.join(" "));
                }
            }
        }
    }
    (!unclear.is_empty()).then(|| {
        format!(
            "Warning: in {} of {all} comparisons with rocksdb, measurements of one system differ by more {} \
             than the systems do, so they show no difference: {}. Take a larger --repeat or a quiet machine.",
            unclear.len(),
            rate.title,
            unclear.join("; ")
        )
    })
}

fn is_unclear(rate: &Metric, theirs: &Phases<'_>, ours: &Phases<'_>) -> bool {
    let median = |phases: &Phases<'_>| phases.median(rate);
    let swing = |phases: &Phases<'_>| phases.spread(rate).map(|(least, most)| most - least);
    let (Some(theirs_s), Some(ours_s)) = (swing(theirs), swing(ours)) else {
        return false;
    };
    let medians = median(theirs).zip(median(ours));
    medians.is_some_and(|(a, b)| (a - b).abs() < theirs_s.max(ours_s))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::args::Experiment;
    use crate::system::cell::Outcome;
    use crate::system::metric::WALL;
    use crate::system::tests::{args, phase};

    /// RocksDB and Rockmill at one point, with the seconds of each measurement, and `small` small jobs out of ten.
    fn measured(rocksdb_s: &[f64], rockmill_s: &[f64], small: u64) -> Vec<Measured> {
        let cells = Experiment::Contention.cells(&args(&[])).expect("cells");
        let of = |cell: usize, seconds: &[f64]| {
            let outcome = |&wall_s: &f64| {
                let mut phase = phase();
                phase.wall_s = wall_s;
                if cell == 1 {
                    (phase.taken.jobs_offered, phase.taken.jobs_too_small) = (10, small);
                }
                Outcome {
                    phases: vec![phase],
                }
            };
            Measured {
                cell: cells[cell].clone(),
                outcomes: seconds.iter().map(outcome).collect(),
            }
        };
        vec![of(0, rocksdb_s), of(1, rockmill_s)]
    }

    #[test]
    fn most_jobs_must_not_be_small() {
        assert!(warnings(&WALL, &measured(&[2.0], &[1.0], 5)).is_empty());
        let small = warnings(&WALL, &measured(&[2.0], &[1.0], 6));
        assert_eq!(small.len(), 1);
        assert!(
            small[0].contains("6 of 10 jobs of rockmill cpu"),
            "{small:?}"
        );
        assert!(small[0].lines().all(|line| line.len() <= 80), "{small:?}");
    }

    #[test]
    fn repeats_must_not_swing_more_than_the_systems_differ() {
        let clear = measured(&[5.0, 5.5, 6.0], &[2.0, 2.5, 3.0], 0);
        assert!(warnings(&WALL, &clear).is_empty());
        for unclear in [
            measured(&[5.0, 5.5, 9.0], &[2.0, 2.5, 3.0], 0),
            measured(&[5.0, 5.5, 6.0], &[2.0, 2.5, 6.0], 0),
        ] {
            let said = warnings(&WALL, &unclear);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("1 of 1 comparisons"), "{said:?}");
        }
        // A single measurement has no spread.
        assert!(warnings(&WALL, &measured(&[5.0], &[5.0], 0)).is_empty());
    }
}

//! What an experiment came to: a table and a plot.

use comfy_table::{CellAlignment, Table, presets};

use super::cell::{Cell, Interval, Outcome, Phase};
use super::experiment::Experiment;
use super::metric::{self, Course, Metric};
use super::plot::Chart;

/// A cell and what came of it.
pub type Measured = (Cell, Outcome);

/// Charts in a row.
pub const CHART_COLUMNS: usize = 4;

/// What an experiment shows.
struct Shown {
    columns: &'static [Metric],
    /// Of the last phase, over the last axis.
    charts: &'static [Metric],
    /// Of the last phase, over time, at the last value of the last axis.
    courses: &'static [Course],
}

impl Experiment {
    fn shown(self) -> Shown {
        use metric::*;
        match self {
            Self::Contention => Shown {
                columns: &[
                    RATE, WALL, SETTLE, READ_MEAN, READ_P50, READ_P99, READ_P999, WRITE_MEAN,
                    WRITE_P50, WRITE_P99, WRITE_P999, CPU_USE, DEVICE_USE, JOULES, COMPACTED,
                    STALLED,
                ],
                charts: &[RATE, READ_P999, WRITE_P999],
                courses: &[WRITE_P999_COURSE],
            },
            Self::Scaling => Shown {
                columns: &[
                    INPUT,
                    WALL,
                    JOB_RATE,
                    CPU_USE,
                    CPU_PER_GB,
                    DEVICE_USE,
                    JOULES_PER_GB,
                ],
                charts: &[JOB_RATE],
                courses: &[],
            },
            Self::SecondaryIndex => Shown {
                columns: &[
                    TRANSACTIONS,
                    WALL,
                    SETTLE,
                    READ_MEAN,
                    READ_P99,
                    WRITE_MEAN,
                    WRITE_P99,
                    CPU_USE,
                    CPU_PER_TRANSACTION,
                    JOULES_PER_TRANSACTION,
                    COMPACTED,
                    STALLED,
                ],
                charts: &[],
                courses: &[RATE_COURSE, READ_P99_COURSE, WRITE_P99_COURSE],
            },
            Self::UpdateRatio => Shown {
                columns: &[
                    RATE,
                    WALL,
                    SETTLE,
                    READ_MEAN,
                    READ_P99,
                    WRITE_MEAN,
                    WRITE_P99,
                    AMPLIFICATION,
                    HOST_AMPLIFICATION,
                    CPU_USE,
                    JOULES,
                    COMPACTED,
                    STALLED,
                ],
                charts: &[RATE, HOST_AMPLIFICATION, WRITE_P99],
                courses: &[],
            },
        }
    }
}

/// A line for each phase of each cell, in Markdown.
pub fn table(experiment: Experiment, measured: &[Measured]) -> String {
    let shown = experiment.shown();
    let axes = measured.first().map_or(&[][..], |(cell, _)| &cell.point);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let head = axes.iter().map(|(axis, _)| axis.as_str());
    let head = head.chain(["system", "phase"]);
    let head = head.chain(shown.columns.iter().map(|metric| metric.title));
    table.set_header(head.chain(["slices", "small jobs", "jobs elsewhere"]));
    for (cell, outcome) in measured {
        for phase in &outcome.phases {
            let mut row: Vec<_> = cell.point.iter().map(|(_, value)| value.clone()).collect();
            row.extend([cell.series(), phase.name.clone()]);
            row.extend(
                shown
                    .columns
                    .iter()
                    .map(|metric| number(metric, cell, phase)),
            );
            row.push(slices(phase));
            row.push(outcome.jobs_too_small.to_string());
            row.push(outcome.jobs_elsewhere.to_string());
            table.add_row(row);
        }
    }
    for column in table.column_iter_mut().skip(axes.len() + 2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.to_string()
}

fn number(metric: &Metric, cell: &Cell, phase: &Phase) -> String {
    let decimals = metric.decimals;
    (metric.of)(cell, phase).map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// How many slices each device did.
fn slices(phase: &Phase) -> String {
    let each = phase.taken.slices.iter();
    let each: Vec<_> = each
        .map(|(name, slices)| format!("{name} {slices}"))
        .collect();
    match each.is_empty() {
        true => "-".to_owned(),
        false => each.join(", "),
    }
}

/// The charts of all values of all axes but the last.
pub fn charts(experiment: Experiment, measured: &[Measured]) -> Vec<Chart> {
    let shown = experiment.shown();
    let mut charts = Vec::new();
    for chunk in measured.chunk_by(|(a, _), (b, _)| group(a) == group(b)) {
        let title = |what: &str| {
            let values = group(&chunk[0].0).iter();
            let values: Vec<_> = values
                .map(|(axis, value)| format!("{axis} {value}"))
                .collect();
            [&[what.to_owned()], values.as_slice()].concat().join(", ")
        };
        for metric in shown.charts {
            charts.push(over_axis(metric, title(metric.title), chunk));
        }
        let last = chunk.last().map(|(cell, _)| cell.point.clone());
        for course in shown.courses {
            let at_last = chunk
                .iter()
                .filter(|(cell, _)| Some(&cell.point) == last.as_ref());
            let place = last.iter().flatten().skip(group(&chunk[0].0).len());
            let place: String = place
                .map(|(axis, value)| format!(", {axis} {value}"))
                .collect();
            charts.push(over_time(course, title(course.title) + &place, at_last));
        }
    }
    charts
}

/// All axes but the last.
fn group(cell: &Cell) -> &[(String, String)] {
    cell.point.split_last().map_or(&[], |(_, others)| others)
}

/// A line for each system.
fn over_axis(metric: &Metric, title: String, measured: &[Measured]) -> Chart {
    let mut chart = Chart {
        title,
        y: metric.title.to_owned(),
        ..Chart::default()
    };
    for (cell, outcome) in measured {
        let (Some((axis, value)), Some(phase)) = (cell.point.last(), outcome.phases.last()) else {
            continue;
        };
        chart.x.clone_from(axis);
        let point = value.parse().ok().zip((metric.of)(cell, phase));
        line(&mut chart, cell).extend(point);
    }
    chart
}

/// A line for each system.
fn over_time<'a>(
    course: &Course,
    title: String,
    measured: impl Iterator<Item = &'a Measured>,
) -> Chart {
    let mut chart = Chart {
        title,
        x: "s".to_owned(),
        y: course.title.to_owned(),
        ..Chart::default()
    };
    for (cell, outcome) in measured {
        let Some(phase) = outcome.phases.last() else {
            continue;
        };
        let whole_s = phase.timeline.first().map_or(0.0, |first| first.seconds);
        // What is left at the end may be a few operations.
        let long = |at: &&Interval| at.seconds >= whole_s / 2.0;
        let points = phase.timeline.iter().filter(long);
        let points = points.filter_map(|at| Some((at.until_s, (course.of)(at)?)));
        line(&mut chart, cell).extend(points);
    }
    chart
}

/// The points of a cell's system.
fn line<'a>(chart: &'a mut Chart, cell: &Cell) -> &'a mut Vec<(f64, f64)> {
    let name = cell.series();
    let known = chart.lines.iter().position(|(line, _)| *line == name);
    let place = known.unwrap_or(chart.lines.len());
    if known.is_none() {
        chart.lines.push((name, Vec::new()));
    }
    &mut chart.lines[place].1
}

//! The report of an experiment: a table and a plot.

use comfy_table::{CellAlignment, Table, presets};
use rockmill_terminal::output;

use super::args::Experiment;
use super::cell::Cell;
use super::metric::{self, Course, Metric};
use super::plot::Chart;
use super::repeated::{Measured, Phases};

/// Charts per row.
pub const CHART_COLUMNS: usize = 4;

/// Contents of an experiment's report.
struct Shown {
    columns: &'static [Metric],
    /// The columns that fit a terminal.
    brief: &'static [Metric],
    /// The metric whose lowest and highest values are also shown.
    rate: Metric,
    /// Charts of the last phase, over the last axis.
    charts: &'static [Metric],
    /// Charts of the last phase over time, at the last value of the last axis.
    courses: &'static [Course],
}

impl Experiment {
    fn shown(self) -> Shown {
        use metric::*;
        match self {
            Self::Contention => Shown {
                columns: &[
                    RATE, WALL, SETTLE, READ_MEAN, READ_P50, READ_P99, READ_P999, WRITE_MEAN,
                    WRITE_P50, WRITE_P99, WRITE_P999, CPU_USE, BURNT, GPU_USE, DEVICE_USE, JOULES,
                    COMPACTED, STALLED,
                ],
                brief: &[RATE, READ_P999, WRITE_P999, CPU_USE],
                rate: RATE,
                charts: &[RATE, READ_P999, WRITE_P999],
                courses: &[WRITE_P999_COURSE],
            },
            Self::Steady => Shown {
                columns: &[
                    RATE,
                    WALL,
                    SETTLE,
                    WRITE_MEAN,
                    WRITE_P99,
                    HITS,
                    SIMULATED_HITS,
                    COMPACTION,
                    CPU_PER_GB,
                    CPU_USE,
                    GPU_USE,
                    DEVICE_USE,
                    COMPACTED,
                    AMPLIFICATION,
                    STALLED,
                ],
                brief: &[RATE, HITS, COMPACTION, CPU_PER_GB],
                rate: RATE,
                charts: &[RATE, HITS, CPU_PER_GB],
                courses: &[],
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
                brief: &[WALL, JOB_RATE, CPU_PER_GB, JOULES_PER_GB],
                rate: JOB_RATE,
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
                    GPU_USE,
                    CPU_PER_TRANSACTION,
                    JOULES_PER_TRANSACTION,
                    COMPACTED,
                    STALLED,
                ],
                brief: &[TRANSACTIONS, READ_P99, WRITE_P99, CPU_PER_TRANSACTION],
                rate: TRANSACTIONS,
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
                    GPU_USE,
                    JOULES,
                    COMPACTED,
                    STALLED,
                ],
                brief: &[RATE, WRITE_P99, HOST_AMPLIFICATION, CPU_USE],
                rate: RATE,
                charts: &[RATE, HOST_AMPLIFICATION, WRITE_P99],
                courses: &[],
            },
        }
    }
}

/// Makes a Markdown table with all columns and one line per phase of each cell; repeated measurements give medians.
pub fn table(experiment: Experiment, measured: &[Measured]) -> String {
    let counts = ["subcompactions", "small jobs", "jobs elsewhere"];
    of_metrics(experiment.shown().columns, measured, &counts, |phases| {
        vec![
            subcompactions(phases),
            phases.count(|taken| taken.jobs_too_small).to_string(),
            phases.count(|taken| taken.jobs_elsewhere).to_string(),
        ]
    })
    .to_string()
}

/// Makes the same table with the columns that fit a terminal.
pub fn brief_table(experiment: Experiment, measured: &[Measured]) -> String {
    let brief = experiment.shown().brief;
    let mut table = of_metrics(brief, measured, &[], |_| Vec::new());
    output::fit(&mut table);
    table.to_string()
}

/// Returns the experiment's metric for work per second.
pub fn rate(experiment: Experiment) -> Metric {
    experiment.shown().rate
}

/// Makes a line for each phase of each cell, with these metrics followed by `counts`.
fn of_metrics(
    metrics: &[Metric],
    measured: &[Measured],
    more_titles: &[&str],
    counts: impl Fn(&Phases<'_>) -> Vec<String>,
) -> Table {
    let titles = metrics.iter().map(|metric| metric.title);
    let titles = titles.chain(more_titles.iter().copied());
    let rows = measured.iter().flat_map(|of| {
        let row = |phases: Phases<'_>| {
            let numbers = metrics.iter().map(|metric| number(metric, &phases));
            let numbers = numbers.collect();
            [head_of_row(&of.cell, &phases), numbers, counts(&phases)].concat()
        };
        let rows: Vec<_> = of.phases().into_iter().map(row).collect();
        rows
    });
    in_markdown(measured, titles, rows)
}

/// Makes a Markdown table of the lowest and highest work per second, for each phase that has it. The table fits a
/// terminal, except for long device names.
pub fn spread(experiment: Experiment, measured: &[Measured]) -> String {
    let rate = rate(experiment);
    let decimals = rate.decimals;
    let rows = measured.iter().flat_map(|of| {
        let row = |phases: Phases<'_>| {
            let (least, most) = phases.spread(&rate)?;
            let spread = format!("{least:.decimals$}-{most:.decimals$}");
            Some([head_of_row(&of.cell, &phases), vec![spread]].concat())
        };
        of.phases().into_iter().filter_map(row)
    });
    in_markdown(measured, [rate.title].into_iter(), rows).to_string()
}

fn head_of_row(cell: &Cell, phases: &Phases<'_>) -> Vec<String> {
    let values = cell.point.iter().map(|(_, value)| value.clone());
    let names = [cell.series(), phases.name().to_owned()];
    values.chain(names).collect()
}

/// Makes a table whose rows begin with a cell's point, system and phase.
fn in_markdown<'a>(
    measured: &'a [Measured],
    titles: impl Iterator<Item = &'a str>,
    rows: impl Iterator<Item = Vec<String>>,
) -> Table {
    let axes = measured.first().map_or(&[][..], |of| &of.cell.point);
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let head = axes.iter().map(|(axis, _)| axis.as_str());
    table.set_header(head.chain(["system", "phase"]).chain(titles));
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(axes.len() + 2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn number(metric: &Metric, phases: &Phases<'_>) -> String {
    let decimals = metric.decimals;
    let median = phases.median(metric);
    median.map_or("-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Lists the number of subcompactions per device.
fn subcompactions(phases: &Phases<'_>) -> String {
    let each = phases.subcompactions().into_iter();
    let each: Vec<_> = each
        .map(|(name, subcompactions)| format!("{name} {subcompactions}"))
        .collect();
    match each.is_empty() {
        true => "-".to_owned(),
        false => each.join(", "),
    }
}

/// Returns the charts for all values of all axes but the last.
pub fn charts(experiment: Experiment, measured: &[Measured]) -> Vec<Chart> {
    let shown = experiment.shown();
    let mut charts = Vec::new();
    for chunk in measured.chunk_by(|a, b| group(&a.cell) == group(&b.cell)) {
        let title = |what: &str| {
            let values = group(&chunk[0].cell).iter();
            let values: Vec<_> = values
                .map(|(axis, value)| format!("{axis} {value}"))
                .collect();
            [&[what.to_owned()], values.as_slice()].concat().join(", ")
        };
        for metric in shown.charts {
            charts.push(over_axis(metric, title(metric.title), chunk));
        }
        let last = chunk.last().map(|of| of.cell.point.clone());
        for course in shown.courses {
            let at_last = chunk
                .iter()
                .filter(|of| Some(&of.cell.point) == last.as_ref());
            let place = last.iter().flatten().skip(group(&chunk[0].cell).len());
            let place: String = place
                .map(|(axis, value)| format!(", {axis} {value}"))
                .collect();
            charts.push(over_time(course, title(course.title) + &place, at_last));
        }
    }
    charts
}

/// Values of all axes but the last.
fn group(cell: &Cell) -> &[(String, String)] {
    cell.point.split_last().map_or(&[], |(_, others)| others)
}

/// Makes a chart with a line for each system.
fn over_axis(metric: &Metric, title: String, measured: &[Measured]) -> Chart {
    let mut chart = Chart {
        title,
        y: metric.title.to_owned(),
        ..Chart::default()
    };
    for of in measured {
        let (Some((axis, value)), Some(phases)) = (of.cell.point.last(), of.phases().pop()) else {
            continue;
        };
        chart.x.clone_from(axis);
        let point = value.parse().ok().zip(phases.median(metric));
        line(&mut chart, &of.cell).extend(point);
    }
    chart
}

/// Makes a chart with a line for each system.
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
    for of in measured {
        let points = of.phases().pop().map(|phases| phases.course(course));
        line(&mut chart, &of.cell).extend(points.unwrap_or_default());
    }
    chart
}

/// Returns the points of a cell's system.
fn line<'a>(chart: &'a mut Chart, cell: &Cell) -> &'a mut Vec<(f64, f64)> {
    let name = cell.series();
    let known = chart.lines.iter().position(|(line, _)| *line == name);
    let place = known.unwrap_or(chart.lines.len());
    if known.is_none() {
        chart.lines.push((name, Vec::new()));
    }
    &mut chart.lines[place].1
}

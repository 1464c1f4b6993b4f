//! `rockmill-bench system`: whole systems under the loads of published experiments.

mod args;
mod cell;
mod child;
mod clients;
mod cpu_load;
mod database;
mod database_folder;
mod experiment;
mod folder;
mod jobs;
mod latency;
mod metric;
pub mod plot;
mod repeated;
mod report;
mod scatter;
mod simulation;
mod sweep;
mod warn;
mod ways;

use rockmill_terminal::outcome::Failure;
use rockmill_terminal::output;

use self::folder::Folder;
use self::repeated::Measured;
use self::sweep::Sweep;

pub use args::SystemArgs;
pub use child::serve;

/// Runs the missing measurements.
pub fn run(args: &SystemArgs) -> Result<(), Failure> {
    let cells = args.experiment.cells(args)?;
    let dir = database_folder::parent(args.dir.as_deref())?;
    let folder = Folder::open(&args.out, args.experiment.name(), &dir)?;
    let mut sweep = Sweep::load(&folder, cells, args.repeat)?;
    sweep.measure(args, &dir)?;
    let (done, all) = sweep.progress();
    if done < all {
        let what = format!("{done} of {all} measurements are done; call again to continue");
        return output::to_stdout(|out| Ok(writeln!(out, "{what}")?));
    }
    let (measured, left_out) = sweep.end();
    if measured.is_empty() {
        return Err(Failure::Environment(no_room(&left_out)));
    }
    report(args, &folder, &measured, &left_out)
}

/// Describes why nothing can be measured, from the reasons of all cells.
fn no_room(left_out: &[String]) -> String {
    let (first, more) = match left_out {
        [] => ("there is no cell", 0),
        [first, more @ ..] => (first.as_str(), more.len()),
    };
    let others = match more {
        0 => String::new(),
        more => format!(", and {more} more need more space as well"),
    };
    format!("{first}{others}; make room, name another --dir or a smaller --scale")
}

/// Writes table and plot. Prints the columns of the table that fit a terminal, and the skipped cells below it.
fn report(
    args: &SystemArgs,
    folder: &Folder,
    measured: &[Measured],
    left_out: &[String],
) -> Result<(), Failure> {
    let experiment = args.experiment;
    let table = report::table(experiment, measured);
    let brief = report::brief_table(experiment, measured);
    let mut below = String::new();
    if args.repeat > 1 {
        let spread = report::spread(experiment, measured);
        below += &format!("\n\nLeast and most of the measurements:\n\n{spread}");
    }
    for warning in warn::warnings(&report::rate(experiment), measured) {
        below += &format!("\n\n{warning}");
    }
    for cell in left_out {
        below += &format!("\n\nNot measured: {cell}.");
    }
    let svg = plot::svg(&report::charts(experiment, measured), report::CHART_COLUMNS);
    let svg = folder.report("svg", &svg.map_err(Failure::Environment)?)?;
    let head = format!(
        "# {}\n\n{}; {}",
        experiment.name(),
        folder.origin(),
        settings(args)
    );
    let plot = format!("![plot]({}.svg)", experiment.name());
    let markdown = folder.report("md", &format!("{head}\n\n{table}{below}\n\n{plot}\n"))?;
    output::to_stdout(|out| {
        writeln!(out, "{brief}{below}")?;
        writeln!(
            out,
            "all results are in {}, plots in {}",
            markdown.display(),
            svg.display()
        )?;
        Ok(())
    })
}

/// Describes the arguments other than axes and systems, for the head of a report.
fn settings(args: &SystemArgs) -> String {
    let mut text = format!("scale {} %", args.scale);
    if args.repeat > 1 {
        text += &format!("; medians of {} measurements", args.repeat);
    }
    if let Some(kib) = args.write_buffer_kib {
        text += &format!("; write buffers of {kib} KiB");
    }
    if let Some(seconds) = args.phase_seconds {
        text += &format!("; warm-up and run of {seconds} s at most");
    }
    text
}

#[cfg(test)]
pub mod tests {
    use clap::Parser;
    use rockmill::Resource;

    use super::cell::{Phase, Traffic};
    use super::latency::Latency;
    use super::*;
    use rockmill_side_by_side::energy::Energy;
    use rockmill_side_by_side::running_system::Consumption;
    use rockmill_side_by_side::stages::Stage;

    /// The command line alone.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SystemArgs,
    }

    /// Parses arguments after the required ones.
    pub fn args(more: &[&str]) -> SystemArgs {
        let line = ["system", "--experiment", "scaling", "--out", "out"];
        let line = line.iter().chain(more);
        Line::try_parse_from(line).expect("good arguments").args
    }

    fn latency(count: u64) -> Option<Latency> {
        Some(Latency {
            count,
            mean_us: 1.0,
            p50_us: 2.0,
            p99_us: 3.0,
            p999_us: 4.0,
            max_us: 5.0,
        })
    }

    /// A run: two seconds of work and two of settling, on four cores.
    pub fn phase() -> Phase {
        let stage = |resource, seconds, bytes| Stage {
            stage: "work".to_owned(),
            resource,
            seconds,
            bytes,
        };
        Phase {
            name: "run".to_owned(),
            cores: 4,
            wall_s: 2.0,
            settle_s: 2.0,
            taken: Consumption {
                cpu_s: 8.0,
                stages: vec![
                    stage(Resource::Device, 1.0, 0),
                    stage(Resource::FromDevice, 0.5, 300),
                ],
                energy: Some(Energy::Joules(100.0)),
                near_data_bytes: 40,
                ..Consumption::default()
            },
            burnt_s: 4.0,
            reads: latency(6000),
            writes: latency(2000),
            traffic: Traffic {
                user_bytes: 100,
                flushed_bytes: 150,
                read_bytes: 600,
                written_bytes: 400,
                stalled_s: 0.25,
                compacted_s: 3.0,
            },
            timeline: Vec::new(),
        }
    }
}

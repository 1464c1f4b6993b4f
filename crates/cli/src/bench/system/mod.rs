//! `rockmill bench system`: whole systems under the loads of published experiments.

mod burners;
mod cell;
mod child;
mod clients;
mod database;
mod experiment;
mod folder;
mod ground;
mod jobs;
mod latency;
mod metric;
mod plot;
mod repeated;
mod report;
mod scatter;
mod sweep;
mod warn;
mod ways;

use std::path::PathBuf;

use clap::ArgAction;
use clap::builder::BoolishValueParser;

use self::experiment::Experiment;
use self::folder::Folder;
use self::repeated::Measured;
use self::sweep::Sweep;
use crate::outcome::Failure;
use crate::output;
use crate::side_by_side::device::Tuning;

pub use child::serve;

/// What `rockmill bench system` takes.
#[derive(Debug, clap::Args)]
pub struct SystemArgs {
    /// What to measure.
    #[arg(long, value_name = "NAME")]
    experiment: Experiment,
    /// Folder for the results: EXPERIMENT/CELL.json as each is there, CELL.2.json and so on of further measurements,
    /// EXPERIMENT.md and EXPERIMENT.svg when all are. A further call with the same arguments goes on where one has stopped.
    #[arg(long)]
    out: PathBuf,
    /// Percent of the records, operations and sizes of jobs.
    #[arg(long, default_value_t = 100.0, value_name = "PERCENT", value_parser = scale)]
    scale: f64,
    /// Measurements of each cell, in turn over the systems of a point; table and plot show medians. Those of an
    /// earlier call count, whatever its number was.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Begin with no further measurement after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<u64>,
    /// What Rockmill computes on: cpu, cuda, cuda:N, sim:NAME or auto.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    device: Vec<String>,
    /// Whether RocksDB takes part.
    #[arg(long, value_name = "yes|no", default_value = "yes", action = ArgAction::Set,
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    rocksdb: bool,
    /// Measure also a RocksDB that never compacts: what clients could have at most from anybody who takes
    /// compaction off the host. It reads more files, and its database grows without end.
    #[arg(long)]
    bound: bool,
    /// Slices in flight for Rockmill, background jobs and subcompactions for RocksDB [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Clients that read and write [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: Option<u32>,
    /// Milliseconds between points over time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    interval_ms: u64,
    /// Seconds after which a warm-up or run of clients ends, if its operations are not done before; a load always
    /// writes all records.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    phase_seconds: Option<u64>,
    /// KiB of a column family's write buffer, and so of a file: jobs are some times as large, and Rockmill leaves those
    /// below 2 MiB to RocksDB [default: a 64th of the family's records, 64 at least and 65536 at most].
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    write_buffer_kib: Option<u64>,
    /// contention: bytes of a value [default: 128,256,512,1024].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    value_bytes: Vec<u32>,
    /// contention: percent of all cores' time that other threads take [default: 0,40,80].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=100))]
    cpu_load: Vec<u32>,
    /// scaling: MB of keys and values of a job [default: 64,256,1024,4096,16384,32768].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    job_mb: Vec<u64>,
    /// scaling: jobs at once [default: 1,2,4,8].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: Vec<u32>,
    /// update-ratio: percent of operations that write [default: 10,30,50,70,90].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=100))]
    updates: Vec<u32>,
    #[command(flatten)]
    tuning: Tuning,
    /// Folder for the databases, which are removed at the end [default: the system's for temporary
    /// files].
    #[arg(long)]
    dir: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    const MOST: f64 = 10_000.0;
    let percent = text.parse().ok();
    percent
        .filter(|percent| *percent > 0.0 && *percent <= MOST)
        .ok_or_else(|| format!("a scale is a number of per cent above 0, {MOST} at most"))
}

/// Runs the measurements that are not there yet.
pub fn run(args: &SystemArgs) -> Result<(), Failure> {
    let cells = args.experiment.cells(args)?;
    let dir = ground::parent(args.dir.as_deref())?;
    let folder = Folder::open(&args.out, args.experiment.name(), &dir)?;
    let mut sweep = Sweep::load(&folder, cells, args.repeat)?;
    sweep.measure(args, &dir)?;
    let (done, all) = sweep.progress();
    if done < all {
        let what = format!("{done} of {all} measurements are there; call again to go on");
        return output::to_stdout(|out| Ok(writeln!(out, "{what}")?));
    }
    let (measured, left_out) = sweep.end();
    if measured.is_empty() {
        return Err(Failure::Environment(no_room(&left_out)));
    }
    report(args, &folder, &measured, &left_out)
}

/// Why nothing can be measured, by why each cell cannot.
fn no_room(left_out: &[String]) -> String {
    let (first, more) = match left_out {
        [] => ("there is no cell", 0),
        [first, more @ ..] => (first.as_str(), more.len()),
    };
    let others = match more {
        0 => String::new(),
        more => format!(", and {more} more lack room as well"),
    };
    format!("{first}{others}; make room, name another --dir or a smaller --scale")
}

/// Writes table and plot, and prints what a terminal has room for of the table, below which stands what was left out.
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
            "all of it is in {}, plots in {}",
            markdown.display(),
            svg.display()
        )?;
        Ok(())
    })
}

/// What was asked for, beside axes and systems, for the head of a report.
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
    use crate::side_by_side::energy::Energy;
    use crate::side_by_side::plane::Consumption;
    use crate::side_by_side::stages::Stage;

    /// The command line alone.
    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: SystemArgs,
    }

    /// Arguments after those that must be there.
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

    /// A run: two seconds and as many of settling, on four cores.
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
            },
            timeline: Vec::new(),
        }
    }

    #[test]
    fn a_scale_is_above_nothing() {
        assert_eq!((scale("0.5"), scale("100")), (Ok(0.5), Ok(100.0)));
        for text in ["0", "-1", "NaN", "inf", "all", "10001"] {
            assert!(scale(text).expect_err(text).contains("per cent"));
        }
    }
}

//! `rockmill demo`: the same files compacted twice, side by side.

use std::path::{Path, PathBuf};

use indicatif::HumanCount;
use rockmill::DeviceList;
use rockmill_side_by_side::compare::{self, Compared};
use rockmill_side_by_side::database::Origin;
use rockmill_side_by_side::device::Tuning;
use rockmill_side_by_side::machine::usual_threads;
use rockmill_side_by_side::row::{self, Row};
use rockmill_side_by_side::run_config::RunConfig;
use rockmill_side_by_side::scratch;
use rockmill_side_by_side::spec::{DatabaseSpec, Keys};
use rockmill_side_by_side::system::System;
use rockmill_side_by_side::worker::Worker;
use rockmill_side_by_side::workload::{Compression, Workload};
use rockmill_terminal::outcome::Failure;
use rockmill_terminal::{output, signals};

use crate::device;

/// Arguments of `rockmill demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// Puts and Deletes to write.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    entries: u64,
    /// Threads of each system: subcompactions in flight for Rockmill, subcompactions for RocksDB [default: all cores].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Device that Rockmill computes on: cpu, cuda, cuda:N or auto.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Folder for the databases, which are removed at the end [default: the system's folder for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print rows as JSON.
    #[arg(long)]
    json: bool,
}

/// Overwrites and Deletes of random keys.
fn spec(entries: u64) -> DatabaseSpec {
    DatabaseSpec {
        workload: Workload {
            key_bytes: 16,
            value_bytes: 100,
            compression: Compression::Lz4,
            entries,
        },
        versions: 2,
        runs: 8,
        delete_every: Some(16),
        delete_range_every: None,
        operands: false,
        filtered: false,
        above_older: false,
        direct_io: false,
        paranoid: false,
        keys: Keys::Decimal,
        writers: 1,
        target_file_bytes: 32 << 20,
    }
}

/// Runs the demo.
///
/// # Errors
/// Data if the results differ; Stopped if a signal came; else Environment.
pub fn run(args: &DemoArgs) -> Result<(), Failure> {
    let device = device::parse(&args.device)?;
    signals::catch()?;
    let work = |scratch: &Path| run_in(scratch, args, device);
    let done = scratch::in_scratch(args.dir.as_deref(), work);
    signals::or_stopped(done, "the databases of the demo are removed")
}

fn run_in(scratch: &Path, args: &DemoArgs, device: DeviceList) -> Result<(), Failure> {
    let threads = args.threads.unwrap_or_else(usual_threads);
    let spec = spec(args.entries);
    let origin = Origin::make(scratch.join("origin"), &spec)?;
    let configs = [System::Rocksdb, System::Rockmill(device)].map(|system| RunConfig {
        system,
        spec: spec.clone(),
        threads,
        tuning: Tuning::default(),
        again: false,
    });
    let mut measured = Vec::new();
    for config in &configs {
        let copy = scratch.join(config.system.name());
        origin.copy_to(&copy)?;
        measured.push((Worker::start(config)?.compact(&copy)?, copy));
    }
    let compared = compare::databases(&measured[0].1, &measured[1].1)?;
    let identical = Some(matches!(compared, Compared::Same(_)));
    let rows = [0, 1].map(|i| Row::new(&configs[i], &measured[i].0, identical));
    print(&rows, &compared, args.json)?;
    match compared {
        Compared::Same(_) => Ok(()),
        Compared::Different(how) => Err(Failure::Data(format!("the results differ: {how}"))),
    }
}

fn print(rows: &[Row; 2], compared: &Compared, json: bool) -> Result<(), Failure> {
    output::document_or_text(json, rows, |out| {
        let table = row::table(
            &rows.each_ref(),
            &[row::FILE_SIZE, row::CPU_PER_GB, row::WAY],
        );
        writeln!(out, "{}\n{table}", rows[0].workload)?;
        let mut notes = rows.iter().filter_map(Row::note);
        notes.try_for_each(|note| writeln!(out, "{note}"))?;
        if let Compared::Same(entries) = compared {
            writeln!(out, "{}", output::wrapped(&sentence(rows, *entries)))?;
        }
        Ok(())
    })
}

/// The demo's result in a sentence: both times, and that the entries are the same.
fn sentence([rocksdb, rockmill]: &[Row; 2], entries: u64) -> String {
    let share = rockmill.wall_s / rocksdb.wall_s;
    let same = match entries {
        1 => "the 1 entry is the same".to_owned(),
        _ => format!("{} entries are the same", HumanCount(entries)),
    };
    format!("Rockmill took {share:.2} of RocksDB's time; {same}")
}

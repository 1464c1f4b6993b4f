//! The `rockmill-bench` command: measurements. It is not shipped.
//!
//! Exit codes: 0 success, 1 the results differ, 2 wrong usage, 3 the environment refused.

#![deny(unsafe_code)]

mod compaction;
mod devices;
mod floor;
mod gpukv;
mod model;
#[cfg(feature = "scan")]
mod scan;
mod system;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use rockmill_side_by_side::worker;
use rockmill_terminal::program;

/// Compares the speed of RocksDB and Rockmill.
#[derive(Debug, Parser)]
#[command(name = "rockmill-bench", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes databases, lets RocksDB and Rockmill compact the same level-0 files, and compares the results.
    Compaction(compaction::CompactionArgs),
    /// Runs clients and jobs on RocksDB and Rockmill under the loads of published experiments.
    System(system::SystemArgs),
    /// Runs queries over a database: through RocksDB's iterators, by Rockmill, and over Parquet files.
    #[cfg(feature = "scan")]
    Scan(scan::ScanArgs),
    /// Measures gets by kernels and by the host: from views in device memory, and in the ways without them.
    Gpukv(gpukv::GpukvArgs),
    /// Shows the speed of an accelerator according to its published formulas.
    Model(model::ModelArgs),
    /// Process that the other subcommands start for each compaction.
    #[command(hide = true)]
    CompactionProcess,
    /// Process that `system` starts for each measurement.
    #[command(hide = true)]
    Cell,
}

fn main() -> ExitCode {
    rockmill_compaction::know_own_names(devices::simulated);
    let arguments: Vec<_> = std::env::args_os().collect();
    let code = program::run("rockmill-bench", &arguments, |cli: Cli| match cli.command {
        Command::Compaction(args) => compaction::run(&args),
        Command::System(args) => system::run(&args),
        #[cfg(feature = "scan")]
        Command::Scan(args) => scan::run(&args),
        Command::Gpukv(args) => gpukv::run(&args),
        Command::Model(args) => model::run(&args),
        Command::CompactionProcess => worker::serve(devices::give),
        Command::Cell => system::serve(),
    });
    code.into()
}

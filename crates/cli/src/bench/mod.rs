//! `rockmill bench`: measurements.

mod compaction;
mod system;

use crate::outcome::Failure;
use crate::side_by_side::worker;

/// What `rockmill bench` takes.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Makes databases, lets RocksDB and Rockmill compact the same files of level 0, and compares.
    Compaction(compaction::CompactionArgs),
    /// Lets clients and jobs work with RocksDB and Rockmill under the loads of published experiments.
    System(system::SystemArgs),
    /// What the others start to compact in a process of its own.
    #[command(hide = true)]
    Worker,
    /// What `system` starts to measure in a process of its own.
    #[command(hide = true)]
    Cell,
}

/// Runs a subcommand.
pub fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Compaction(args) => compaction::run(&args),
        BenchCommand::System(args) => system::run(&args),
        BenchCommand::Worker => worker::serve(),
        BenchCommand::Cell => system::serve(),
    }
}

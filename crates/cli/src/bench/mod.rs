//! `rockmill bench`: measurements of RocksDB and Rockmill on the same files.

mod compaction;

use crate::outcome::Failure;

/// What `rockmill bench` takes.
#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Makes databases, lets RocksDB and Rockmill compact the same files of level 0, and compares.
    Compaction(compaction::CompactionArgs),
}

/// Runs a subcommand.
pub fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Compaction(args) => compaction::run(&args),
    }
}

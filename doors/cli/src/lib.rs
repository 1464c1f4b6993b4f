//! The `rockmill` command, as a library: Python's package has the same command inside.
//!
//! Exit codes: 0 success; 1 the data is bad, or `doctor` found jobs that would not be accepted; 2 wrong usage; 3 the
//! environment refused; 4 everything that could be read is sound, but some of it could not be read; 130 and 143 Control-C
//! and SIGTERM have ended the command.

#![forbid(unsafe_code)]

mod advice;
mod compact;
mod config;
pub mod database_dir;
mod demo;
pub mod device;
mod devices;
mod doctor;
mod generate;
mod inspect;
mod job;
mod load;
mod lock;
pub mod merge_args;
mod service_args;
#[cfg(feature = "sql")]
pub mod sql;
mod sst;
#[cfg(test)]
mod test_tables;
mod verify;
mod view;
pub mod wal_dir;
#[cfg(feature = "distributed")]
mod worker;

use std::ffi::OsString;

use clap::{CommandFactory, Parser, Subcommand};
use rockmill_side_by_side::worker as compaction_process;
use rockmill_terminal::{outcome, program};

/// Rockmill compacts for stock RocksDB; this command shows, checks and repeats its work.
#[derive(Debug, Parser)]
#[command(name = "rockmill", version, long_version = version(), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes a database, lets RocksDB and Rockmill compact the same files, and compares the results.
    Demo(demo::DemoArgs),
    /// Prints how programs in C, C++ and CUDA are compiled and linked with the library.
    Config(config::ConfigArgs),
    /// Lists the devices that can compute here, with the rates of GPUs' links, or says why a GPU cannot.
    Devices(devices::DevicesArgs),
    /// Compacts all or some column families of a closed database, or a range of their keys.
    Compact(compact::CompactArgs),
    /// Tells whether a database's compactions would be accepted, and what to change if not.
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(doctor::DoctorArgs),
    /// Shows the contents of an SST file.
    #[command(after_help = outcome::EXIT_CODES)]
    Inspect(inspect::InspectArgs),
    /// Checks every block, key and count of an SST file or of a database.
    #[command(after_help = outcome::EXIT_CODES)]
    Verify(verify::VerifyArgs),
    /// Tells how much memory a view of a database would take on a GPU, and which keys it would leave to RocksDB.
    View(view::ViewArgs),
    /// Runs SQL over a database: every column family is a table of key and value.
    #[cfg(feature = "sql")]
    #[command(after_help = sql::EXAMPLES)]
    Sql(sql::SqlArgs),
    /// Makes a database with tables, to try SQL on.
    #[command(after_help = load::EXAMPLES)]
    Load(load::LoadArgs),
    /// Records and repeats compaction jobs.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// Runs parts of statements for `rockmill sql` on other machines.
    #[cfg(feature = "distributed")]
    #[command(after_help = worker::EXAMPLES)]
    Worker(worker::WorkerArgs),
    /// Process that `demo` starts for each compaction.
    #[command(hide = true)]
    CompactionProcess,
    /// Writes manual pages and completions for shells.
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// The text of `--version`, which a report of a fault should include.
pub fn version() -> String {
    let cuda = rockmill_cuda::CUDA_VERSION;
    let cuda = cuda.map_or_else(
        || "no GPU backend".to_owned(),
        |version| format!("CUDA {version}"),
    );
    format!(
        "{} ({})\nRocksDB {}, {cuda}",
        env!("CARGO_PKG_VERSION"),
        env!("ROCKMILL_COMMIT"),
        env!("ROCKMILL_ROCKSDB"),
    )
}

/// Raises the limit of open files to its maximum. A database can have more files than the usual limit.
pub fn raise_open_files() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Most databases need no more than the usual limit.
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised);
}

/// Prints warnings and hints.
fn say(sentences: impl IntoIterator<Item = String>) {
    for sentence in sentences {
        eprintln!("rockmill: {sentence}");
    }
}

/// Runs the command with these arguments, of which the first names the program, and returns its exit code. It may end the
/// process itself.
#[must_use]
pub fn main(arguments: Vec<OsString>) -> u8 {
    raise_open_files();
    program::run("rockmill", &arguments, |cli: Cli| match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Compact(args) => compact::run(args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Inspect(args) => inspect::run(args),
        Command::Verify(args) => verify::run(args),
        Command::View(args) => view::run(&args),
        #[cfg(feature = "sql")]
        Command::Sql(args) => sql::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Job(command) => job::run(command),
        Command::Generate(args) => generate::run(&args, Cli::command()),
        #[cfg(feature = "distributed")]
        Command::Worker(args) => worker::run(&args),
        Command::CompactionProcess => compaction_process::serve(rockmill::Builder::device),
    })
}

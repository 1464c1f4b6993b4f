//! `rockmill-bench gpukv`: views in device memory compared with today's ways.
//!
//! ```text
//!   experiment   a database and a work, such as lookups of 256 B
//!     Experiment::open   a way to do the work; what it loads is timed apart
//!       Way::run         does the work once
//!       Way::check       the answers, which are the same for all ways
//! ```

mod data;
#[allow(unsafe_code, reason = "kernels take pointers")]
mod gpu;
mod graph;
#[allow(unsafe_code, reason = "it is the table of kernels")]
mod kernels;
mod load;
mod lookup;
mod measure;
mod mixed;
mod report;
mod ring;
mod traverse;
mod walk;

use std::path::PathBuf;

use rockmill_side_by_side::scratch;
use rockmill_terminal::outcome::Failure;
use rockmill_view::Target;

use crate::devices;
use measure::{Bench, WayName};
use rockmill::Device;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Name {
    /// Batches of gets of 64 to 1024 B, uniform and zipfian.
    Lookup,
    /// Small batches, each of which is timed.
    Latency,
    /// All values of a database are copied to the device.
    Load,
    /// Flushed entries reach a view.
    Refresh,
    /// One chain of gets: each key depends on the last value.
    Dependent,
    /// Gets and puts of kernels that RocksDB answers, and of host threads.
    Ring,
    /// A second in which no kernel asks, without and with a hold of the view.
    Idle,
    /// Rows of 26 tables of embeddings.
    Embedding,
    /// Breadth-first search; adjacency lists are values.
    Bfs,
    /// Ten rounds of PageRank; adjacency lists are values.
    Pagerank,
    /// Reads of values of 4 KiB, each of which depends on the one before.
    Dynamic,
    /// Reads of all values of 4 KiB in their order.
    Streaming,
    /// Gets and 1 % puts, also while the host writes.
    Mixed,
    /// Gets in tables of 70 and 110 GB, which are made on the device.
    Table,
}

/// Arguments of `rockmill-bench gpukv`.
#[derive(Debug, clap::Args)]
pub struct GpukvArgs {
    /// What to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lookup")]
    experiment: Vec<Name>,
    /// Share of the keys at full scale.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Ways to measure [default: all of each experiment].
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<WayName>,
    /// Device of views and kernels: cpu or cuda:N.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Maximum threads of the host; MultiGet is measured with its best number of threads up to this.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Runs of each way, after one that does not count. The row shows the run with the median time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    /// Folder for the databases, which are removed at the end [default: the system's folder for temporary files].
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Folder for `gpukv.json`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Print rows as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `rockmill-bench gpukv`.
///
/// # Errors
/// Data if answers are wrong or differ, Usage for an invalid argument, Environment if the machine refuses.
pub fn run(args: &GpukvArgs) -> Result<(), Failure> {
    if !(args.scale > 0.0 && args.scale <= 100.0) {
        let what = format!("--scale: {} is not above 0 and at most 100", args.scale);
        return Err(Failure::Usage(what));
    }
    let devices = devices::parse(&args.device)?;
    let target = match devices.iter().collect::<Vec<_>>()[..] {
        [Device::Cpu] => Target::Host,
        [Device::Cuda(number)] => Target::Cuda(number),
        _ => {
            let what = format!("--device: {} is neither cpu nor cuda:N", args.device);
            return Err(Failure::Usage(what));
        }
    };
    scratch::in_scratch(args.dir.as_deref(), |folder| {
        let mut bench = Bench::new(args, target, devices, folder)?;
        let done = args.experiment.iter().try_for_each(|name| match name {
            Name::Lookup => lookup::lookups(&mut bench),
            Name::Latency => lookup::latencies(&mut bench),
            Name::Load => load::loads(&mut bench),
            Name::Refresh => load::refreshes(&mut bench),
            Name::Dependent => walk::dependent(&mut bench),
            Name::Ring => ring::rings(&mut bench),
            Name::Idle => ring::idles(&mut bench),
            Name::Embedding => lookup::embeddings(&mut bench),
            Name::Bfs => traverse::traversals(&mut bench, true),
            Name::Pagerank => traverse::traversals(&mut bench, false),
            Name::Dynamic => walk::reads(&mut bench, true),
            Name::Streaming => walk::reads(&mut bench, false),
            Name::Mixed => mixed::mixes(&mut bench),
            Name::Table => lookup::tables(&mut bench),
        });
        // Rows that were measured before the failure are useful.
        bench.print()?;
        done
    })
}

//! Arguments of `rockmill-bench system`.

use std::path::PathBuf;

use clap::builder::BoolishValueParser;
use clap::{ArgAction, ValueEnum};
use rockmill_side_by_side::device::Tuning;
use rockmill_side_by_side::workload::Compression;

/// Experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Experiment {
    /// YCSB-A under CPU load, after LUDA.
    Contention,
    /// Jobs of several sizes, several at once.
    Scaling,
    /// Short records in many column families, after X-Engine.
    SecondaryIndex,
    /// Filling, then reading and updating in several ratios, after Co-KV.
    UpdateRatio,
    /// Updates of a full database, with GPUs that cache some of its files.
    Steady,
}

impl Experiment {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Contention => "contention",
            Self::Scaling => "scaling",
            Self::SecondaryIndex => "secondary-index",
            Self::UpdateRatio => "update-ratio",
            Self::Steady => "steady",
        }
    }
}

/// Arguments of `rockmill-bench system`.
#[derive(Debug, clap::Args)]
pub struct SystemArgs {
    /// The experiment.
    #[arg(long, value_name = "NAME")]
    pub experiment: Experiment,
    /// Folder for the results. EXPERIMENT/CELL.json is written after each measurement, CELL.2.json and so on for
    /// repeated ones, EXPERIMENT.md and EXPERIMENT.svg when all are complete. Another call with the same arguments
    /// resumes an interrupted one.
    #[arg(long)]
    pub out: PathBuf,
    /// Percent of the records, operations and job sizes.
    #[arg(long, default_value_t = 100.0, value_name = "PERCENT", value_parser = scale)]
    pub scale: f64,
    /// Measurements of each cell, in turn over the systems of a point; table and plot show medians. Measurements of
    /// earlier calls count as well.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Start no further measurement after that many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub stop_after: Option<u64>,
    /// Devices that Rockmill computes on: cpu, cuda, cuda:N, sim:NAME or auto.
    #[arg(long, default_value = "cpu", value_delimiter = ',')]
    pub device: Vec<String>,
    /// Whether RocksDB takes part.
    #[arg(long, value_name = "yes|no", default_value = "yes", action = ArgAction::Set,
          value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    pub rocksdb: bool,
    /// Also measure a RocksDB that never compacts. It is an upper bound for clients if compaction is taken off the
    /// host. Its reads search more files, and its database grows without limit.
    #[arg(long)]
    pub bound: bool,
    /// Subcompactions in flight for Rockmill, background jobs and subcompactions for RocksDB [default: all
    /// cores; for contention at most 4, as LUDA].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,
    /// Clients that read and write [default: all cores; for contention at most 4].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub clients: Option<u32>,
    /// Milliseconds between points over time.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=3_600_000))]
    pub interval_ms: u64,
    /// Seconds after which a warm-up or run of clients ends, even if operations remain; a load always writes all
    /// records.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub phase_seconds: Option<u64>,
    /// KiB of a column family's write buffer, which is also the size of a file. Jobs are several times as large, and
    /// Rockmill leaves jobs below 2 MiB to RocksDB [default: a 64th of the family's records, between 64 and 65536; for
    /// contention at most 4096].
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(64..=1_048_576))]
    pub write_buffer_kib: Option<u64>,
    /// contention: bytes of a value [default: 128,256,512,1024].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub value_bytes: Vec<u32>,
    /// contention: compression of all levels [default: none].
    #[arg(long, value_delimiter = ',')]
    pub compression: Vec<Compression>,
    /// contention: percent of all cores' time that other threads use [default: 0,40,80].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=100))]
    pub cpu_load: Vec<u32>,
    /// scaling: MB of keys and values of a job [default: 64,256,1024,4096,16384,32768].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub job_mb: Vec<u64>,
    /// scaling: jobs at once [default: 1,2,4,8].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=64))]
    pub at_once: Vec<u32>,
    /// update-ratio: percent of operations that write [default: 10,30,50,70,90].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=100))]
    pub updates: Vec<u32>,
    /// steady: percent of the data that a GPU caches [default: 10,40,100].
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(..=1000))]
    pub cache_percent: Vec<u32>,
    #[command(flatten)]
    pub tuning: Tuning,
    /// Folder for the databases, which are removed at the end [default: the system's folder for temporary files].
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    const MOST: f64 = 10_000.0;
    let percent = text.parse().ok();
    percent
        .filter(|percent| *percent > 0.0 && *percent <= MOST)
        .ok_or_else(|| format!("a scale is a number of per cent above 0, {MOST} at most"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_above_nothing() {
        assert_eq!((scale("0.5"), scale("100")), (Ok(0.5), Ok(100.0)));
        for text in ["0", "-1", "NaN", "inf", "all", "10001"] {
            assert!(scale(text).expect_err(text).contains("per cent"));
        }
    }
}

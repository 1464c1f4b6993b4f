//! The unit of measurement, and its result.

use std::collections::BTreeMap;

use rockmill_side_by_side::device::Tuning;
use rockmill_side_by_side::running_system::Consumption;
use rockmill_side_by_side::spec::{DatabaseSpec, Keys};
use rockmill_side_by_side::system::System;
use rockmill_side_by_side::workload::Workload;
use serde::{Deserialize, Serialize};

use super::latency::Latency;
use super::simulation::{Sizes, hit_share};

/// A system at one point of an experiment. Two cells with the same settings measure the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Point in the experiment: name and value of each axis.
    pub point: Vec<(String, String)>,
    pub system: System,
    /// Subcompactions in flight for Rockmill, background jobs and subcompactions for RocksDB.
    pub threads: u32,
    pub tuning: Tuning,
    /// Parameters of its simulated devices by name, because a profile file may change. Stored as JSON text, so that
    /// reading does not change a number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, String>,
    pub work: Work,
}

/// Work for which a system is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Clients(Clients),
    Jobs(Jobs),
}

/// Clients that fill a database and then read and write it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Clients {
    pub families: u32,
    /// The records of each column family.
    pub records: Workload,
    pub keys: Keys,
    pub fill: Order,
    /// Number of operations before the measured ones; the next field is the number of measured ones.
    pub warm_up: u64,
    pub operations: u64,
    /// Time limit of warm-up and run in seconds, even if operations remain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_seconds: Option<u64>,
    /// Percentage of operations that write a record.
    pub update_percent: u32,
    pub pick: Pick,
    pub clients: u32,
    /// Percentage of all cores' time that the CPU load uses.
    pub cpu_load_percent: u32,
    pub interval_ms: u64,
    /// Size of each column family's write buffer; files have the same size.
    pub write_buffer_bytes: u64,
    /// Size of the first level below level 0; by default four write buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level_base_bytes: Option<u64>,
    /// Whether files are merged. If not, clients reach the upper bound for any method that takes compaction off the
    /// host.
    pub compacts: bool,
}

/// Order in which records are first written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// By key, by one client.
    Sequential,
    /// Spread over all keys, by all clients.
    Random,
}

/// How an operation's record is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    Uniform,
    /// Like YCSB: some records are drawn far more often than others, independent of their keys' positions.
    Zipfian,
}

/// Full compactions of several databases at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    /// Contents of each database.
    pub spec: DatabaseSpec,
    pub at_once: u32,
}

/// Result of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub phases: Vec<Phase>,
}

/// A part of a cell's work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// CPUs of the machine that may be used.
    pub cores: u32,
    /// Seconds until the last client's last operation, or until the last compaction.
    pub wall_s: f64,
    /// Seconds for which due compactions went on after that.
    pub settle_s: f64,
    /// Resources until compactions were done, without those of the CPU load.
    pub taken: Consumption,
    /// CPU time of the CPU load until then, in seconds.
    pub burnt_s: f64,
    pub reads: Option<Latency>,
    pub writes: Option<Latency>,
    pub traffic: Traffic,
    pub timeline: Vec<Interval>,
}

/// File traffic until compactions were done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Keys and values that clients wrote.
    pub user_bytes: u64,
    pub flushed_bytes: u64,
    /// Bytes read by compactions of either system.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Seconds that RocksDB made writers wait, by its own count.
    pub stalled_s: f64,
    /// Seconds of compactions, summed over those that ran at the same time.
    #[serde(default)]
    pub compacted_s: f64,
}

/// A part of a phase's time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interval {
    /// Length, and end since the start of the phase.
    pub seconds: f64,
    pub until_s: f64,
    pub reads: Option<Latency>,
    pub writes: Option<Latency>,
    /// Share of all cores' time, without that of the CPU load.
    pub cpu_use: f64,
    /// Share of time in which a kernel ran on the GPUs, sampled near the end of the interval; absent without GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_use: Option<f64>,
    pub traffic: Traffic,
}

impl Cell {
    /// Name of the system and its devices.
    pub fn series(&self) -> String {
        match self.system {
            _ if !self.compacts() => "no compaction".to_owned(),
            System::Rocksdb => self.system.name().to_owned(),
            System::Rockmill(device) => format!("{} {device}", self.system.name()),
        }
    }

    /// Whether its files are merged at all.
    pub fn compacts(&self) -> bool {
        match &self.work {
            Work::Clients(work) => work.compacts,
            Work::Jobs(_) => true,
        }
    }

    /// The share of the input of compactions that a simulation finds in the cache of a GPU. `None` if it has no cache of
    /// stated size, or updates are not uniform.
    pub fn simulated_hit_share(&self) -> Option<f64> {
        let Work::Clients(work) = &self.work else {
            return None;
        };
        let cache = self.tuning.device_cache_bytes()?;
        let caches_at_all = self.uses_gpu() && work.pick == Pick::Uniform && work.families == 1;
        let data = work.records.entries * work.records.entry_bytes() as u64;
        caches_at_all.then(|| {
            hit_share(Sizes {
                data: data as f64,
                file: work.write_buffer_bytes as f64,
                flush: work.write_buffer_bytes as f64,
                cache: cache as f64,
            })
        })
    }

    /// Whether a GPU compacts.
    pub fn uses_gpu(&self) -> bool {
        let devices = self.system.device().to_string();
        matches!(self.system, System::Rockmill(_)) && devices.contains("cuda")
    }

    /// Returns a file name without extension; it is different for each cell of an experiment.
    pub fn file_stem(&self) -> String {
        let point = self
            .point
            .iter()
            .map(|(axis, value)| format!("{axis} {value} "));
        let text = point.collect::<String>() + &self.series();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        words.join("-")
    }
}

//! What is measured in one go, and what came of it.

use std::collections::BTreeMap;

use rockmill_side_by_side::device::Tuning;
use rockmill_side_by_side::plane::Consumption;
use rockmill_side_by_side::spec::{Keys, Spec};
use rockmill_side_by_side::system::System;
use rockmill_side_by_side::workload::Workload;
use serde::{Deserialize, Serialize};

use super::latency::Latency;

/// A system at one point of an experiment. Two cells of the same settings measure the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cell {
    /// Where it lies in the experiment: name and value of each axis.
    pub point: Vec<(String, String)>,
    pub system: System,
    /// Subcompactions in flight, or background jobs and subcompactions.
    pub threads: u32,
    pub tuning: Tuning,
    /// What its simulated devices are, by name, since the file of a profile may change: JSON as text, of which no
    /// number changes when it is read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub profiles: BTreeMap<String, String>,
    pub work: Work,
}

/// What a system is measured with.
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
    /// Operations before those that count, and these, each drawn.
    pub warm_up: u64,
    pub operations: u64,
    /// After so many seconds, these and those end, done or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_seconds: Option<u64>,
    /// Share of operations that write a record.
    pub update_percent: u32,
    pub pick: Pick,
    pub clients: u32,
    /// Share of all cores' time that burners take.
    pub cpu_load_percent: u32,
    pub interval_ms: u64,
    /// Of each column family; files have the same size.
    pub write_buffer_bytes: u64,
    /// Whether files are merged at all. Where they are not, clients have what nobody can give them more of who
    /// takes compaction off the host, however fast.
    pub compacts: bool,
}

/// In which order records are first written.
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
    /// As YCSB's: some records far more often than others, wherever their keys lie.
    Zipfian,
}

/// Full compactions of several databases at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    /// What each database holds.
    pub spec: Spec,
    pub at_once: u32,
}

/// What came of a cell.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    pub phases: Vec<Phase>,
}

/// A part of a cell's work.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Phase {
    pub name: String,
    /// Processors of the machine that may be used.
    pub cores: u32,
    /// Until the last client has done its last operation, or the last compaction was done.
    pub wall_s: f64,
    /// How long compactions that were due went on after that.
    pub settle_s: f64,
    /// Until compactions were done, without what burners took.
    pub taken: Consumption,
    /// Processor time that burners took until then.
    pub burnt_s: f64,
    pub reads: Option<Latency>,
    pub writes: Option<Latency>,
    pub traffic: Traffic,
    pub timeline: Vec<Interval>,
}

/// What went to and from files until compactions were done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Keys and values that clients wrote.
    pub user_bytes: u64,
    pub flushed_bytes: u64,
    /// By compactions, whoever did them.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// That RocksDB made writers wait, as it counts.
    pub stalled_s: f64,
}

/// A part of a phase's time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interval {
    /// Its length, and its end since the phase began.
    pub seconds: f64,
    pub until_s: f64,
    pub reads: Option<Latency>,
    pub writes: Option<Latency>,
    /// Share of all cores' time, without what burners took.
    pub cpu_use: f64,
    /// Share of time in which a kernel ran on the GPUs, about at the end of the interval; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_use: Option<f64>,
    pub traffic: Traffic,
}

impl Cell {
    /// Its system and what that computes on.
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

    /// A file name without extension; cells of an experiment have different ones.
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

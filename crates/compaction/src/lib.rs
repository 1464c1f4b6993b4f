//! The engine: does a compaction job, from RocksDB's request to finished files.
//!
//! 1. [`Engine::prepare`]: reads OPTIONS and MANIFEST and creates a `Job`, if options and tree allow it.
//! 2. `prepare`: opens the inputs, creates a plan and splits it into subcompactions.
//! 3. `job`: runs the subcompactions on several threads, within a memory budget.
//! 4. Each subcompaction: a backend writes files, which are verified and synced, and their tails are read back.
//! 5. `result`: checks the sums over all subcompactions and encodes the answer to RocksDB.
//!
//! A job that cannot be done exactly is declined with a [`rockmill_core::DeclineReason`] before anything is written.
//! Inputs are only read. Outputs are written to a staging folder in the database's directory, verified, synced,
//! reopened, and only then reported.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as rockmill_compaction;

mod eligibility;
mod engine;
mod job;
mod known_tables;
#[cfg(test)]
#[allow(dead_code, reason = "benchmarks use the rest")]
#[path = "../benches/made/mod.rs"]
mod made;
mod metrics;
mod objects;
mod outcome;
mod prepare;
pub mod record;
mod result;
mod run_context;
mod service;
mod settings;
mod spans;
pub mod staging;
mod stats;
mod subcompactions;
pub mod verify;

pub use eligibility::{EligibleJob, filter_policy_without_bits};
pub use engine::diagnosis::{Diagnosis, FamilyDiagnosis};
pub use engine::forecast::{Expected, Forecast, ForecastStep};
pub use engine::{Engine, Finished, guarded};
pub use objects::{Filter, FilterContext, FullMerge, MakeFilter, NamedObjects, PartialMerge};
pub use outcome::{DeviceWork, Outcome};
pub use rockmill_cuda::CudaSettings;
#[doc(hidden)]
pub use rockmill_exec::TaskDeadline;
pub use rockmill_exec::device::{Device, DeviceList};
#[doc(hidden)]
pub use rockmill_exec::device::{Registered, know_own_names};
pub use rockmill_exec::executor::Executor;
pub use rockmill_exec::host_memory::MIN_BUDGET_BYTES as MIN_MEMORY_BUDGET_BYTES;
pub use rockmill_storage::io::OutputCache;
pub use service::{Installation, ServiceJobs};
pub use settings::{MutableSettings, Settings};
pub use stats::{CacheStats, DeviceStats, Durations, Stats, StatsCell, show_bytes};
pub use verify::Verification;

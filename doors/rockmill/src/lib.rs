//! Compaction for stock RocksDB, switched on with one line.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rockmill = rockmill::Service::builder().build()?;
//! let mut options = rust_rocksdb::Options::default();
//! options.set_compaction_service(rockmill.clone());
//! let db = rust_rocksdb::DB::open(&options, "db")?;
//! println!("{}", rockmill.stats());
//! # Ok(())
//! # }
//! ```
//!
//! RocksDB offers every compaction that it picks to the [`Service`]. The service reads the input SST files, merges them
//! by RocksDB's rules and writes SST files that RocksDB installs. It declines jobs that it cannot do exactly, counts
//! them by reason in [`Stats`], and RocksDB does them itself. The same holds after any error. No failure of the service
//! becomes an error of the database.
//!
//! The service sends the same counts to the process's `metrics` recorder, and spans of jobs and subcompactions to its
//! `tracing` subscriber. The application has to install these before it builds the service.

#![forbid(unsafe_code)]

mod builder;
#[cfg(feature = "rust-rocksdb")]
mod compaction_service;
mod service;

pub use builder::{Builder, Error};
#[doc(hidden)]
pub use rockmill_compaction::CudaSettings;
pub use rockmill_compaction::{
    CacheStats, Device, DeviceList, DeviceStats, Durations, Executor, Filter, FilterContext,
    MutableSettings, OutputCache, Stats, Verification,
};
pub use rockmill_core::{Decision as FilterDecision, DeclineReason};
pub use rockmill_core::{Resource, StageTime};
pub use service::Service;

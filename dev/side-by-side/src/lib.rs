//! Lets RocksDB and Rockmill compact the same files, each in its own process, and compares the results. `rockmill demo`
//! and `rockmill-bench` share this code.
//!
//! A program that starts a [`worker::Worker`] has a hidden subcommand `compaction-process`, which calls [`worker::serve`].

#![forbid(unsafe_code)]

pub mod compare;
pub mod database;
pub mod dataset;
pub mod device;
pub mod energy;
pub mod fill;
pub mod jobs;
pub mod machine;
pub mod measure;
pub mod process;
pub mod progress;
pub mod rocksdb;
pub mod row;
pub mod run_config;
pub mod running_system;
pub mod scratch;
pub mod scratch_dir;
pub mod spec;
pub mod stages;
pub mod system;
pub mod worker;
pub mod workload;

//! The same files compacted by RocksDB and by Rockmill, each in a process of its own, and compared: what
//! `rockmill demo` and `rockmill-bench` share.
//!
//! A program that starts a [`worker::Worker`] has a hidden subcommand `worker`, which does [`worker::serve`].

#![forbid(unsafe_code)]

pub mod compare;
pub mod contender;
pub mod database;
pub mod device;
pub mod energy;
pub mod fill;
pub mod machine;
pub mod measure;
pub mod plane;
pub mod process;
pub mod progress;
pub mod rocksdb;
pub mod row;
pub mod scratch;
mod scratch_dir;
pub mod spec;
pub mod stages;
pub mod system;
pub mod worker;
pub mod workload;

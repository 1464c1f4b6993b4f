//! Shared helpers of the end-to-end tests, which run Rockmill inside stock RocksDB.
//!
//! * [`workload`] makes cases: a database's shape and a list of steps, from one seed.
//! * [`table`] and [`tree`] are the parts of that shape: the formats of SST files and the LSM tree.
//! * [`differential`] runs a case on RocksDB alone and on RocksDB with Rockmill, and compares.
//! * [`internal`] reads the internal entries of SST files and defines the differences that two trees may have.
//! * [`device`] names the device on which tests compact.
//! * [`content`] compares a database with its expected content.
//! * [`crash`] kills processes and checks the remaining files.
//! * [`damage`] damages SST files region by region, [`gate`] stops jobs at a step, [`busy`] writes while files are read.
//! * [`harness`] opens small databases with a service, [`reasons`] lists the decline reasons, [`batches`] encodes
//!   writes that the binding lacks.
//! * [`recording`] makes the recorded jobs, whose bytes must not change.
//!
//! All randomness comes from a seed that is printed. `ROCKMILL_SEED=N ROCKMILL_CASES=1` replays a case;
//! `ROCKMILL_SEED=random` takes the seed from the clock.

pub mod batches;
pub mod busy;
pub mod content;
pub mod crash;
pub mod damage;
pub mod device;
pub mod differential;
pub mod gate;
pub mod harness;
pub mod internal;
pub mod reasons;
pub mod recording;
pub mod seed;
pub mod switch;
pub mod table;
pub mod tree;
pub mod workload;

//! Shared helpers of the end-to-end tests, which run Rockmill inside stock RocksDB.
//!
//! * [`workload`] makes cases: a database's shape and a list of steps, from one seed.
//! * [`table`] and [`tree`] are the parts of that shape: how SST files look, how the LSM tree looks.
//! * [`differential`] runs a case on RocksDB alone and on RocksDB with Rockmill, and compares.
//! * [`internal`] reads the internal entries of SST files and says how two trees may differ.
//! * [`content`] compares a database with what it should hold.
//! * [`crash`] kills processes and checks what they leave.
//! * [`damage`] breaks SST files region by region, [`flipping`] those that are written, [`gate`] stops jobs
//!   at a step.
//! * [`harness`] opens small databases with a service, [`reasons`] names the reasons to decline,
//!   [`batches`] spells out writes that the binding lacks.
//! * [`recording`] makes the jobs whose bytes are kept for good.
//!
//! Everything random comes from a seed that is printed. `ROCKMILL_SEED=N ROCKMILL_CASES=1` replays a
//! case; `ROCKMILL_SEED=random` starts from the clock.

pub mod batches;
pub mod content;
pub mod crash;
pub mod damage;
pub mod differential;
pub mod flipping;
pub mod gate;
pub mod harness;
pub mod internal;
mod local;
pub mod reasons;
pub mod recording;
pub mod seed;
pub mod switch;
pub mod table;
pub mod tree;
pub mod workload;

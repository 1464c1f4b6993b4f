//! Simulations for tests and benchmarks: storage in memory that fails and crashes as a test plans, storage that calls a
//! function of a test at each step, virtual time, and simulated devices with faults. Also tables, entries and plans that
//! tests of several crates share, and what tests need from the machine. With the feature `rocksdb`, also databases of
//! rust-rocksdb.

#![forbid(unsafe_code)]

#[cfg(feature = "rocksdb")]
pub mod busy;
pub mod cases;
pub mod cgroup;
pub mod command;
pub mod drawn_scans;
mod faults;
mod fpga;
pub mod hooked;
pub mod machine;
#[cfg(feature = "rocksdb")]
pub mod scans;
pub mod simulated;
pub mod storage_model;
mod virtual_clock;

pub use faults::{Fault, FaultRates};
pub use fpga::{UNIT_STAGES, UnitLink, UnitProfile, UnitSpeed, UnitStage};
pub use virtual_clock::VirtualClock;

//! Simulations for tests and benchmarks: storage in memory that fails and crashes as a test plans, virtual time, and
//! simulated devices with faults. Also tables, entries and plans that tests of several crates share.

#![forbid(unsafe_code)]

pub mod cases;
pub mod drawn_scans;
mod faults;
mod fpga;
pub mod simulated;
pub mod storage_model;
mod virtual_clock;

pub use faults::{Fault, FaultRates};
pub use fpga::{UNIT_STAGES, UnitLink, UnitProfile, UnitSpeed, UnitStage};
pub use virtual_clock::VirtualClock;

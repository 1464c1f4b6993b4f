//! Accelerators by their published formulas, and what simulated devices, tests and benchmarks need beside: faults, made
//! inputs, folders for them.

mod faults;
mod fpga;
mod made;
mod scratch;
mod workload;

pub use faults::{Fault, FaultRates};
pub use fpga::{UNIT_STAGES, UnitLink, UnitProfile, UnitSpeed, UnitStage};
pub use made::Made;
pub use scratch::Scratch;
pub use workload::Workload;

//! The engine: from RocksDB's request to finished files.
//!
//! ```text
//!   request --prepare--> Job --admit--> Plan --slices--> Slice ..
//!                                                          | on several threads, within a budget
//!   result <--check accounts-- files <--tails-- sync <--verify-- backend
//! ```
//!
//! A job that cannot be done exactly is declined with a [`rockmill_core::DeclineReason`] before
//! anything is written. Inputs are never touched. Outputs wait in a staging folder in the database's
//! directory, are verified, synced, opened again, and only then reported.

#![forbid(unsafe_code)]

mod admit;
mod at_rest;
mod auto;
mod blocks;
mod budget;
pub mod clock;
mod compute;
pub mod descriptors;
mod device;
mod engine;
mod filter_bits;
mod findings;
mod fleet;
pub mod io;
mod levels;
mod manual;
mod metrics;
pub mod model;
mod opening;
mod pace;
mod parallel;
mod prepare;
mod priority;
pub mod record;
mod removal;
mod result;
mod ribbon_bits;
mod run;
mod settings;
mod simulated;
mod slices;
mod spans;
pub mod staging;
mod standing;
mod stats;
pub mod storage;
pub mod syncs;
pub mod tree;
pub mod verification;
pub mod verify;

pub use admit::filter_policy_without_bits;
pub use at_rest::options_number;
pub use blocks::read_block;
pub use device::{Device, DeviceList};
pub use engine::diagnosis::{Diagnosis, FamilyDiagnosis};
pub use engine::forecast::{Expected, Forecast, ForecastStep};
pub use engine::{Engine, Finished};
pub use manual::UserKeys;
pub use rockmill_cuda::CudaSettings;
pub use run::{DeviceWork, Outcome};
#[doc(hidden)]
pub use settings::Patience;
pub use settings::{MIN_MEMORY_BUDGET_BYTES, MutableSettings, OutputCache, Settings};
pub use simulated::Profile;
pub use stats::{DeviceStats, Durations, Stats, StatsCell, show_bytes};
pub use verification::Verification;

//! Runs tasks on devices.
//!
//! ```text
//!   DeviceRegistry   device_registry   devices that were opened, each with its DeviceHealth
//!   Budget           budget            slots and memory, over all jobs; who is next, and on which device
//!   Paces            pace, auto        how long tasks took, and so where the next should go
//!   parallel         parallel          one function over many items, on several threads
//! ```
//!
//! It knows sizes, devices and deadlines, and nothing of what a task computes.

#![forbid(unsafe_code)]

pub mod auto;
pub mod budget;
pub mod device;
pub mod device_health;
pub mod device_registry;
pub mod device_trouble;
pub mod niceness;
mod opening;
pub mod pace;
pub mod parallel;
mod patience;

pub use patience::Patience;

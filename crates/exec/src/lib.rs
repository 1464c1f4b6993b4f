//! Runs tasks on devices.
//!
//! - [`executor`] takes the tasks of a job and runs them on pooled threads, watches their calls and runs again on the CPU
//!   what a device failed at.
//! - [`device_registry`] opens the devices that the settings name. Each has a [`device_health::DeviceHealth`], a circuit
//!   breaker.
//! - [`budget`] grants slots and memory to the tasks of all jobs, by priority, and chooses the device of each.
//! - [`pace`] learns how long tasks take on each device; [`auto`] decides by that whether a job is worth a GPU.
//! - [`parallel`] applies one function to many items on several threads.
//!
//! This crate knows sizes, devices and deadlines, and nothing of what a task computes.

#![forbid(unsafe_code)]

pub mod auto;
pub mod budget;
pub mod device;
pub mod device_health;
pub mod device_registry;
pub mod device_trouble;
pub mod executor;
pub mod niceness;
mod opening;
pub mod pace;
pub mod parallel;
mod patience;

pub use patience::Patience;

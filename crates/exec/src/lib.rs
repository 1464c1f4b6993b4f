//! Runs tasks on devices.
//!
//! - [`executor`] runs the tasks of a job on pooled threads, watches their device calls, and runs tasks again on the
//!   CPU if a device failed at them.
//! - [`device_runtime`] opens each GPU once in a process, and divides its memory among tasks and views. Each device has a
//!   [`device_health::DeviceHealth`], a circuit breaker.
//! - [`device_registry`] has the devices that the settings of an engine name.
//! - [`admit`] chooses devices, read-ahead and memory for the tasks of a job.
//! - [`budget`] grants slots and memory to the tasks of all jobs, by priority, and chooses a device for each task.
//! - [`throughput`] learns how long tasks take on each device. From this, [`auto`] decides whether a job goes to a GPU.
//! - [`dispatch`] takes the subscriber of events along to other threads.
//! - [`host_memory`] returns how much memory this process may use, by the machine and its cgroups.
//! - [`parallel`] applies one function to many items on several threads.
//!
//! This crate knows sizes, devices and deadlines. It does not know what a task computes.

#![forbid(unsafe_code)]

pub mod admit;
pub mod auto;
pub mod budget;
pub mod device;
pub mod device_health;
pub mod device_registry;
pub mod device_runtime;
pub mod device_trouble;
pub mod dispatch;
pub mod executor;
pub mod file_caches;
pub mod host_memory;
pub mod niceness;
mod opening;
pub mod parallel;
mod task_deadline;
pub mod throughput;

pub use task_deadline::TaskDeadline;

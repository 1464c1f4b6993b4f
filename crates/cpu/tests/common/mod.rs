//! Shared by the tests: tables in memory, random entries and plans, stages on their own.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test file uses a part of this"
)]

pub mod plans;
mod random;
pub mod raw;
mod stages;
mod tables;

pub use random::{config, entries, keys, kinds, values};
pub use stages::{VecSink, VecSource, entry_of, read};
pub use tables::*;

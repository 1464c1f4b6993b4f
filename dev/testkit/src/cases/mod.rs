//! What tests of backends share: tables in memory, random entries and plans, stages on their own.

#![allow(missing_docs, reason = "names of plain records and constants")]

pub mod plans;
mod random;
pub mod raw;
mod stages;
pub mod tables;

pub use random::{config, entries, keys, kinds, values};
pub use stages::{VecSink, VecSource, entry_of, read};
pub use tables::*;

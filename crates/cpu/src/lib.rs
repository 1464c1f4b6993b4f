//! The CPU backend: streams a task through decode, merge, visibility and an operator, a block at a time.
//!
//! ```text
//!   InputTable --RunReader--> entries of one input, block by block      read
//!        ..    --Merge-->     one order over all inputs
//!              --retain-->    what a compaction keeps
//!              --see-->       what a snapshot sees
//!              --SstWriter--> blocks --checked--> files                  sst
//!              --Inspector--> rows, one by one                           inspect
//!              --Scanner-->   batches of columns                         scan
//! ```
//!
//! Memory: a read-ahead buffer and a decoded block for each input, plus one block, the index and filter hashes of the
//! file being written. The stages are public so that tests can reach each.

#![forbid(unsafe_code)]

mod backend;
mod inspect;
mod read;
pub mod scan;
mod sst;

pub use backend::CpuBackend;
pub use read::{decode, merge, retain, snapshot};
pub use sst::{split, writer};

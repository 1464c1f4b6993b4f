//! The CPU backend: streams a slice through decode, merge, retain and encode, a block at a time.
//!
//! ```text
//!   InputTable --RunReader--> entries of one input, block by block      decode.rs
//!        ..    --Merge-->     one order over all inputs                  merge.rs
//!              --retain-->    survivors                                  retain.rs
//!              --SstWriter--> blocks --checked--> files                  writer.rs, cut.rs, checked.rs
//! ```
//!
//! Memory is a read-ahead buffer and a decoded block an input, plus one block, index and filter
//! hashes of the file being written. The stages are public so that tests can reach each.

#![forbid(unsafe_code)]

mod backend;
mod checked;
pub mod cut;
pub mod decode;
pub mod merge;
pub mod retain;
pub mod writer;

pub use backend::{CpuBackend, CpuRun};

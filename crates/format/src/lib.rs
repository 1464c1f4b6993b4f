//! RocksDB's formats, as pure functions over slices.
//!
//! The crate performs no I/O, starts no threads, knows no jobs and devices, and has no `unsafe` code. Every parser is
//! total: any input gives a value or an [`Error`] that names the offset.

#![forbid(unsafe_code)]

pub mod block;
pub mod checksum;
pub mod coding;
pub mod compression;
mod error;
pub mod filter;
pub mod footer;
pub mod handle;
pub mod index;
pub mod key;
pub mod log;
pub mod manifest;
pub mod names;
mod object_text;
pub mod options_file;
pub mod prefix;
pub mod properties;
pub mod range_tombstone;
pub mod table;
pub mod unique_id;
pub mod versions;
pub mod wire;
pub mod write_batch;
pub mod xxph3;

pub use error::{Error, ErrorKind, Result};

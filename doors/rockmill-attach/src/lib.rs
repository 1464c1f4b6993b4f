//! Lets compactions call the objects of a program that are set through the crate `rust-rocksdb`: merge operators, compaction
//! filters and their factories, prefix extractors, and collectors of table properties.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rockmill = rockmill::Service::builder().build()?;
//! let mut options = rust_rocksdb::Options::default();
//! options.set_compaction_filter("no-empty-values", |_level, _key, value| match value.is_empty() {
//!     true => rust_rocksdb::CompactionDecision::Remove,
//!     false => rust_rocksdb::CompactionDecision::Keep,
//! });
//! rockmill_attach::attach(&mut options, &rockmill)?;
//! let db = rust_rocksdb::DB::open(&options, "db")?;
//! # Ok(())
//! # }
//! ```
//!
//! [`attach`] replaces `Options::set_compaction_service`. RocksDB tells a compaction service only the names of such objects.
//! So the crate compiles a few lines of C++ that read the options. Its build needs what the build of RocksDB needs.

extern crate rust_librocksdb_sys as librocksdb_sys;
extern crate rust_rocksdb as rocksdb;

mod attach;

pub use attach::{AttachError, Attachment, attach, attach_families};

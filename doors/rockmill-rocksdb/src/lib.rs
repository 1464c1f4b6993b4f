//! Compaction for stock RocksDB, for programs with the crate `rocksdb` 0.25.
//!
//! ```no_run
//! use rockmill_rocksdb::{Service, SetCompactionService};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rockmill = Service::builder().build()?;
//! let mut options = rocksdb::Options::default();
//! options.create_if_missing(true);
//! options.set_compaction_service(&rockmill);
//! let db = rocksdb::DB::open(&options, "db")?;
//! println!("{}", rockmill.stats());
//! # Ok(())
//! # }
//! ```
//!
//! [`attach`] in its place also lets compactions call the merge operators, compaction filters, prefix extractors and
//! collectors of table properties that the options have:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let rockmill = rockmill_rocksdb::Service::builder().build()?;
//! # let mut options = rocksdb::Options::default();
//! options.set_compaction_filter("no-empty-values", |_level, _key, value| match value.is_empty() {
//!     true => rocksdb::CompactionDecision::Remove,
//!     false => rocksdb::CompactionDecision::Keep,
//! });
//! rockmill_rocksdb::attach(&mut options, &rockmill)?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything else is that of the crate `rockmill`, which is for `rust-rocksdb`. A program uses one of the two crates:
//! both contain RocksDB, and cargo refuses dependencies that link it twice.

#[path = "../../rockmill-attach/src/attach.rs"]
mod attach;
mod callbacks;

use librocksdb_sys as ffi;
use rocksdb::AsRawPtr;

pub use attach::{AttachError, Attachment, attach, attach_families};
pub use rockmill::*;

/// Attaches a service to options.
pub trait SetCompactionService {
    /// Lets databases with these options have their compactions done by a clone of `service`. RocksDB keeps the clone
    /// until the last of the options, their copies and their databases is gone.
    fn set_compaction_service(&mut self, service: &Service);
}

impl SetCompactionService for rocksdb::Options {
    fn set_compaction_service(&mut self, service: &Service) {
        let state = Box::into_raw(Box::new(service.jobs().clone()));
        // SAFETY: the callbacks cast `state` to its type, and RocksDB calls `destroy` once, after all others.
        let created = unsafe {
            ffi::rocksdb_compactionservice_create(
                state.cast(),
                Some(callbacks::destroy),
                Some(callbacks::schedule),
                c"Rockmill".as_ptr(),
                Some(callbacks::wait),
                Some(callbacks::cancel_awaiting_jobs),
                Some(callbacks::on_installation),
            )
        };
        // SAFETY: the options are alive, nothing else uses them, and they take ownership of the new service.
        unsafe { ffi::rocksdb_options_set_compaction_service(self.as_raw_ptr(), created) };
    }
}

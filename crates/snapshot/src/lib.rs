//! Files and options of a version of a database.
//!
//! | Input              | Module            | Result                                                         |
//! |--------------------|-------------------|----------------------------------------------------------------|
//! | MANIFEST           | `tree`            | The files of each level                                        |
//! | Database folder    | `closed_database` | The newest OPTIONS file and the MANIFEST                       |
//! | IDENTITY           | `identity`        | The id of the database                                         |
//! | `wal_dir`          | `log_folder`      | The folder of the write-ahead logs                             |
//! | Write-ahead logs   | `unflushed`       | The entries that are not in SST files                          |
//! | Filters            | `filter_bits`     | Bits per key, where the OPTIONS file does not give them        |
//! | Range of user keys | `manual`          | The steps into which RocksDB splits a manual compaction        |
//!
//! Nothing is written, and the database may be open.

#![forbid(unsafe_code)]

pub mod closed_database;
pub mod filter_bits;
mod findings;
mod identity;
pub mod levels;
pub mod log_folder;
pub mod manual;
mod ribbon_bits;
pub mod tree;
pub mod unflushed;

pub use findings::Findings;
pub use identity::{DatabaseIdentity, identity};
pub use log_folder::{LogFolder, LogSource};

//! Which files and options make a version of a database.
//!
//! ```text
//!   MANIFEST  --TreeFollower-->    the files of each level          tree
//!   a folder  --ClosedDatabase-->  newest OPTIONS file and MANIFEST closed_database
//!   filters   --filter_bits-->     bits a key that OPTIONS leaves out
//!   keys      --steps-->           what RocksDB makes of a manual compaction    manual
//! ```
//!
//! Nothing is written, and the database may be open.

#![forbid(unsafe_code)]

pub mod closed_database;
pub mod filter_bits;
mod findings;
pub mod levels;
pub mod manual;
mod ribbon_bits;
pub mod tree;

pub use findings::Findings;

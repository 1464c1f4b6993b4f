//! The MANIFEST: which SST files make up which level, told as a log of edits.
//!
//! ```text
//! MANIFEST file -> log::LogReader -> records -> VersionEdit::decode -> Tree::apply
//!               '---------------------- Follower::feed ------------------------'
//! ```
//!
//! All of it works on the bytes appended since the last call, so that a live database is followed
//! without reading its MANIFEST again. Finding the current MANIFEST (file CURRENT) and reading it
//! is left to the caller; a new MANIFEST starts with the whole state, hence with a new
//! [`Follower`].

mod edit;
mod file_meta;
mod follower;
mod tree;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod test_encoder;
#[cfg(test)]
mod tests;

pub use edit::VersionEdit;
pub use file_meta::{FileMeta, Temperature, UNKNOWN_CHECKSUM_FUNC_NAME};
pub use follower::Follower;
pub use tree::{ColumnFamily, Given, Tree};

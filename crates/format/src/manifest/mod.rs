//! The MANIFEST: a log of edits with the SST files of each level.
//!
//! ```text
//! MANIFEST file -> log::LogReader -> records -> VersionEdit::decode -> Tree::apply
//!               '---------------------- Follower::feed ------------------------'
//! ```
//!
//! A follower takes the bytes appended since the last call, so that a live database's MANIFEST is not read again. The
//! caller finds the current MANIFEST (file CURRENT) and reads it. A new MANIFEST starts with the whole state, so it
//! needs a new [`Follower`].

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
pub use tree::{ColumnFamily, Given, Levels, Tree};

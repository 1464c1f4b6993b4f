//! Filter blocks: the configured filter of a column family, its construction, and queries.
//!
//! A filter is a payload with five bytes of metadata at its end
//! (`table/block_based/filter_policy.cc`):
//!
//! ```text
//! FastLocalBloom  | lines of 64 bytes ...           | ff | 00     | probes | 00 00       |
//! Ribbon          | segments of 16 bytes ...        | fe | seed   | number of blocks, 24 bits |
//! legacy Bloom    | lines of a power of two bytes   | probes, 1..127 | number of lines, 32 bits |
//! always true     | anything                        | 00, 80..fd     | anything             |
//! always false    | no more than five bytes in all
//! ```
//!
//! FastLocalBloom is written, and the legacy filter in files of format_version below 5. If the policy is Ribbon,
//! FastLocalBloom is written instead: readers choose by the metadata, and RocksDB itself falls back to it. All kinds
//! can be queried.

pub mod bloom;
mod builder;
pub mod legacy;
mod policy;
mod reader;
mod ribbon;

pub(crate) use legacy::seeded_hash;

pub use builder::{FilterBuilder, FilterFormat, FilterOptions, FilterPartition};
pub use policy::{FilterPolicy, PolicyKind};
pub use reader::{FilterKind, FilterReader, LegacyLayout};

/// Bytes of metadata at the end of a filter's payload.
pub const METADATA_LEN: usize = 5;

#[cfg(test)]
mod legacy_tests;
#[cfg(test)]
mod tests;

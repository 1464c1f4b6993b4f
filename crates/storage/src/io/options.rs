//! A database's options for file I/O.

use std::fmt;
use std::str::FromStr;

use rockmill_core::{DeclineReason, Error, Result};
use rockmill_format::options_file::Options;

/// How a job's files are read and written (`options.h`; `file_system.cc:OptimizeForCompactionTableRead`,
/// `OptimizeForCompactionTableWrite`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoOptions {
    /// Inputs are read with direct I/O: `use_direct_reads` or `use_direct_io_for_compaction_reads`.
    pub direct_reads: bool,
    /// Outputs are written with direct I/O: `use_direct_io_for_flush_and_compaction`.
    pub direct_writes: bool,
    /// Outputs of known size are preallocated: `allow_fallocate`.
    pub reserves: bool,
    /// Number of written bytes after which writeback is started: `bytes_per_sync`, or [`IoOptions::BYTES_PER_SYNC`]
    /// where it is 0.
    pub bytes_per_sync: u64,
}

impl Default for IoOptions {
    fn default() -> Self {
        Self {
            direct_reads: false,
            direct_writes: false,
            reserves: true,
            bytes_per_sync: Self::BYTES_PER_SYNC,
        }
    }
}

impl IoOptions {
    /// Used where `bytes_per_sync` is 0. RocksDB then leaves writeback to the system, and its sync waits for the whole
    /// file.
    pub const BYTES_PER_SYNC: u64 = 8 << 20;

    /// Applies the setting for outputs.
    #[must_use]
    pub fn with_outputs(self, cache: OutputCache) -> Self {
        Self {
            direct_writes: self.direct_writes || cache == OutputCache::Bypass,
            ..self
        }
    }

    /// Reads the section `[DBOptions]`.
    ///
    /// # Errors
    /// Declined if an option is malformed.
    pub fn read(db: &Options) -> Result<Self> {
        let flag = |name| db.bool(name, false);
        let read = || {
            Ok(Self {
                direct_reads: flag("use_direct_reads")?
                    || flag("use_direct_io_for_compaction_reads")?,
                direct_writes: flag("use_direct_io_for_flush_and_compaction")?,
                reserves: db.bool("allow_fallocate", true)?,
                bytes_per_sync: match db.u64("bytes_per_sync", 0)? {
                    0 => Self::BYTES_PER_SYNC,
                    bytes => bytes,
                },
            })
        };
        read().map_err(|e: rockmill_format::Error| {
            Error::declined(DeclineReason::OptionsFile, e.to_string())
        })
    }
}

/// Whether output files go through the page cache, where the file system allows the choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputCache {
    /// As the database's options say: they do unless `use_direct_io_for_flush_and_compaction` is set.
    #[default]
    Database,
    /// Outputs use direct I/O, whatever the options say. The disk begins with the first piece that is done, and the
    /// system need not copy, track and flush pages. The outputs are not in the page cache afterwards, so their first
    /// readers wait for the disk.
    Bypass,
}

impl fmt::Display for OutputCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Database => "database",
            Self::Bypass => "bypass",
        })
    }
}

impl FromStr for OutputCache {
    type Err = String;

    /// Parses `database` or `bypass`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "database" => Ok(Self::Database),
            "bypass" => Ok(Self::Bypass),
            _ => Err("say database or bypass".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_output_is_read_as_it_is_shown() {
        for cache in [OutputCache::Database, OutputCache::Bypass] {
            assert_eq!(cache.to_string().parse(), Ok(cache));
        }
        assert!("page".parse::<OutputCache>().is_err());
    }

    #[test]
    fn outputs_alone_pass_by_the_page_cache_where_a_setting_says_so() {
        let default = IoOptions::default();
        assert_eq!(default.with_outputs(OutputCache::Database), default);
        let direct_writes = IoOptions {
            direct_writes: true,
            ..default
        };
        assert_eq!(default.with_outputs(OutputCache::Bypass), direct_writes);
        for cache in [OutputCache::Database, OutputCache::Bypass] {
            assert_eq!(direct_writes.with_outputs(cache), direct_writes);
        }
    }

    #[test]
    fn each_option_that_makes_reads_direct_counts() {
        let read = |text: &str| IoOptions::read(&Options::from_value(text).expect("options"));
        let default = IoOptions::default();
        assert_eq!(read("{bytes_per_sync=0;}"), Ok(default));
        let direct_reads = IoOptions {
            direct_reads: true,
            ..default
        };
        assert_eq!(read("{use_direct_reads=true;}"), Ok(direct_reads));
        let text = "{use_direct_io_for_compaction_reads=true;}";
        assert_eq!(read(text), Ok(direct_reads));
        let text = "{use_direct_io_for_flush_and_compaction=true;allow_fallocate=false;bytes_per_sync=1048576;}";
        let direct_writes = IoOptions {
            direct_writes: true,
            reserves: false,
            bytes_per_sync: 1 << 20,
            ..default
        };
        assert_eq!(read(text), Ok(direct_writes));
        assert!(read("{use_direct_reads=perhaps;}").is_err());
    }
}

//! The additions of each RocksDB version to the messages of its CompactionService and to OPTIONS files.
//!
//! [`RELEASES`] has the facts of each version whose sources were read. An addition came after the previous listed
//! version; the versions between the two were not read. Sources:
//!
//! - messages: `db/compaction/compaction_service_job.cc` (`cs_input_type_info`, `cs_result_type_info`,
//!   `cs_output_file_type_info`, `compaction_job_stats_type_info`), `table/table_properties.cc`
//!   (`table_properties_type_info`), `include/rocksdb/options.h` (`CompactionServiceJobInfo`)
//! - properties of files: `table/meta_blocks.cc` (`PropertyBlockBuilder::AddTableProperty`), `util/compression.h` or
//!   `.cc` (`CompressionOptionsToString`), `table/block_based/block_based_table_builder.cc`
//! - options: `options/db_options.cc`, `options/cf_options.cc`, `table/block_based/block_based_table_factory.cc`
//! - format versions: `include/rocksdb/table.h` (default), `table/format.h` (newest)
//!
//! Both messages have format 1 in all versions. From 9.9 on, RocksDB ignores unknown fields of a result
//! (`ConfigOptions::ignore_unknown_options` in `CompactionServiceResult::Read`; `OptionTypeInfo::ParseStruct`). Before,
//! an unknown field in a struct of the result is an error, which stops the database. So the result is written for the
//! version of the job ([`reads_field`]). Before 11.8 a result that cannot be read fails the compaction; from 11.8 on
//! RocksDB then compacts locally.
//!
//! For 7.8, only the headers and the output of its library were read, not its sources: it exchanges the messages of
//! 7.9. For 7.10 and 8.0, the output of their libraries and the names in them were read: they exchange the messages of 8.1,
//! with `epoch_number` from 7.10 on. Of 7.10, this is 7.10.2. The sources of 8.5.3 are those of
//! 8.6.7, which the package of crates.io with that name has.

/// Major and minor number.
pub type Version = [u32; 2];

/// Additions of a version to those of earlier versions.
#[derive(Debug)]
pub struct Release {
    /// The version whose sources were read.
    pub version: [u32; 3],
    /// Members of `CompactionServiceJobInfo`.
    pub job_info: &'static [&'static str],
    /// Fields of `CompactionServiceInput`.
    pub input: &'static [&'static str],
    /// Fields of `CompactionServiceResult`.
    pub result: &'static [&'static str],
    /// Fields of `CompactionServiceOutputFile`.
    pub output_file: &'static [&'static str],
    /// Fields of `CompactionJobStats`.
    pub job_stats: &'static [&'static str],
    /// Fields of `TableProperties`.
    pub table_properties: &'static [&'static str],
    /// Properties written to SST files.
    pub file_properties: &'static [&'static str],
    /// Fields of the property `rocksdb.compression_options`.
    pub compression_options: &'static [&'static str],
    /// Options of the OPTIONS file, those in structs behind the struct's name.
    pub options: &'static [&'static str],
    /// Default of `format_version`.
    pub default_format_version: u32,
    /// Largest `format_version`.
    pub newest_format_version: u32,
}

const UNCHANGED: Release = Release {
    version: [0; 3],
    job_info: &[],
    input: &[],
    result: &[],
    output_file: &[],
    job_stats: &[],
    table_properties: &[],
    file_properties: &[],
    compression_options: &[],
    options: &[],
    default_format_version: 6,
    newest_format_version: 6,
};

/// The supported versions, ascending. For the first one, only messages are listed.
pub const RELEASES: [Release; 22] = [
    Release {
        version: [7, 8, 3],
        job_info: &["db_name", "db_id", "db_session_id", "job_id", "priority"],
        input: &[
            "column_family",
            "db_options",
            "snapshots",
            "input_files",
            "output_level",
            "db_id",
            "has_begin",
            "begin",
            "has_end",
            "end",
        ],
        result: &[
            "status",
            "output_files",
            "output_level",
            "output_path",
            "num_output_records",
            "total_bytes",
            "bytes_read",
            "bytes_written",
            "stats",
        ],
        default_format_version: 5,
        newest_format_version: 5,
        ..UNCHANGED
    },
    Release {
        version: [7, 10, 0],
        output_file: &["epoch_number"],
        default_format_version: 5,
        newest_format_version: 5,
        ..UNCHANGED
    },
    Release {
        version: [8, 1, 1],
        default_format_version: 5,
        newest_format_version: 5,
        ..UNCHANGED
    },
    Release {
        version: [8, 5, 3],
        file_properties: &[
            "rocksdb.tail.start.offset",
            "rocksdb.user.defined.timestamps.persisted",
        ],
        options: &[
            "block_protection_bytes_per_key",
            "bottommost_file_compaction_delay",
            "compaction_verify_record_count",
            "compaction_options_fifo.file_temperature_age_thresholds",
            "compression_opts.checksum",
            "compression_opts.max_compressed_bytes_per_kb",
            "default_temperature",
            "memtable_max_range_deletions",
            "persist_user_defined_timestamps",
        ],
        default_format_version: 5,
        newest_format_version: 6,
        ..UNCHANGED
    },
    Release {
        version: [8, 11, 3],
        default_format_version: 5,
        newest_format_version: 6,
        ..UNCHANGED
    },
    Release {
        version: [9, 0, 0],
        ..UNCHANGED
    },
    Release {
        version: [9, 1, 1],
        options: &[
            "default_write_temperature",
            "strict_max_successive_merges",
            "use_delta_encoding",
        ],
        ..UNCHANGED
    },
    // 9.7.2 has these members but does not name an OPTIONS file, so its jobs are declined.
    Release {
        version: [9, 7, 3],
        job_info: &[
            "compaction_reason",
            "is_full_compaction",
            "is_manual_compaction",
            "bottommost_level",
        ],
        input: &["cf_name", "options_file_number"],
        output_file: &["file_checksum", "file_checksum_func_name"],
        job_stats: &["is_remote_compaction"],
        file_properties: &["rocksdb.key.largest.seqno"],
        options: &[
            "background_close_inactive_wals",
            "compaction_options_universal.max_read_amp",
            "decouple_partitioned_filters",
            "follower_catchup_retry_count",
            "follower_catchup_retry_wait_ms",
            "follower_refresh_catchup_period_ms",
            "metadata_write_temperature",
            "paranoid_memory_checks",
            "prefix_seek_opt_in_only",
            "uncache_aggressiveness",
            "wal_write_temperature",
            "write_identity_file",
        ],
        ..UNCHANGED
    },
    Release {
        version: [9, 8, 4],
        output_file: &["table_properties"],
        ..UNCHANGED
    },
    Release {
        version: [9, 9, 3],
        table_properties: &["newest_key_time"],
        file_properties: &["rocksdb.newest.key.time"],
        ..UNCHANGED
    },
    Release {
        version: [10, 0, 1],
        options: &["disallow_memtable_writes", "track_and_verify_wals"],
        ..UNCHANGED
    },
    Release {
        version: [10, 1, 3],
        result: &["internal_stats"],
        output_file: &["is_proximal_level_output", "file_temperature"],
        ..UNCHANGED
    },
    Release {
        version: [10, 2, 1],
        job_info: &["base_input_level", "output_level"],
        options: &["memtable_op_scan_flush_trigger"],
        ..UNCHANGED
    },
    Release {
        version: [10, 4, 2],
        job_info: &["cf_id", "cf_name"],
        output_file: &["file_size"],
        compression_options: &["max_compressed_bytes_per_kb", "checksum"],
        options: &[
            "compression_manager",
            "memtable_avg_op_scan_flush_trigger",
            "compaction_options_fifo.allow_trivial_copy_when_change_temperature",
            "compaction_options_fifo.trivial_copy_buffer_size",
            "compaction_options_universal.reduce_file_locking",
        ],
        newest_format_version: 7,
        ..UNCHANGED
    },
    // Knows `BlockBasedTableOptions::user_defined_index_factory` but does not write it: the eligibility of an input
    // asks for the index itself.
    Release {
        version: [10, 5, 1],
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [10, 7, 5],
        table_properties: &["uncompressed_data_size", "key_smallest_seqno"],
        file_properties: &["rocksdb.key.smallest.seqno"],
        options: &[
            "cf_allow_ingest_behind",
            "memtable_veirfy_per_key_checksum_on_seek",
            "user_defined_index_factory",
            "fail_if_no_udi_on_open",
        ],
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [10, 9, 1],
        options: &[
            "max_manifest_space_amp_pct",
            "verify_output_flags",
            "target_file_size_is_upper_bound",
            "super_block_alignment_size",
            "super_block_alignment_space_overhead_ratio",
        ],
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [10, 10, 1],
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [11, 0, 4],
        table_properties: &[
            "data_block_restart_interval",
            "index_block_restart_interval",
            "separate_key_value_in_data_block",
        ],
        file_properties: &[
            "rocksdb.data.block.restart.interval",
            "rocksdb.index.block.restart.interval",
            "rocksdb.separate.key.value.in.data.block",
        ],
        options: &[
            "separate_key_value_in_data_block",
            "index_block_search_type",
            "compaction_options_fifo.max_data_files_size",
            "compaction_options_fifo.use_kv_ratio_compaction",
        ],
        default_format_version: 7,
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [11, 1, 2],
        options: &[
            "uniform_cv_threshold",
            "verify_manifest_content_on_close",
            "open_files_async",
            "enforce_write_buffer_manager_during_recovery",
            "memtable_batch_lookup_optimization",
        ],
        default_format_version: 7,
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [11, 8, 1],
        job_stats: &["has_accurate_num_input_records"],
        table_properties: &[
            "udi_is_primary_index",
            "num_data_blocks_compression_rejected",
            "num_data_blocks_compression_bypassed",
            "num_uniform_blocks",
        ],
        file_properties: &[
            "rocksdb.udi.is.primary.index",
            "rocksdb.num.data.blocks.compression.rejected",
            "rocksdb.num.data.blocks.compression.bypassed",
            "rocksdb.num.uniform.blocks",
        ],
        compression_options: &["_type"],
        options: &[
            "enable_blob_direct_write",
            "blob_direct_write_partitions",
            "blob_compression_opts",
            "use_udi_as_primary_index",
            "optimize_manifest_for_recovery",
            "max_compaction_trigger_wakeup_seconds",
            "fast_sst_open",
            "use_direct_io_for_compaction_reads",
            "read_io_executor_threads",
            "async_wal_precreate",
            "reuse_manifest_on_open",
            "read_triggered_compaction_threshold",
            "memtable_verify_per_key_checksum_on_seek",
            "min_tombstones_for_range_conversion",
        ],
        default_format_version: 7,
        newest_format_version: 7,
        ..UNCHANGED
    },
    Release {
        version: [11, 12, 0],
        input: &["min_manifest_file_number", "min_manifest_file_size"],
        table_properties: &["lsm_info_at_creation"],
        file_properties: &[
            "rocksdb.uncompressed.data.size",
            "rocksdb.lsm.info.at.creation",
        ],
        options: &[
            "compression_opts.auto_skip",
            "compression_opts.auto_skip_min_sample_every",
            "index_mode",
            "optimize_key_common_prefix",
            "periodic_compaction_phase_recovery_percent",
            "remote_compaction_manifest_floor",
            "use_session_tmp_dir_for_remote_compaction",
            "blob_file_writable_file_max_buffer_size",
        ],
        default_format_version: 7,
        newest_format_version: 8,
        ..UNCHANGED
    },
];

/// Fields of messages that [`NAMES_OPTIONS_FILE`] and later versions lack.
const GONE: [&str; 4] = [
    "column_family",
    "db_options",
    "num_output_records",
    "total_bytes",
];

/// First version that ignores unknown fields of a result.
const IGNORES_UNKNOWN_FIELDS: [u32; 3] = [9, 9, 3];

/// First version that reports what happened to a job's files (`CompactionService::OnInstallation`).
const TELLS_INSTALLATION: Version = [9, 6];

/// First version that orders files of level 0 by epoch numbers; earlier ones order them by sequence numbers.
const NUMBERS_EPOCHS: Version = [7, 10];

/// First version that asks a compaction filter about the first entry beneath merge operands that stay operands.
const FILTERS_BENEATH_OPERANDS: Version = [7, 10];

/// First version that names the OPTIONS file of a job, and whose result has checksums of files.
pub const NAMES_OPTIONS_FILE: [u32; 3] = [9, 7, 3];

/// First version whose files have their format version in the properties as well; earlier ones have 0 there.
const SAYS_FORMAT_VERSION: Version = [9, 8];

/// Oldest supported version.
pub const OLDEST: Version = minor(&RELEASES[0]);

/// Newest supported version. An OPTIONS file of a newer version may have unknown options.
pub const NEWEST: Version = minor(&RELEASES[RELEASES.len() - 1]);

/// Objects, and the versions with which their options came. 6.26 by its HISTORY.md: "Made FileChecksumGenFactory,
/// SstPartitionerFactory .. extend the Customizable class". 10.4 by pull request 13626, "Experimental, preliminary support
/// for custom CompressionManager", which is younger than the branch of 10.3.
const WRITTEN_SINCE: [(&str, Version); 3] = [
    ("file_checksum_gen_factory", [6, 26]),
    ("sst_partitioner_factory", [6, 26]),
    ("compression_manager", [10, 4]),
];

const fn minor(release: &Release) -> Version {
    let [major, minor, _] = release.version;
    [major, minor]
}

/// Returns the reason why jobs of a version are declined; `None` if they are done. An OPTIONS file without a version
/// (zeros) gives no answer.
pub fn unsupported(version: [u32; 3]) -> Option<String> {
    let [major, minor, patch] = version;
    let what = match [major, minor] {
        [0, 0] => return None,
        minor if minor < OLDEST => format!("is older than {}.{}", OLDEST[0], OLDEST[1]),
        minor if minor > NEWEST => format!("is newer than {}.{}", NEWEST[0], NEWEST[1]),
        _ => return None,
    };
    Some(format!("RocksDB {major}.{minor}.{patch} {what}"))
}

/// Returns whether a version reads the field `name` of a struct in the result, or ignores it. `list` has the fields that
/// versions added to the struct.
pub fn reads_field(
    list: fn(&Release) -> &'static [&'static str],
    name: &str,
    version: [u32; 3],
) -> bool {
    version >= IGNORES_UNKNOWN_FIELDS || writes(list, name, version)
}

/// Returns whether a version orders files of level 0 by their epoch numbers.
pub fn numbers_epochs(version: [u32; 3]) -> bool {
    version == [0; 3] || version[..2] >= NUMBERS_EPOCHS[..]
}

/// Returns whether a compaction filter is also asked about the first entry beneath merge operands that stay operands
/// (`CompactionIterator::Next`).
pub fn filters_beneath_operands(version: [u32; 3]) -> bool {
    version == [0; 3] || version[..2] >= FILTERS_BENEATH_OPERANDS[..]
}

/// Returns whether a version lacks the field `name` of a message, which earlier ones have.
pub fn is_gone(name: &str, version: [u32; 3]) -> bool {
    GONE.contains(&name) && (version == [0; 3] || version >= NAMES_OPTIONS_FILE)
}

/// Returns whether files of a version have their format version in the properties as well.
pub fn says_format_version(version: [u32; 3]) -> bool {
    version == [0; 3] || version[..2] >= SAYS_FORMAT_VERSION[..]
}

/// Returns whether a version reports what happened to a job's files.
pub fn tells_installation(version: [u32; 3]) -> bool {
    version == [0; 3] || version[..2] >= TELLS_INSTALLATION[..]
}

/// Returns whether an OPTIONS file of a version may hold the option `key`. It may unless the version is known to be
/// older than the option. A file without a version (zeros) may have all.
pub fn may_hold(key: &str, written_by: [u32; 3]) -> bool {
    let version = &written_by[..2];
    if written_by == [0; 3] {
        return true;
    }
    if let Some((_, since)) = WRITTEN_SINCE.iter().find(|(name, _)| *name == key) {
        return version >= &since[..];
    }
    let first = RELEASES
        .iter()
        .position(|release| release.options.contains(&key));
    match first {
        // The previous version was read as well, and lacks the option.
        Some(at @ 1..) => version > &minor(&RELEASES[at - 1])[..],
        _ => true,
    }
}

/// Returns whether RocksDB of a version writes an addition of a release to `list`. It does from the first release on
/// that is known to write it: an older version would mistake an unknown property for a user's. A file without a version
/// (zeros) may be the newest.
pub fn writes(
    list: fn(&Release) -> &'static [&'static str],
    name: &str,
    version: [u32; 3],
) -> bool {
    let added = RELEASES
        .iter()
        .find(|release| list(release).contains(&name));
    version == [0; 3] || added.is_none_or(|release| version >= release.version)
}

/// Returns the first release that is not older than a version, or else the newest. Its format versions apply to the
/// version: a version that was not read gets those of the next one that was.
pub fn release(written_by: [u32; 3]) -> &'static Release {
    let [.., newest] = &RELEASES;
    if written_by == [0; 3] {
        return newest;
    }
    let known = RELEASES
        .iter()
        .find(|known| minor(known)[..] >= written_by[..2]);
    known.unwrap_or(newest)
}

/// Returns whether some version has this field in `CompactionServiceInput`.
pub fn is_input_field(name: &str) -> bool {
    RELEASES.iter().any(|release| release.input.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::footer::FORMAT_VERSIONS;
    use crate::options_file::{Options, OptionsFile};

    /// OPTIONS files with default options, as these versions wrote them: scripts/matrix.sh --messages.
    const CAPTURED: [&str; 15] = [
        include_str!("../tests/data/versions/7.8.3/options.ini"),
        include_str!("../tests/data/versions/7.9.2/options.ini"),
        include_str!("../tests/data/versions/7.10.2/options.ini"),
        include_str!("../tests/data/versions/8.0.0/options.ini"),
        include_str!("../tests/data/versions/8.10.0/options.ini"),
        include_str!("../tests/data/versions/9.1.1/options.ini"),
        include_str!("../tests/data/versions/9.7.3/options.ini"),
        include_str!("../tests/data/versions/9.8.4/options.ini"),
        include_str!("../tests/data/versions/9.9.3/options.ini"),
        include_str!("../tests/data/versions/10.0.1/options.ini"),
        include_str!("../tests/data/versions/10.4.2/options.ini"),
        include_str!("../tests/data/versions/10.10.1/options.ini"),
        include_str!("../tests/data/versions/11.1.2/options.ini"),
        include_str!("../tests/data/versions/11.8.1/options.ini"),
        include_str!("../tests/data/versions/11.12.0/options.ini"),
    ];

    /// The names of all options; those in structs follow the struct's name.
    fn names(file: &OptionsFile) -> BTreeSet<String> {
        let family = file.cf(b"default").expect("every database has it");
        let mut all = BTreeSet::new();
        let mut add = |options: &Options| {
            for (name, value) in options.iter() {
                all.insert(name.to_owned());
                if value.starts_with('{') {
                    let inner = options.nested(name).expect("a struct");
                    // Three options have this struct.
                    let is_compression = name.ends_with("compression_opts");
                    let struct_name = if is_compression {
                        "compression_opts"
                    } else {
                        name
                    };
                    all.extend(
                        inner
                            .iter()
                            .map(|(field, _)| format!("{struct_name}.{field}")),
                    );
                }
            }
        };
        add(&file.db);
        add(&family.options);
        add(&family.table_options);
        all
    }

    #[test]
    fn the_options_that_a_version_added_are_in_its_files() {
        let files = CAPTURED.map(|text| OptionsFile::parse(text).expect("RocksDB wrote it"));
        for pair in files.windows(2) {
            let [before, after] = [&pair[0], &pair[1]];
            let versions = [before, after].map(|file| file.rocksdb_version);
            let [before, after] = [before, after].map(names);
            let added: BTreeSet<_> = RELEASES
                .iter()
                .filter(|release| {
                    (versions[0] < release.version) & (release.version <= versions[1])
                })
                .flat_map(|release| release.options)
                .map(|name| (*name).to_owned())
                .collect();
            // Options in a struct that is new as a whole are not listed.
            let is_listed = |name: &&String| {
                name.split_once('.')
                    .is_none_or(|(whole, _)| before.contains(whole))
            };
            let found: BTreeSet<_> = after
                .difference(&before)
                .filter(is_listed)
                .cloned()
                .collect();
            assert_eq!(found, added, "{versions:?}");
            let family =
                |file: &OptionsFile| file.cf(b"default").map(|cf| cf.table_options.clone());
            let table = family(&pair[1]).expect("every database has it");
            let default = u64::from(release(versions[1]).default_format_version);
            assert_eq!(table.u64("format_version", 0), Ok(default));
        }
    }

    #[test]
    fn releases_ascend_and_add_each_fact_once() {
        assert!(RELEASES.is_sorted_by(|a, b| a.version < b.version));
        assert_eq!((OLDEST, NEWEST), ([7, 8], [11, 12]));
        let lists: [fn(&Release) -> &'static [&'static str]; 9] = [
            |release| release.job_info,
            |release| release.input,
            |release| release.result,
            |release| release.output_file,
            |release| release.job_stats,
            |release| release.table_properties,
            |release| release.file_properties,
            |release| release.compression_options,
            |release| release.options,
        ];
        for list in lists {
            let mut all: Vec<_> = RELEASES.iter().flat_map(list).collect();
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), count);
        }
    }

    #[test]
    fn files_of_level_0_have_epoch_numbers_from_7_10_on() {
        for (version, is_numbered) in [
            ([7, 8, 3], false),
            ([7, 9, 2], false),
            ([7, 10, 0], true),
            ([8, 0, 0], true),
            ([11, 12, 0], true),
            ([0; 3], true),
        ] {
            assert_eq!(numbers_epochs(version), is_numbered, "{version:?}");
        }
    }

    #[test]
    fn the_newest_format_version_is_written_here() {
        let [.., newest] = &RELEASES;
        assert_eq!(newest.newest_format_version, *FORMAT_VERSIONS.end());
        for release in &RELEASES {
            assert!(release.default_format_version <= release.newest_format_version);
        }
    }

    #[test]
    fn a_version_that_was_not_read_counts_as_the_next_one() {
        for (version, read) in [
            ([6, 8, 1], [7, 8, 3]),
            ([8, 7, 3], [8, 11, 3]),
            ([10, 0, 0], [10, 0, 1]),
            ([10, 3, 0], [10, 4, 2]),
            ([11, 9, 5], [11, 12, 0]),
            ([11, 13, 0], [11, 12, 0]),
            ([0, 0, 0], [11, 12, 0]),
        ] {
            assert_eq!(release(version).version, read);
        }
        for (version, is_known) in [
            ([7, 7, 3], false),
            ([7, 8, 3], true),
            ([7, 9, 2], true),
            ([7, 10, 2], true),
            ([8, 0, 0], true),
            ([8, 1, 1], true),
            ([9, 11, 2], true),
            ([11, 12, 9], true),
            ([11, 13, 0], false),
            ([0, 0, 0], true),
        ] {
            assert_eq!(unsupported(version).is_none(), is_known, "{version:?}");
        }
        let epochs = |version| writes(|release| release.output_file, "epoch_number", version);
        assert!(!epochs([7, 9, 2]) && epochs([7, 10, 0]) && epochs([8, 0, 0]));
        assert!(may_hold("compression_manager", [10, 4, 0]));
        assert!(!may_hold("compression_manager", [10, 3, 1]));
        assert!(may_hold("compaction_filter", [6, 8, 1]));
    }
}

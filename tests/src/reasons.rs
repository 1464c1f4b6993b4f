//! The reasons to decline a job, as [`rockmill::Stats::jobs_declined_by_reason`] counts them.

/// A job with merge operands.
pub const MERGE_OPERANDS: &str = "merge-operands";
/// An attached object is not the one that OPTIONS name.
pub const PLUGIN_MISMATCH: &str = "plugin-mismatch";
/// An attached operator or filter has failed.
pub const PLUGIN_FAILED: &str = "plugin-failed";
/// A compaction filter or a factory of them is configured.
pub const COMPACTION_FILTER: &str = "compaction-filter";
/// An input has range tombstones.
pub const RANGE_TOMBSTONES: &str = "range-tombstones";
/// Blob files are configured, or an input points into one.
pub const BLOB_FILES: &str = "blob-files";
/// An input has wide-column entities.
pub const WIDE_COLUMNS: &str = "wide-columns";
/// An input has values with a preferred sequence number.
pub const TIMED_PUTS: &str = "timed-puts";
/// A comparator other than the bytewise one.
pub const COMPARATOR: &str = "comparator";
/// Keys end with user-defined timestamps.
pub const USER_TIMESTAMPS: &str = "user-timestamps";
/// `allow_ingest_behind` or `cf_allow_ingest_behind`.
pub const INGEST_BEHIND: &str = "ingest-behind";
/// An ingested input whose sequence number is only in the MANIFEST.
pub const GLOBAL_SEQUENCE_NUMBER: &str = "global-sequence-number";
/// `allow_2pc`, without the user's declaration that the write policy is WriteCommitted.
pub const ALLOW_2PC: &str = "allow-2pc";
/// An SST partitioner is configured.
pub const SST_PARTITIONER: &str = "sst-partitioner";
/// Table property collectors are configured.
pub const TABLE_PROPERTY_COLLECTORS: &str = "table-property-collectors";
/// A table format other than the block-based one.
pub const TABLE_FACTORY: &str = "table-factory";
/// An index other than a binary one is configured.
pub const INDEX_TYPE: &str = "index-type";
/// Files are outside the database's directory.
pub const DB_PATHS: &str = "db-paths";
/// A style other than leveled and universal.
pub const COMPACTION_STYLE: &str = "compaction-style";
/// A compression that Rockmill does not write or read.
pub const COMPRESSION: &str = "compression";
/// A compression dictionary is configured.
pub const COMPRESSION_DICTIONARY: &str = "compression-dictionary";
/// The database closes.
pub const SHUTTING_DOWN: &str = "shutting-down";
/// An input is not in the database's directory.
pub const INPUT_MISSING: &str = "input-missing";
/// A file checksum other than CRC32c is configured.
pub const FILE_CHECKSUM: &str = "file-checksum";
/// `preserve_internal_time_seconds` or `preclude_last_level_data_seconds`.
pub const TIERING: &str = "tiering";
/// A file temperature is configured.
pub const TEMPERATURE: &str = "temperature";
/// A user-defined index is configured.
pub const USER_DEFINED_INDEX: &str = "user-defined-index";
/// A prefix extractor that Rockmill cannot compute.
pub const PREFIX_EXTRACTOR: &str = "prefix-extractor";
/// A filter that Rockmill does not write.
pub const FILTER_POLICY: &str = "filter-policy";
/// A `format_version` that Rockmill does not write or read.
pub const FORMAT_VERSION: &str = "format-version";
/// Rockmill does not know the messages of the database's RocksDB.
pub const ROCKSDB_VERSION: &str = "rocksdb-version";
/// The OPTIONS file is missing or unreadable.
pub const OPTIONS_FILE: &str = "options-file";
/// The OPTIONS file was written by a RocksDB newer than those that Rockmill knows.
pub const NEWER_ROCKSDB: &str = "newer-rocksdb";
/// The setting `paused` is on.
pub const PAUSED: &str = "paused";
/// The application has cancelled the job.
pub const CANCELLED: &str = "cancelled";
/// Keys and values in separate sections of a data block are configured.
pub const SEPARATE_KEY_VALUE: &str = "separate-key-value";
/// Aligned data blocks are configured.
pub const BLOCK_ALIGN: &str = "block-align";
/// The memory budget is too small for the job.
pub const MEMORY_BUDGET: &str = "memory-budget";
/// A SingleDelete meets a Delete, against its contract.
pub const SINGLE_DELETE_CONTRACT: &str = "single-delete-contract";

/// A custom compression manager is configured, or wrote an input.
pub const COMPRESSION_MANAGER: &str = "compression-manager";
/// A flush block policy other than the one by size is configured.
pub const FLUSH_BLOCK_POLICY: &str = "flush-block-policy";
/// A kind of compaction that does not merge data.
pub const COMPACTION_REASON: &str = "compaction-reason";
/// The MANIFEST is missing, older than the job, unreadable, or another database's.
pub const MANIFEST: &str = "manifest";
/// RocksDB's message could not be understood.
pub const INPUT_MESSAGE: &str = "input-message";
/// An input uses a feature of the format that Rockmill does not read.
pub const UNSUPPORTED_FORMAT: &str = "unsupported-format";

/// The input is smaller than `min_job_bytes`.
pub const SMALL_JOB: &str = "small-job";
/// The staging folder is a link or another user's, or RocksDB cannot rename files from it.
pub const STAGING_FOLDER: &str = "staging-folder";
/// A subcompaction needs more open files than the process allows it.
pub const OPEN_FILES: &str = "open-files";

/// All reasons.
pub const ALL: &[&str] = &[
    MERGE_OPERANDS,
    PLUGIN_MISMATCH,
    PLUGIN_FAILED,
    COMPACTION_FILTER,
    RANGE_TOMBSTONES,
    BLOB_FILES,
    WIDE_COLUMNS,
    TIMED_PUTS,
    COMPARATOR,
    USER_TIMESTAMPS,
    INGEST_BEHIND,
    GLOBAL_SEQUENCE_NUMBER,
    ALLOW_2PC,
    SST_PARTITIONER,
    TABLE_PROPERTY_COLLECTORS,
    TABLE_FACTORY,
    INDEX_TYPE,
    DB_PATHS,
    COMPACTION_STYLE,
    COMPRESSION,
    COMPRESSION_DICTIONARY,
    INPUT_MISSING,
    SHUTTING_DOWN,
    FILE_CHECKSUM,
    TIERING,
    TEMPERATURE,
    USER_DEFINED_INDEX,
    PREFIX_EXTRACTOR,
    FILTER_POLICY,
    FORMAT_VERSION,
    ROCKSDB_VERSION,
    OPTIONS_FILE,
    NEWER_ROCKSDB,
    PAUSED,
    CANCELLED,
    SEPARATE_KEY_VALUE,
    BLOCK_ALIGN,
    MEMORY_BUDGET,
    SINGLE_DELETE_CONTRACT,
    COMPRESSION_MANAGER,
    FLUSH_BLOCK_POLICY,
    COMPACTION_REASON,
    MANIFEST,
    INPUT_MESSAGE,
    UNSUPPORTED_FORMAT,
    SMALL_JOB,
    STAGING_FOLDER,
    OPEN_FILES,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_tests_know_every_reason_and_no_other() {
        let ours: BTreeSet<_> = ALL.iter().copied().collect();
        let all = rockmill::DeclineReason::ALL;
        let theirs: BTreeSet<_> = all.iter().map(|reason| reason.code()).collect();
        assert_eq!(ours, theirs);
    }
}

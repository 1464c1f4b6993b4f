//! The reasons for which a job is left to RocksDB.

use rockmill_format::key::ValueType;

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident = $code:literal,)+) => {
        /// A reason for which a job is left to RocksDB. Statistics count it by a stable code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DeclineReason {
            $($(#[$doc])+ $name,)+
        }

        impl DeclineReason {
            /// Every reason.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The reason's name in statistics.
            pub fn code(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)+
                }
            }
        }
    };
}

reasons! {
    /// Keys are ordered by something else than bytes.
    Comparator = "comparator",
    /// Keys carry user-defined timestamps.
    UserTimestamps = "user-timestamps",
    /// An input holds merge operands whose operator is not known.
    MergeOperands = "merge-operands",
    /// An object that the application has attached is not the one that OPTIONS name.
    PluginMismatch = "plugin-mismatch",
    /// An operator or filter of the application has failed.
    PluginFailed = "plugin-failed",
    /// A compaction filter must see every entry.
    CompactionFilter = "compaction-filter",
    /// A range tombstone ends between the versions of a key, or a file has one alone that covers other inputs.
    RangeTombstones = "range-tombstones",
    /// Blob files are in use.
    BlobFiles = "blob-files",
    /// A scan finds wide columns.
    WideColumns = "wide-columns",
    /// A scan finds timed puts.
    TimedPuts = "timed-puts",
    /// Data is placed by age, or sequence numbers are mapped to time.
    Tiering = "tiering",
    /// Output files would need a temperature.
    Temperature = "temperature",
    /// The database ingests files behind existing ones (`allow_ingest_behind`).
    IngestBehind = "ingest-behind",
    /// The global sequence number of an ingested input is unknown.
    GlobalSequenceNumber = "global-sequence-number",
    /// The database may hold prepared transactions.
    Allow2pc = "allow-2pc",
    /// A file checksum other than CRC32c.
    FileChecksum = "file-checksum",
    /// Files must be cut by an SST partitioner.
    SstPartitioner = "sst-partitioner",
    /// Table properties must be collected by user code.
    TablePropertyCollectors = "table-property-collectors",
    /// The table format is not block-based.
    TableFactory = "table-factory",
    /// Files lie in several directories.
    DbPaths = "db-paths",
    /// A compression that Rockmill does not write or read.
    Compression = "compression",
    /// A compression dictionary that Rockmill does not write: one for LZ4HC.
    CompressionDictionary = "compression-dictionary",
    /// A custom compression manager.
    CompressionManager = "compression-manager",
    /// An index type that Rockmill does not write.
    IndexType = "index-type",
    /// A user-defined index.
    UserDefinedIndex = "user-defined-index",
    /// Separated keys and values in data blocks.
    SeparateKeyValue = "separate-key-value",
    /// Data blocks aligned to pages.
    BlockAlign = "block-align",
    /// A prefix extractor that Rockmill does not know.
    PrefixExtractor = "prefix-extractor",
    /// A filter policy that Rockmill does not know.
    FilterPolicy = "filter-policy",
    /// A flush block policy that is not RocksDB's own.
    FlushBlockPolicy = "flush-block-policy",
    /// A format_version that Rockmill does not write.
    FormatVersion = "format-version",
    /// A compaction style that is not level or universal.
    CompactionStyle = "compaction-style",
    /// A reason for the compaction that Rockmill does not handle.
    CompactionReason = "compaction-reason",
    /// The database's RocksDB exchanges messages that Rockmill does not know.
    RocksdbVersion = "rocksdb-version",
    /// The OPTIONS file is missing, unreadable, or not the one that the job names.
    OptionsFile = "options-file",
    /// The OPTIONS file was written by a RocksDB newer than those that Rockmill knows.
    NewerRocksDb = "newer-rocksdb",
    /// The MANIFEST is missing, older than the job, unreadable, or another database's.
    Manifest = "manifest",
    /// An input file is missing or cannot be opened.
    InputMissing = "input-missing",
    /// The service's message could not be understood.
    InputMessage = "input-message",
    /// An input uses a feature of the format that Rockmill does not read.
    UnsupportedFormat = "unsupported-format",
    /// The staging folder is a link or another user's, or lies where RocksDB cannot rename its files into the
    /// database's directory.
    StagingFolder = "staging-folder",
    /// The input has fewer bytes than `min_job_bytes`.
    SmallJob = "small-job",
    /// The setting `paused` is on.
    Paused = "paused",
    /// The application has cancelled the jobs of the service.
    Cancelled = "cancelled",
    /// The memory budget is too small for the job.
    MemoryBudget = "memory-budget",
    /// A subcompaction of the job needs more files open at once than the process may have for it.
    OpenFiles = "open-files",
    /// A SingleDelete meets a Delete or a merge operand, against its contract; RocksDB reports it.
    SingleDeleteContract = "single-delete-contract",
    /// The database is closing.
    ShuttingDown = "shutting-down",
}

impl DeclineReason {
    /// The reason to decline an entry of a type that needs a merge; `None` for other types.
    pub fn of_type(kind: ValueType) -> Option<Self> {
        Some(match kind {
            ValueType::Value | ValueType::Deletion | ValueType::SingleDeletion => return None,
            ValueType::Merge => Self::MergeOperands,
            ValueType::RangeDeletion => Self::RangeTombstones,
            ValueType::BlobIndex => Self::BlobFiles,
            ValueType::DeletionWithTimestamp => Self::UserTimestamps,
            ValueType::WideColumnEntity => Self::WideColumns,
            ValueType::ValuePreferredSeqno => Self::TimedPuts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_distinct() {
        let codes: BTreeSet<_> = DeclineReason::ALL.iter().map(|r| r.code()).collect();
        assert_eq!(codes.len(), DeclineReason::ALL.len());
    }
}

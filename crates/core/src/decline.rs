//! Why a job is left to RocksDB.

use rockmill_format::key::ValueType;

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident = $code:literal,)+) => {
        /// Why a job is left to RocksDB. Each has a stable code by which it is counted.
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
    /// An input holds merge operands.
    MergeOperands = "merge-operands",
    /// A compaction filter must see every entry.
    CompactionFilter = "compaction-filter",
    /// An input holds range tombstones.
    RangeTombstones = "range-tombstones",
    /// Blob files are in use.
    BlobFiles = "blob-files",
    /// A scan meets wide columns.
    WideColumns = "wide-columns",
    /// A scan meets timed puts.
    TimedPuts = "timed-puts",
    /// Data is placed by age, or sequence numbers are mapped to time.
    Tiering = "tiering",
    /// Output files would need a temperature.
    Temperature = "temperature",
    /// The database ingests files behind existing ones (`allow_ingest_behind`).
    IngestBehind = "ingest-behind",
    /// The global sequence number of an ingested input is not known.
    GlobalSequenceNumber = "global-sequence-number",
    /// The database may hold prepared transactions.
    Allow2pc = "allow-2pc",
    /// A file checksum other than CRC32c.
    FileChecksum = "file-checksum",
    /// Files must be cut by an SST partitioner.
    SstPartitioner = "sst-partitioner",
    /// Table properties must be collected by user code.
    TablePropertyCollectors = "table-property-collectors",
    /// The table format is not the block-based one.
    TableFactory = "table-factory",
    /// Files lie in several directories.
    DbPaths = "db-paths",
    /// A compression that is not written or read here.
    Compression = "compression",
    /// A compression dictionary, which is read but not written.
    CompressionDictionary = "compression-dictionary",
    /// A custom compression manager.
    CompressionManager = "compression-manager",
    /// An index that is not written here.
    IndexType = "index-type",
    /// Partitioned filters.
    PartitionedFilters = "partitioned-filters",
    /// A user-defined index.
    UserDefinedIndex = "user-defined-index",
    /// Separated keys and values in data blocks.
    SeparateKeyValue = "separate-key-value",
    /// Data blocks aligned to pages.
    BlockAlign = "block-align",
    /// A prefix extractor that is not known here.
    PrefixExtractor = "prefix-extractor",
    /// A filter policy that is not known here.
    FilterPolicy = "filter-policy",
    /// A flush block policy that is not RocksDB's own.
    FlushBlockPolicy = "flush-block-policy",
    /// A format_version that is not written here.
    FormatVersion = "format-version",
    /// A compaction style that is not level or universal.
    CompactionStyle = "compaction-style",
    /// A reason for the compaction that is not handled.
    CompactionReason = "compaction-reason",
    /// The database's RocksDB exchanges messages that are not known here.
    RocksdbVersion = "rocksdb-version",
    /// The OPTIONS file is missing, unreadable, or not the one that the job goes by.
    OptionsFile = "options-file",
    /// The OPTIONS file was written by a RocksDB that is newer than those known here.
    NewerRocksDb = "newer-rocksdb",
    /// The MANIFEST is missing, older than the job, unreadable, or another database's.
    Manifest = "manifest",
    /// An input file is missing or cannot be opened.
    InputMissing = "input-missing",
    /// The service's message could not be understood.
    InputMessage = "input-message",
    /// An input uses a feature of the format that is not read here.
    UnsupportedFormat = "unsupported-format",
    /// The staging folder is a link or another user's, or lies where RocksDB cannot rename files from into the
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
    /// A SingleDelete meets a Delete, against its contract; RocksDB reports it.
    SingleDeleteContract = "single-delete-contract",
    /// The database is closing.
    ShuttingDown = "shutting-down",
}

impl DeclineReason {
    /// Why an entry of a type that does not decide alone is declined; nothing of one that does.
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

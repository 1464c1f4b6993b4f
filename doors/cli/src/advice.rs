//! Reasons for which compactions are left to RocksDB, and the change that removes each.

use std::io::{self, Write};

use rockmill_core::{DeclineReason, Error, ErrorKind};
use rockmill_terminal::output;
use serde::Serialize;

/// One reason, with all files that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decline {
    /// Code under which jobs are counted.
    pub reason: &'static str,
    /// The finding; for an option, its name and value.
    pub what: String,
    /// Files in which it was found; empty for an option.
    pub files: Vec<String>,
    /// Whether it goes if a C++ program attaches its objects.
    pub attach: bool,
    /// What to change.
    pub change: &'static str,
}

impl Decline {
    /// Makes the decline of an error.
    pub fn new(error: &Error) -> Self {
        let (reason, change) = match error.kind {
            ErrorKind::Declined(reason) => (reason.code(), change_of(reason, &error.what)),
            ErrorKind::Corruption => ("damaged", "run `rockmill verify` on the database"),
            _ => ("error", "see what the system says"),
        };
        Self {
            reason,
            what: error.what.clone(),
            files: error.file.iter().cloned().collect(),
            attach: goes_with_attach(error),
            change,
        }
    }

    /// Groups errors by reason, each reason once.
    pub fn all(errors: &[Error]) -> Vec<Self> {
        let mut declines: Vec<Self> = Vec::new();
        for error in errors {
            let new = Self::new(error);
            let same = |known: &&mut Self| (known.reason, &known.what) == (new.reason, &new.what);
            match declines.iter_mut().find(same) {
                Some(known) => known.files.extend(new.files),
                None => declines.push(new),
            }
        }
        declines
    }

    /// Prints the finding and the change. `files` is the number of files among which it was found, if they are counted.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn print(&self, out: &mut dyn Write, files: Option<u64>) -> io::Result<()> {
        let found = match files.filter(|_| !self.files.is_empty()) {
            None => format!("{}: {}", self.reason, self.found()),
            Some(all) => {
                let (found, what) = (self.files.len(), self.found());
                format!("{} in {found} of {all} files: {what}", self.reason)
            }
        };
        writeln!(out, "{}", output::indented(&found, 2))?;
        let change = format!("to change that: {}", self.change);
        writeln!(out, "{}", output::indented(&change, 4))
    }

    /// Returns what was found and where, as one line.
    fn found(&self) -> String {
        let what = &self.what;
        match self.files.as_slice() {
            [] => what.clone(),
            [file] => format!("{file}: {what}"),
            [file, more @ ..] => format!("{file} and {} more: {what}", more.len()),
        }
    }
}

/// A line to copy that removes a decline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `RocksDB` for its options, `Rockmill` for the builder of the service.
    pub of: &'static str,
    /// The line.
    pub line: &'static str,
}

/// Options of RocksDB with a value that is accepted. A decline names an option of a struct without the struct.
const OPTIONS: [&str; 26] = [
    "allow_ingest_behind=false",
    "block_align=false",
    "cf_allow_ingest_behind=false",
    "compaction_options_universal.compression_size_percent=-1",
    "compression_manager=nullptr",
    "compression_opts.auto_skip=false",
    "compression_opts.max_dict_bytes=0",
    "compression_opts.strategy=0",
    "data_block_index_type=kDataBlockBinarySearch",
    "default_write_temperature=kUnknown",
    "enable_blob_direct_write=false",
    "enable_blob_files=false",
    "enable_blob_garbage_collection=false",
    "file_checksum_gen_factory=FileChecksumGenCrc32cFactory",
    "flush_block_policy_factory=FlushBlockBySizePolicyFactory",
    "format_version=6",
    "index_type=kBinarySearch",
    "last_level_temperature=kUnknown",
    "preclude_last_level_data_seconds=0",
    "preserve_internal_time_seconds=0",
    "sample_for_compression=0",
    "separate_key_value_in_data_block=false",
    "super_block_alignment_size=0",
    "two_write_queues=false",
    "uniform_cv_threshold=-1",
    "unordered_write=false",
];

impl Decline {
    /// Returns the line that removes this decline, if a setting does. Objects of the application, such as a compaction
    /// filter, have none: without them, the result would differ.
    pub fn setting(&self) -> Option<Setting> {
        let service = |line| {
            Some(Setting {
                of: "Rockmill",
                line,
            })
        };
        if self.reason == DeclineReason::Allow2pc.code() {
            return service(".write_committed() // only if all transactions are WriteCommitted");
        }
        if self.reason == DeclineReason::FilterPolicy.code() {
            let lacks_bits = self.what.contains("without its bits per key");
            return lacks_bits
                .then(|| service(".filter_bits_per_key(..)"))
                .flatten();
        }
        let named = self.what.split_once(" is ").map(|(option, _)| option)?;
        let mut lines = OPTIONS.into_iter();
        let line = lines.find(|line| {
            let option = line.split_once('=').map(|(option, _)| option);
            option.is_some_and(|option| option == named || option.rsplit('.').next() == Some(named))
        })?;
        Some(Setting {
            of: "RocksDB",
            line,
        })
    }
}

/// Whether `rockmill::Attach` removes a reason: it passes objects of the program on, and options that OPTIONS lack.
fn goes_with_attach(error: &Error) -> bool {
    use DeclineReason as R;
    let ErrorKind::Declined(reason) = error.kind else {
        return false;
    };
    match reason {
        R::CompactionFilter
        | R::MergeOperands
        | R::PrefixExtractor
        | R::TablePropertyCollectors => true,
        R::Allow2pc => !error.what.contains("unordered_write"),
        R::Compression => error.what.contains("compression_size_percent"),
        _ => false,
    }
}

/// Returns the change after which jobs are not declined for `reason` any more; `what` is the finding.
fn change_of(reason: DeclineReason, what: &str) -> &'static str {
    if reason == DeclineReason::Manifest && what.contains("epoch number") {
        return "open and close the database once with its application on RocksDB 7.10 or later, which numbers \
                its files; until then, only compactions within level 0 are left to RocksDB";
    }
    change(reason)
}

/// Returns the change after which jobs are not declined for `reason` any more.
pub fn change(reason: DeclineReason) -> &'static str {
    use DeclineReason as R;
    match reason {
        R::Comparator => {
            "if it orders keys by their bytes or in reverse, let the program attach it (rockmill::Attach in C++, \
             rockmill_attach in Rust), or state the order with the service's setting comparator, as NAME=bytewise or \
             NAME=reverse, and say --comparator here; other orders are not compacted here"
        }
        R::UserTimestamps => "nothing: keys with timestamps are not compacted here",
        R::MergeOperands => {
            "let the program attach its operator (rockmill::Attach in C++, rockmill_attach in Rust), or state \
             one of RocksDB's with merge_operator"
        }
        R::PluginMismatch => "call Attach with the options with which the database is opened",
        R::PluginFailed => {
            "nothing: RocksDB calls the operator or filter itself and reports its error"
        }
        R::CompactionFilter => {
            "let the program attach its filter: rockmill::Attach in C++, rockmill_attach in Rust"
        }
        R::RangeTombstones => {
            "let RocksDB compact everything once, and delete keys one by one in place of ranges"
        }
        R::BlobFiles => {
            "set enable_blob_files=false and let RocksDB compact everything with forced blob garbage \
             collection"
        }
        R::WideColumns => "write plain values in place of entities",
        R::TimedPuts => "write Put in place of TimedPut",
        R::Tiering => {
            "set preclude_last_level_data_seconds=0 and preserve_internal_time_seconds=0, and let \
             RocksDB compact everything once"
        }
        R::Temperature => "set last_level_temperature and default_write_temperature to kUnknown",
        R::IngestBehind => "set allow_ingest_behind=false and cf_allow_ingest_behind=false",
        R::GlobalSequenceNumber => "record the job anew",
        R::Allow2pc => {
            "build the service with write_committed() if every transaction database on it uses \
             WriteCommitted, and say --write-committed here"
        }
        R::FileChecksum => {
            "set file_checksum_gen_factory to FileChecksumGenCrc32cFactory or to none"
        }
        R::SstPartitioner => "use SstPartitionerFixedPrefixFactory, or none",
        R::TablePropertyCollectors => {
            "let the program attach its collectors (rockmill::Attach in C++, rockmill_attach in Rust), or configure \
             none but CompactOnDeletionCollector"
        }
        R::TableFactory => "use the block-based table",
        R::DbPaths => {
            "keep all files in the database's directory: configure no db_paths or cf_paths"
        }
        R::Compression => {
            "use no compression, Snappy, LZ4, LZ4HC, ZSTD or zlib, without the options named"
        }
        R::CompressionDictionary => "set max_dict_bytes=0, or use LZ4 in place of LZ4HC",
        R::CompressionManager => "configure no compression manager",
        R::IndexType => {
            "set index_type=kBinarySearch or kTwoLevelIndexSearch, and uniform_cv_threshold=-1 with index_block_search_type=kAuto"
        }
        R::UserDefinedIndex => "configure no user-defined index",
        R::SeparateKeyValue => "set separate_key_value_in_data_block=false",
        R::BlockAlign => "set block_align=false and super_block_alignment_size=0",
        R::PrefixExtractor => {
            "let the program attach it (rockmill::Attach in C++, rockmill_attach in Rust), or use a fixed or capped \
             prefix, or none"
        }
        R::FilterPolicy => {
            "use RocksDB's Bloom or Ribbon filter, and if OPTIONS lack its bits a key, build the \
             service with filter_bits_per_key(..) and say --filter-bits-per-key here"
        }
        R::FlushBlockPolicy => "use FlushBlockBySizePolicyFactory",
        R::FormatVersion => "set format_version to 2 to 8",
        R::CompactionStyle => "use level or universal style",
        R::CompactionReason => "nothing: such compactions do not merge data",
        R::RocksdbVersion => {
            "open and close the database once with RocksDB 7.8 to 11.12, which writes OPTIONS anew"
        }
        R::OptionsFile => {
            "open and close the database once with its application, which writes OPTIONS anew"
        }
        R::NewerRocksDb => {
            "install a Rockmill that knows this RocksDB; until then RocksDB does all compactions"
        }
        R::Manifest => {
            "open and close the database once with its application, which writes the MANIFEST anew"
        }
        R::InputMissing => "run `rockmill verify` on the database",
        R::InputMessage => "nothing: report it",
        R::UnsupportedFormat => {
            "let RocksDB compact the file once, which helps if the present options write another format"
        }
        R::StagingFolder => {
            "remove the staging folder if it is a link or another user's, or name a folder on the same mount as \
             the database, or none: --staging-dir here, staging_dir(..) in the service"
        }
        R::SmallJob => "set the service's min_job_bytes lower, or to 0 to take every job",
        R::Paused => "set the service's setting paused to false",
        R::Cancelled => "nothing: the application has cancelled the job",
        R::MemoryBudget => {
            "give more memory: --memory-mib here, memory_budget_bytes(..) in the service"
        }
        R::OpenFiles => {
            "raise the limit of open files (ulimit -n, or LimitNOFILE of a systemd unit), or lower \
             max_open_files, or let compactions begin with fewer files in level 0"
        }
        R::SingleDeleteContract => "do not delete with Delete what was written for SingleDelete",
        R::ShuttingDown => "nothing: the database was closing",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_reason_share_a_line() {
        let found = |reason, file: &str| Error::declined(reason, "it says so").in_file(file);
        let errors = [
            found(DeclineReason::MergeOperands, "1.sst"),
            found(DeclineReason::RangeTombstones, "1.sst"),
            found(DeclineReason::MergeOperands, "2.sst"),
            Error::declined(
                DeclineReason::IndexType,
                "index_type is kBinarySearchWithFirstKey",
            ),
        ];
        let lines: Vec<_> = Decline::all(&errors).iter().map(Decline::found).collect();
        assert_eq!(
            lines,
            [
                "1.sst and 1 more: it says so",
                "1.sst: it says so",
                "index_type is kBinarySearchWithFirstKey"
            ]
        );
    }

    #[test]
    fn what_rules_out_an_option_has_a_line_that_sets_it() {
        let line = |reason, what: &str| {
            let decline = Decline::new(&Error::declined(reason, what));
            decline.setting().map(|setting| (setting.of, setting.line))
        };
        for (reason, what, expected) in [
            (
                DeclineReason::IngestBehind,
                "cf_allow_ingest_behind is true",
                Some(("RocksDB", "cf_allow_ingest_behind=false")),
            ),
            (
                DeclineReason::CompressionDictionary,
                "max_dict_bytes is 16384",
                Some(("RocksDB", "compression_opts.max_dict_bytes=0")),
            ),
            (
                DeclineReason::Allow2pc,
                "allow_2pc is on; build the service with write_committed()",
                Some((
                    "Rockmill",
                    ".write_committed() // only if all transactions are WriteCommitted",
                )),
            ),
            (
                DeclineReason::FilterPolicy,
                "the OPTIONS file names bloomfilter without its bits per key",
                Some(("Rockmill", ".filter_bits_per_key(..)")),
            ),
            (DeclineReason::FilterPolicy, "filter_policy is mine", None),
            (
                DeclineReason::CompactionFilter,
                "compaction_filter is mine",
                None,
            ),
            (DeclineReason::MergeOperands, "it has merge operands", None),
        ] {
            assert_eq!(line(reason, what), expected, "{what}");
        }
    }

    #[test]
    fn files_without_epoch_numbers_are_numbered_by_opening_the_database() {
        let change =
            |what: &str| Decline::new(&Error::declined(DeclineReason::Manifest, what)).change;
        let numbered = change("the file has no epoch number, which output into level 0 needs");
        assert!(numbered.contains("on RocksDB 7.10 or later"), "{numbered}");
        assert_eq!(change("torn"), super::change(DeclineReason::Manifest));
    }

    #[test]
    fn every_reason_says_what_to_change() {
        for &reason in DeclineReason::ALL {
            assert!(!change(reason).is_empty(), "{reason:?}");
        }
    }
}

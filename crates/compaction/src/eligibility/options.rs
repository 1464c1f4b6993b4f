//! Checks of the job, the database and the column family before any file is opened.

use std::ops::RangeInclusive;

use rockmill_core::{DeclineReason, Error, JobInfo, Result};
use rockmill_format::options_file::{ColumnFamilyOptions, Options, OptionsFile};

use super::{EligibleJob, NULL, Policy, malformed, require, require_object};
use rockmill_format::versions;
use rockmill_snapshot::Findings;

/// Compaction reasons that do not merge data (`listener.h:CompactionReason`): FIFO (6, 7, 8), ingestion (14), change of
/// temperature (16), blob garbage collection (17), refitting (19).
const FOREIGN_REASONS: [i32; 7] = [6, 7, 8, 14, 16, 17, 19];

/// Reasons of RocksDB 11.12; a later version may have more.
const KNOWN_REASONS: RangeInclusive<i32> = 0..=20;

/// Flag of `verify_output_flags` that makes RocksDB compare the service's hash over all entries
/// (`advanced_options.h:VerifyOutputFlags::kVerifyIteration`).
const VERIFY_ITERATION: u64 = 2;

pub fn check_job(eligible: &EligibleJob, found: &mut Findings) {
    let job = &eligible.job;
    let reason = job.info.reason;
    // RocksDB does not tell it before 9.7. What those versions offer then is a merge: FIFO style and blobs are declined for
    // their options, and files that are ingested or refitted are not offered.
    let is_untold = reason == JobInfo::UNKNOWN_REASON && eligible.input.options.is_some();
    let is_known = is_untold || KNOWN_REASONS.contains(&reason);
    if FOREIGN_REASONS.contains(&reason) || !is_known {
        found.note(Err(Error::declined(
            DeclineReason::CompactionReason,
            format!("compaction reason {reason}"),
        )));
    }
    if job.info.output_level < 0 {
        found.note(Err(Error::declined(
            DeclineReason::InputMessage,
            format!("output level {}", job.info.output_level),
        )));
    }
    let unknown_epoch = job.tree.inputs.iter().find(|file| file.epoch_number == 0);
    if let (0, Some(file)) = (job.info.output_level, unknown_epoch) {
        let what = "the file has no epoch number, which output into level 0 needs";
        let error = Error::declined(DeclineReason::Manifest, what);
        found.note(Err(error.in_file(&file.name)));
    }
}

pub fn check_db(file: &OptionsFile, policy: Policy, found: &mut Findings) {
    let (db, off) = (&file.db, ["false"]);
    for (key, reason) in [
        ("allow_ingest_behind", DeclineReason::IngestBehind),
        ("two_write_queues", DeclineReason::TwoWriteQueues),
        ("unordered_write", DeclineReason::UnorderedWrite),
    ] {
        found.note(require(db, key, &off, reason));
    }
    found.note(check_2pc(db, policy));
    found.note(require_object(
        db,
        "file_checksum_gen_factory",
        &[NULL, "FileChecksumGenCrc32cFactory"],
        file.rocksdb_version,
        DeclineReason::FileChecksum,
    ));
    found.note(check_checksums_arrive(file));
}

/// Declines files with checksums if the result of the database's RocksDB cannot carry them.
fn check_checksums_arrive(file: &OptionsFile) -> Result<()> {
    let version = file.rocksdb_version;
    if file.db.is_null("file_checksum_gen_factory")
        || version == [0; 3]
        || version >= versions::NAMES_OPTIONS_FILE
    {
        return Ok(());
    }
    let [major, minor, patch] = versions::NAMES_OPTIONS_FILE;
    Err(Error::declined(
        DeclineReason::FileChecksum,
        format!(
            "RocksDB before {major}.{minor}.{patch} takes no checksums of files from a compaction service"
        ),
    ))
}

fn check_2pc(db: &Options, policy: Policy) -> Result<()> {
    if policy.write_committed || !db.bool("allow_2pc", false).map_err(malformed)? {
        return Ok(());
    }
    Err(Error::declined(
        DeclineReason::Allow2pc,
        "allow_2pc is on; build the service with write_committed() if every transaction \
         database on it uses the WriteCommitted policy",
    ))
}

/// Options of a column family that must be absent or have one of these values.
const FAMILY_VALUES: [(&str, &[&str], DeclineReason); 10] = [
    (
        "cf_allow_ingest_behind",
        &["false"],
        DeclineReason::IngestBehind,
    ),
    ("enable_blob_files", &["false"], DeclineReason::BlobFiles),
    (
        "enable_blob_garbage_collection",
        &["false"],
        DeclineReason::BlobFiles,
    ),
    (
        "enable_blob_direct_write",
        &["false"],
        DeclineReason::BlobFiles,
    ),
    (
        "preclude_last_level_data_seconds",
        &["0"],
        DeclineReason::Tiering,
    ),
    (
        "preserve_internal_time_seconds",
        &["0"],
        DeclineReason::Tiering,
    ),
    (
        "last_level_temperature",
        &["kUnknown"],
        DeclineReason::Temperature,
    ),
    (
        "default_write_temperature",
        &["kUnknown"],
        DeclineReason::Temperature,
    ),
    (
        "compaction_style",
        &["kCompactionStyleLevel", "kCompactionStyleUniversal"],
        DeclineReason::CompactionStyle,
    ),
    // It adds two properties with the size that all blocks would have under other compressions, estimated from randomly
    // chosen blocks (`block_based_table_builder.cc:Flush`).
    ("sample_for_compression", &["0"], DeclineReason::Compression),
];

pub fn check_family(family: &ColumnFamilyOptions, written_by: [u32; 3], found: &mut Findings) {
    let cf = &family.options;
    found.note(comparator(cf, written_by));
    for (key, reason) in [
        ("compaction_filter", DeclineReason::CompactionFilter),
        ("compaction_filter_factory", DeclineReason::CompactionFilter),
        ("sst_partitioner_factory", DeclineReason::SstPartitioner),
    ] {
        found.note(require_object(cf, key, &[NULL], written_by, reason));
    }
    if !cf.is_null("table_properties_collectors") {
        found.note(Err(Error::declined(
            DeclineReason::TablePropertyCollectors,
            "table_properties_collectors are configured",
        )));
    }
    for (key, fine, reason) in FAMILY_VALUES {
        found.note(require(cf, key, fine, reason));
    }
    found.note(require_object(
        cf,
        "compression_manager",
        &[NULL, "BuiltinCompressionManagerV2"],
        written_by,
        DeclineReason::CompressionManager,
    ));
    if family.table_factory != "BlockBasedTable" {
        found.note(Err(Error::declined(
            DeclineReason::TableFactory,
            format!("table_factory is {}", family.table_factory),
        )));
    }
}

fn comparator(cf: &Options, written_by: [u32; 3]) -> Result<()> {
    const BYTEWISE: &str = "leveldb.BytewiseComparator";
    const TIMESTAMP_SUFFIX: &str = ".u64ts";
    let has_timestamps = cf
        .str("comparator")
        .is_some_and(|name| name.ends_with(TIMESTAMP_SUFFIX));
    let reason = if has_timestamps {
        DeclineReason::UserTimestamps
    } else {
        DeclineReason::Comparator
    };
    require_object(cf, "comparator", &[BYTEWISE], written_by, reason)
}

/// Whether RocksDB compares the hash over all entries with its own (`compaction_job.cc:VerifyOutputFiles`).
pub fn wants_paranoid_hash(cf: &Options) -> Result<bool> {
    let flags = cf.u64("verify_output_flags", 0).map_err(malformed)?;
    let paranoid = cf.bool("paranoid_file_checks", false).map_err(malformed)?;
    Ok(paranoid || flags & VERIFY_ITERATION != 0)
}

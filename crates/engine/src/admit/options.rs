//! Job, database and column family: what rules a job out before any file is looked at.

use rockmill_core::{DeclineReason, Error, Job, Result};
use rockmill_format::options_file::{ColumnFamilyOptions, Options};

use super::{NULL, Policy, malformed, require, require_object};

/// Reasons for a compaction that are not merges of data (`listener.h:CompactionReason`): FIFO (6, 7,
/// 8), ingestion (14), change of temperature (16), blob garbage (17), refitting (19).
const FOREIGN_REASONS: [i32; 7] = [6, 7, 8, 14, 16, 17, 19];

/// Flag of `verify_output_flags` that makes RocksDB compare our hash over all entries
/// (`advanced_options.h:VerifyOutputFlags::kVerifyIteration`).
const VERIFY_ITERATION: u64 = 2;

pub fn check_job(job: &Job) -> Result<()> {
    if FOREIGN_REASONS.contains(&job.info.reason) {
        return Err(Error::declined(
            DeclineReason::CompactionReason,
            format!("compaction reason {}", job.info.reason),
        ));
    }
    if job.info.output_level < 0 {
        return Err(Error::declined(
            DeclineReason::InputMessage,
            format!("output level {}", job.info.output_level),
        ));
    }
    let unknown_epoch = job.tree.inputs.iter().find(|file| file.epoch_number == 0);
    if let (0, Some(file)) = (job.info.output_level, unknown_epoch) {
        return Err(Error::declined(
            DeclineReason::Manifest,
            "the file has no epoch number, which output into level 0 needs",
        )
        .in_file(&file.name));
    }
    Ok(())
}

pub fn check_db(db: &Options, policy: Policy) -> Result<()> {
    let off = ["false"];
    require(db, "allow_ingest_behind", &off, DeclineReason::IngestBehind)?;
    require(db, "two_write_queues", &off, DeclineReason::TwoWriteQueues)?;
    require(db, "unordered_write", &off, DeclineReason::UnorderedWrite)?;
    if !policy.write_committed && db.bool("allow_2pc", false).map_err(malformed)? {
        return Err(Error::declined(
            DeclineReason::Allow2pc,
            "allow_2pc is on; build the service with write_committed() if every transaction \
             database on it uses the WriteCommitted policy",
        ));
    }
    require_object(
        db,
        "file_checksum_gen_factory",
        &[NULL, "FileChecksumGenCrc32cFactory"],
        DeclineReason::FileChecksum,
    )
}

pub fn check_family(family: &ColumnFamilyOptions) -> Result<()> {
    let cf = &family.options;
    comparator(cf)?;
    for (key, reason) in [
        ("compaction_filter", DeclineReason::CompactionFilter),
        ("compaction_filter_factory", DeclineReason::CompactionFilter),
        ("sst_partitioner_factory", DeclineReason::SstPartitioner),
    ] {
        require_object(cf, key, &[NULL], reason)?;
    }
    if !cf.is_null("table_properties_collectors") {
        return Err(Error::declined(
            DeclineReason::TablePropertyCollectors,
            "table_properties_collectors are configured",
        ));
    }
    let off = ["false"];
    require(
        cf,
        "cf_allow_ingest_behind",
        &off,
        DeclineReason::IngestBehind,
    )?;
    for key in [
        "enable_blob_files",
        "enable_blob_garbage_collection",
        "enable_blob_direct_write",
    ] {
        require(cf, key, &off, DeclineReason::BlobFiles)?;
    }
    for key in [
        "preclude_last_level_data_seconds",
        "preserve_internal_time_seconds",
    ] {
        require(cf, key, &["0"], DeclineReason::Tiering)?;
    }
    for key in ["last_level_temperature", "default_write_temperature"] {
        require(cf, key, &["kUnknown"], DeclineReason::Temperature)?;
    }
    require(
        cf,
        "compaction_style",
        &["kCompactionStyleLevel", "kCompactionStyleUniversal"],
        DeclineReason::CompactionStyle,
    )?;
    require_object(
        cf,
        "compression_manager",
        &[NULL, "BuiltinCompressionManagerV2"],
        DeclineReason::CompressionManager,
    )?;
    if family.table_factory != "BlockBasedTable" {
        return Err(Error::declined(
            DeclineReason::TableFactory,
            format!("table_factory is {}", family.table_factory),
        ));
    }
    Ok(())
}

fn comparator(cf: &Options) -> Result<()> {
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
    require_object(cf, "comparator", &[BYTEWISE], reason)
}

/// Whether RocksDB will compare the hash over all entries with one of its own
/// (`compaction_job.cc:VerifyOutputFiles`).
pub fn wants_paranoid_hash(cf: &Options) -> Result<bool> {
    let flags = cf.u64("verify_output_flags", 0).map_err(malformed)?;
    let paranoid = cf.bool("paranoid_file_checks", false).map_err(malformed)?;
    Ok(paranoid || flags & VERIFY_ITERATION != 0)
}

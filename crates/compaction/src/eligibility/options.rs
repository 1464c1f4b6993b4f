//! Checks of the job, the database and the column family before any file is opened.

use std::ops::RangeInclusive;

use rockmill_core::{CompactOnDeletion, CustomCollectors, DeclineReason, Error, JobInfo, Result};
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
    // Before 9.7, RocksDB does not pass the reason. A job that those versions offer is then a merge: FIFO style and
    // blobs are declined for their options, and files that are ingested or refitted are not offered.
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
    let needs_epoch =
        job.info.output_level == 0 && versions::numbers_epochs(eligible.options().rocksdb_version);
    if let (true, Some(file)) = (needs_epoch, unknown_epoch) {
        let what = "the file has no epoch number, which output into level 0 needs";
        let error = Error::declined(DeclineReason::Manifest, what);
        found.note(Err(error.in_file(&file.name)));
    }
}

pub fn check_db(file: &OptionsFile, policy: Policy, found: &mut Findings) {
    let db = &file.db;
    let ingests_behind = require(
        db,
        "allow_ingest_behind",
        &["false"],
        DeclineReason::IngestBehind,
    );
    found.note(ingests_behind);
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

/// Declines files with checksums if the result message of the database's RocksDB has no field for them.
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

/// Whether the write policy is WriteCommitted, or there are no transactions: with another policy, entries that are not
/// committed are in the files (`db_impl.cc`, `use_custom_gc_`). Every transaction database sets `allow_2pc`
/// (`pessimistic_transaction_db.cc:PrepareWrap`). Without one, two write queues and unordered writes make no difference.
fn check_2pc(db: &Options, policy: Policy) -> Result<()> {
    let is_on = |key| db.bool(key, false).map_err(malformed);
    if !is_on("allow_2pc")? {
        return Ok(());
    }
    if is_on("unordered_write")? {
        return Err(Error::declined(
            DeclineReason::Allow2pc,
            "allow_2pc and unordered_write are on, which only the WritePrepared policy takes together",
        ));
    }
    if policy.write_committed {
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
    // The option adds two properties with the size that all blocks would have under other compressions, estimated from
    // randomly chosen blocks (`block_based_table_builder.cc:Flush`).
    ("sample_for_compression", &["0"], DeclineReason::Compression),
];

pub fn check_family(family: &ColumnFamilyOptions, written_by: [u32; 3], found: &mut Findings) {
    let cf = &family.options;
    found.note(partition_bytes(cf, written_by).map(drop));
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

/// The configured collectors.
#[derive(Debug, Default)]
pub struct Collectors {
    /// Names of all.
    pub names: Vec<String>,
    /// Those of the application.
    pub custom: Vec<CustomCollectors>,
    /// Those that count tombstones.
    pub compact_on_deletion: Vec<CompactOnDeletion>,
}

/// Returns the configured collectors of table properties, among them those of the application that are `attached`, if they
/// are known.
///
/// # Errors
/// Declined if one is neither RocksDB's own nor attached, or others are attached.
pub fn collectors(
    cf: &Options,
    attached: Option<&[(String, Option<CustomCollectors>)]>,
) -> Result<Collectors> {
    let mut all = Collectors::default();
    let texts = match cf.is_null(COLLECTORS) {
        true => Vec::new(),
        false => cf.list(COLLECTORS).map_err(malformed)?,
    };
    let declined = |what: String| Error::declined(DeclineReason::TablePropertyCollectors, what);
    let mut rest = attached.unwrap_or_default().iter();
    for text in texts {
        let options = Options::from_value(&text).map_err(malformed)?;
        let name = options.id().unwrap_or_default();
        let number = |key: &str| options.u64(key, 0).map_err(malformed);
        // A class of the program with this name has other options, or none.
        let has = |keys: &[&str]| keys.iter().all(|key| options.str(key).is_some());
        let is_own = match name {
            COMPACT_ON_DELETION => has(&["window_size", "deletion_trigger", "deletion_ratio"]),
            COMPACT_FOR_TIERING => has(&["compaction_trigger_ratio"]),
            _ => false,
        };
        let next = rest.next();
        let factory = match (next, attached) {
            (None, None) if is_own => &None,
            (None, None) => return Err(declined(format!("{COLLECTORS} has {text}"))),
            (Some((attached, factory)), _) if attached == name && (factory.is_some() || is_own) => {
                factory
            }
            (other, _) => {
                let attached = other.map_or("none", |(attached, _)| attached);
                return Err(differs(name, attached));
            }
        };
        match factory {
            Some(factory) => all.custom.push(factory.clone()),
            None if name == COMPACT_ON_DELETION => {
                all.compact_on_deletion.push(CompactOnDeletion {
                    window_size: number("window_size")?,
                    deletion_trigger: number("deletion_trigger")?,
                    deletion_ratio: options.f64("deletion_ratio", 0.0).map_err(malformed)?,
                    min_file_size: number("min_file_size")?,
                })
            }
            // It makes no collector while data is not placed by age, which is declined.
            None => {}
        }
        all.names.push(name.to_owned());
    }
    match rest.next() {
        Some((attached, _)) => Err(differs("none", attached)),
        None => Ok(all),
    }
}

fn differs(named: &str, attached: &str) -> Error {
    let what = format!("{COLLECTORS} has {named} in OPTIONS where {attached} was attached");
    Error::declined(DeclineReason::PluginMismatch, what)
}

const COMPACT_ON_DELETION: &str = "CompactOnDeletionCollector";
const COMPACT_FOR_TIERING: &str = "CompactForTieringCollector";

const COLLECTORS: &str = "table_properties_collectors";

/// Leading bytes by which the configured partitioner separates keys, if there is one.
///
/// # Errors
/// Declined if the partitioner is not RocksDB's own.
pub fn partition_bytes(cf: &Options, written_by: [u32; 3]) -> Result<Option<usize>> {
    const KEY: &str = "sst_partitioner_factory";
    const FIXED_PREFIX: &str = "SstPartitionerFixedPrefixFactory";
    let object = cf.nested(KEY).map_err(malformed)?;
    let length = object.u64("length", 0).map_err(malformed)?;
    if object.id() == Some(FIXED_PREFIX) && object.str("length").is_some() {
        return Ok(Some(usize::try_from(length).unwrap_or(usize::MAX)));
    }
    require_object(cf, KEY, &[NULL], written_by, DeclineReason::SstPartitioner).map(|()| None)
}

/// Whether RocksDB compares the hash over all entries with its own (`compaction_job.cc:VerifyOutputFiles`).
pub fn wants_paranoid_hash(cf: &Options) -> Result<bool> {
    let flags = cf.u64("verify_output_flags", 0).map_err(malformed)?;
    let paranoid = cf.bool("paranoid_file_checks", false).map_err(malformed)?;
    Ok(paranoid || flags & VERIFY_ITERATION != 0)
}

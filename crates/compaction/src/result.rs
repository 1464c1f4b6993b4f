//! The message that reports a finished job to RocksDB.

use std::path::Path;

use rockmill_core::{Job, OutputFile};
use rockmill_format::key;
use rockmill_format::unique_id::internal_unique_id;
use rockmill_format::wire::{
    self, CompactionServiceInput, CompactionServiceResult, JobStats, LevelStats,
};

use crate::eligibility::EligibleJob;
use crate::outcome::Outcome;
use crate::staging::file_name;

/// `FileChecksumGenCrc32c::Name`.
const CRC32C_NAME: &[u8] = b"FileChecksumCrc32c";

/// Bytes of a key in the statistics.
const KEY_PREFIX_BYTES: usize = 8;

/// Encodes the `CompactionServiceResult` for output files in `dir`, as the job's RocksDB reads it.
pub fn encode(eligible: &EligibleJob, outcome: &Outcome, dir: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let (job, input) = (&eligible.job, &eligible.input);
    let epoch = job.tree.inputs.iter().map(|file| file.epoch_number).min();
    let files = outcome
        .files
        .iter()
        .map(|file| output_file(job, input, file, epoch.unwrap_or(0).max(1)));
    let bytes_written = outcome.bytes_written();
    CompactionServiceResult {
        output_files: files.collect(),
        output_level: job.info.output_level,
        output_path: dir.as_os_str().as_bytes().to_vec(),
        bytes_read: outcome.totals.read.bytes,
        bytes_written,
        stats: job_stats(job, outcome, bytes_written),
        output_level_stats: LevelStats {
            micros: micros(outcome.elapsed),
            cpu_micros: micros(outcome.cpu),
            bytes_written,
            num_output_records: outcome.totals.read.rows(),
            num_output_files: i32::try_from(outcome.files.len()).unwrap_or(i32::MAX),
            ..LevelStats::default()
        },
    }
    .encode(eligible.options().rocksdb_version)
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn output_file(
    job: &Job,
    input: &CompactionServiceInput,
    file: &OutputFile,
    epoch_number: u64,
) -> wire::OutputFile {
    let session = job.identity.session_id.as_bytes();
    let (file_checksum, file_checksum_func_name) = match file.file_checksum {
        Some(crc) => (crc.to_be_bytes().to_vec(), CRC32C_NAME.to_vec()),
        None => (Vec::new(), b"Unknown".to_vec()),
    };
    wire::OutputFile {
        file_name: file_name(file.number),
        file_size: file.size,
        smallest_seqno: file.properties.key_smallest_seqno,
        largest_seqno: file.properties.key_largest_seqno,
        smallest_internal_key: file.smallest.clone(),
        largest_internal_key: file.largest.clone(),
        oldest_ancester_time: file.oldest_ancester_time,
        file_creation_time: file.properties.file_creation_time,
        epoch_number,
        file_checksum,
        file_checksum_func_name,
        paranoid_hash: file.paranoid_hash,
        marked_for_compaction: file.marked_for_compaction,
        unique_id: internal_unique_id(&input.db_id, session, file.number),
        table_properties: file
            .properties
            .result_fields()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        ..wire::OutputFile::default()
    }
}

fn job_stats(job: &Job, outcome: &Outcome, bytes_written: u64) -> JobStats {
    let totals = &outcome.totals.read;
    let prefix = |internal_key: Option<&Vec<u8>>| {
        let user_key = internal_key
            .and_then(|k| key::split(k))
            .map_or(&[][..], |k| k.0);
        user_key[..user_key.len().min(KEY_PREFIX_BYTES)].to_vec()
    };
    JobStats {
        elapsed_micros: micros(outcome.elapsed),
        cpu_micros: micros(outcome.cpu),
        has_accurate_num_input_records: true,
        num_input_records: outcome.entries_read,
        num_output_records: totals.rows(),
        num_output_files: outcome.files.len() as u64,
        total_output_bytes: bytes_written,
        num_records_replaced: totals.replaced,
        num_expired_deletion_records: totals.tombstones_dropped,
        num_input_deletion_records: totals.tombstones,
        total_input_raw_key_bytes: totals.key_bytes,
        total_input_raw_value_bytes: totals.value_bytes,
        is_full_compaction: job.info.is_full_compaction,
        is_manual_compaction: job.info.is_manual_compaction,
        is_remote_compaction: true,
        smallest_output_key_prefix: prefix(outcome.files.first().map(|f| &f.smallest)),
        largest_output_key_prefix: prefix(outcome.files.last().map(|f| &f.largest)),
        ..JobStats::default()
    }
}

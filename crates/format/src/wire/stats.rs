//! Statistics of a finished job.

use super::value::record;

record! {
    added: job_stats;
    /// Counters of the whole job (`CompactionJobStats`, `include/rocksdb/compaction_job_stats.h`).
    pub struct JobStats {
        /// Wall time, microseconds.
        elapsed_micros: u64,
        /// CPU time, microseconds.
        cpu_micros: u64,
        /// Whether `num_input_records` may be verified.
        has_accurate_num_input_records: bool,
        /// Entries read, without range deletions. Verified by RocksDB against the input files.
        num_input_records: u64,
        /// Blobs read.
        num_blobs_read: u64,
        /// Files read.
        num_input_files: u64,
        /// Files read that were at the output level.
        num_input_files_at_output_level: u64,
        /// Entries written.
        num_output_records: u64,
        /// SST files written.
        num_output_files: u64,
        /// Blob files written.
        num_output_files_blob: u64,
        /// Whether all files of the column family took part.
        is_full_compaction: bool,
        /// Whether the compaction was requested manually.
        is_manual_compaction: bool,
        /// Whether a compaction service ran the job.
        is_remote_compaction: bool,
        /// Bytes of the files read.
        total_input_bytes: u64,
        /// Bytes of the blobs read.
        total_blob_bytes_read: u64,
        /// Bytes of the SST files written.
        total_output_bytes: u64,
        /// Bytes of the blob files written.
        total_output_bytes_blob: u64,
        /// Entries dropped because a newer one has the same key.
        num_records_replaced: u64,
        /// Bytes of the keys read.
        total_input_raw_key_bytes: u64,
        /// Bytes of the values read.
        total_input_raw_value_bytes: u64,
        /// Tombstones read.
        num_input_deletion_records: u64,
        /// Tombstones dropped because no deeper level holds their keys.
        num_expired_deletion_records: u64,
        /// Keys that could not be parsed.
        num_corrupt_keys: u64,
        /// Time in writes, nanoseconds.
        file_write_nanos: u64,
        /// Time in range syncs, nanoseconds.
        file_range_sync_nanos: u64,
        /// Time in fsync, nanoseconds.
        file_fsync_nanos: u64,
        /// Time in preparing writes, nanoseconds.
        file_prepare_write_nanos: u64,
        /// First bytes, at most eight, of the smallest user key written.
        smallest_output_key_prefix: Vec<u8>,
        /// First bytes, at most eight, of the largest user key written.
        largest_output_key_prefix: Vec<u8>,
        /// SingleDeletes that found no entry.
        num_single_del_fallthru: u64,
        /// SingleDeletes that found anything but one put.
        num_single_del_mismatch: u64,
    }
}

impl Default for JobStats {
    fn default() -> Self {
        Self {
            elapsed_micros: 0,
            cpu_micros: 0,
            has_accurate_num_input_records: true,
            num_input_records: 0,
            num_blobs_read: 0,
            num_input_files: 0,
            num_input_files_at_output_level: 0,
            num_output_records: 0,
            num_output_files: 0,
            num_output_files_blob: 0,
            is_full_compaction: false,
            is_manual_compaction: false,
            is_remote_compaction: false,
            total_input_bytes: 0,
            total_blob_bytes_read: 0,
            total_output_bytes: 0,
            total_output_bytes_blob: 0,
            num_records_replaced: 0,
            total_input_raw_key_bytes: 0,
            total_input_raw_value_bytes: 0,
            num_input_deletion_records: 0,
            num_expired_deletion_records: 0,
            num_corrupt_keys: 0,
            file_write_nanos: 0,
            file_range_sync_nanos: 0,
            file_fsync_nanos: 0,
            file_prepare_write_nanos: 0,
            smallest_output_key_prefix: Vec::new(),
            largest_output_key_prefix: Vec::new(),
            num_single_del_fallthru: 0,
            num_single_del_mismatch: 0,
        }
    }
}

record! {
    /// Counters of the output level (`InternalStats::CompactionStats`, `db/internal_stats.h`).
    ///
    /// `count` and `counts` are omitted: a reader of another version could misread them.
    #[derive(Default)]
    pub struct LevelStats {
        /// Wall time, microseconds.
        micros: u64,
        /// CPU time, microseconds.
        cpu_micros: u64,
        /// Bytes read from levels above the output level.
        bytes_read_non_output_levels: u64,
        /// Bytes read from the output level.
        bytes_read_output_level: u64,
        /// Bytes of files above the output level that were not read.
        bytes_skipped_non_output_levels: u64,
        /// Bytes of files at the output level that were not read.
        bytes_skipped_output_level: u64,
        /// Bytes read from blob files.
        bytes_read_blob: u64,
        /// Bytes of the SST files written.
        bytes_written: u64,
        /// Bytes of the blob files written.
        bytes_written_blob: u64,
        /// Bytes of files moved between levels.
        bytes_moved: u64,
        /// Files read from levels above the output level.
        num_input_files_in_non_output_levels: i32,
        /// Files read from the output level.
        num_input_files_in_output_level: i32,
        /// Files above the output level that were not read.
        num_filtered_input_files_in_non_output_levels: i32,
        /// Files at the output level that were not read.
        num_filtered_input_files_in_output_level: i32,
        /// SST files written.
        num_output_files: i32,
        /// Blob files written.
        num_output_files_blob: i32,
        /// Must stay 0: RocksDB adds its own count and verifies the sum.
        num_input_records: u64,
        /// Entries read but not written.
        num_dropped_records: u64,
        /// Entries written, without range deletions. Verified by RocksDB against the
        /// output files.
        num_output_records: u64,
    }
}

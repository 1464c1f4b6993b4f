//! The answer of a worker.

use super::output_file::OutputFile;
use super::stats::{JobStats, LevelStats};
use super::value::{Fields, Out, Record, record, write_field, write_known};
use super::{envelope, open_envelope};
use crate::error::{Error, Result};
use crate::versions::is_gone;

/// The message of a worker that did its job (`CompactionServiceResult`, `db/compaction/compaction_job.h`). Its status
/// is always OK, because a failed worker sends nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CompactionServiceResult {
    /// The files, in the order of their keys.
    pub output_files: Vec<OutputFile>,
    /// Level of the output files.
    pub output_level: i32,
    /// Directory of the output files.
    pub output_path: Vec<u8>,
    /// Bytes read by the job.
    pub bytes_read: u64,
    /// Bytes written by the job.
    pub bytes_written: u64,
    /// Counters of the job.
    pub stats: JobStats,
    /// Counters of the output level, part of the C++ member `internal_stats`.
    pub output_level_stats: LevelStats,
}

impl CompactionServiceResult {
    /// Reads the message.
    ///
    /// # Errors
    /// Unsupported for another version or if the status is not OK; Corruption if the text is
    /// malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read_fields(&Fields::parse(open_envelope(bytes)?)?)
    }

    /// Writes the message for RocksDB of a version, which must be a supported one; zeros stand for the newest.
    pub fn encode(&self, rocksdb_version: [u32; 3]) -> Vec<u8> {
        envelope(self, rocksdb_version)
    }
}

record! {
    /// RocksDB's `Status`. If it is written at all, all numbers must be: the reader leaves missing
    /// ones uninitialised.
    #[derive(Default)]
    pub struct Status {
        code: u64,
        subcode: u64,
        severity: u64,
        message: Vec<u8>,
    }
}

record! {
    /// `InternalStats::CompactionStatsFull`, without the statistics of a proximal level.
    #[derive(Default)]
    pub struct FullLevelStats {
        output_level_stats: LevelStats,
        has_proximal_level_output: bool,
    }
}

impl Record for CompactionServiceResult {
    fn write_fields(&self, out: &mut Out) {
        let internal_stats = FullLevelStats {
            output_level_stats: self.output_level_stats.clone(),
            has_proximal_level_output: false,
        };
        write_field(out, "status", &Status::default());
        write_field(out, "output_files", &self.output_files);
        write_field(out, "output_level", &self.output_level);
        write_field(out, "output_path", &self.output_path);
        let level = &self.output_level_stats;
        for (name, value) in [
            ("num_output_records", level.num_output_records),
            ("total_bytes", level.bytes_written),
        ] {
            if !is_gone(name, out.version) {
                write_field(out, name, &value);
            }
        }
        write_field(out, "bytes_read", &self.bytes_read);
        write_field(out, "bytes_written", &self.bytes_written);
        write_field(out, "stats", &self.stats);
        write_known(
            out,
            &[|release| release.result],
            "internal_stats",
            &internal_stats,
        );
    }

    fn read_fields(fields: &Fields<'_>) -> Result<Self> {
        let mut status = Status::default();
        fields.read("status", &mut status)?;
        if status.code != 0 {
            let at = fields.get("status").map_or(0, |piece| piece.at);
            let message = String::from_utf8_lossy(&status.message);
            let what = format!("the result has status {}: {message}", status.code);
            return Err(Error::unsupported(at, what));
        }
        let mut result = Self::default();
        let mut internal_stats = FullLevelStats::default();
        let level = &mut internal_stats.output_level_stats;
        fields.read("num_output_records", &mut level.num_output_records)?;
        fields.read("total_bytes", &mut level.bytes_written)?;
        fields.read("output_files", &mut result.output_files)?;
        if result
            .output_files
            .iter()
            .any(|file| file.file_name.is_empty())
        {
            let at = fields.get("output_files").map_or(0, |piece| piece.at);
            return Err(Error::corruption(at, "an output file without a name"));
        }
        fields.read("output_level", &mut result.output_level)?;
        fields.read("output_path", &mut result.output_path)?;
        fields.read("bytes_read", &mut result.bytes_read)?;
        fields.read("bytes_written", &mut result.bytes_written)?;
        fields.read("stats", &mut result.stats)?;
        fields.read("internal_stats", &mut internal_stats)?;
        result.output_level_stats = internal_stats.output_level_stats;
        Ok(result)
    }
}

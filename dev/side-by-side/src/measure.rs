//! One manual compaction, measured from outside.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rockmill_terminal::outcome::Failure;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{
    BottommostLevelCompaction, CompactOptions, DB, LiveFile, WaitForCompactOptions,
};
use serde::{Deserialize, Serialize};

use crate::energy::Energy;
use crate::jobs::JobTimes;
use crate::machine::process_cpu;
use crate::stages::Stage;
use crate::{progress, rocksdb};

/// Resources and result of a compaction.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Seconds from call to end.
    pub wall_s: f64,
    /// CPU time of the process, in seconds.
    pub cpu_s: f64,
    /// Size of the files that were compacted.
    pub bytes_in: u64,
    /// Size of the output files.
    pub bytes_out: u64,
    /// Entries of the files that were compacted.
    pub entries_in: u64,
    /// Entries of the output files.
    pub entries_out: u64,
    /// Growth of the largest resident memory of the process since before its first compaction.
    pub peak_memory_bytes: u64,
    /// Number of files that the compaction left in level 0; 0 unless it failed.
    pub files_in_level_0: usize,
    /// Rockmill's time by stage, on devices that measure it.
    pub stages: Vec<Stage>,
    /// Rockmill's jobs.
    pub jobs: JobTimes,
    /// Energy of a GPU, if one was used.
    pub energy: Option<Energy>,
    /// Set if the CPU did some of a device's work, with the reason.
    pub left_to_cpu: Option<String>,
}

/// Compacts everything in a database to its bottommost level, or level 0 to the next level if the database has `above_older`
/// entries. `memory` remembers the memory of the process before its first compaction.
///
/// # Errors
/// The errors of [`rocksdb::failed`].
pub fn compact(
    db: &DB,
    above_older: bool,
    system: &str,
    memory: &mut PeakMemory,
) -> Result<Measured, Failure> {
    let (bytes_in, entries_in) = totals(&first_level(db)?);
    let spinner = progress::spinner(format!("{system} compacts"));
    memory.start();
    let cpu = process_cpu();
    let started = Instant::now();
    if above_older {
        compact_level_0(db)?;
    } else {
        compact_all(db);
    }
    let wall_s = started.elapsed().as_secs_f64();
    let cpu_s = (process_cpu() - cpu).as_secs_f64();
    let peak_memory_bytes = memory.growth();
    spinner.finish_and_clear();
    let left = first_level(db)?;
    let (bytes_out, entries_out) = totals(&left);
    Ok(Measured {
        wall_s,
        cpu_s,
        bytes_in,
        bytes_out,
        entries_in,
        entries_out,
        peak_memory_bytes,
        files_in_level_0: left.iter().filter(|file| file.level == 0).count(),
        stages: Vec::new(),
        jobs: JobTimes::default(),
        energy: None,
        left_to_cpu: None,
    })
}

/// Compacts everything in a database to its bottommost level.
pub fn compact_all(db: &DB) {
    let mut compaction = CompactOptions::default();
    compaction.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &compaction);
}

/// Compacts everything, and links the files that are there then into the new folder `linked`. RocksDB removes the inputs of a
/// compaction before the next one begins. The links keep the files, as the first database keeps those of its copies. So the
/// time to free their pages is not measured.
///
/// # Errors
/// The errors of [`rocksdb::failed`].
pub fn compact_before(db: &DB, linked: &Path) -> Result<(), Failure> {
    compact_all(db);
    Checkpoint::new(db)
        .and_then(|checkpoint| checkpoint.create_checkpoint(linked))
        .map_err(|e| rocksdb::failed("make a checkpoint", &e))
}

/// Triggers an automatic compaction of level 0: a manual one would continue to the last level.
fn compact_level_0(db: &DB) -> Result<(), Failure> {
    db.set_options(&[("disable_auto_compactions", "false")])
        .and_then(|()| db.wait_for_compact(&WaitForCompactOptions::default()))
        .map_err(|e| rocksdb::failed("compact", &e))
}

/// Returns the files of the first nonempty level: the inputs, or the outputs of the compaction.
pub fn first_level(db: &DB) -> Result<Vec<LiveFile>, Failure> {
    let mut files = db
        .live_files()
        .map_err(|e| rocksdb::failed("list its files", &e))?;
    let first = files.iter().map(|file| file.level).min();
    files.retain(|file| Some(file.level) == first);
    Ok(files)
}

/// Sums bytes and entries of the files.
pub fn totals(files: &[LiveFile]) -> (u64, u64) {
    files.iter().fold((0, 0), |(bytes, entries), file| {
        (bytes + file.size as u64, entries + file.num_entries)
    })
}

/// Measures the largest resident memory of this process while it compacts.
#[derive(Debug, Default)]
pub struct PeakMemory {
    /// Resident memory before the first compaction.
    at_first: Option<u64>,
}

impl PeakMemory {
    /// Resets the peak. If the system does not allow that, the peak covers the process's whole life.
    fn start(&mut self) {
        /// Resets the high-water mark (`man 5 proc`, clear_refs).
        const RESET_PEAK: &str = "5";
        let _ = fs::write("/proc/self/clear_refs", RESET_PEAK);
        // Memory that a compaction returned to the allocator is reused by the next one.
        self.at_first.get_or_insert_with(|| status_bytes("VmRSS:"));
    }

    fn growth(&self) -> u64 {
        status_bytes("VmHWM:").saturating_sub(self.at_first.unwrap_or_default())
    }
}

/// Reads a size from `/proc/self/status`, 0 if it is missing.
fn status_bytes(field: &str) -> u64 {
    const KIB: u64 = 1024;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * KIB
}

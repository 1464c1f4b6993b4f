//! What a user can set.

mod text;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use rockmill_core::Hints;
use rockmill_cuda::CudaSettings;
use rockmill_exec::Patience;
use rockmill_storage::io::OutputCache;

use crate::verify::Verification;
use rockmill_exec::device::DeviceList;

/// Settings of an engine; the defaults need no thought.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// What may change while the engine works.
    pub mutable: MutableSettings,
    /// Every transaction database on this engine uses the WriteCommitted policy.
    pub write_committed: bool,
    /// What OPTIONS files leave out, for all column families.
    pub hints: Hints,
    /// Keep every job in this folder.
    pub record_dir: Option<PathBuf>,
    /// Where output files wait until RocksDB takes them, for any number of databases; a folder in each
    /// database's directory if there is none. It must lie on the databases' file system, on the same
    /// mount.
    pub staging_dir: Option<PathBuf>,
    /// What subcompactions run on.
    pub device: DeviceList,
    /// How a GPU is used.
    pub cuda: CudaSettings,
    /// How long a subcompaction on a device beside the CPU is waited for at least; another one for tests.
    #[doc(hidden)]
    pub patience: Patience,
}

/// Settings that may change while the engine works, by [`crate::Engine::change_settings`]. A job takes those
/// of its start, but for `threads` and `memory_budget_bytes`, which hold from the next subcompaction on, and
/// `io_bytes_per_second`, which holds at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MutableSettings {
    /// Subcompactions in flight at most on each device, over all jobs. Default: the processors that this process may use, by its
    /// affinity and by the quota of its control group, as they are when the settings are made; at most 1024.
    pub threads: usize,
    /// Threads beside those that sync and check finished files of a job, so that subcompactions need not wait
    /// for the disk; with 0 each subcompaction does it itself, and by default there is one for four subcompactions.
    pub sync_threads: Option<usize>,
    /// Bytes that are read and written a second at most, together and over all jobs, those that run
    /// included; 0 is no limit.
    pub io_bytes_per_second: u64,
    /// Host memory that jobs hold at most, bytes: the indexes of their inputs and their subcompactions in flight.
    pub memory_budget_bytes: u64,
    /// Bytes to read at a time from each input; less where the budget demands it. Other values are for tests.
    #[doc(hidden)]
    pub read_ahead_bytes: usize,
    /// By how much a job's threads are nicer than the one of RocksDB that offers it, from 0 to 19.
    pub nice: u8,
    /// How sure to be of the output before it is reported.
    pub verification: Verification,
    /// Jobs whose input files have fewer bytes in all are left to RocksDB. 0 here; services have a default of their
    /// own.
    pub min_job_bytes: u64,
    /// Whether output files go through the page cache.
    pub output_cache: OutputCache,
}

/// Enough for two subcompactions over a dozen inputs each; see `Backend::subcompaction_memory_bytes`.
const DEFAULT_MEMORY_BUDGET_BYTES: u64 = 512 << 20;

/// Below this the output buffers of a single subcompaction do not fit.
pub const MIN_MEMORY_BUDGET_BYTES: u64 = 32 << 20;

/// A thread's output is synced in less than a fourth of the time that it takes to make, or the disk is
/// what all wait for.
pub const THREADS_PER_SYNC_THREAD: usize = 4;

/// More than any host has processors for; what is given out subcompaction by subcompaction is counted up to it.
const MAX_THREADS: usize = 1024;

/// More threads than any disk needs to be kept busy with syncs.
const MAX_SYNC_THREADS: usize = 256;

const DEFAULT_READ_AHEAD_BYTES: usize = 64 << 10;

/// Smallest read-ahead that the budget may force.
pub const MIN_READ_AHEAD_BYTES: usize = 16 << 10;

/// More has no meaning to Linux.
const MAX_NICE: u8 = 19;

impl Default for MutableSettings {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS)),
            sync_threads: None,
            io_bytes_per_second: 0,
            memory_budget_bytes: DEFAULT_MEMORY_BUDGET_BYTES,
            read_ahead_bytes: DEFAULT_READ_AHEAD_BYTES,
            nice: 0,
            verification: Verification::Default,
            min_job_bytes: 0,
            output_cache: OutputCache::Database,
        }
    }
}

/// RocksDB itself ends smaller jobs sooner: a service has the fixed costs of taking over a job, reopening files and
/// making a folder durable. A job of 1 MB took 3.0 ms in RocksDB and 4.2 ms here; a job of 4 MB took 7.1 ms and 6.6 ms.
/// A database with 32 column families and jobs of half a megabyte loaded a third slower with all jobs done here
/// (docs/decisions/small-jobs.md).
const SERVICE_MIN_JOB_BYTES: u64 = 2 << 20;

/// Bits per key are stored in thousandths.
const MILLI: f64 = 1000.0;

/// Range of bits per key that RocksDB accepts.
const BITS_PER_KEY: RangeInclusive<f64> = 1.0..=100.0;

impl Settings {
    /// Returns the defaults of a service.
    pub fn for_service() -> Self {
        let mut settings = Self::default();
        settings.mutable.min_job_bytes = SERVICE_MIN_JOB_BYTES;
        settings
    }

    /// Sets the bits per key of filter policies that OPTIONS files name without them.
    ///
    /// # Errors
    /// One sentence if RocksDB does not accept the number.
    pub fn set_filter_bits_per_key(&mut self, bits: f64) -> Result<(), String> {
        if !BITS_PER_KEY.contains(&bits) {
            return Err(format!(
                "filter_bits_per_key is {bits}; it must be from 1 to 100"
            ));
        }
        self.hints.filter_millibits_per_key = Some((bits * MILLI).round() as u32);
        Ok(())
    }

    /// Sets the staging folder. A relative path counts from the current directory of now.
    pub fn set_staging_dir(&mut self, dir: PathBuf) {
        self.staging_dir = Some(std::path::absolute(&dir).unwrap_or(dir));
    }

    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// One sentence that names the setting.
    pub fn check(&self) -> Result<(), String> {
        if self.cuda.io_threads == 0 {
            return Err("cuda: io_threads must be at least 1".to_owned());
        }
        if self
            .staging_dir
            .as_ref()
            .is_some_and(|dir| !dir.is_absolute())
        {
            return Err("staging_dir must be an absolute path".to_owned());
        }
        self.mutable.check()
    }
}

impl MutableSettings {
    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// One sentence that names the setting.
    pub fn check(&self) -> Result<(), String> {
        if self.threads == 0 || self.threads > MAX_THREADS {
            return Err(format!(
                "threads is {}; it must be from 1 to {MAX_THREADS}",
                self.threads
            ));
        }
        if self.memory_budget_bytes < MIN_MEMORY_BUDGET_BYTES {
            return Err(format!(
                "memory_budget_bytes is {}; it must be at least {MIN_MEMORY_BUDGET_BYTES}",
                self.memory_budget_bytes
            ));
        }
        if self
            .sync_threads
            .is_some_and(|threads| threads > MAX_SYNC_THREADS)
        {
            return Err(format!("sync_threads must be from 0 to {MAX_SYNC_THREADS}"));
        }
        if self.nice > MAX_NICE {
            return Err(format!(
                "nice is {}; it must be from 0 to {MAX_NICE}",
                self.nice
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use super::*;

    #[test]
    fn threads_are_by_default_the_processors_that_may_be_used() {
        let threads = std::thread::spawn(|| {
            let all = sched_getaffinity(None).expect("every thread has one");
            let first = (0..CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu));
            let mut one = CpuSet::new();
            one.set(first.expect("it runs somewhere"));
            sched_setaffinity(None, &one).expect("fewer are always allowed");
            MutableSettings::default().threads
        });
        assert_eq!(threads.join().expect("no panic"), 1);
    }

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let refused = |change: fn(&mut MutableSettings)| {
            let mut settings = MutableSettings::default();
            assert_eq!(settings.check(), Ok(()));
            change(&mut settings);
            settings.check().expect_err("it makes no sense")
        };
        assert!(refused(|s| s.threads = 0).contains("threads"));
        assert!(refused(|s| s.threads = MAX_THREADS + 1).contains("threads is 1025"));
        assert!(
            refused(|s| s.memory_budget_bytes = MIN_MEMORY_BUDGET_BYTES - 1)
                .contains("memory_budget")
        );
        assert!(refused(|s| s.nice = 20).contains("nice"));
    }
}

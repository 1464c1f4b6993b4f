//! Settings of an engine.

mod text;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use rockmill_core::{Hints, MergeOperators};
use rockmill_cuda::CudaSettings;
use rockmill_exec::TaskDeadline;
use rockmill_exec::host_memory::{MIN_BUDGET_BYTES, default_budget_bytes};
use rockmill_storage::io::OutputCache;

use crate::objects::NamedObjects;
use crate::verify::Verification;
use rockmill_exec::device::{Device, DeviceList};
use text::Setting::Mutable;
use text::{BYTES, Named, number, parsed, put, some_number};

/// Settings of an engine. The defaults suit most uses.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Settings that may change while the engine works.
    pub mutable: MutableSettings,
    /// States that every transaction database on this engine uses the WriteCommitted policy.
    pub write_committed: bool,
    /// Values that OPTIONS files lack, for all column families.
    pub hints: Hints,
    /// Merge operators of column families: the names in OPTIONS files prove nothing.
    pub merge_operators: MergeOperators,
    /// Merge operators and compaction filters of the application, by name.
    pub objects: NamedObjects,
    /// Folder in which every job is recorded; `None` records no jobs.
    pub record_dir: Option<PathBuf>,
    /// Folder for output files until RocksDB renames them, for any number of databases. It must be on the databases'
    /// file system, on the same mount. `None` uses a folder in each database's directory.
    pub staging_dir: Option<PathBuf>,
    /// Devices that run subcompactions.
    pub device: DeviceList,
    /// Settings of GPUs.
    pub cuda: CudaSettings,
    /// Minimum time limit of a subcompaction on a device other than the CPU; changed only by tests.
    #[doc(hidden)]
    pub task_deadline: TaskDeadline,
}

/// Declares the settings that may change: each field, its default, and, if a text can set it, the function that reads the
/// text and the values that it takes.
macro_rules! mutable_settings {
    ($($(#[$doc:meta])+ $name:ident: $type:ty = $default:expr $(, $read:ident, $takes:expr)?;)+) => {
        /// Settings that may change while the engine works, through [`crate::Engine::change_settings`]. A job uses the
        /// values at its start, with two exceptions: `threads` and `memory_budget_bytes` apply from the next subcompaction
        /// on, and `io_bytes_per_second` applies at once.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct MutableSettings {
            $($(#[$doc])+ pub $name: $type,)+
        }

        impl Default for MutableSettings {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        /// The settings of [`MutableSettings`] as text.
        const MUTABLE: &[Named] = &[
            $($((stringify!($name), $takes, Mutable(|s, text| put(&mut s.$name, $read(text)))),)?)+
        ];
    };
}

mutable_settings! {
    /// Leaves all further jobs to RocksDB while it is on. Running jobs continue.
    paused: bool = false, parsed, "true or false";
    /// Maximum number of parallel subcompactions on each device, over all jobs. The default is the number of CPUs that
    /// this process may use when the settings are created, by its affinity and its control group's quota; at most 1024.
    threads: usize = usable_cpus(), number, "a whole number from 1 to 1024";
    /// Number of additional threads per job that sync and verify finished files, so that subcompactions do not wait for
    /// the disk. With 0, each subcompaction does this itself. By default, there is one thread for four subcompactions.
    /// Changed only by tests.
    #[doc(hidden)]
    sync_threads: Option<usize> = None;
    /// Maximum bytes per second that all jobs together read and write, including running ones; 0 is no limit.
    io_bytes_per_second: u64 = 0, number, "a whole number of bytes, where 0 is no limit";
    /// Maximum host memory of jobs in bytes: the indexes of their inputs and their subcompactions in flight. The default
    /// is 512 MiB, which is enough for two subcompactions with a dozen inputs each. It is half of the memory that the
    /// machine and the cgroups leave to this process, if that is less.
    memory_budget_bytes: u64 = default_budget_bytes(), number, BYTES;
    /// Bytes per read of each input; fewer if the memory budget requires it. Changed only by tests.
    #[doc(hidden)]
    read_ahead_bytes: usize = DEFAULT_READ_AHEAD_BYTES;
    /// Increase in niceness of a job's threads over the thread of RocksDB that offers the job, from 0 to 19.
    nice: u8 = 0, number, "a whole number from 0 to 19";
    /// How the output is verified before it is reported.
    verification: Verification = Verification::Default, parsed, "default, sampled, sampled:N or full";
    /// Jobs with fewer bytes of input files are left to RocksDB. The default is 0; services have their own default.
    min_job_bytes: u64 = 0, number, BYTES;
    /// Whether output files go through the page cache.
    output_cache: OutputCache = OutputCache::Database, parsed, "database or bypass";
    /// Maximum memory of each GPU in bytes for files that it has written, or that scans read again. It is a part of
    /// [`CudaSettings::memory_bytes`]. 0 caches nothing. By default it is all that subcompactions leave, and 0 with
    /// `Device::Auto`. If several engines have it for one GPU, the smallest number applies.
    device_cache_bytes: Option<u64> = None, some_number, "a whole number of bytes, where 0 caches nothing";
    /// Whether a GPU may compress LZ4, Snappy and ZSTD blocks with Rockmill's own code. Readers get the same entries, and
    /// files differ a little in size from those of the libraries. Without it, libraries on the host compress for the GPU.
    device_compression: bool = true, parsed, "true or false";
}

/// Syncing a thread's output takes less than a quarter of the time to produce it, unless the disk is the bottleneck.
pub const THREADS_PER_SYNC_THREAD: usize = 4;

/// More CPUs than any host has. The choice of a device loops over the slots, so their number is limited.
const MAX_THREADS: usize = 1024;

const DEFAULT_READ_AHEAD_BYTES: usize = 64 << 10;

/// Smallest read-ahead that the budget may force.
pub const MIN_READ_AHEAD_BYTES: usize = 16 << 10;

/// Linux has no higher niceness.
const MAX_NICE: u8 = 19;

fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get().min(MAX_THREADS))
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

    /// States the merge operator of a column family or of all, as `[FAMILY=]NAME[:OPTIONS]`.
    ///
    /// # Errors
    /// One sentence if RocksDB has no such operator, or two are stated for a column family.
    pub fn state_merge_operator(&mut self, stated: &str) -> Result<(), String> {
        let added = self.merge_operators.add(&stated.parse()?);
        added.map_err(|error| error.what)
    }

    /// States the order of an application's comparator, as `NAME=bytewise` or `NAME=reverse`.
    ///
    /// # Errors
    /// One sentence if the text names no order, or states two for one comparator.
    pub fn state_comparator(&mut self, stated: &str) -> Result<(), String> {
        self.hints.comparators.state(stated)
    }

    /// Sets the folder for records of jobs. A relative path counts from the present current directory.
    pub fn set_record_dir(&mut self, dir: PathBuf) {
        self.record_dir = Some(std::path::absolute(&dir).unwrap_or(dir));
    }

    /// Sets the staging folder. A relative path counts from the present current directory.
    pub fn set_staging_dir(&mut self, dir: PathBuf) {
        self.staging_dir = Some(std::path::absolute(&dir).unwrap_or(dir));
    }

    /// Checks that the settings make sense.
    ///
    /// # Errors
    /// One sentence that names the setting.
    pub fn check(&self) -> Result<(), String> {
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
    /// Bytes of files that each of these devices may cache. `None`: as other engines say, or none. A GPU that the settings do not
    /// name may be meant for other programs, so it caches nothing unless it is stated.
    pub(crate) fn cache_bytes_of(&self, devices: &DeviceList) -> Option<u64> {
        let is_gpu = |device| matches!(device, Device::Cuda(_));
        let usual = || devices.iter().any(is_gpu).then_some(u64::MAX);
        self.device_cache_bytes.or_else(usual)
    }

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
        if self.memory_budget_bytes < MIN_BUDGET_BYTES {
            return Err(format!(
                "memory_budget_bytes is {}; it must be at least {MIN_BUDGET_BYTES}",
                self.memory_budget_bytes
            ));
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
    fn files_stay_on_gpus_unless_the_settings_say_otherwise() {
        let bytes = |devices: &str, stated| {
            let devices = devices.parse().expect("devices");
            let settings = MutableSettings {
                device_cache_bytes: stated,
                ..MutableSettings::default()
            };
            settings.cache_bytes_of(&devices)
        };
        assert_eq!(bytes("cuda:1", None), Some(u64::MAX));
        assert_eq!(bytes("cpu+cuda:0", None), Some(u64::MAX));
        assert_eq!(bytes("auto", None), None);
        assert_eq!(bytes("cpu", None), None);
        assert_eq!(bytes("cuda:0", Some(0)), Some(0));
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
            refused(|s| s.memory_budget_bytes = MIN_BUDGET_BYTES - 1).contains("memory_budget")
        );
        assert!(refused(|s| s.nice = 20).contains("nice"));
    }
}

//! Settings of a service.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rockmill_compaction::{
    CudaSettings, DeviceList, Engine, OutputCache, Patience, Settings, Verification,
};
use rockmill_storage::{LocalStorage, Storage};

use crate::service::Service;

/// A setting that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Collects settings; each has a default that needs no thought.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    settings: Settings,
    filter_bits_per_key: Option<f64>,
    storage: Arc<dyn Storage>,
}

/// Smaller jobs RocksDB does sooner by itself: its fixed costs are lower than those of handing a job over, opening files
/// anew and making a folder durable. One of 1 MB by itself took 3.0 ms there and 4.2 ms here, one of 4 MB 7.1 and
/// 6.6. A database of 32 families with jobs of half a megabyte loaded a third slower with all of them here
/// (docs/decisions/small-jobs.md).
const MIN_JOB_BYTES: u64 = 2 << 20;

impl Default for Builder {
    fn default() -> Self {
        let mut settings = Settings::default();
        settings.mutable.min_job_bytes = MIN_JOB_BYTES;
        Self {
            settings,
            filter_bits_per_key: None,
            storage: Arc::new(LocalStorage),
        }
    }
}

/// Bits a key are kept in thousandths.
const MILLI: f64 = 1000.0;

/// What RocksDB takes for bits a key.
const BITS_PER_KEY: std::ops::RangeInclusive<f64> = 1.0..=100.0;

impl Builder {
    /// Subcompactions in flight at most on each device, over all jobs and databases. Default: the processors that this process
    /// may use, by its affinity and by the quota of its control group. May change later
    /// ([`Service::change_settings`]).
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.mutable.threads = threads;
        self
    }

    /// Host memory in bytes that jobs hold at most: their inputs' indexes and their subcompactions in flight.
    /// Default: 512 MiB; at least 32 MiB. A job of which not even one subcompaction fits is declined. May change
    /// later.
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.settings.mutable.memory_budget_bytes = bytes;
        self
    }

    /// Threads of a job that sync and check finished files beside its subcompactions; with 0, subcompactions do it
    /// themselves. Default: one for four of [`Builder::threads`]. May change later.
    pub fn sync_threads(mut self, threads: usize) -> Self {
        self.settings.mutable.sync_threads = Some(threads);
        self
    }

    /// By how much a job's threads are nicer than the thread of RocksDB that offers it, from 0 to 19;
    /// that thread's own niceness stays. Default: 0, so that `Env::LowerThreadPoolCPUPriority` says it
    /// for both. May change later.
    pub fn nice(mut self, nice: u8) -> Self {
        self.settings.mutable.nice = nice;
        self
    }

    /// How sure to be of finished files before RocksDB hears of them. Default:
    /// [`Verification::Default`]. May change later.
    pub fn verification(mut self, level: Verification) -> Self {
        self.settings.mutable.verification = level;
        self
    }

    /// Leaves jobs to RocksDB whose input files have fewer bytes in all. Default: 2 MiB, about where RocksDB would
    /// end a job sooner by itself; from half a megabyte on, a job takes less processor time here. With 0 every job is
    /// done here. May change later.
    pub fn min_job_bytes(mut self, bytes: u64) -> Self {
        self.settings.mutable.min_job_bytes = bytes;
        self
    }

    /// Bytes that are read and written a second at most, together and over all jobs and databases.
    /// Default: no limit. RocksDB's own `rate_limiter` does not count what a service does, and a service
    /// is not told of it. [`Service::change_settings`] changes it later.
    pub fn io_bytes_per_second(mut self, bytes: u64) -> Self {
        self.settings.mutable.io_bytes_per_second = bytes;
        self
    }

    /// Whether output files go through the page cache. Default: as each database's options say. With
    /// [`OutputCache::Bypass`] they do not, while inputs are still read as the options say: on a disk, jobs take
    /// less time and processor time, but what was just compacted is not in the page cache, and the first reads
    /// of it go to the disk. That suits bulk loads, and databases whose block cache serves their reads. Where the
    /// file system has no such files, the page cache is used, and the statistics count it. May change later.
    pub fn output_cache(mut self, cache: OutputCache) -> Self {
        self.settings.mutable.output_cache = cache;
        self
    }

    /// Says that every transaction database on this service uses the WriteCommitted policy, which is
    /// RocksDB's default. Without it, databases with `allow_2pc` are declined: the other policies
    /// keep uncommitted data in SST files and look the same from outside.
    pub fn write_committed(mut self) -> Self {
        self.settings.write_committed = true;
        self
    }

    /// Bits a key of the configured filter policy. Needed only where the OPTIONS file does not say,
    /// which is so for policies made through RocksDB's C API and thus by every binding, and the input
    /// files' own filters do not tell.
    pub fn filter_bits_per_key(mut self, bits: f64) -> Self {
        self.filter_bits_per_key = Some(bits);
        self
    }

    /// Keeps every job that is done here with its inputs in `dir`, to be repeated with `rockmill job run`. Inputs
    /// are hard links where the folder lies on the database's file system, copies elsewhere. Of small jobs see
    /// [`Builder::min_job_bytes`].
    pub fn record_jobs(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.record_dir = Some(dir.into());
        self
    }

    /// Lets output files wait in `dir`, which any number of databases may share, until RocksDB renames
    /// them; for instance where no backup looks. Default: `rockmill.staging` in each database's directory.
    /// It must lie on the databases' file system, on the same mount; jobs of others are declined. Files
    /// that a crash left there go when the database next has a job, on a service with the same setting.
    pub fn staging_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        let dir = dir.into();
        self.settings.staging_dir = Some(std::path::absolute(&dir).unwrap_or(dir));
        self
    }

    /// What subcompactions run on: a [`Device`](crate::Device), or a [`DeviceList`] of several that work together, as
    /// `"cpu+cuda:0+cuda:1".parse()?`. Default: the CPU, which also does what another device cannot. A GPU is
    /// opened beside other work; what it cannot be used for [`Service::wait_for_device`] and the statistics
    /// tell. The files do not depend on which device made them.
    pub fn device(mut self, device: impl Into<DeviceList>) -> Self {
        self.settings.device = device.into();
        self
    }

    /// How long a subcompaction on another device than the CPU is waited for at least; for tests.
    #[doc(hidden)]
    pub fn device_patience(mut self, least: Duration) -> Self {
        self.settings.patience = Patience::at_least(least);
        self
    }

    /// GPU memory in bytes that subcompactions hold at most, over all jobs and databases. Default: four fifths of
    /// what is free when the GPU is opened. It is taken as subcompactions need it, and kept. A subcompaction that needs more
    /// is done by the CPU.
    pub fn device_memory_bytes(mut self, bytes: u64) -> Self {
        self.settings.cuda.memory_bytes = Some(bytes);
        self
    }

    /// How a GPU is used; for measurements.
    #[doc(hidden)]
    pub fn cuda(mut self, settings: CudaSettings) -> Self {
        self.settings.cuda = settings;
        self
    }

    /// Puts all file operations through `storage`; for tests.
    #[doc(hidden)]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// The service.
    ///
    /// # Errors
    /// One sentence that names the setting that makes no sense.
    pub fn build(mut self) -> Result<Service, Error> {
        if let Some(bits) = self.filter_bits_per_key {
            if !BITS_PER_KEY.contains(&bits) {
                return Err(Error(format!(
                    "filter_bits_per_key is {bits}; it must be from 1 to 100"
                )));
            }
            self.settings.hints.filter_millibits_per_key = Some((bits * MILLI).round() as u32);
        }
        let engine = Engine::new(self.settings, self.storage).map_err(Error)?;
        Ok(Service::new(Arc::new(engine)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let refused = |builder: Builder| builder.build().map(drop).unwrap_err().to_string();
        assert!(refused(Builder::default().threads(0)).contains("threads"));
        assert!(refused(Builder::default().memory_budget_bytes(1)).contains("memory_budget"));
        assert!(refused(Builder::default().nice(20)).contains("nice"));
        assert!(refused(Builder::default().sync_threads(1000)).contains("sync_threads"));
        assert!(refused(Builder::default().filter_bits_per_key(0.0)).contains("filter_bits"));
        assert!(Builder::default().build().is_ok());
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let service = Builder::default()
            .threads(3)
            .sync_threads(0)
            .build()
            .expect("good settings");
        service
            .change_settings(|settings| settings.nice = 5)
            .expect("it makes sense");
        let before = service.settings();
        assert_eq!((before.threads, before.nice), (3, 5));
        assert_eq!(before.sync_threads, Some(0));
        let refused = service.clone().change_settings(|settings| {
            settings.threads = 1;
            settings.memory_budget_bytes = 0;
        });
        assert!(
            refused
                .expect_err("no memory")
                .to_string()
                .contains("memory_budget")
        );
        assert_eq!(service.settings(), before);
    }
}

//! Settings of a service.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rockmill_compaction::{
    DeviceList, Engine, Filter, FilterContext, OutputCache, Settings, Verification,
};
use rockmill_storage::{LocalStorage, Storage};

use crate::service::Service;

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub(crate) String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Collects settings; every setting has a default that suits most uses.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct Builder {
    settings: Settings,
    filter_bits_per_key: Option<f64>,
    merge_operators: Vec<String>,
    comparators: Vec<String>,
    storage: Arc<dyn Storage>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            settings: Settings::for_service(),
            filter_bits_per_key: None,
            merge_operators: Vec::new(),
            comparators: Vec::new(),
            storage: Arc::new(LocalStorage),
        }
    }
}

impl Builder {
    /// Maximum number of parallel subcompactions in flight on each device, over all jobs and databases. Default: the
    /// number of CPUs that this process may use, by its affinity and its cgroup quota. Can be changed later
    /// ([`Service::change_settings`]).
    pub fn threads(mut self, threads: usize) -> Self {
        self.settings.mutable.threads = threads;
        self
    }

    /// Maximum host memory of jobs in bytes: their inputs' indexes and their subcompactions in flight. Default: 512
    /// MiB; at least 32 MiB. A job is declined if not even one of its subcompactions fits. Can be changed later.
    pub fn memory_budget_bytes(mut self, bytes: u64) -> Self {
        self.settings.mutable.memory_budget_bytes = bytes;
        self
    }

    /// Niceness of a job's threads, from 0 to 19, relative to the RocksDB thread that offers the job. That thread keeps
    /// its own niceness. Default: 0, so that `Env::LowerThreadPoolCPUPriority` applies to both. Can be changed later.
    pub fn nice(mut self, nice: u8) -> Self {
        self.settings.mutable.nice = nice;
        self
    }

    /// How thoroughly finished files are checked before they are reported to RocksDB. Default:
    /// [`Verification::Default`]. Can be changed later.
    pub fn verification(mut self, level: Verification) -> Self {
        self.settings.mutable.verification = level;
        self
    }

    /// Leaves jobs to RocksDB whose input files have fewer bytes in total. Default: 2 MiB, about the size below which
    /// RocksDB ends a job sooner by itself. From half a megabyte on, a job takes less CPU time here. With 0, every job
    /// is done here. Can be changed later.
    pub fn min_job_bytes(mut self, bytes: u64) -> Self {
        self.settings.mutable.min_job_bytes = bytes;
        self
    }

    /// Leaves all jobs to RocksDB while it is on. Default: off. Can be changed later, as a switch that needs no restart:
    /// `change_settings(|settings| settings.paused = true)`.
    pub fn paused(mut self, paused: bool) -> Self {
        self.settings.mutable.paused = paused;
        self
    }

    /// Maximum bytes read and written per second together, over all jobs and databases. Default: no limit. RocksDB's
    /// own `rate_limiter` does not count a service's I/O, and the service cannot see it. Can be changed later
    /// ([`Service::change_settings`]).
    pub fn io_bytes_per_second(mut self, bytes: u64) -> Self {
        self.settings.mutable.io_bytes_per_second = bytes;
        self
    }

    /// Whether output files go through the page cache. Default: as each database's options say. With
    /// [`OutputCache::Bypass`] they are written with direct I/O, while inputs are still read as the options say. On a
    /// disk, jobs then take less time and less CPU time. But their outputs are not in the page cache, and the first
    /// reads of them go to the disk. This suits bulk loads, and databases whose block cache serves their reads. If the
    /// file system has no direct I/O, the page cache is used, and the statistics count that. Can be changed later.
    pub fn output_cache(mut self, cache: OutputCache) -> Self {
        self.settings.mutable.output_cache = cache;
        self
    }

    /// Whether a GPU may compress LZ4, Snappy and ZSTD blocks with Rockmill's own code. Default: yes. Every RocksDB reads
    /// these blocks; files differ a little in size from those that the libraries make. Without it, libraries on threads of
    /// the host compress for the GPU. They also do so for LZ4HC, LZ4 with acceleration, and ZSTD up to level 12. The CPU
    /// does jobs with zlib and with higher levels of ZSTD. Can be changed later.
    pub fn device_compression(mut self, allowed: bool) -> Self {
        self.settings.mutable.device_compression = allowed;
        self
    }

    /// Declares that every transaction database on this service uses the WriteCommitted policy, which is RocksDB's
    /// default. Without it, databases with `allow_2pc` are declined. The other policies keep uncommitted data in SST
    /// files, and a service cannot distinguish the policies.
    pub fn write_committed(mut self) -> Self {
        self.settings.write_committed = true;
        self
    }

    /// Bits per key of the configured filter policy. Needed only where neither the OPTIONS file nor the filters of the
    /// input files give them. The OPTIONS file omits them for policies made through RocksDB's C API, and thus by every
    /// language binding.
    pub fn filter_bits_per_key(mut self, bits: f64) -> Self {
        self.filter_bits_per_key = Some(bits);
        self
    }

    /// States the merge operator of a column family, or of all, as `[FAMILY=]NAME[:OPTIONS]`: one of RocksDB's operators
    /// `uint64add`, `put`, `max`, `bytesxor`, `stringappend` and `stringappendtest`, or its class name. Jobs with merge
    /// operands are declined without a statement: a name in the OPTIONS file proves nothing, because applications choose it.
    /// A wrong statement makes wrong values.
    pub fn merge_operator(mut self, stated: &str) -> Self {
        self.merge_operators.push(stated.to_owned());
        self
    }

    /// States the order of an application's comparator, by its name in OPTIONS: `NAME=bytewise` if it orders all keys as
    /// RocksDB's bytewise comparator does, or `NAME=reverse` if it orders them as the reverse one does. Without a statement,
    /// an attached comparator is asked, and jobs with another one are declined. A wrong statement loses data.
    ///
    /// ```
    /// let rockmill = rockmill::Service::builder().comparator("newest-first=reverse");
    /// ```
    pub fn comparator(mut self, stated: &str) -> Self {
        self.comparators.push(stated.to_owned());
        self
    }

    /// Lets compactions call the application's own merge operator, which OPTIONS name `name`: as RocksDB does, on several
    /// threads at once. Register here what databases on this service have under this name; another operator of the same name
    /// makes wrong values.
    ///
    /// `full` merges operands, oldest first, with the value beneath them, if there is one. `None` declines the job: RocksDB
    /// calls the operator itself, and reports the failure. `partial` makes one operand of several; with `None` they stay.
    ///
    /// ```
    /// let join = |operands: &[&[u8]]| operands.concat();
    /// let rockmill = rockmill::Service::builder().custom_merge_operator(
    ///     "joined",
    ///     move |_key, base, operands| Some([base.unwrap_or_default(), &join(operands)].concat()),
    ///     move |_key, operands| Some(join(operands)),
    /// );
    /// ```
    pub fn custom_merge_operator(
        mut self,
        name: &str,
        full: impl Fn(&[u8], Option<&[u8]>, &[&[u8]]) -> Option<Vec<u8>> + Send + Sync + 'static,
        partial: impl Fn(&[u8], &[&[u8]]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        let (full, partial) = (Box::new(full), Box::new(partial));
        self.settings.objects.merge_operator(name, full, partial);
        self
    }

    /// Lets compactions call the application's own compaction filter, or those of its factory, which OPTIONS name `name`.
    /// `make` makes the filter of a job, or `None` if the job needs none. One thread calls the filter with keys and values,
    /// in the order of keys. If the job fails later, RocksDB makes another filter and calls it with the same keys.
    ///
    /// ```
    /// use rockmill::FilterDecision;
    ///
    /// let rockmill = rockmill::Service::builder().compaction_filter("no-empty-values", |_context| {
    ///     Some(Box::new(|_key, value| match value.is_empty() {
    ///         true => FilterDecision::Remove,
    ///         false => FilterDecision::Keep,
    ///     }))
    /// });
    /// ```
    pub fn compaction_filter(
        mut self,
        name: &str,
        make: impl Fn(&FilterContext) -> Option<Box<Filter>> + Send + Sync + 'static,
    ) -> Self {
        self.settings
            .objects
            .compaction_filter(name, Arc::new(make));
        self
    }

    /// Lets compactions call the application's own prefix extractor, which OPTIONS name `name`. `prefix_len` returns the bytes of
    /// the prefix with which a key begins, or `None` if the key has none. Several threads call it at once. Files have filters of
    /// these prefixes: another extractor of the same name hides keys.
    ///
    /// ```
    /// let rockmill = rockmill::Service::builder()
    ///     .prefix_extractor("without-version", |key| key.len().checked_sub(8));
    /// ```
    pub fn prefix_extractor(
        mut self,
        name: &str,
        prefix_len: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        self.settings
            .objects
            .prefix_extractor(name, Arc::new(prefix_len));
        self
    }

    /// Keeps every job that is done here with its inputs in `dir`, to be repeated with `rockmill job run`. Inputs are
    /// hard links if the folder is on the database's file system, else copies. For small jobs see
    /// [`Builder::min_job_bytes`].
    pub fn record_jobs(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.set_record_dir(dir.into());
        self
    }

    /// Folder in which output files wait until RocksDB renames them, for instance one that backups skip. Any number of
    /// databases may share it. Default: `rockmill.staging` in each database's directory. It must be on the databases'
    /// file system, on the same mount; jobs of other databases are declined. Files that a crash left there are removed
    /// at the database's next job on a service with the same setting.
    pub fn staging_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.settings.set_staging_dir(dir.into());
        self
    }

    /// Device that subcompactions run on: a [`Device`](crate::Device), or a [`DeviceList`] of several that work
    /// together, as in `"cpu+cuda:0+cuda:1".parse()?`. Default: the CPU, which also does what another device cannot.
    /// GPUs are opened in the background. [`Service::wait_for_device`] and the statistics give the reason why a GPU
    /// cannot be used. The output files do not depend on the device.
    pub fn device(mut self, device: impl Into<DeviceList>) -> Self {
        self.settings.device = device.into();
        self
    }

    /// Most GPU memory in bytes that subcompactions hold, over all jobs and databases. Default: four fifths of the
    /// memory that is free when the GPU is opened. It is allocated as subcompactions need it, and kept. The CPU does a
    /// subcompaction that needs more.
    pub fn device_memory_bytes(mut self, bytes: u64) -> Self {
        self.settings.cuda.memory_bytes = Some(bytes);
        self
    }

    /// Most GPU memory in bytes for files that stay there, as a part of [`Builder::device_memory_bytes`]: those that
    /// subcompactions have written, and those that scans read again. Later subcompactions and scans do not copy them to the
    /// GPU again. Default: all that these leave, and 0 with [`Device::Auto`](crate::Device::Auto). 0 keeps none. It may change
    /// while databases are open.
    pub fn device_cache_bytes(mut self, bytes: u64) -> Self {
        self.settings.mutable.device_cache_bytes = Some(bytes);
        self
    }

    /// Changes settings that have no other method; for tests and measurements.
    #[doc(hidden)]
    pub fn change(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Sends all file operations through `storage`; for tests.
    #[doc(hidden)]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = storage;
        self
    }

    /// Creates the service.
    ///
    /// # Errors
    /// One sentence that names the invalid setting.
    pub fn build(mut self) -> Result<Service, Error> {
        if let Some(bits) = self.filter_bits_per_key {
            (self.settings.set_filter_bits_per_key(bits)).map_err(Error)?;
        }
        for stated in &self.merge_operators {
            (self.settings.state_merge_operator(stated)).map_err(Error)?;
        }
        for stated in &self.comparators {
            (self.settings.state_comparator(stated)).map_err(Error)?;
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
        assert!(refused(Builder::default().filter_bits_per_key(0.0)).contains("filter_bits"));
        assert!(refused(Builder::default().merge_operator("mine")).contains("uint64add"));
        assert!(refused(Builder::default().comparator("mine")).contains("NAME=reverse"));
        let two = Builder::default()
            .merge_operator("max")
            .merge_operator("put");
        assert!(refused(two).contains("two merge operators"));
        assert!(Builder::default().build().is_ok());
    }

    #[test]
    fn what_makes_no_sense_changes_nothing() {
        let service = Builder::default()
            .threads(3)
            .build()
            .expect("good settings");
        service
            .change_settings(|settings| settings.nice = 5)
            .expect("it makes sense");
        let before = service.settings();
        assert_eq!((before.threads, before.nice), (3, 5));
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

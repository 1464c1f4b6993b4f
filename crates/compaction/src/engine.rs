//! The engine: creates jobs from RocksDB's requests, runs them and counts them.

mod accounting;
mod databases;
mod described;
pub mod diagnosis;
mod execute;
mod failed_filters;
pub mod forecast;
mod request;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use rockmill_core::{CancelToken, Lock};
use rockmill_cuda::CudaSettings;

use crate::eligibility::Policy;
use crate::known_tables::KnownTables;
use crate::service::EndedSessions;
use crate::settings::{MutableSettings, Settings};
use crate::stats::{Stats, StatsCell};
pub use accounting::guarded;
use databases::{Database, HandedOver};
pub use execute::Finished;
use rockmill_exec::budget::Budget;
use rockmill_exec::device_registry::DeviceRegistry;
use rockmill_exec::executor::Executor;
use rockmill_storage::Storage;
use rockmill_storage::descriptors::Descriptors;
use rockmill_storage::io::RateLimiter;

/// Runs jobs of any number of databases.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    /// Current values; `settings.mutable` has the initial ones.
    mutable: Lock<MutableSettings>,
    storage: Arc<dyn Storage>,
    executor: Arc<Executor>,
    limiter: Arc<RateLimiter>,
    descriptors: Arc<Descriptors>,
    stats: Arc<StatsCell>,
    /// Parent of the tokens of all jobs that RocksDB offers; set and replaced by [`Engine::cancel_jobs`].
    cancel: Lock<CancelToken>,
    ended: Lock<EndedSessions>,
    databases: Lock<HashMap<PathBuf, Arc<Database>>>,
    /// Databases into which RocksDB could not rename a finished job's files; see [`Engine::refuse_database`].
    refused: Lock<BTreeSet<PathBuf>>,
    /// Jobs of RocksDB before 9.6, which does not report whether it took their files; see [`Engine::refuse_if_left`].
    handed_over: Lock<Vec<HandedOver>>,
    host: String,
    known_tables: Arc<KnownTables>,
    /// The process that has made it.
    pub(crate) process: u32,
}

impl Engine {
    /// Creates an engine over `storage`. It opens its devices in the background; see [`Engine::wait_for_device`].
    ///
    /// # Errors
    /// One sentence if a setting is invalid.
    pub fn new(settings: Settings, storage: Arc<dyn Storage>) -> std::result::Result<Self, String> {
        settings.check()?;
        let devices = settings.device.to_string();
        let cuda = CudaSettings {
            cache_bytes: settings.mutable.cache_bytes_of(&settings.device),
            ..settings.cuda
        };
        let registry = DeviceRegistry::open(settings.device, cuda, &storage.clock());
        let budget = Arc::new(Budget::new(
            settings.mutable.threads,
            settings.mutable.memory_budget_bytes,
            storage.clock(),
        ));
        Ok(Self {
            executor: Arc::new(Executor::new(
                registry,
                budget,
                settings.task_deadline,
                storage.clock(),
            )),
            limiter: Arc::new(RateLimiter::new(settings.mutable.io_bytes_per_second)),
            descriptors: Arc::new(Descriptors::new(storage.clock())),
            mutable: Lock::new(settings.mutable),
            settings,
            storage,
            stats: Arc::new(StatsCell::new(&devices)),
            cancel: Lock::default(),
            ended: Lock::default(),
            databases: Lock::default(),
            refused: Lock::default(),
            handed_over: Lock::default(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            known_tables: Arc::default(),
            process: process::id(),
        })
    }

    /// Whether this process has made the engine. A forked child has none of its threads, and a lock that one of them held at
    /// the fork is never released there.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == process::id()
    }

    /// Returns the current mutable settings.
    pub fn settings(&self) -> MutableSettings {
        *self.mutable.lock()
    }

    /// Changes settings; see [`MutableSettings`] for the effect on running jobs.
    ///
    /// # Errors
    /// One sentence if a setting is invalid; then no setting changes.
    pub fn change_settings(
        &self,
        change: impl FnOnce(&mut MutableSettings),
    ) -> std::result::Result<(), String> {
        self.replace_settings(|mut settings| {
            change(&mut settings);
            settings.check().map(|()| settings)
        })
    }

    /// Changes settings as [`MutableSettings::with`] reads them.
    ///
    /// # Errors
    /// One sentence if a setting is invalid; then all stay unchanged.
    pub fn change_settings_to(&self, text: &str) -> std::result::Result<(), String> {
        self.replace_settings(|settings| settings.with(text))
    }

    fn replace_settings(
        &self,
        change: impl FnOnce(MutableSettings) -> std::result::Result<MutableSettings, String>,
    ) -> std::result::Result<(), String> {
        let mut mutable = self.mutable.lock();
        let changed = change(*mutable)?;
        *mutable = changed;
        self.limiter.set(changed.io_bytes_per_second);
        let cache_bytes = changed.cache_bytes_of(&self.settings.device);
        (self.executor.registry()).limit_caches(cache_bytes);
        self.executor
            .budget()
            .resize(changed.threads, changed.memory_budget_bytes);
        Ok(())
    }

    /// Cancels all jobs that RocksDB has offered, through all services of this engine. RocksDB does them itself. Later
    /// jobs are taken.
    pub fn cancel_jobs(&self) {
        std::mem::take(&mut *self.cancel.lock()).cancel();
    }

    /// Returns a token for jobs that [`Engine::cancel_jobs`] cancels.
    pub fn job_token(&self) -> CancelToken {
        self.cancel.lock().child()
    }

    /// Records that the database of a session closes. Later jobs of it are left to RocksDB.
    pub(crate) fn session_ends(&self, session_id: &str) {
        self.ended.lock().add(session_id);
    }

    /// Whether [`Engine::session_ends`] was called with this session.
    pub(crate) fn has_ended(&self, session_id: &str) -> bool {
        self.ended.lock().contain(session_id)
    }

    /// Waits until the configured devices are open. Before that, or if no device can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence if a device that the settings name cannot be used.
    pub fn wait_for_device(&self) -> std::result::Result<(), String> {
        self.executor.registry().wait()
    }

    /// Describes the choice of [`Device::Auto`](crate::Device::Auto), as a sentence without a full stop. `None` for
    /// other devices, and until it is known.
    pub fn device_choice(&self) -> Option<&str> {
        self.executor.registry().choice()
    }

    /// Returns the current counters.
    pub fn stats(&self) -> Stats {
        self.look_at_caches();
        Stats {
            device_trouble: self.executor.registry().trouble().map(str::to_owned),
            simulated_faults: self.executor.registry().faults(),
            ..self.stats.snapshot()
        }
    }

    /// Returns the metrics of this engine in Prometheus' text format.
    pub fn metrics_prometheus(&self) -> String {
        self.look_at_caches();
        self.stats.prometheus()
    }

    /// Counts what the caches of devices and of the host have done.
    fn look_at_caches(&self) {
        self.tell_of_caches(true);
    }

    fn tell_of_caches(&self, stays: bool) {
        for (device, cache) in self.executor.registry().named_file_caches() {
            (self.stats).look_at_cache(&format!("{device},files"), || cache.tell(stays));
            (self.stats).look_at_cache(&format!("{device},columns"), || cache.tell_columns(stays));
        }
        let columns = self.executor.columns();
        (self.stats).look_at_cache("cpu,columns", || columns.tell(stays));
    }

    /// The executor, with the threads, memory and devices of all jobs.
    pub fn executor(&self) -> &Arc<Executor> {
        &self.executor
    }

    /// Bytes of the memory budget in use: by jobs, by their subcompactions, by scans that share the executor, and by
    /// abandoned calls of devices.
    pub fn memory_taken_bytes(&self) -> u64 {
        self.executor.budget().taken_bytes()
    }

    fn policy(&self) -> Policy {
        Policy {
            write_committed: self.settings.write_committed,
        }
    }
}

impl Drop for Engine {
    /// The process's recorder goes on, so it must not count the bytes of caches that go. Another engine with the same cache
    /// tells them again.
    fn drop(&mut self) {
        self.tell_of_caches(false);
    }
}

#[cfg(test)]
mod tests {
    use rockmill_exec::device::Device;
    use rockmill_storage::LocalStorage;

    use super::*;

    #[test]
    fn files_stay_on_gpus_that_are_named_whatever_other_settings_change() {
        let settings = Settings {
            device: Device::Cuda(4711).into(),
            ..Settings::default()
        };
        let engine = Engine::new(settings, Arc::new(LocalStorage)).expect("sound settings");
        let limit = || engine.executor.registry().limit_of_caches();
        assert_eq!(limit(), Some(u64::MAX));
        let change = |text| engine.change_settings_to(text).expect("sound settings");
        change("threads=1");
        assert_eq!(limit(), Some(u64::MAX));
        change("device_cache_bytes=0");
        assert_eq!(limit(), Some(0));
    }
}

//! The engine: makes jobs out of RocksDB's requests, runs them, counts.

mod accounting;
mod databases;
pub mod diagnosis;
mod execute;
pub mod forecast;
mod request;

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::eligibility::Policy;
use crate::metrics;
use crate::settings::{MutableSettings, Settings};
use crate::stats::{Stats, StatsCell};
pub use accounting::guarded;
use databases::Database;
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
    /// What has become of `settings.mutable`.
    mutable: Mutex<MutableSettings>,
    storage: Arc<dyn Storage>,
    executor: Executor,
    limiter: Arc<RateLimiter>,
    descriptors: Arc<Descriptors>,
    stats: Arc<StatsCell>,
    databases: Mutex<HashMap<PathBuf, Arc<Database>>>,
    /// Databases that could not take a finished job's files; see [`Engine::refuse_database`].
    refused: Mutex<BTreeSet<PathBuf>>,
    host: String,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An engine over `storage`, which opens its devices meanwhile; see [`Engine::wait_for_device`].
    ///
    /// # Errors
    /// One sentence if a setting makes no sense.
    pub fn new(settings: Settings, storage: Arc<dyn Storage>) -> std::result::Result<Self, String> {
        settings.check()?;
        let registry = DeviceRegistry::open(settings.device, settings.cuda, &storage.clock());
        metrics::describe();
        let budget = Arc::new(Budget::new(
            settings.mutable.threads,
            settings.mutable.memory_budget_bytes,
            storage.clock(),
        ));
        Ok(Self {
            executor: Executor::new(registry, budget, settings.patience, storage.clock()),
            limiter: Arc::new(RateLimiter::new(settings.mutable.io_bytes_per_second)),
            descriptors: Arc::new(Descriptors::new(storage.clock())),
            mutable: Mutex::new(settings.mutable),
            settings,
            storage,
            stats: Arc::default(),
            databases: Mutex::default(),
            refused: Mutex::default(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
        })
    }

    /// The settings that may change, as they are now.
    pub fn settings(&self) -> MutableSettings {
        *lock(&self.mutable)
    }

    /// Changes settings; see [`MutableSettings`] for what that means to jobs that run.
    ///
    /// # Errors
    /// One sentence if a setting makes no sense; all stay as they were then.
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
    /// One sentence if a setting makes no sense; all stay as they were then.
    pub fn change_settings_to(&self, text: &str) -> std::result::Result<(), String> {
        self.replace_settings(|settings| settings.with(text))
    }

    fn replace_settings(
        &self,
        change: impl FnOnce(MutableSettings) -> std::result::Result<MutableSettings, String>,
    ) -> std::result::Result<(), String> {
        let mut mutable = lock(&self.mutable);
        let changed = change(*mutable)?;
        *mutable = changed;
        self.limiter.set(changed.io_bytes_per_second);
        self.executor
            .budget()
            .resize(changed.threads, changed.memory_budget_bytes);
        Ok(())
    }

    /// Waits until the configured devices are open. Before that, and if none can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence about what is missing, if a device that was named cannot be used.
    pub fn wait_for_device(&self) -> std::result::Result<(), String> {
        self.executor.registry().wait()
    }

    /// What [`Device::Auto`](crate::Device::Auto) came to, in a sentence without an end; `None` for other
    /// devices, and as long as it is not known.
    pub fn device_choice(&self) -> Option<&str> {
        self.executor.registry().choice()
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        Stats {
            device_trouble: self.executor.registry().trouble().map(str::to_owned),
            simulated_faults: self.executor.registry().faults(),
            ..self.stats.snapshot()
        }
    }

    /// Bytes of the memory budget that are taken now: by jobs, by their subcompactions, and by calls of devices that
    /// nobody waits for any more.
    pub fn memory_taken_bytes(&self) -> u64 {
        self.executor.budget().taken_bytes()
    }

    fn policy(&self) -> Policy {
        Policy {
            write_committed: self.settings.write_committed,
        }
    }
}

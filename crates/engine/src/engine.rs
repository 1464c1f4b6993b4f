//! The engine: makes jobs out of RocksDB's requests, runs them, counts.

pub mod diagnosis;
pub mod forecast;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use rand::RngCore;
use rockmill_core::{
    CancelToken, DeclineReason, Error, Hints, Identity, JOB_VERSION, Job, JobInfo, Result, TreeView,
};
use rockmill_format::unique_id::SessionId;
use rockmill_format::wire::CompactionServiceInput;

use crate::admit::{self, Policy};
use crate::at_rest::{AtRest, read_options};
use crate::budget::Budget;
use crate::calibration::Calibrated;
use crate::clock::SystemClock;
use crate::fleet::{Fleet, Offload};
use crate::idle::Idle;
use crate::io::RateLimiter;
use crate::metrics;
use crate::predict::{Learned, Predict};
use crate::priority;
use crate::record;
use crate::result;
use crate::run::{self, Outcome, RunContext};
use crate::settings::{MutableSettings, Settings, THREADS_PER_SYNC_THREAD};
use crate::spans;
use crate::staging::{self, StagingDir, place};
use crate::stats::{Stats, StatsCell};
use crate::storage::{Storage, base_name};
use crate::tree::TreeFollower;

/// Runs jobs of any number of databases.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    /// What has become of `settings.mutable`.
    mutable: Mutex<MutableSettings>,
    storage: Arc<dyn Storage>,
    fleet: Fleet,
    model: Arc<dyn Predict>,
    /// Told of jobs, to which calibration gives way.
    idle: Arc<Idle>,
    budget: Arc<Budget>,
    limiter: Arc<RateLimiter>,
    stats: StatsCell,
    databases: Mutex<HashMap<PathBuf, Arc<Database>>>,
    /// Databases that could not take a finished job's files; see [`Engine::refuse_database`].
    refused: Mutex<BTreeSet<PathBuf>>,
    host: String,
}

/// What is kept of a database between its jobs.
#[derive(Debug)]
struct Database {
    session_id: String,
    /// Whether leftovers of an earlier process were removed and the staging folder was looked at.
    staging_ready: Mutex<bool>,
    tree: Mutex<TreeFollower>,
    /// Bits a key that were learned, by column family and OPTIONS file.
    filter_millibits: Mutex<HashMap<(u32, u64), u32>>,
}

/// A finished job: what to tell RocksDB, and the folder that holds the files until it took them.
#[derive(Debug)]
pub struct Finished {
    /// The serialised `CompactionServiceResult`.
    pub result: Vec<u8>,
    /// Removed with what is left in it when dropped.
    pub staging: StagingDir,
    /// What was done.
    pub outcome: Outcome,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// An engine over `storage`, which opens its devices meanwhile; see [`Engine::wait_for_device`]. What slices
    /// take on each it knows from calibration, which it runs between jobs if it has to and may, and learns from
    /// them.
    ///
    /// # Errors
    /// One sentence if a setting makes no sense.
    pub fn new(settings: Settings, storage: Arc<dyn Storage>) -> std::result::Result<Self, String> {
        settings.check()?;
        let fleet = Fleet::open(settings.device, settings.cuda, &storage.clock());
        let idle = Arc::new(Idle::new(SystemClock::shared()));
        let calibrated = Calibrated::start(settings.calibration.clone(), fleet.gpus(), &idle);
        let model = Arc::new(Learned::new(calibrated));
        Ok(Self::with_fleet(settings, storage, fleet, model, idle))
    }

    /// The same with a model of its own.
    ///
    /// # Errors
    /// One sentence if a setting makes no sense.
    pub fn with_model(
        settings: Settings,
        storage: Arc<dyn Storage>,
        model: Arc<dyn Predict>,
    ) -> std::result::Result<Self, String> {
        settings.check()?;
        let fleet = Fleet::open(settings.device, settings.cuda, &storage.clock());
        let idle = Arc::new(Idle::new(SystemClock::shared()));
        Ok(Self::with_fleet(settings, storage, fleet, model, idle))
    }

    fn with_fleet(
        settings: Settings,
        storage: Arc<dyn Storage>,
        fleet: Fleet,
        model: Arc<dyn Predict>,
        idle: Arc<Idle>,
    ) -> Self {
        metrics::describe();
        Self {
            budget: Arc::new(Budget::new(
                settings.mutable.threads,
                settings.mutable.memory_budget_bytes,
                storage.clock(),
            )),
            limiter: Arc::new(RateLimiter::new(settings.mutable.io_bytes_per_second)),
            mutable: Mutex::new(settings.mutable),
            settings,
            storage,
            fleet,
            model,
            idle,
            stats: StatsCell::default(),
            databases: Mutex::default(),
            refused: Mutex::default(),
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
        }
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
        let mut mutable = lock(&self.mutable);
        let mut changed = *mutable;
        change(&mut changed);
        changed.check()?;
        *mutable = changed;
        self.limiter.set(changed.io_bytes_per_second);
        self.budget
            .resize(changed.threads, changed.memory_budget_bytes);
        Ok(())
    }

    /// Waits until the configured devices are open. Before that, and if none can be used, the CPU does all jobs.
    ///
    /// # Errors
    /// One sentence about what is missing, if a device that was named cannot be used.
    pub fn wait_for_device(&self) -> std::result::Result<(), String> {
        self.fleet.wait()
    }

    /// Waits until it is known what slices take on each device, or that only slices will tell; as long as jobs run,
    /// calibration does not go on.
    pub fn wait_for_model(&self) {
        self.model.wait();
    }

    /// What [`Device::Auto`](crate::Device::Auto) came to, in a sentence without an end; `None` for other
    /// devices, and as long as it is not known.
    pub fn device_choice(&self) -> Option<&str> {
        self.fleet.choice()
    }

    /// The counters now.
    pub fn stats(&self) -> Stats {
        Stats {
            device_trouble: self.fleet.trouble().map(str::to_owned),
            simulated_faults: self.fleet.faults(),
            ..self.stats.snapshot()
        }
    }

    /// Bytes of the memory budget that are taken now: by jobs, by their slices, and by calls of devices that
    /// nobody waits for any more.
    pub fn memory_taken_bytes(&self) -> u64 {
        self.budget.taken_bytes()
    }

    /// The counters, for the door that offers jobs.
    pub fn counters(&self) -> &StatsCell {
        &self.stats
    }

    /// Takes no more jobs of the database in `dir`: RocksDB could not rename finished files into place,
    /// which is a fatal error of the database, and would be one again.
    pub fn refuse_database(&self, dir: &Path) {
        tracing::error!(
            database = %dir.display(),
            "RocksDB could not take a finished job's files; are there db_paths on another file system?"
        );
        lock(&self.refused).insert(dir.to_owned());
    }

    /// Makes the names durable under which RocksDB took a job's files into `dir`, before it writes them
    /// to the MANIFEST: its own sync of the folder is for files that were made there, and does nothing
    /// on btrfs (`io_posix.cc:PosixDirectory::FsyncWithDirOptions`, `kNewFileSynced`).
    ///
    /// # Errors
    /// Storage.
    pub fn files_taken(&self, dir: &Path) -> Result<()> {
        self.storage
            .sync_dir(dir)
            .map_err(|e| Error::storage(&base_name(dir), "sync the database's folder", &e))
    }

    fn policy(&self) -> Policy {
        Policy {
            write_committed: self.settings.write_committed,
        }
    }

    /// Makes a job of what RocksDB says: reads the OPTIONS file and the MANIFEST, draws an identity,
    /// and looks whether options and tree allow the job.
    ///
    /// `dir` is the database's directory, `message` the `CompactionServiceInput`.
    ///
    /// # Errors
    /// Declined, Cancelled.
    pub fn prepare(
        &self,
        dir: &Path,
        info: JobInfo,
        message: &[u8],
        cancel: &CancelToken,
    ) -> Result<Job> {
        let input = CompactionServiceInput::decode(message)
            .map_err(|e| Error::declined(DeclineReason::InputMessage, e.to_string()))?;
        if lock(&self.refused).contains(dir) {
            return Err(Error::declined(
                DeclineReason::DbPaths,
                "the database could not take an earlier job's files",
            ));
        }
        let database = self.database(dir, &info.db_session_id)?;
        if input.options_file_number == 0 {
            let what = "the job names no OPTIONS file";
            return Err(Error::declined(DeclineReason::OptionsFile, what));
        }
        let options = read_options(&*self.storage, dir, input.options_file_number)?;
        let floor = (input.min_manifest_file_number, input.min_manifest_file_size);
        let tree = {
            let mut follower = lock(&database.tree);
            follower.refresh(&*self.storage, dir, floor, cancel)?;
            follower.view(&input, info.cf_id)?
        };
        self.require_bytes(&tree)?;
        let key = (info.cf_id, input.options_file_number);
        let learned = lock(&database.filter_millibits).get(&key).copied();
        let job = self.draft(info, message.to_vec(), options, tree, learned);
        admit::from_options(&job, self.policy())?;
        Ok(job)
    }

    fn require_bytes(&self, tree: &TreeView) -> Result<()> {
        let least = self.settings().min_job_bytes;
        let bytes = input_bytes(tree);
        if bytes >= least {
            return Ok(());
        }
        let what = format!("{bytes} bytes of input are fewer than min_job_bytes, {least}");
        Err(Error::declined(DeclineReason::SmallJob, what))
    }

    /// A fresh job, which nobody has looked at yet.
    fn draft(
        &self,
        info: JobInfo,
        message: Vec<u8>,
        options: String,
        tree: TreeView,
        learned: Option<u32>,
    ) -> Job {
        Job {
            version: JOB_VERSION,
            input: message,
            info,
            options,
            tree,
            hints: Hints {
                filter_millibits_per_key: self.settings.hints.filter_millibits_per_key.or(learned),
            },
            identity: self.identity(),
            unix_time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
        }
    }

    /// The job of compacting everything in a column family of a closed database to its last level.
    ///
    /// # Errors
    /// Declined, or Storage if there is no database in `dir`.
    pub fn full_compaction(&self, dir: &Path, cf_name: &[u8]) -> Result<Job> {
        let database = AtRest::read(&*self.storage, dir)?;
        let (info, input) = database.full_request(dir, cf_name)?;
        if input.input_files.is_empty() {
            let what = "the column family has no files";
            return Err(Error::declined(DeclineReason::Manifest, what));
        }
        let tree = database.follower.view(&input, info.cf_id)?;
        let job = self.draft(info, input.encode(), database.options_text, tree, None);
        admit::from_options(&job, self.policy())?;
        Ok(job)
    }

    /// The database in `dir`; at its first job in a session, leftovers of an earlier process go, and the
    /// staging folder is looked at.
    fn database(&self, dir: &Path, session_id: &str) -> Result<Arc<Database>> {
        let database = self.known_database(dir, session_id);
        // Other databases' jobs do not wait for this.
        let mut staging_ready = lock(&database.staging_ready);
        if !*staging_ready {
            self.prepare_staging(dir)?;
            *staging_ready = true;
        }
        drop(staging_ready);
        Ok(database)
    }

    fn prepare_staging(&self, dir: &Path) -> Result<()> {
        let folder = self.staging_folder(dir)?;
        staging::clean(&*self.storage, &folder);
        if self.settings.staging_dir.is_some() {
            // Of a process that had no such setting.
            staging::clean(&*self.storage, &place::folder(&*self.storage, dir, None)?);
        }
        place::check(&self.storage, &folder, dir)
    }

    fn known_database(&self, dir: &Path, session_id: &str) -> Arc<Database> {
        let mut databases = lock(&self.databases);
        if let Some(known) = databases.get(dir)
            && known.session_id == session_id
        {
            return Arc::clone(known);
        }
        let database = Arc::new(Database {
            session_id: session_id.to_owned(),
            staging_ready: Mutex::default(),
            tree: Mutex::default(),
            filter_millibits: Mutex::default(),
        });
        databases.insert(dir.to_owned(), Arc::clone(&database));
        database
    }

    /// Where files wait that are to get into `dir`.
    fn staging_folder(&self, dir: &Path) -> Result<PathBuf> {
        place::folder(&*self.storage, dir, self.settings.staging_dir.as_deref())
    }

    /// A name that no other attempt has.
    fn identity(&self) -> Identity {
        let mut random = rand::rng();
        let session = SessionId {
            upper: random.next_u64() >> SESSION_UPPER_SPARE_BITS,
            lower: random.next_u64() | 1,
        };
        Identity {
            session_id: session.encode(),
            host: self.host.clone(),
            checksum_seed: random.next_u64(),
        }
    }

    /// Runs a job whose inputs lie in `input_dir`; the files wait in the staging folder of `output_dir`.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; nothing is left behind then.
    pub fn run(
        &self,
        job: &Job,
        input_dir: &Path,
        output_dir: &Path,
        cancel: &CancelToken,
    ) -> Result<Finished> {
        let _runs = self.idle.job();
        let settings = self.settings();
        let work = || self.run_with(settings, job, input_dir, output_dir, cancel);
        match settings.nice {
            0 => work(),
            nice => priority::nicer(nice, work),
        }
    }

    fn run_with(
        &self,
        settings: MutableSettings,
        job: &Job,
        input_dir: &Path,
        output_dir: &Path,
        cancel: &CancelToken,
    ) -> Result<Finished> {
        let span = spans::job(job, input_dir);
        let _entered = span.enter();
        let admitted = admit::from_options(job, self.policy())?;
        spans::admitted(&span, &admitted.input);
        let recorded = self.record(job, input_dir, cancel);
        let folder = self.staging_folder(output_dir)?;
        let name = &job.identity.session_id;
        let staging = StagingDir::create(Arc::clone(&self.storage), &folder, name)?;
        let context = self.context(settings, self.fleet.opened(), cancel);
        let mut outcome = run::run(context, job, &admitted, input_dir, &staging)?;
        let trouble = self.fleet.trouble().map(str::to_owned);
        outcome.device_refused = outcome.device_refused.or(trouble);
        self.learn(job, &admitted.input, &outcome, input_dir);
        if let Some(dir) = recorded {
            self.record_outputs(&dir, &staging, &outcome, cancel);
        }
        let result = result::encode(job, &admitted.input, &outcome, staging.path());
        spans::job_done(&span, &outcome);
        tracing::info!(
            entries_in = outcome.entries_read,
            entries_out = outcome.totals.entries_written,
            files = outcome.files.len(),
            elapsed_ms = outcome.elapsed.as_millis() as u64,
            "job done"
        );
        Ok(Finished {
            result,
            staging,
            outcome,
        })
    }

    /// What a job runs with, on `devices` and on the CPU.
    fn context<'a>(
        &'a self,
        settings: MutableSettings,
        devices: Vec<Offload<'a>>,
        cancel: &'a CancelToken,
    ) -> RunContext<'a> {
        RunContext {
            devices,
            cpu: &self.fleet.cpu,
            host_percent: match self.fleet.host_shares {
                true => settings.host_percent,
                false => 0,
            },
            model: &*self.model,
            patience: self.settings.patience,
            verification: settings.verification,
            output_cache: settings.output_cache,
            storage: &self.storage,
            clock: self.storage.clock(),
            budget: &self.budget,
            limiter: &self.limiter,
            sync_threads: (settings.sync_threads)
                .unwrap_or_else(|| self.budget.slots().div_ceil(THREADS_PER_SYNC_THREAD)),
            read_ahead_bytes: settings.read_ahead_bytes,
            cancel,
            counters: &self.stats,
        }
    }

    /// Keeps the job if the settings ask for it. A record that cannot be made is no reason to leave
    /// the job to RocksDB.
    fn record(&self, job: &Job, input_dir: &Path, cancel: &CancelToken) -> Option<PathBuf> {
        let root = self.settings.record_dir.as_ref()?;
        match record::keep(&*self.storage, root, input_dir, job, cancel) {
            Ok(dir) => Some(dir),
            Err(error) => {
                tracing::warn!(%error, "the job was not recorded");
                None
            }
        }
    }

    fn record_outputs(
        &self,
        dir: &Path,
        staging: &StagingDir,
        outcome: &Outcome,
        cancel: &CancelToken,
    ) {
        let kept = record::sum_outputs(&*self.storage, staging, &outcome.files, cancel)
            .and_then(|sums| record::keep_outputs(&*self.storage, dir, &sums));
        if let Err(error) = kept {
            tracing::warn!(%error, "the job's output was not recorded");
        }
    }

    fn learn(&self, job: &Job, input: &CompactionServiceInput, outcome: &Outcome, dir: &Path) {
        let Some(millibits) = outcome.learned_filter else {
            return;
        };
        if let Some(database) = lock(&self.databases).get(dir) {
            let mut learned = lock(&database.filter_millibits);
            // Older OPTIONS files do not come back.
            learned.retain(|&(cf_id, _), _| cf_id != job.info.cf_id);
            learned.insert((job.info.cf_id, input.options_file_number), millibits);
        }
    }
}

/// Bytes of all input files.
fn input_bytes(tree: &TreeView) -> u64 {
    tree.inputs.iter().map(|input| input.size).sum()
}

/// The upper half of a session id has 62 bits.
const SESSION_UPPER_SPARE_BITS: u32 = 2;

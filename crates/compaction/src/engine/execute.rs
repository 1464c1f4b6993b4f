//! Runs a job, and records it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rockmill_core::{CancelToken, DeclineReason, ErrorKind, Job, Result};
use rockmill_format::wire::CompactionServiceInput;

use super::Engine;
use crate::eligibility::EligibleJob;
use crate::job;
use crate::outcome::Outcome;
use crate::record;
use crate::result;
use crate::run_context::RunContext;
use crate::service::cancelled_by;
use crate::settings::{MutableSettings, THREADS_PER_SYNC_THREAD};
use crate::spans;
use crate::staging::StagingDir;
use rockmill_exec::niceness;

/// A finished job: the result for RocksDB, and the folder that contains the files until RocksDB renames them.
#[derive(Debug)]
pub struct Finished {
    /// The serialised `CompactionServiceResult`.
    pub result: Vec<u8>,
    /// Removed with the remaining files when dropped.
    pub staging: StagingDir,
    /// Files and counts of the job.
    pub outcome: Outcome,
}

impl Engine {
    /// Runs a job whose inputs are in `input_dir`, and counts its result. The output files are in the staging folder of
    /// `output_dir`.
    ///
    /// # Errors
    /// Any of [`rockmill_core::ErrorKind`]; then no files are left.
    pub fn run(
        &self,
        eligible: &EligibleJob,
        input_dir: &Path,
        output_dir: &Path,
        cancel: &CancelToken,
    ) -> Result<Finished> {
        let settings = self.settings();
        let info = &eligible.job.info;
        let run = || {
            // The database may have begun to close while the job was prepared.
            cancel.check()?;
            let work = || self.run_with(settings, eligible, input_dir, output_dir, cancel);
            let finished = match settings.nice {
                0 => work(),
                nice => niceness::with_niceness(nice, work),
            }?;
            // RocksDB only renames the files if it gets the result before the database closes.
            cancel.check()?;
            self.stats.done(&finished.outcome);
            self.look_at_caches();
            Ok(finished)
        };
        let done = self.accounted(&info.db_name, info.job_id, || {
            run().map_err(|error| cancelled_by(cancel, error))
        });
        let filter = info.plugins.as_ref().and_then(|plugins| plugins.filter());
        let database = self.databases.lock().get(input_dir).cloned();
        let contradicted = ErrorKind::Declined(DeclineReason::Comparator);
        if let (Some(database), Err(error)) = (&database, &done)
            && eligible.asks_comparator()
            && error.kind == contradicted
        {
            database.other_orders.lock().insert(info.cf_id);
        }
        if let Some(database) = database
            && (database.failed_filters.lock()).ended(info.cf_id, filter, done.as_ref().err())
        {
            self.stats.filtered_again();
        }
        done
    }

    fn run_with(
        &self,
        settings: MutableSettings,
        eligible: &EligibleJob,
        input_dir: &Path,
        output_dir: &Path,
        cancel: &CancelToken,
    ) -> Result<Finished> {
        let EligibleJob { job, input, .. } = eligible;
        let span = spans::job(job, input_dir);
        let _entered = span.enter();
        spans::eligible(&span, input);
        let recorded = self.record(eligible, input_dir, cancel);
        let folder = self.staging_folder(output_dir)?;
        let name = &job.identity.session_id;
        let staging = StagingDir::create(Arc::clone(&self.storage), &folder, name)?;
        let context = self.context(settings, cancel);
        let mut outcome = job::run(&context, eligible, input_dir, &staging)?;
        let trouble = self.executor.registry().trouble().map(str::to_owned);
        outcome.device_refused = outcome.device_refused.or(trouble);
        self.learn(job, input, &outcome, input_dir);
        if let Some(dir) = recorded {
            self.record_outputs(&dir, job, &staging, &outcome, cancel);
        }
        let result = result::encode(eligible, &outcome, staging.path());
        spans::job_done(&span, &outcome);
        tracing::info!(
            entries_in = outcome.entries_read,
            entries_out = outcome.totals.read.rows(),
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

    /// Returns the context of a job with the devices that are open.
    pub(super) fn context<'a>(
        &'a self,
        settings: MutableSettings,
        cancel: &'a CancelToken,
    ) -> RunContext<'a> {
        let slots = self.executor.budget().slots();
        RunContext {
            executor: &self.executor,
            devices: self.executor.registry().opened(),
            settings,
            storage: &self.storage,
            clock: self.storage.clock(),
            limiter: &self.limiter,
            descriptors: &self.descriptors,
            sync_threads: (settings.sync_threads)
                .unwrap_or_else(|| slots.div_ceil(THREADS_PER_SYNC_THREAD)),
            known_tables: &self.known_tables,
            cancel,
            counters: &self.stats,
        }
    }

    /// Records the job if the settings ask for it. If that fails, the job is done nevertheless.
    fn record(
        &self,
        eligible: &EligibleJob,
        input_dir: &Path,
        cancel: &CancelToken,
    ) -> Option<PathBuf> {
        let (root, job) = (self.settings.record_dir.as_ref()?, &eligible.job);
        let plugins = job.info.plugins.as_ref();
        if eligible.asks_comparator() || plugins.is_some_and(|plugins| plugins.has_objects()) {
            tracing::info!("the job was not recorded: it may call the program");
            return None;
        }
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
        job: &Job,
        staging: &StagingDir,
        outcome: &Outcome,
        cancel: &CancelToken,
    ) {
        let kept = record::sum_outputs(&*self.storage, staging, outcome, cancel).and_then(|sums| {
            let name = record::JOB_FILE;
            record::keep_compressor(&*self.storage, dir, name, job, outcome.compressed_by)?;
            record::keep_outputs(&*self.storage, dir, &sums)
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "the job's output was not recorded");
        }
    }

    fn learn(&self, job: &Job, input: &CompactionServiceInput, outcome: &Outcome, dir: &Path) {
        let Some(millibits) = outcome.learned_filter else {
            return;
        };
        if let Some(database) = self.databases.lock().get(dir) {
            let mut learned = database.filter_millibits.lock();
            // Later jobs do not name older OPTIONS files.
            learned.retain(|&(cf_id, _), _| cf_id != job.info.cf_id);
            learned.insert((job.info.cf_id, input.options_file_number), millibits);
        }
    }
}

//! How a job's bytes flow between files and subcompactions.
//!
//! ```text
//! input file --InputStream--> subcompaction --OutputFile--> staging file --sync--> durable --> verified
//! ```
//!
//! All of it goes through [`Storage`] and is measured by a [`Meter`].

mod cached;
mod direct_read;
#[cfg(test)]
mod direct_tests;
mod direct_write;
mod finish;
mod input;
mod limit;
mod meter;
mod options;
mod output;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rockmill_core::{CancelToken, Result};

use crate::descriptors::Descriptors;
use crate::direct::DirectStorage;
use crate::syncs::Syncs;
use crate::{FILE_MODE, Storage};
use direct_read::{DEPTH, SLACK_BYTES};
use direct_write::OUTPUT_BYTES;
pub use finish::{FinishQueue, SubcompactionFiles, Task, Unsynced, Written};
pub use input::{ClosedInput, JobInput};
pub use limit::RateLimiter;
pub use meter::{Meter, Stage, measured_by_this_thread};
pub use options::{IoOptions, OutputCache};
pub use output::create;

/// What the files of a job share.
#[derive(Debug)]
pub struct JobIo {
    /// The file system.
    pub storage: Arc<dyn Storage>,
    /// How files are read and written.
    pub options: IoOptions,
    /// Files past the page cache, if the options ask for it and the system has them.
    pub direct: Option<Arc<dyn DirectStorage>>,
    /// Permissions of outputs at most.
    output_mode: AtomicU32,
    /// Outputs that go through the page cache because their file system has no way past it.
    cached_instead: AtomicU64,
    /// Files that may be open, together with all other jobs.
    pub descriptors: Arc<Descriptors>,
    /// How fast, together with all other jobs.
    pub limiter: Arc<RateLimiter>,
    /// Where the time goes.
    pub meter: Meter,
    /// What is left to do with written files.
    pub finishing: FinishQueue,
    /// Syncs that nobody waits for once the job is to stop.
    pub syncs: Syncs,
    /// Set when the job is to stop.
    pub stop: CancelToken,
}

impl JobIo {
    /// For a job that ends when `stop` is set; files are read and written as RocksDB does by default,
    /// without a limit, and synced by those who wrote them.
    pub fn new(storage: Arc<dyn Storage>, stop: CancelToken) -> Self {
        let clock = storage.clock();
        Self {
            storage,
            descriptors: Arc::new(Descriptors::new(Arc::clone(&clock))),
            options: IoOptions::default(),
            direct: None,
            output_mode: AtomicU32::new(FILE_MODE),
            cached_instead: AtomicU64::new(0),
            limiter: Arc::new(RateLimiter::new(0)),
            meter: Meter::default(),
            finishing: FinishQueue::new(0, clock),
            syncs: Syncs::new(stop.clone()),
            stop,
        }
    }

    /// The same with a database's options.
    #[must_use]
    pub fn with_options(mut self, options: IoOptions) -> Self {
        self.options = options;
        if options.direct_reads || options.direct_writes {
            self.direct = match self.storage.direct() {
                Ok(direct) => Some(direct),
                Err(error) => {
                    tracing::warn!(%error, "no direct I/O here: files go through the page cache");
                    None
                }
            };
        }
        self
    }

    /// The same that shares limits with other jobs, and leaves so many files at most to threads that finish them.
    #[must_use]
    pub fn sharing(
        self,
        limiter: &Arc<RateLimiter>,
        descriptors: &Arc<Descriptors>,
        max_unfinished: usize,
    ) -> Self {
        Self {
            limiter: Arc::clone(limiter),
            descriptors: Arc::clone(descriptors),
            finishing: FinishQueue::new(max_unfinished, self.storage.clock()),
            ..self
        }
    }

    /// Where inputs are to be read past the page cache.
    pub fn direct_reads(&self) -> Option<&dyn DirectStorage> {
        self.direct.as_deref().filter(|_| self.options.direct_reads)
    }

    /// Where outputs are to be written past the page cache.
    pub fn direct_writes(&self) -> Option<&dyn DirectStorage> {
        self.direct
            .as_deref()
            .filter(|_| self.options.direct_writes)
    }

    /// Outputs give nobody a right that this input denies: RocksDB's `Env` may make all files for its own user alone,
    /// of which no option tells.
    ///
    /// # Errors
    /// Whatever the system says.
    pub fn narrow_outputs(&self, input: &Path) -> io::Result<()> {
        /// The owner's, who writes them.
        const LEAST: u32 = 0o600;
        let mode = self.storage.mode(input)? | LEAST;
        self.output_mode.fetch_and(mode, Ordering::Relaxed);
        Ok(())
    }

    /// Permissions of outputs at most.
    pub fn output_mode(&self) -> u32 {
        self.output_mode.load(Ordering::Relaxed)
    }

    /// Outputs that were to pass by the page cache and could not.
    pub fn cached_instead(&self) -> u64 {
        self.cached_instead.load(Ordering::Relaxed)
    }

    /// What a subcompaction holds of an input when that is read `read_ahead_bytes` at a time: the bytes read ahead
    /// and the memory that this takes.
    pub fn read_ahead(&self, read_ahead_bytes: usize) -> (usize, usize) {
        match self.direct_reads() {
            None => (read_ahead_bytes, read_ahead_bytes),
            Some(_) => {
                let window = read_ahead_bytes.saturating_mul(DEPTH);
                (window, window.saturating_add(SLACK_BYTES))
            }
        }
    }

    /// What a file holds while it is written.
    pub fn written_file_bytes(&self) -> u64 {
        self.direct_writes().map_or(0, |_| OUTPUT_BYTES)
    }

    /// Waits until so many bytes may be read or written.
    ///
    /// # Errors
    /// Cancelled.
    pub fn wait_for_limit(&self, bytes: u64) -> Result<()> {
        if !self.limiter.is_limited() {
            return Ok(());
        }
        self.meter.time(Stage::WaitForLimit, bytes, || {
            self.limiter.wait(bytes, &*self.storage.clock(), &self.stop)
        })
    }
}

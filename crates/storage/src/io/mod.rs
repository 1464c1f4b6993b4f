//! Transfer of a job's bytes between files and subcompactions.
//!
//! 1. An input stream reads an input file.
//! 2. The subcompaction writes an output file to the staging folder.
//! 3. The file is synced and then verified.
//!
//! All steps go through [`Storage`] and are measured by a [`Meter`].

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
pub use finish::{FinishQueue, Step, TaskFiles, Unsynced, Written};
pub use input::{ClosedInput, JobInput};
pub use limit::RateLimiter;
pub use meter::{Meter, Stage, measured_by_this_thread};
pub use options::{IoOptions, OutputCache};
pub use output::create;

/// State that the files of a job share.
#[derive(Debug)]
pub struct JobIo {
    /// The file system.
    pub storage: Arc<dyn Storage>,
    /// How files are read and written.
    pub options: IoOptions,
    /// Direct I/O, if the options ask for it and the system has it.
    pub direct: Option<Arc<dyn DirectStorage>>,
    /// Maximum permissions of outputs.
    output_mode: AtomicU32,
    /// Number of outputs that were buffered because their file system has no direct I/O.
    cached_instead: AtomicU64,
    /// Limit on open files, shared with all other jobs.
    pub descriptors: Arc<Descriptors>,
    /// Rate limit, shared with all other jobs.
    pub limiter: Arc<RateLimiter>,
    /// Time per stage.
    pub meter: Meter,
    /// Work on written files.
    pub finishing: FinishQueue,
    /// Syncs that are not waited for any more after the job was cancelled.
    pub syncs: Syncs,
    /// Set when the job is to stop.
    pub stop: CancelToken,
}

impl JobIo {
    /// Creates the state of a job that ends when `stop` is set. Files are read and written as RocksDB does by default,
    /// without a limit, and the thread that wrote a file syncs it.
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

    /// Sets a database's options.
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

    /// Shares limits with other jobs. At most `max_unfinished` files wait for the threads that finish them.
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

    /// Direct I/O for inputs, if the options ask for it.
    pub fn direct_reads(&self) -> Option<&dyn DirectStorage> {
        self.direct.as_deref().filter(|_| self.options.direct_reads)
    }

    /// Direct I/O for outputs, if the options ask for it.
    pub fn direct_writes(&self) -> Option<&dyn DirectStorage> {
        self.direct
            .as_deref()
            .filter(|_| self.options.direct_writes)
    }

    /// Removes from outputs the permissions that this input does not have. RocksDB's `Env` may make all files private
    /// to its user, and no option shows that.
    ///
    /// # Errors
    /// The operating system's error.
    pub fn narrow_outputs(&self, input: &Path) -> io::Result<()> {
        /// The owner's permissions: the owner writes the outputs.
        const LEAST: u32 = 0o600;
        let mode = self.storage.mode(input)? | LEAST;
        self.output_mode.fetch_and(mode, Ordering::Relaxed);
        Ok(())
    }

    /// Maximum permissions of outputs.
    pub fn output_mode(&self) -> u32 {
        self.output_mode.load(Ordering::Relaxed)
    }

    /// Number of outputs for which direct I/O was requested but not possible.
    pub fn cached_instead(&self) -> u64 {
        self.cached_instead.load(Ordering::Relaxed)
    }

    /// Memory of a subcompaction for one input that is read `read_ahead_bytes` at a time: the bytes read ahead, and the
    /// memory that they take.
    pub fn read_ahead(&self, read_ahead_bytes: usize) -> (usize, usize) {
        match self.direct_reads() {
            None => (read_ahead_bytes, read_ahead_bytes),
            Some(_) => {
                let window = read_ahead_bytes.saturating_mul(DEPTH);
                (window, window.saturating_add(SLACK_BYTES))
            }
        }
    }

    /// Memory of a file while it is written, in bytes.
    pub fn written_file_bytes(&self) -> u64 {
        self.direct_writes().map_or(0, |_| OUTPUT_BYTES)
    }

    /// Waits until `bytes` may be read or written.
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

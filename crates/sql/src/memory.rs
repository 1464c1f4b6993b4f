//! Memory limits of queries, and the folder for spilled data.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use datafusion::common::resources_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{
    MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation, TrackConsumersPool,
};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::{SpillFile, SpillWriter, TempFileFactory};
use datafusion::prelude::SessionConfig;
use futures::Stream;
use rockmill_core::Lock;

/// Shares of the memory of a program that only runs queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Memory of scans: [`rockmill_scan::ScanSettings::memory_bytes`].
    pub scan_bytes: u64,
    /// Memory of the other operators of a query, such as sorts and joins.
    pub query_bytes: u64,
}

impl Shares {
    /// Splits `memory_bytes`: five eighths are for scans, and three eighths for other operators.
    pub fn of(memory_bytes: u64) -> Self {
        let query_bytes = memory_bytes / 8 * 3;
        Self {
            scan_bytes: memory_bytes - query_bytes,
            query_bytes,
        }
    }
}

/// An environment in which the operators of queries take at most `query_bytes`. Those that can spill have equal parts
/// of half of it. They spill into unnamed files in `spill_dir`, so that nothing is left when the process ends. Without
/// a folder, a query that needs more memory fails. Sessions of [`crate::session`] do not spill either.
///
/// # Errors
/// None now.
pub fn runtime(query_bytes: u64, spill_dir: Option<&Path>) -> Result<Arc<RuntimeEnv>> {
    /// An error names the largest consumers.
    const NAMED: NonZeroUsize = NonZeroUsize::new(3).unwrap();
    let bytes = usize::try_from(query_bytes).unwrap_or(usize::MAX);
    let pool = TrackConsumersPool::new(Pool::new(bytes), NAMED);
    let mode = match spill_dir {
        Some(dir) => DiskManagerMode::Custom(Arc::new(SpillDir(dir.to_owned()))),
        None => DiskManagerMode::Disabled,
    };
    let spills = DiskManagerBuilder::default()
        .with_mode(mode)
        .with_max_spill_merge_fan_in(MERGED_FILES);
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(spills)
        .build_arc()
}

/// The same settings for operators that may take `query_bytes` together. Those that sort reserve less to merge their
/// spilled data, and batches have fewer rows where memory is short.
#[must_use]
pub fn configured(config: SessionConfig, query_bytes: u64) -> SessionConfig {
    /// A sort reserves 1/`RESERVED` of its partition's memory.
    const RESERVED: usize = 16;
    /// With less memory, a partition has smaller batches, so that it can merge [`MERGED_FILES`] with rows of 1 KiB.
    const ENOUGH_BYTES: usize = 128 << 20;
    const BATCHES_TIMES_ROW_BYTES: usize = 64 << 10;
    const LEAST_ROWS: usize = 256;
    let partitions = config.target_partitions().max(1) as u64;
    let of_partition = usize::try_from(query_bytes / partitions).unwrap_or(usize::MAX);
    let usual = config.options().execution.sort_spill_reservation_bytes;
    let rows = match of_partition < ENOUGH_BYTES {
        true => (of_partition / BATCHES_TIMES_ROW_BYTES).max(LEAST_ROWS),
        false => usize::MAX,
    };
    let rows = rows.min(config.batch_size());
    config
        .with_sort_spill_reservation_bytes(usual.min(of_partition / RESERVED))
        .with_batch_size(rows)
}

/// Files that a merge reads at a time. Without a limit, one merge takes all memory, and others have none.
const MERGED_FILES: usize = 16;

/// Bytes that every consumer may have.
const LITTLE_BYTES: usize = 64 << 10;

/// A consumer that can spill does so at this size, however much memory there is. DataFusion puts the strings of all groups
/// of a partition into one buffer, whose offsets have 4 bytes.
const MAX_SPILLABLE_BYTES: usize = 3 << 29;

/// A memory pool. Half of it is for consumers that can spill, in equal parts. The others take from all free memory.
/// DataFusion's `FairSpillPool` leaves them nothing if all consumers that can spill have their parts, and merges of
/// spilled files cannot spill.
#[derive(Debug)]
struct Pool {
    bytes: usize,
    taken: Lock<Usage>,
}

#[derive(Debug, Default)]
struct Usage {
    /// Consumers that can spill, and their bytes.
    spillers: usize,
    spillable: usize,
    unspillable: usize,
}

impl Pool {
    fn new(bytes: usize) -> Self {
        Self {
            bytes,
            taken: Lock::default(),
        }
    }
}

impl Usage {
    /// The bytes of all consumers of the same kind.
    fn of(&mut self, reservation: &MemoryReservation) -> &mut usize {
        match reservation.consumer().can_spill() {
            true => &mut self.spillable,
            false => &mut self.unspillable,
        }
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.name(), self.bytes)
    }
}

impl MemoryPool for Pool {
    fn name(&self) -> &'static str {
        "rockmill"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.taken.lock().spillers += usize::from(consumer.can_spill());
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.taken.lock().spillers -= usize::from(consumer.can_spill());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        *self.taken.lock().of(reservation) += additional;
    }

    fn shrink(&self, reservation: &MemoryReservation, bytes: usize) {
        *self.taken.lock().of(reservation) -= bytes;
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let mut taken = self.taken.lock();
        let free = self.bytes.saturating_sub(taken.unspillable);
        let (wanted, available) = match reservation.consumer().can_spill() {
            true => {
                let part = free.min(self.bytes / 2) / taken.spillers.max(1);
                (reservation.size(), part.min(MAX_SPILLABLE_BYTES))
            }
            false => (0, free.saturating_sub(taken.spillable)),
        };
        // The few bytes of an accumulator are granted even if merges of sorted files have taken all others.
        let is_little = reservation.size().saturating_add(additional) <= LITTLE_BYTES;
        if wanted.saturating_add(additional) > available && !is_little {
            let name = reservation.consumer().name();
            return resources_err!(
                "{name} needs {additional} bytes more, and may have {available} in all"
            );
        }
        *taken.of(reservation) += additional;
        Ok(())
    }

    fn reserved(&self) -> usize {
        let taken = self.taken.lock();
        taken.spillable + taken.unspillable
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(self.bytes)
    }
}

/// Makes files in a folder.
struct SpillDir(PathBuf);

impl TempFileFactory for SpillDir {
    fn create_temp_file(&self, _: &str) -> Result<Arc<dyn SpillFile>> {
        let file = tempfile::tempfile_in(&self.0).map_err(|e| cannot("make", &self.0, &e))?;
        Ok(Arc::new(Spilled(Arc::new(Temporary {
            file,
            bytes: AtomicU64::new(0),
            dir: self.0.clone(),
        }))))
    }
}

/// An unnamed file. It is removed when it is closed.
struct Temporary {
    file: File,
    bytes: AtomicU64,
    dir: PathBuf,
}

struct Spilled(Arc<Temporary>);

impl SpillFile for Spilled {
    fn size(&self) -> Option<u64> {
        Some(self.0.bytes.load(Ordering::Acquire))
    }

    fn read_stream(&self) -> Result<Pin<Box<dyn Stream<Item = Result<Bytes>> + Send>>> {
        let of = Arc::clone(&self.0);
        let chunks = futures::stream::try_unfold(0, move |offset| {
            let of = Arc::clone(&of);
            async move {
                let read = move || of.chunk(offset);
                let chunk = tokio::task::spawn_blocking(read).await;
                let chunk = chunk.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))??;
                let next = offset + chunk.len() as u64;
                Ok((!chunk.is_empty()).then_some((chunk, next)))
            }
        });
        Ok(Box::pin(chunks))
    }

    fn open_writer(&self) -> Result<Box<dyn SpillWriter>> {
        Ok(Box::new(Writer(Arc::clone(&self.0))))
    }
}

impl Temporary {
    /// The next bytes of the file, or none at its end.
    fn chunk(&self, offset: u64) -> Result<Bytes> {
        const CHUNK_BYTES: usize = 256 << 10;
        let mut chunk = vec![0; CHUNK_BYTES];
        let read = self.file.read_at(&mut chunk, offset);
        let read = read.map_err(|e| cannot("read", &self.dir, &e))?;
        chunk.truncate(read);
        Ok(chunk.into())
    }
}

struct Writer(Arc<Temporary>);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let at = self.0.bytes.load(Ordering::Acquire);
        let written = self.0.file.write_at(bytes, at);
        let written = written.map_err(|e| cannot("write", &self.0.dir, &e))?;
        self.0.bytes.fetch_add(written as u64, Ordering::Release);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl SpillWriter for Writer {
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}

/// The error of a temporary file.
#[derive(Debug)]
pub struct SpillError(String);

impl fmt::Display for SpillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpillError {}

fn cannot(what: &str, dir: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "cannot {what} a temporary file in {}: {error}",
        dir.display()
    );
    io::Error::new(error.kind(), SpillError(text))
}

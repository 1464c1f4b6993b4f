//! A view is brought to what the database is now.

use std::sync::{Arc, PoisonError};

use rockmill_core::{KeyRange, Result, Tombstones};
use rockmill_cuda::{CudaBackend, CudaSettings, Delta, DeviceTable};
use rockmill_scan::{Since, WrittenSince};

use crate::foreseen::Asked;
use crate::load::{Memory, Taken, load, place};
use crate::version::Version;
use crate::view::View;

/// What a refresh has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refreshed {
    /// The sequence number: the view has what was written up to it.
    pub sequence: u64,
    /// What was loaded.
    pub how: Loaded,
}

/// What a refresh has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// Nothing: a reader finds what he found before.
    Nothing,
    /// What was written since.
    Added {
        /// Keys that were written or deleted.
        keys: u64,
        /// Device memory of their records in bytes.
        bytes: u64,
    },
    /// All, as if the view was opened anew.
    All {
        /// Why.
        reason: String,
    },
}

/// A table, or why there is none that is made of the one before.
type Made = std::result::Result<(Arc<DeviceTable>, Loaded), String>;

impl View {
    /// Brings the view to what the database is now. Kernels that run keep their version, and lookups meanwhile find the
    /// version before. Refreshes come one by one. The memory of versions that nobody uses any more is given back, which
    /// waits for kernels that run.
    ///
    /// # Errors
    /// As those of [`crate::Builder::open`]. The view stays as it was then.
    pub fn refresh(&self) -> Result<Refreshed> {
        let mut backend = self.backend.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.in_use.take_done());
        let quiet = self.quiet();
        let taken = self.source.take()?;
        let backend = match &mut *backend {
            Some(backend) => backend,
            none => none.insert(CudaBackend::new(
                self.source.target,
                CudaSettings::default(),
            )?),
        };
        let base = self.version();
        let (table, how) = match self.added(backend, &base, &taken)? {
            Ok(made) => made,
            Err(reason) => {
                let table = load(backend, &taken, Memory::Of(&base.table))?;
                (Arc::new(table), Loaded::All { reason })
            }
        };
        drop(base);
        let sequence = taken.family.sequence();
        self.publish(table, taken.family, taken.asked, quiet)?;
        Ok(Refreshed { sequence, how })
    }

    /// Makes a table of the one before.
    fn added(&self, backend: &CudaBackend, base: &Version, taken: &Taken) -> Result<Made> {
        if joined(&base.asked) != joined(&taken.asked) {
            return Ok(Err("RocksDB has to be asked for other keys".to_owned()));
        }
        match taken.family.since(&base.family, &self.source.engine)? {
            Since::Nothing => Ok(Ok((Arc::clone(&base.table), Loaded::Nothing))),
            Since::Anything(reason) => Ok(Err(reason)),
            Since::Written(written) => put(backend, base, written),
        }
    }
}

/// Puts what was written into a copy of the slots.
fn put(backend: &CudaBackend, base: &Version, written: WrittenSince) -> Result<Made> {
    /// Of the bytes of records, so many parts may be dead.
    const DEAD_PARTS: u64 = 4;
    let contents = base.table.contents();
    if contents.dead_bytes.saturating_mul(DEAD_PARTS) > contents.record_bytes {
        return Ok(Err("a quarter of the records' bytes are dead".to_owned()));
    }
    let delta = Delta::new(&base.table)?;
    let placed = place(
        backend,
        &Taken::new(written.tables)?,
        Tombstones::Keep,
        &delta,
    )?;
    if let Some(unflushed) = written.unflushed {
        let unchanged = delta.unchanged();
        place(
            backend,
            &Taken::new(unflushed)?,
            Tombstones::Drop,
            &unchanged,
        )?;
        let keys = unchanged.keys();
        if keys > 0 {
            let what = format!("{keys} keys that were in the log are in no file that was flushed");
            return Ok(Err(what));
        }
    }
    let table = delta.table();
    if table.contents().left_over > 0 || table.is_crowded() {
        return Ok(Err("the slots do not suffice".to_owned()));
    }
    let how = Loaded::Added {
        keys: placed.rows,
        bytes: placed.bytes,
    };
    Ok(Ok((Arc::clone(table), how)))
}

/// The ranges, where those that touch are one.
fn joined(asked: &[Asked]) -> Vec<KeyRange> {
    let mut joined: Vec<KeyRange> = Vec::new();
    for Asked { range, .. } in asked {
        match joined.last_mut() {
            Some(last) if last.end.is_some() && last.end == range.begin => {
                last.end.clone_from(&range.end);
            }
            _ => joined.push(range.clone()),
        }
    }
    joined
}

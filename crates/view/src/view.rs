//! A column family in device memory, with successive versions.

use std::sync::Arc;

use rockmill_core::{Lock, Result};
use rockmill_cuda::{
    CallerStream, ChangedSet, DeviceTable, InUse, Keys, Rows, TableContents, Unanswered,
};
use rockmill_exec::device_runtime::DeviceRuntime;
use rockmill_scan::{Database, FamilySnapshot};

use crate::builder::Builder;
use crate::estimate::RocksDbRange;
use crate::load::{Snapshot, Source, seed};
use crate::ring::{Ring, RingCounts};
use crate::version::{Families, Hold, Version};

/// A column family in device memory, as a reader found it when the view was opened, or at its last refresh.
///
/// Running kernels keep the version with which they began.
#[derive(Debug)]
pub struct View {
    // Dropped first, so that kernels that wait for it end.
    pub(crate) ring: Option<Ring>,
    newest: Lock<Newest>,
    pub(crate) in_use: Arc<InUse<Version>>,
    families: Arc<Families>,
    pub(crate) source: Source,
    /// Refreshes run one at a time.
    pub(crate) refreshing: Lock<()>,
    pub(crate) device: Arc<DeviceRuntime>,
}

#[derive(Debug)]
struct Newest {
    version: Arc<Version>,
    /// Number of holds of all versions that have begun.
    holds: u64,
    /// That number when the version's set of changed keys was created.
    holds_before_set: u64,
}

/// Proof that the view had no holds and no open requests when this number of holds had begun.
#[derive(Debug, Clone, Copy)]
pub struct NoHolds(u64);

impl View {
    pub(crate) fn new(
        source: Source,
        device: Arc<DeviceRuntime>,
        taken: Snapshot,
        table: Arc<DeviceTable>,
        families: Arc<Families>,
        ring: Option<Ring>,
    ) -> Result<Self> {
        let changed = ring.as_ref().map(|_| ChangedSet::new(&table, seed()));
        families.add(0, &taken.family);
        let version = Version {
            number: 0,
            table,
            family: taken.family,
            asked: taken.asked,
            changed: changed.transpose()?.map(Arc::new),
        };
        Ok(Self {
            ring,
            newest: Lock::new(Newest {
                version: Arc::new(version),
                holds: 0,
                holds_before_set: 0,
            }),
            in_use: Arc::new(InUse::new(device.gpu_device()?)),
            families,
            source,
            refreshing: Lock::default(),
            device,
        })
    }

    /// The newest version.
    pub(crate) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.newest.lock().version)
    }

    /// Returns proof if all keys that kernels have put or deleted so far are in the database.
    pub(crate) fn no_holds(&self) -> Option<NoHolds> {
        let newest = self.newest.lock();
        let queue = self.ring.as_ref().map(Ring::queue);
        let is_unused = queue.is_none_or(|queue| !queue.is_held() && !queue.has_unanswered());
        is_unused.then_some(NoHolds(newest.holds))
    }

    /// Makes a version the newest one. `no_holds` was taken before the version was taken from the database.
    ///
    /// Kernels put and delete only during a hold. If there was no hold from before the version was taken until now, the
    /// version has all their writes, and its set of changed keys is empty. Else it shares the set of the previous
    /// version: it may lack writes of running kernels, whichever version they hold. Such a set may have more keys than
    /// needed; RocksDB is asked for all of them.
    pub(crate) fn publish(
        &self,
        table: Arc<DeviceTable>,
        family: Arc<FamilySnapshot>,
        asked: Vec<RocksDbRange>,
        no_holds: Option<NoHolds>,
    ) -> Result<()> {
        let has_empty_set = |newest: &Newest| newest.holds == newest.holds_before_set;
        let needs_set = self.ring.is_some() && !has_empty_set(&self.newest.lock());
        // Created before, because no hold may begin while the versions are exchanged.
        let empty = match no_holds.filter(|_| needs_set) {
            // Without memory for it, the previous set is used.
            Some(no_holds) => ChangedSet::new(&table, seed())
                .ok()
                .map(|set| (no_holds, set)),
            None => None,
        };
        let mut newest = self.newest.lock();
        let number = newest.version.number + 1;
        let changed = match empty {
            Some((NoHolds(holds), empty)) if holds == newest.holds => {
                newest.holds_before_set = holds;
                Some(Arc::new(empty))
            }
            _ => newest.version.changed.clone(),
        };
        self.families.add(number, &family);
        let version = Arc::new(Version {
            number,
            table,
            family,
            asked,
            changed,
        });
        let before = std::mem::replace(&mut newest.version, version);
        drop(newest);
        // If it has no other user, the resources of the database that it held are released here, where no thread waits
        // for the lock.
        drop(before);
        Ok(())
    }

    /// Holds the newest version for kernels of a stream.
    ///
    /// # Errors
    /// Device, also if there are too many holds.
    pub fn hold(&self, stream: CallerStream) -> Result<Hold> {
        let mut newest = self.newest.lock();
        let ring = match &self.ring {
            Some(ring) => Some((Arc::clone(ring.queue()), ring.queue().hold()?)),
            None => None,
        };
        newest.holds += 1;
        let version = Arc::clone(&newest.version);
        drop(newest);
        if let Some(ring) = &self.ring {
            ring.wake();
        }
        Ok(Hold {
            version,
            in_use: Arc::clone(&self.in_use),
            ring,
            stream,
        })
    }

    /// Counts of the answers to kernels so far.
    pub fn ring_counts(&self) -> RingCounts {
        self.ring.as_ref().map(Ring::counts).unwrap_or_default()
    }

    /// Answers all requests of kernels with "aborted", also future ones.
    pub fn abort(&self) {
        if let Some(ring) = &self.ring {
            ring.abort();
        }
    }

    /// Returns a builder for a view of a column family.
    pub fn builder(database: Arc<dyn Database>, family: &str) -> Builder {
        Builder::new(database, family)
    }

    /// The sequence number of the newest version's snapshot.
    pub fn sequence(&self) -> u64 {
        self.version().family.sequence()
    }

    /// Contents of the newest version in device memory.
    pub fn contents(&self) -> TableContents {
        self.version().table.contents()
    }

    /// Ranges of keys that the newest version does not have in device memory, with the reasons.
    pub fn asked(&self) -> Vec<RocksDbRange> {
        self.version().asked.clone()
    }

    /// Looks up keys in device memory in the newest version, on the caller's stream. The host does not wait, allocates
    /// no memory and copies nothing, so the call may be captured into a graph. Then the version is kept as long as the
    /// view. Keys may occur several times. [`Rows`] receives the value and a status of each key.
    ///
    /// # Errors
    /// Invalid if the device cannot access the memory of keys or rows, or a pointer is not aligned; Device.
    pub fn lookup(&self, keys: &Keys, rows: &Rows, stream: CallerStream) -> Result<()> {
        let version = self.version();
        version.table.look_up(keys, rows, stream)?;
        if !self.in_use.keep(&version, stream)? {
            // The last launch of the graph is unknown.
            self.in_use.keep_until_drop(&version);
        }
        Ok(())
    }

    /// Waits for all lookups and holds so far: until their streams have reached the points where these end. Captured
    /// graphs are not waited for.
    ///
    /// # Errors
    /// Device.
    pub fn wait(&self) -> Result<()> {
        self.in_use.wait()
    }

    /// A word for [`Rows::with_unanswered`]. It must outlive the view.
    ///
    /// # Errors
    /// Device.
    pub fn unanswered(&self) -> Result<Unanswered> {
        Unanswered::new(self.device.gpu_device()?)
    }

    /// Looks up keys in host memory in the newest version, and waits for their values. RocksDB's iterators answer for
    /// keys that the table cannot answer, at the same version.
    ///
    /// # Errors
    /// Device; Declined if RocksDB must be asked for a key, and the database was opened without its iterators; Storage
    /// if RocksDB cannot read it.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.version().get(keys)
    }
}

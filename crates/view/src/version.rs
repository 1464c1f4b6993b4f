//! A version of a column family, and its holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use rockmill_core::{CancelToken, KeyRange, Lock, Result};
use rockmill_cuda::{
    CallerStream, ChangedSet, DeviceTable, InUse, Keys, KvRecord, LookupResult, RequestQueue,
    RingPin, Rows,
};
use rockmill_scan::FamilySnapshot;

use crate::estimate::RocksDbRange;

/// A version. Only the set of changed keys changes.
#[derive(Debug)]
pub struct Version {
    pub number: u64,
    pub table: Arc<DeviceTable>,
    pub family: Arc<FamilySnapshot>,
    pub asked: Vec<RocksDbRange>,
    /// Keys that kernels have put or deleted. The table may have older values of them.
    pub changed: Option<Arc<ChangedSet>>,
}

impl Version {
    /// Looks up keys in host memory, and waits for their values.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let answers = self.table.get(keys)?.into_iter().zip(keys);
        let value = |(answer, key): (LookupResult, &&[u8])| match answer {
            LookupResult::Found(value) => Ok(Some(value)),
            LookupResult::NotFound => Ok(None),
            LookupResult::NeedsHost => ask(&self.family, key),
        };
        answers.map(value).collect()
    }
}

/// The value that RocksDB's iterators find.
pub fn ask(family: &FamilySnapshot, key: &[u8]) -> Result<Option<Vec<u8>>> {
    let after = [key, &[0]].concat();
    let range = KeyRange {
        begin: Some(key.to_vec()),
        end: Some(after),
    };
    let mut found = None;
    family.read_through_iterators(&range, &CancelToken::new(), &mut |_, value| {
        found = Some(value.to_vec());
        Ok(())
    })?;
    Ok(found)
}

/// The column family of each version in use, by the version's number.
#[derive(Debug, Default)]
pub struct Families(Lock<BTreeMap<u64, Weak<FamilySnapshot>>>);

impl Families {
    /// Adds the column family of a version.
    pub fn add(&self, number: u64, family: &Arc<FamilySnapshot>) {
        let mut families = self.0.lock();
        families.retain(|_, family| family.strong_count() > 0);
        families.insert(number, Arc::downgrade(family));
    }

    /// The column family of a version, if it is in use.
    pub fn find(&self, number: u64) -> Option<Arc<FamilySnapshot>> {
        self.0.lock().get(&number)?.upgrade()
    }
}

/// Allows kernels of a stream to use a version. Dropping it ends the hold once the stream has reached this point,
/// without waiting.
///
/// A captured graph uses the version whenever it is launched, so the hold has to outlive the graph. If a hold is
/// dropped while its stream is being captured, it lasts as long as the view.
#[derive(Debug)]
pub struct Hold {
    pub(crate) version: Arc<Version>,
    pub(crate) in_use: Arc<InUse<Version>>,
    pub(crate) ring: Option<(Arc<RequestQueue>, RingPin)>,
    pub(crate) stream: CallerStream,
}

impl Hold {
    /// The parameter of a kernel.
    pub fn kv(&self) -> KvRecord {
        let version = &*self.version;
        let ring = self.ring.as_ref().zip(version.changed.as_ref());
        let ring = ring.map(|((queue, _), changed)| (&**queue, &**changed));
        KvRecord::new(version.number, &version.table, ring)
    }

    /// The table of the version.
    pub fn table(&self) -> &DeviceTable {
        &self.version.table
    }

    /// The sequence number of the version's snapshot.
    pub fn sequence(&self) -> u64 {
        self.version.family.sequence()
    }

    /// Like [`crate::View::lookup`], at the held version. If the view has a ring, keys that the table cannot answer are
    /// requested through it, like a kernel's `get`. The stream is the one of the hold, or one that it waits for, or one
    /// that is captured into a graph.
    ///
    /// # Errors
    /// Invalid if the device cannot access the memory of keys or rows, or a pointer is not aligned; Device.
    pub fn lookup(&self, keys: &Keys, rows: &Rows, stream: CallerStream) -> Result<()> {
        let table = &self.version.table;
        table.look_up_with(&self.kv(), keys, rows, stream)
    }

    /// Like [`crate::View::get`], at the held version.
    ///
    /// # Errors
    /// The errors of [`crate::View::get`].
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.version.get(keys)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // After an error, the version is kept as long as the view, because the end of the kernels is unknown.
        if !self
            .in_use
            .keep(&self.version, self.stream)
            .unwrap_or(false)
        {
            self.in_use.keep_until_drop(&self.version);
            return;
        }
        if let Some((queue, hold)) = self.ring.take() {
            // A failure only makes threads poll the queue for longer if the device is lost.
            let _ = queue.end_hold(hold, self.stream);
        }
    }
}

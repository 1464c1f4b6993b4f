//! A version of a column family, and those who hold it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rockmill_core::{CancelToken, KeyRange, Result};
use rockmill_cuda::{
    Answer, CallerStream, ChangedSet, DeviceTable, Hold as RingHold, InUse, Keys, KvRecord,
    Mailboxes, Rows,
};
use rockmill_scan::FamilyView;

use crate::foreseen::Asked;

/// A version. Nothing of it changes but the set of changed keys.
#[derive(Debug)]
pub struct Version {
    pub number: u64,
    pub table: Arc<DeviceTable>,
    pub family: Arc<FamilyView>,
    pub asked: Vec<Asked>,
    /// Keys that kernels have put or deleted, and that the table may not have as they are now.
    pub changed: Option<Arc<ChangedSet>>,
}

impl Version {
    /// Looks up keys that lie in host memory, and waits for their values.
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let answers = self.table.get(keys)?.into_iter().zip(keys);
        let value = |(answer, key): (Answer, &&[u8])| match answer {
            Answer::Found(value) => Ok(Some(value)),
            Answer::NotFound => Ok(None),
            Answer::Ask => ask(&self.family, key),
        };
        answers.map(value).collect()
    }
}

/// The value that RocksDB's iterators find.
pub fn ask(family: &FamilyView, key: &[u8]) -> Result<Option<Vec<u8>>> {
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

/// The column family of each version that somebody has, by the version's number.
#[derive(Debug, Default)]
pub struct Families(Mutex<BTreeMap<u64, Weak<FamilyView>>>);

impl Families {
    /// Adds the one of a version.
    pub fn add(&self, number: u64, family: &Arc<FamilyView>) {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.retain(|_, family| family.strong_count() > 0);
        families.insert(number, Arc::downgrade(family));
    }

    /// The one of a version, if somebody has it.
    pub fn find(&self, number: u64) -> Option<Arc<FamilyView>> {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        families.get(&number)?.upgrade()
    }
}

/// Allows kernels of a stream to use a version. Dropping it ends the hold once the stream has reached this point,
/// without waiting.
///
/// A graph that was captured uses the version whenever it is launched, so the hold has to outlive the graph. If a hold is
/// dropped while its stream is being captured, it lasts as long as the view.
#[derive(Debug)]
pub struct Hold {
    pub(crate) version: Arc<Version>,
    pub(crate) in_use: Arc<InUse<Version>>,
    pub(crate) ring: Option<(Arc<Mailboxes>, RingHold)>,
    pub(crate) stream: CallerStream,
}

impl Hold {
    /// What a kernel takes as a parameter.
    pub fn kv(&self) -> KvRecord {
        let version = &*self.version;
        let ring = self.ring.as_ref().zip(version.changed.as_ref());
        let ring = ring.map(|((mailboxes, _), changed)| (&**mailboxes, &**changed));
        KvRecord::new(version.number, &version.table, ring)
    }

    /// The table of the version.
    pub fn table(&self) -> &DeviceTable {
        &self.version.table
    }

    /// The sequence number: the version has what was written up to it.
    pub fn sequence(&self) -> u64 {
        self.version.family.sequence()
    }

    /// As [`crate::View::lookup`], at the version that is held. If the view has a ring, what the table does not tell is asked
    /// through it, as `get` of a kernel does. The stream is the one of the hold, or one that it waits for, or one that is
    /// captured into a graph.
    ///
    /// # Errors
    /// Invalid if the device does not reach the memory of keys or rows, or a pointer is not aligned; Device.
    pub fn lookup(&self, keys: &Keys, rows: &Rows, stream: CallerStream) -> Result<()> {
        let table = &self.version.table;
        table.look_up_with(&self.kv(), keys, rows, stream)
    }

    /// As [`crate::View::get`], at the version that is held.
    ///
    /// # Errors
    /// As those of [`crate::View::get`].
    pub fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.version.get(keys)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // After an error, the version is kept as long as the view: nothing tells when kernels are done.
        if !self
            .in_use
            .keep(&self.version, self.stream)
            .unwrap_or(false)
        {
            self.in_use.keep_for_good(&self.version);
            return;
        }
        if let Some((mailboxes, hold)) = self.ring.take() {
            // It only makes threads look at mailboxes for longer if the device is lost.
            let _ = mailboxes.end_hold(hold, self.stream);
        }
    }
}

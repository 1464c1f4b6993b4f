//! A version of a column family in device memory.

use std::sync::Arc;

use rockmill_core::{CancelToken, KeyRange, Result};
use rockmill_cuda::{
    Answer, CallerStream, ChangedSet, DeviceTable, Hold as RingHold, Keys, KvRecord, Mailboxes,
    Rows, TableContents,
};
use rockmill_scan::{Database, FamilyView};

use crate::builder::Builder;
use crate::foreseen::Asked;
use crate::ring::{Ring, RingCounts};

/// A version of a column family in device memory: what a reader found when it was taken. It does not change.
#[derive(Debug)]
pub struct View {
    // Dropped first, so that kernels that wait for it end.
    ring: Option<Ring>,
    table: Arc<DeviceTable>,
    changed: Option<Arc<ChangedSet>>,
    family: Arc<FamilyView>,
    asked: Vec<Asked>,
}

/// That kernels of a stream may use a view. Dropping it ends the hold once the stream has come so far.
#[derive(Debug)]
pub struct Hold {
    table: Arc<DeviceTable>,
    changed: Option<Arc<ChangedSet>>,
    ring: Option<(Arc<Mailboxes>, RingHold)>,
    stream: CallerStream,
}

impl Hold {
    /// What a kernel takes as a parameter.
    pub fn kv(&self) -> KvRecord {
        let ring = self.ring.as_ref().zip(self.changed.as_ref());
        let ring = ring.map(|((mailboxes, _), changed)| (&**mailboxes, &**changed));
        KvRecord::new(0, &self.table, ring)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((mailboxes, hold)) = self.ring.take() {
            // It only makes threads look at mailboxes for longer if the device is lost.
            let _ = mailboxes.end_hold(hold, self.stream);
        }
    }
}

impl View {
    pub(crate) fn new(
        table: DeviceTable,
        family: Arc<FamilyView>,
        asked: Vec<Asked>,
        ring: Option<(Ring, ChangedSet)>,
    ) -> Self {
        let (ring, changed) = ring.unzip();
        Self {
            ring,
            table: Arc::new(table),
            changed: changed.map(Arc::new),
            family,
            asked,
        }
    }

    /// Holds the version for kernels of a stream.
    ///
    /// # Errors
    /// Device, also if there are too many holds.
    pub fn hold(&self, stream: CallerStream) -> Result<Hold> {
        let ring = match &self.ring {
            Some(ring) => {
                let hold = ring.mailboxes().hold()?;
                ring.wake();
                Some((Arc::clone(ring.mailboxes()), hold))
            }
            None => None,
        };
        Ok(Hold {
            table: Arc::clone(&self.table),
            changed: self.changed.clone(),
            ring,
            stream,
        })
    }

    /// What kernels were answered so far.
    pub fn ring_counts(&self) -> RingCounts {
        self.ring.as_ref().map(Ring::counts).unwrap_or_default()
    }

    /// Ends all that kernels wait for with "aborted", also what they will ask for.
    pub fn abort(&self) {
        if let Some(ring) = &self.ring {
            ring.abort();
        }
    }

    /// How a view of a column family is made.
    pub fn builder(database: Arc<dyn Database>, family: &str) -> Builder {
        Builder::new(database, family)
    }

    /// The sequence number: the view has what was written up to it.
    pub fn sequence(&self) -> u64 {
        self.family.sequence()
    }

    /// What is in device memory.
    pub fn contents(&self) -> TableContents {
        self.table.contents()
    }

    /// Ranges of keys that are not in device memory, and why.
    pub fn asked(&self) -> &[Asked] {
        &self.asked
    }

    /// Looks up keys that lie in device memory, on the caller's stream. The host waits for nothing, allocates no memory and
    /// copies nothing, so the call may be captured into a graph. Keys may occur several times. Of each key, [`Rows`] has the
    /// value and a status.
    ///
    /// # Errors
    /// Device.
    pub fn lookup(&self, keys: &Keys, rows: &Rows, stream: CallerStream) -> Result<()> {
        self.table.look_up(keys, rows, stream)
    }

    /// Looks up keys that lie in host memory, and waits for their values. RocksDB's iterators answer for keys that the
    /// table does not tell, at the same version.
    ///
    /// # Errors
    /// Device; Declined if RocksDB has to be asked for a key, and the database was opened without its iterators; Storage if
    /// RocksDB cannot read it.
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

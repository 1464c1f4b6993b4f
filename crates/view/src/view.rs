//! A version of a column family in device memory.

use std::sync::Arc;

use rockmill_core::{CancelToken, KeyRange, Result};
use rockmill_cuda::{Answer, CallerStream, DeviceTable, Keys, Rows, TableContents};
use rockmill_scan::{Database, FamilyView};

use crate::builder::Builder;
use crate::foreseen::Asked;

/// A version of a column family in device memory: what a reader found when it was taken. It does not change.
#[derive(Debug)]
pub struct View {
    table: DeviceTable,
    family: Arc<FamilyView>,
    asked: Vec<Asked>,
}

impl View {
    pub(crate) fn new(table: DeviceTable, family: Arc<FamilyView>, asked: Vec<Asked>) -> Self {
        Self {
            table,
            family,
            asked,
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
            Answer::Ask => self.ask(key),
        };
        answers.map(value).collect()
    }

    /// The value that RocksDB's iterators find.
    fn ask(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let after = [key, &[0]].concat();
        let range = KeyRange {
            begin: Some(key.to_vec()),
            end: Some(after),
        };
        let mut found = None;
        (self.family).read_through_iterators(&range, &CancelToken::new(), &mut |_, value| {
            found = Some(value.to_vec());
            Ok(())
        })?;
        Ok(found)
    }
}

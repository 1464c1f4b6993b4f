//! The view of a reader of a database.

use rust_rocksdb::{ColumnFamily, DB, Snapshot};

use super::handle;
use crate::content::{self, Pairs};
use crate::workload::{Case, Family, SINGLE_DELETE_PREFIX};

/// A column family of one database at one snapshot, without keys whose SingleDelete contract the case broke.
pub struct View<'a> {
    db: &'a DB,
    cf: &'a ColumnFamily,
    snapshot: &'a Snapshot<'a>,
    hides_single_deletes: bool,
}

impl<'a> View<'a> {
    pub fn new(db: &'a DB, snapshot: &'a Snapshot<'a>, case: &Case, family: &Family) -> Self {
        Self {
            db,
            cf: handle(db, family),
            snapshot,
            hides_single_deletes: case.extras.breaks_single_delete,
        }
    }

    fn hides(&self, key: &[u8]) -> bool {
        self.hides_single_deletes && key.starts_with(SINGLE_DELETE_PREFIX)
    }

    pub fn forward(&self) -> Result<Pairs, String> {
        let mut options = content::read_everything();
        options.set_snapshot(self.snapshot);
        let pairs = content::scan_forward(self.db.raw_iterator_cf_opt(self.cf, options))?;
        Ok(pairs
            .into_iter()
            .filter(|(key, _)| !self.hides(key))
            .collect())
    }

    pub fn backward(&self) -> Result<Pairs, String> {
        let mut options = content::read_everything();
        options.set_snapshot(self.snapshot);
        let pairs = content::scan_backward(self.db.raw_iterator_cf_opt(self.cf, options))?;
        Ok(pairs
            .into_iter()
            .filter(|(key, _)| !self.hides(key))
            .collect())
    }

    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, String> {
        if self.hides(key) {
            return Ok(None);
        }
        self.snapshot
            .get_cf(self.cf, key)
            .map_err(|e| format!("get \"{}\": {e}", key.escape_ascii()))
    }
}

//! Compares one job by Rockmill with the same job by RocksDB.

use rust_rocksdb::DB;

use super::Pair;
use super::pick::Pick;
use crate::internal::{self, FileFacts};
use crate::workload::Family;

/// Results of measured steps on families with files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measures {
    /// Rockmill did the job, so the comparison is meaningful.
    pub done: u64,
    /// Jobs among them whose inputs have range tombstones.
    pub with_tombstones: u64,
    /// Rockmill declined the job because of its inputs.
    pub declined: u64,
    /// RocksDB refused to compact these files.
    pub refused: u64,
}

impl Pair<'_> {
    /// Runs the same job in both databases, with Rockmill in one of them, under these snapshots. Compares their entries and
    /// range tombstones.
    pub(super) fn measure(
        &self,
        family: &Family,
        roll: u64,
        snapshots: &[u64],
    ) -> Result<(), String> {
        compare_trees(&self.rocksdb, &self.rockmill, family)?;
        let Some(theirs) = Pick::roll(&self.rocksdb, family, roll)? else {
            return Ok(());
        };
        let ours = Pick::roll(&self.rockmill, family, roll)?.expect("the trees are equal");
        let has_tombstones = self.has_tombstones(family, &ours)?;
        let before = self.service.stats();
        self.switch.set(true);
        let compacted = [
            theirs.compact(&self.rocksdb, family),
            ours.compact(&self.rockmill, family),
        ];
        self.switch.set(false);
        let after = self.service.stats();
        let mut measures = self.measures.get();
        match compacted {
            [Ok(true), Ok(true)] => {
                let done = after.jobs_done > before.jobs_done;
                measures.done += u64::from(done);
                measures.with_tombstones += u64::from(done && has_tombstones);
                measures.declined += u64::from(!done);
                self.check_declines(&before, &after)?;
            }
            [Ok(false), Ok(false)] => measures.refused += 1,
            [theirs, ours] => return Err(format!("RocksDB {theirs:?}, Rockmill {ours:?}")),
        }
        self.measures.set(measures);
        let all = self.compares_single_deletes(snapshots.is_empty());
        for level in 0..family.tree.levels {
            let place = |e: String| format!("family {} level {level}: {e}", family.name);
            let theirs = internal::entries(&self.rocksdb, &family.name, Some(level), all)?;
            let ours = internal::entries(&self.rockmill, &family.name, Some(level), all)?;
            internal::compare(&theirs, &ours).map_err(place)?;
            self.compare_tombstones(family, level, snapshots)
                .map_err(place)?;
        }
        Ok(())
    }

    fn compare_tombstones(
        &self,
        family: &Family,
        level: i32,
        snapshots: &[u64],
    ) -> Result<(), String> {
        let of = |db| internal::clipped_tombstones(db, &family.name, family.order, level);
        let (theirs, ours) = (of(&self.rocksdb)?, of(&self.rockmill)?);
        let files = internal::files(&self.rocksdb, &family.name)?;
        let absent = |key: &[u8]| {
            let deeper = files.iter().filter(|(file, _)| file.level > level);
            let is_before = |a: &[u8], b: &[u8]| family.order.is_before(a, b);
            let mut holding =
                deeper.filter(|(f, _)| !is_before(key, &f.start) && !is_before(&f.end, key));
            holding.next().is_none()
        };
        let both = [&theirs, &ours].map(Vec::as_slice);
        internal::compare_tombstones(both, family.order, snapshots, &family.keys, absent)
    }

    fn has_tombstones(&self, family: &Family, pick: &Pick) -> Result<bool, String> {
        for (_, name) in internal::files(&self.rockmill, &family.name)? {
            if pick.takes(&name) && internal::has_range_tombstones(&self.rockmill, &name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Checks that a job was done, or declined for reasons that the case allows.
    fn check_declines(
        &self,
        before: &rockmill::Stats,
        after: &rockmill::Stats,
    ) -> Result<(), String> {
        let count = |stats: &rockmill::Stats, reason: &str| {
            *stats.jobs_declined_by_reason.get(reason).unwrap_or(&0)
        };
        let reasons = after.jobs_declined_by_reason.keys();
        let declined: Vec<&String> = reasons
            .filter(|reason| count(after, reason) > count(before, reason))
            .collect();
        let may = self.case.may_be_declined_for();
        let is_right = match declined.is_empty() {
            true => after.jobs_done > before.jobs_done,
            false => declined.iter().all(|reason| may.contains(&reason.as_str())),
        };
        match is_right {
            true => Ok(()),
            false => Err(format!(
                "declined for {declined:?}, where the case allows {may:?}: {after}"
            )),
        }
    }
}

/// Asserts that both databases have the same files in a family, apart from names.
fn compare_trees(rocksdb: &DB, rockmill: &DB, family: &Family) -> Result<(), String> {
    let facts = |db| -> Result<Vec<FileFacts>, String> {
        Ok(internal::files(db, &family.name)?
            .into_iter()
            .map(|(facts, _)| facts)
            .collect())
    };
    if facts(rocksdb)? == facts(rockmill)? {
        Ok(())
    } else {
        Err(format!(
            "family {}: the trees differ before Rockmill did anything",
            family.name
        ))
    }
}

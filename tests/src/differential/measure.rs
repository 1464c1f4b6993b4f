//! Compares one job by Rockmill with the same job by RocksDB.

use std::collections::BTreeSet;

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
    /// Rockmill declined the job because of its inputs.
    pub declined: u64,
    /// RocksDB refused to compact these files.
    pub refused: u64,
}

impl Pair<'_> {
    /// Runs the same job in both databases, with Rockmill in one of them, and compares their entries.
    pub(super) fn measure(
        &self,
        family: &Family,
        roll: u64,
        no_snapshots: bool,
    ) -> Result<(), String> {
        compare_trees(&self.rocksdb, &self.rockmill, family)?;
        let Some(theirs) = Pick::roll(&self.rocksdb, family, roll)? else {
            return Ok(());
        };
        let ours = Pick::roll(&self.rockmill, family, roll)?.expect("the trees are equal");
        let must = self.reasons(family, |name| ours.takes(name))?;
        let mut may = self.reasons(family, |_| true)?;
        // These reasons are not in the properties.
        let others = self.case.may_be_declined_for().into_iter();
        may.extend(others.filter(|reason| !internal::IN_PROPERTIES.contains(reason)));
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
                measures.declined += u64::from(!done);
                check_declines(&before, &after, &must, &may)?;
            }
            [Ok(false), Ok(false)] => measures.refused += 1,
            [theirs, ours] => return Err(format!("RocksDB {theirs:?}, Rockmill {ours:?}")),
        }
        self.measures.set(measures);
        let all = self.compares_single_deletes(no_snapshots);
        for level in 0..family.tree.levels {
            let theirs = internal::entries(&self.rocksdb, &family.name, Some(level), all)?;
            let ours = internal::entries(&self.rockmill, &family.name, Some(level), all)?;
            internal::compare(&theirs, &ours)
                .map_err(|e| format!("family {} level {level}: {e}", family.name))?;
        }
        Ok(())
    }

    /// Returns the decline reasons in the family's files with these names.
    fn reasons(
        &self,
        family: &Family,
        is_input: impl Fn(&str) -> bool,
    ) -> Result<BTreeSet<&'static str>, String> {
        let mut reasons = BTreeSet::new();
        for (_, name) in internal::files(&self.rockmill, &family.name)? {
            if is_input(&name) {
                reasons.extend(internal::reasons_to_decline(&self.rockmill, &name)?);
            }
        }
        Ok(reasons)
    }
}

/// Checks that a job was declined if one of its inputs requires it, and for no reason that is in none of its files.
/// RocksDB may add files of the family that overlap the named ones.
fn check_declines(
    before: &rockmill::Stats,
    after: &rockmill::Stats,
    must: &BTreeSet<&'static str>,
    may: &BTreeSet<&'static str>,
) -> Result<(), String> {
    let count = |stats: &rockmill::Stats, reason: &str| {
        *stats.jobs_declined_by_reason.get(reason).unwrap_or(&0)
    };
    let declined: Vec<&String> = after
        .jobs_declined_by_reason
        .keys()
        .filter(|reason| count(after, reason) > count(before, reason))
        .collect();
    let is_right = if declined.is_empty() {
        must.is_empty() && after.jobs_done > before.jobs_done
    } else {
        declined.iter().all(|reason| may.contains(reason.as_str()))
            && (must.is_empty() || after.jobs_done == before.jobs_done)
    };
    if is_right {
        Ok(())
    } else {
        Err(format!(
            "declined for {declined:?}, where inputs call for {must:?} and files for {may:?}: {after}"
        ))
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

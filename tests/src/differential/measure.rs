//! Compares one job by Rockmill with the same job by RocksDB.

use std::collections::BTreeMap;

use rockmill_format::key::KeyOrder;
use rust_rocksdb::{DB, DBCompressionType};

use super::Pair;
use super::pick::Pick;
use crate::device::Subcompactions;
use crate::internal::{self, FileFacts, LevelFile};
use crate::table::Index;
use crate::workload::{Family, SINGLE_DELETE_PREFIX};

/// What a measured job may meet or write, and whether a GPU's kernels do such jobs.
pub const FEATURES: [(&str, bool); 13] = [
    ("any", true),
    ("range tombstones", true),
    ("merge operands", true),
    ("ingested files", true),
    ("snapshots", true),
    ("tombstones, operands and snapshots", true),
    ("deletion collector", true),
    ("partitioner", true),
    ("hash in data blocks", true),
    ("hash index", true),
    ("two-level index", false),
    ("dictionary", false),
    ("reverse order", false),
];

/// Results of measured steps on families with files.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// Jobs that Rockmill did with each of [`FEATURES`], so that the comparison is meaningful: on the CPU alone, and on
    /// a device.
    pub done: BTreeMap<&'static str, [u64; 2]>,
    /// Rockmill declined the job because of its inputs.
    pub declined: u64,
    /// RocksDB refused to compact these files.
    pub refused: u64,
}

impl Measures {
    /// Adds those of another case.
    pub fn add(&mut self, other: &Self) {
        for (feature, counts) in &other.done {
            let sums = self.done.entry(feature).or_default();
            (sums[0], sums[1]) = (sums[0] + counts[0], sums[1] + counts[1]);
        }
        self.declined += other.declined;
        self.refused += other.refused;
    }
}

impl Family {
    /// Whether a GPU's kernels write its files after [`Step::Reopen`](crate::workload::Step::Reopen), whatever their
    /// level.
    fn has_kernels(&self) -> bool {
        let table = &self.after;
        let compressions = [Some(table.compression), table.bottommost];
        self.order == KeyOrder::Bytewise
            && table.index != Index::TwoLevel
            && table.dictionary_bytes == 0
            && !compressions.contains(&Some(DBCompressionType::Zlib))
    }

    fn has_single_deletes(&self) -> bool {
        let mut keys = self.keys.iter();
        keys.any(|key| key.starts_with(SINGLE_DELETE_PREFIX))
    }
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
        let features = self.features(family, &ours, snapshots)?;
        let before = self.service.stats();
        self.switch.set(true);
        let compacted = [
            theirs.compact(&self.rocksdb, family),
            ours.compact(&self.rockmill, family),
        ];
        self.switch.set(false);
        let after = self.service.stats();
        let mut measures = self.measures.borrow_mut();
        match compacted {
            [Ok(true), Ok(true)] => {
                self.check_declines(&before, &after)?;
                if after.jobs_done == before.jobs_done {
                    measures.declined += 1;
                } else {
                    let counts = [&before, &after].map(Subcompactions::from);
                    let is_on_device = counts[0].cpu == counts[1].cpu;
                    // A device that refused three subcompactions in a row gets nothing for a minute, and a slow host
                    // may exceed a call's deadline.
                    let is_late = after.subcompactions_abandoned > before.subcompactions_abandoned;
                    let must = after.device_quarantined == 0
                        && !is_late
                        && self.is_for_kernels(family, &features, snapshots);
                    if must && !is_on_device {
                        return Err(format!("{} left a job to the CPU: {after}", self.device));
                    }
                    for feature in features {
                        measures.done.entry(feature).or_default()[usize::from(is_on_device)] += 1;
                    }
                }
            }
            [Ok(false), Ok(false)] => measures.refused += 1,
            [theirs, ours] => return Err(format!("RocksDB {theirs:?}, Rockmill {ours:?}")),
        }
        let all = self.compares_single_deletes(snapshots.is_empty());
        let are_files_comparable = all || !family.has_single_deletes();
        for level in 0..family.tree.levels {
            let place = |e: String| format!("family {} level {level}: {e}", family.name);
            let theirs = internal::entries(&self.rocksdb, &family.name, Some(level), all)?;
            let ours = internal::entries(&self.rockmill, &family.name, Some(level), all)?;
            internal::compare(&theirs, &ours).map_err(place)?;
            self.compare_tombstones(family, level, snapshots)
                .map_err(place)?;
            if are_files_comparable {
                self.compare_properties(family, level).map_err(place)?;
            }
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

    /// Compares what its entries determine of the files of a level: sums of properties, and of equal files which are marked
    /// for compaction. Tombstones are cut at other places, so their number and bytes may differ.
    fn compare_properties(&self, family: &Family, level: i32) -> Result<(), String> {
        let of = |db| internal::level_files(db, &family.name, level);
        let [theirs, ours] = [of(&self.rocksdb)?, of(&self.rockmill)?];
        let mut both = theirs.iter().chain(&ours);
        let have_tombstones = both.any(|file| file.properties.num_range_deletions > 0);
        let sums = |files: &[LevelFile]| {
            let mut sums = [0; 5];
            for LevelFile { properties, .. } in files {
                let cut = properties.num_range_deletions;
                let points = [properties.num_entries - cut, properties.num_deletions - cut];
                let bytes = match have_tombstones {
                    true => [0; 2],
                    false => [properties.raw_key_size, properties.raw_value_size],
                };
                let counts = points.into_iter().chain([properties.num_merge_operands]);
                let values = counts.chain(bytes);
                sums.iter_mut()
                    .zip(values)
                    .for_each(|(sum, value)| *sum += value);
            }
            sums
        };
        let (their_sums, our_sums) = (sums(&theirs), sums(&ours));
        if their_sums != our_sums {
            return Err(format!("properties {our_sums:?} instead of {their_sums:?}"));
        }
        let bounds = |file: &LevelFile| (file.bounds.clone(), file.properties.num_entries);
        let are_equal = theirs.iter().map(bounds).eq(ours.iter().map(bounds));
        let marks = [&theirs, &ours].map(|all| all.iter().map(|f| f.is_marked).collect::<Vec<_>>());
        match are_equal && marks[0] != marks[1] {
            true => Err(format!("files are marked for compaction: {marks:?}")),
            false => Ok(()),
        }
    }

    /// The features of a job on these files.
    fn features(
        &self,
        family: &Family,
        pick: &Pick,
        snapshots: &[u64],
    ) -> Result<Vec<&'static str>, String> {
        let (mut tombstones, mut operands, mut ingested) = (false, false, false);
        for (_, name) in internal::files(&self.rockmill, &family.name)? {
            if pick.takes(&name) {
                let properties = internal::properties_of(&self.rockmill, &name)?;
                tombstones |= properties.num_range_deletions > 0;
                operands |= properties.num_merge_operands > 0;
                ingested |= properties.external_sst_file_version.is_some();
            }
        }
        let (table, tree, sees) = (&family.after, &family.tree, !snapshots.is_empty());
        let has = [
            true,
            tombstones,
            operands,
            ingested,
            sees,
            tombstones && operands && sees,
            tree.compact_on_deletion.is_some(),
            tree.partition_bytes.is_some(),
            table.data_block_hash.is_some(),
            table.index == Index::Hash,
            table.index == Index::TwoLevel,
            table.dictionary_bytes > 0,
            family.order != KeyOrder::Bytewise,
        ];
        let met = FEATURES.iter().zip(has).filter(|(_, has)| *has);
        Ok(met.map(|((feature, _), _)| *feature).collect())
    }

    /// Whether the device has kernels of a GPU, which must do a job with these features (docs/guide/gpu.md has the others).
    fn is_for_kernels(&self, family: &Family, features: &[&str], snapshots: &[u64]) -> bool {
        let extras = self.case.extras;
        let mut devices = self.device.iter().map(|device| device.to_string());
        let merges_singly = features.contains(&"merge operands")
            && (family.has_single_deletes() || extras.entities || snapshots.contains(&0));
        devices.all(|device| device.starts_with("cuda"))
            && family.has_kernels()
            && !extras.changes_options
            && !extras.large
            && !merges_singly
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

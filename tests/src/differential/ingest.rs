//! Ingested files.

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rust_rocksdb::{Error, Options, SstFileWriter};

use super::{Pair, handle};
use crate::workload::{Family, SINGLE_DELETE_PREFIX};

const LONGEST_VALUE: usize = 200;

impl Pair<'_> {
    /// Ingests the file of `roll` into both databases.
    pub(super) fn ingest(&self, family: &Family, roll: u64) -> Result<(), String> {
        let path = self.directory.join("ingested.sst");
        let mut options = family.table(self.reopened).apply(Options::default());
        family.set_comparator(&mut options);
        let mut writer = SstFileWriter::create(&options);
        let mut write = || -> Result<(), Error> {
            writer.open(&path)?;
            fill(&mut writer, family, roll, self.case.extras.range_deletes)?;
            writer.finish()
        };
        write().map_err(|e| format!("write a file to ingest: {e}"))?;
        self.both(|db| db.ingest_external_file_cf(handle(db, family), vec![&path]))
    }
}

/// Writes Puts, Deletes and operands of at least one key, none of them single-deleted, and perhaps a range tombstone.
fn fill(
    writer: &mut SstFileWriter<'_>,
    family: &Family,
    roll: u64,
    deletes_ranges: bool,
) -> Result<(), Error> {
    let mut rng = StdRng::seed_from_u64(roll);
    let keys: Vec<_> = family
        .keys
        .iter()
        .filter(|key| !key.starts_with(SINGLE_DELETE_PREFIX))
        .collect();
    let start = rng.random_range(0..keys.len());
    let share = rng.random_range(0.02..1.0);
    for (index, key) in keys.iter().enumerate().skip(start) {
        if index > start && !rng.random_bool(share) {
            continue;
        }
        if rng.random_bool(0.2) {
            writer.delete(key)?;
        } else {
            let mut value = vec![0; rng.random_range(0..LONGEST_VALUE)];
            rng.fill_bytes(&mut value);
            let merges = family.merge_operator.is_some() && rng.random_bool(0.5);
            match merges {
                true => writer.merge(key, family.operand(value))?,
                false => writer.put(key, value)?,
            }
        }
    }
    let end = rng.random_range(start..keys.len());
    let (from, to) = (keys[start], keys[end]);
    let is_single = |key: &Vec<u8>| key.starts_with(SINGLE_DELETE_PREFIX);
    let covered = family.keys.iter().skip_while(|key| *key != from);
    let mut covered = covered.take_while(|key| *key != to);
    if deletes_ranges && start < end && !covered.any(is_single) {
        writer.delete_range(from, to)?;
    }
    Ok(())
}

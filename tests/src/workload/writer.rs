//! Draws the steps of a case.

use rand::rngs::StdRng;
use rand::{Rng, RngCore};

use super::draw::{Sizes, Value};
use super::{Change, Compaction, Extras, Family, SINGLE_DELETE_PREFIX, Step};

/// Maximum number of snapshots at once: each needs a full read of the database at each comparison.
const MAX_SNAPSHOTS: usize = 5;

/// Draws the steps of a case.
pub struct Writer<'a> {
    pub families: &'a [Family],
    /// Number of Puts since the last SingleDelete, for each single-deleted key.
    pub live: Vec<Vec<u32>>,
    pub rng: StdRng,
    /// Number of live snapshots.
    pub snapshots: usize,
    pub extras: Extras,
    /// Whether the two trees may differ already.
    pub has_parted: bool,
    pub steps: Vec<Step>,
}

impl Writer<'_> {
    pub fn script(&mut self, auto_compactions: bool) {
        if self.rng.random_bool(0.5) {
            let writes = self.rng.random_range(20..400);
            self.write(writes, !auto_compactions);
            self.flush_all();
            while self.snapshots > 0 {
                self.release();
            }
        }
        self.steps.push(Step::Reopen);
        if auto_compactions {
            self.steps.push(Step::Offload);
        }
        let writes = self.rng.random_range(50..1200);
        self.write(writes, !auto_compactions);
        self.flush_all();
        if !auto_compactions {
            for family in 0..self.families.len() {
                let roll = self.rng.next_u64();
                self.steps.push(Step::Measure(family, roll));
            }
            self.steps.push(Step::Offload);
            self.has_parted = true;
        }
        if self.extras.ages {
            self.steps.push(Step::Age);
        }
        let writes = self.rng.random_range(0..400);
        self.write(writes, true);
        self.flush_all();
    }

    fn write(&mut self, steps: usize, compact: bool) {
        for _ in 0..steps {
            self.write_extra();
            match self.rng.random_range(0..1000) {
                0..940 => self.write_key(),
                940..965 => self.snapshot(),
                965..980 => self.release(),
                980..995 => {
                    let family = self.rng.random_range(0..self.families.len());
                    self.steps.push(Step::Flush(family));
                }
                _ if compact => self.compact(),
                _ => {}
            }
        }
    }

    fn write_extra(&mut self) {
        let family = self.rng.random_range(0..self.families.len());
        if self.extras.range_deletes && self.rng.random_bool(0.02) {
            self.delete_range(family);
        }
        if self.extras.ingests && self.rng.random_bool(0.01) {
            self.steps.push(Step::Ingest {
                family,
                roll: self.rng.next_u64(),
                holds_snapshot: self.has_parted,
            });
        }
        if self.extras.changes_options && self.rng.random_bool(0.02) {
            let change = Change::random(&mut self.rng);
            self.steps.push(Step::SetOptions(family, change));
        }
    }

    /// Omits single-deleted keys: RocksDB does not define the combination.
    fn delete_range(&mut self, family: usize) {
        let keys = &self.families[family].keys;
        let start = self.rng.random_range(0..keys.len());
        // The widest range: one key, some, or most.
        let widest = match self.rng.random_range(0..4) {
            0 => 1,
            1 => keys.len(),
            _ => keys.len().div_ceil(4),
        };
        let end = start + self.rng.random_range(1..=widest);
        let covered = keys.get(start..end).unwrap_or_default();
        let is_single = |key: &Vec<u8>| key.starts_with(SINGLE_DELETE_PREFIX);
        if end < keys.len() && !covered.iter().any(is_single) {
            self.steps.push(Step::DeleteRange(family, start, end));
        }
    }

    fn value(&mut self) -> Value {
        Value::random(&mut self.rng, Sizes::of(self.extras))
    }

    fn write_key(&mut self) {
        let family = self.rng.random_range(0..self.families.len());
        let keys = &self.families[family].keys;
        let key = self.rng.random_range(0..keys.len());
        if keys[key].starts_with(SINGLE_DELETE_PREFIX) {
            self.write_single(family, key);
        } else if self.rng.random_bool(0.75) {
            let value = self.value();
            let merges = self.extras.merges && self.rng.random_bool(0.4);
            if merges {
                self.steps.push(Step::Merge(family, key, value));
                return;
            }
            let is_entity = self.extras.entities && self.rng.random_bool(0.2);
            self.steps.push(match is_entity {
                true => Step::PutEntity(family, key, value),
                false => Step::Put(family, key, value),
            });
        } else {
            self.steps.push(Step::Delete(family, key));
        }
    }

    /// Keeps SingleDelete's contract (at most one Put since the last one), unless the case breaks it.
    fn write_single(&mut self, family: usize, key: usize) {
        let puts = &mut self.live[family][key];
        let put_again = self.extras.breaks_single_delete && *puts == 1 && self.rng.random_bool(0.5);
        if *puts == 0 || put_again {
            *puts += 1;
            let value = self.value();
            self.steps.push(Step::Put(family, key, value));
        } else {
            *puts = 0;
            self.steps.push(Step::SingleDelete(family, key));
        }
    }

    fn snapshot(&mut self) {
        if self.snapshots < MAX_SNAPSHOTS {
            self.snapshots += 1;
            self.steps.push(Step::Snapshot);
        }
    }

    fn release(&mut self) {
        if self.snapshots > 0 {
            let position = self.rng.random_range(0..self.snapshots);
            self.snapshots -= 1;
            self.steps.push(Step::Release(position));
        }
    }

    fn compact(&mut self) {
        let family = self.rng.random_range(0..self.families.len());
        let keys = self.families[family].keys.len();
        let how = match self.rng.random_range(0..6) {
            0 => Compaction::Full,
            1 => {
                let (a, b) = (
                    self.rng.random_range(0..keys),
                    self.rng.random_range(0..keys),
                );
                Compaction::Range(a.min(b), a.max(b))
            }
            _ => Compaction::Files(self.rng.next_u64()),
        };
        self.steps.push(Step::Flush(family));
        self.steps.push(Step::Compact(family, how));
    }

    fn flush_all(&mut self) {
        self.steps.extend((0..self.families.len()).map(Step::Flush));
    }
}

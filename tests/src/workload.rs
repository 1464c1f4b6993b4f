//! Cases: a database's shape and what is done to it, made from one seed.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

use crate::table::TableShape;
use crate::tree::TreeShape;

/// Keys that begin so are deleted with SingleDelete only; no other key begins so.
pub const SINGLE_DELETE_PREFIX: &[u8] = b"single/";

const MOST_FAMILIES: usize = 4;
const MOST_SUBCOMPACTIONS: u32 = 4;
/// The longest key of a case, bytes.
const LONGEST_KEY: usize = 2 << 10;
/// The longest value of a case, bytes.
const LONGEST_VALUE: usize = 1 << 20;
/// Snapshots held at once: each costs a full read of the database after each comparison.
const MOST_SNAPSHOTS: usize = 5;

/// A value, by recipe: a case of many large values stays small.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    seed: u64,
    length: usize,
    compressible: bool,
}

impl Value {
    /// The value's bytes.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        let mut rng = StdRng::seed_from_u64(self.seed);
        rng.fill_bytes(&mut bytes);
        if self.compressible {
            for byte in &mut bytes {
                *byte = b'a' + *byte % 3;
            }
        }
        bytes
    }

    fn random(rng: &mut StdRng) -> Self {
        let length = match rng.random_range(0..1000) {
            0..100 => 0,
            100..800 => rng.random_range(1..64),
            800..980 => rng.random_range(64..1024),
            980..999 => rng.random_range(1024..32 << 10),
            _ => rng.random_range(32 << 10..=LONGEST_VALUE),
        };
        Self {
            seed: rng.next_u64(),
            length,
            compressible: rng.random_bool(0.6),
        }
    }
}

/// A manual compaction that is the same work on two equal trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// `CompactRange` over everything, the bottommost level included.
    Full,
    /// `CompactRange` between two keys of the family's pool.
    Range(usize, usize),
    /// `CompactFiles` of files chosen by this roll.
    Files(u64),
}

/// One thing done to both databases. Families are indices into [`Case::families`], keys indices
/// into [`Family::keys`].
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Put a value.
    Put(usize, usize, Value),
    /// Delete a key.
    Delete(usize, usize),
    /// SingleDelete a key, which begins with [`SINGLE_DELETE_PREFIX`].
    SingleDelete(usize, usize),
    /// Take a snapshot.
    Snapshot,
    /// Release the live snapshot at this position.
    Release(usize),
    /// Flush a family's memtable.
    Flush(usize),
    /// Compact a family, without Rockmill until [`Step::Offload`].
    Compact(usize, Compaction),
    /// Close both databases and open them with the second table shape. No snapshot is live.
    Reopen,
    /// One `CompactFiles` of a family whose trees are still equal, with Rockmill, compared entry by
    /// entry. The roll chooses the files.
    Measure(usize, u64),
    /// Hand all further compactions to Rockmill.
    Offload,
}

/// A column family.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// Its tree.
    pub tree: TreeShape,
    /// Its files before [`Step::Reopen`]: any shape.
    pub before: TableShape,
    /// Its files afterwards: a shape that Rockmill takes.
    pub after: TableShape,
    /// Every key that a step may name.
    pub keys: Vec<Vec<u8>>,
}

/// A whole case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed it was made from.
    pub seed: u64,
    /// RocksDB picks compactions by itself, all of them Rockmill's. Then only reads and the final
    /// state are compared, since the picks depend on timing.
    pub auto_compactions: bool,
    /// `max_subcompactions`.
    pub subcompactions: u32,
    /// Some single-deleted keys were put twice, which leaves their reads undefined.
    pub breaks_single_delete: bool,
    /// One to four column families.
    pub families: Vec<Family>,
    /// What is done.
    pub steps: Vec<Step>,
}

impl Case {
    /// The case of `seed`. `breaks_single_delete` also makes Put, Put, SingleDelete sequences, whose
    /// outcome RocksDB leaves open.
    #[must_use]
    pub fn new(seed: u64, breaks_single_delete: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let families: Vec<Family> = (0..rng.random_range(1..=MOST_FAMILIES))
            .map(|index| Family::random(&mut rng, index))
            .collect();
        let auto_compactions = rng.random_bool(0.2);
        let subcompactions = rng.random_range(1..=MOST_SUBCOMPACTIONS);
        let mut writer = Writer {
            live: families.iter().map(|f| vec![0; f.keys.len()]).collect(),
            families: &families,
            rng,
            snapshots: 0,
            breaks_single_delete,
            steps: Vec::new(),
        };
        writer.script(auto_compactions);
        Self {
            seed,
            auto_compactions,
            subcompactions,
            breaks_single_delete,
            steps: writer.steps,
            families,
        }
    }
}

impl Family {
    fn random(rng: &mut StdRng, index: usize) -> Self {
        let pool = *[8, 40, 200, 600].choose(rng).expect("not empty");
        let mut keys: Vec<Vec<u8>> = (0..pool).map(|n| random_key(rng, n)).collect();
        let singles = rng.random_range(0..=pool / 4);
        keys.extend((0..singles).map(|n| [SINGLE_DELETE_PREFIX, &random_key(rng, n)].concat()));
        keys.sort();
        keys.dedup();
        Self {
            name: if index == 0 {
                rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME.to_owned()
            } else {
                format!("family {index}")
            },
            tree: TreeShape::random(rng),
            before: TableShape::any(rng),
            after: TableShape::supported(rng),
            keys,
        }
    }
}

/// A key of one of the kinds that encoders get wrong: empty, sharing a long prefix, made of 0x00 and
/// 0xff, a prefix of others, long.
fn random_key(rng: &mut StdRng, number: usize) -> Vec<u8> {
    let mut key = match rng.random_range(0..20) {
        0 => Vec::new(),
        1..9 => format!("key{number:06}").into_bytes(),
        9..12 => [vec![b'p'; rng.random_range(1..100)], vec![number as u8]].concat(),
        12..15 => (0..rng.random_range(1..6))
            .map(|_| *[0x00, 0xff].choose(rng).expect("not empty"))
            .collect(),
        15..18 => (0..rng.random_range(1..20)).map(|_| rng.random()).collect(),
        18 => vec![b'k'; rng.random_range(1..9)],
        _ => (0..rng.random_range(1..=LONGEST_KEY - SINGLE_DELETE_PREFIX.len()))
            .map(|_| rng.random())
            .collect(),
    };
    if key.starts_with(SINGLE_DELETE_PREFIX) {
        key[0] = b'S';
    }
    key
}

struct Writer<'a> {
    families: &'a [Family],
    /// For each single-deleted key: the Puts since its last SingleDelete.
    live: Vec<Vec<u32>>,
    rng: StdRng,
    snapshots: usize,
    breaks_single_delete: bool,
    steps: Vec<Step>,
}

impl Writer<'_> {
    fn script(&mut self, auto_compactions: bool) {
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
        }
        let writes = self.rng.random_range(0..400);
        self.write(writes, true);
        self.flush_all();
    }

    fn write(&mut self, steps: usize, compact: bool) {
        for _ in 0..steps {
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

    fn write_key(&mut self) {
        let family = self.rng.random_range(0..self.families.len());
        let keys = &self.families[family].keys;
        let key = self.rng.random_range(0..keys.len());
        if keys[key].starts_with(SINGLE_DELETE_PREFIX) {
            self.write_single(family, key);
        } else if self.rng.random_bool(0.75) {
            let value = Value::random(&mut self.rng);
            self.steps.push(Step::Put(family, key, value));
        } else {
            self.steps.push(Step::Delete(family, key));
        }
    }

    /// Keeps SingleDelete's contract (at most one Put since the last one), unless told to break it.
    fn write_single(&mut self, family: usize, key: usize) {
        let puts = &mut self.live[family][key];
        let put_again = self.breaks_single_delete && *puts == 1 && self.rng.random_bool(0.5);
        if *puts == 0 || put_again {
            *puts += 1;
            let value = Value::random(&mut self.rng);
            self.steps.push(Step::Put(family, key, value));
        } else {
            *puts = 0;
            self.steps.push(Step::SingleDelete(family, key));
        }
    }

    fn snapshot(&mut self) {
        if self.snapshots < MOST_SNAPSHOTS {
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

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 40;

    /// Replays the steps and returns the most Puts of a single-deleted key between SingleDeletes.
    fn most_puts(case: &Case) -> u32 {
        let mut puts: Vec<Vec<u32>> = case
            .families
            .iter()
            .map(|f| vec![0; f.keys.len()])
            .collect();
        let mut most = 0;
        for step in &case.steps {
            match *step {
                Step::Put(family, key, _)
                    if case.families[family].keys[key].starts_with(SINGLE_DELETE_PREFIX) =>
                {
                    puts[family][key] += 1;
                    most = most.max(puts[family][key]);
                }
                Step::SingleDelete(family, key) => puts[family][key] = 0,
                Step::Delete(family, key) => {
                    assert!(!case.families[family].keys[key].starts_with(SINGLE_DELETE_PREFIX));
                }
                _ => {}
            }
        }
        most
    }

    #[test]
    fn single_delete_keeps_its_contract_unless_told_otherwise() {
        assert!((0..SEEDS).all(|seed| most_puts(&Case::new(seed, false)) <= 1));
        assert!((0..SEEDS).any(|seed| most_puts(&Case::new(seed, true)) > 1));
    }

    #[test]
    fn a_seed_always_makes_the_same_case() {
        let text = |seed| format!("{:?}", Case::new(seed, false));
        assert_eq!(text(3), text(3));
        assert_ne!(text(3), text(4));
    }

    #[test]
    fn the_empty_key_and_keys_of_zeros_and_long_keys_occur() {
        let cases: Vec<Case> = (0..SEEDS).map(|seed| Case::new(seed, false)).collect();
        let any = |test: fn(&Vec<u8>) -> bool| {
            cases
                .iter()
                .flat_map(|c| &c.families)
                .any(|f| f.keys.iter().any(test))
        };
        assert!(any(Vec::is_empty));
        assert!(any(|key| key == &[0]));
        assert!(any(|key| key.len() > 1000));
    }
}

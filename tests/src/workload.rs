//! Cases: a database's shape and the steps on it, made from one seed.

mod change;
mod draw;
mod writer;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rockmill_format::key::KeyOrder;

use crate::reasons::{
    COMPRESSION_DICTIONARY, FILTER_POLICY, MEMORY_BUDGET, MERGE_OPERANDS, RANGE_TOMBSTONES,
    SINGLE_DELETE_CONTRACT,
};
use crate::table::{Filter, TableShape};
use crate::tree::TreeShape;
pub use change::Change;
pub use draw::Value;
pub(crate) use draw::{Sizes, random_key};
use writer::Writer;

/// The `ttl` of a case whose files age.
pub const TTL_SECONDS: u64 = 1;
/// Prefix of all keys that are deleted only with SingleDelete; no other key has it.
pub const SINGLE_DELETE_PREFIX: &[u8] = b"single/";

const MAX_FAMILIES: usize = 4;
const MAX_SUBCOMPACTIONS: u32 = 4;
/// Size in bytes of the blocks of a large case.
const LARGE_BLOCK: usize = 1 << 20;

/// A manual compaction that does the same work on two equal trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// `CompactRange` over everything, the bottommost level included.
    Full,
    /// `CompactRange` between two keys of the family's pool.
    Range(usize, usize),
    /// `CompactFiles` of files chosen by this roll.
    Files(u64),
}

/// One step on both databases. Families are indices into [`Case::families`], keys indices into [`Family::keys`].
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Put a value.
    Put(usize, usize, Value),
    /// Put a value as the default column of a wide-column entity.
    PutEntity(usize, usize, Value),
    /// Merge an operand into a key of a family with an operator.
    Merge(usize, usize, Value),
    /// Delete a key.
    Delete(usize, usize),
    /// SingleDelete a key, which begins with [`SINGLE_DELETE_PREFIX`].
    SingleDelete(usize, usize),
    /// Delete the keys from the first up to but excluding the second.
    DeleteRange(usize, usize, usize),
    /// Ingest a file with keys of the family that the roll chooses.
    Ingest {
        /// The family.
        family: usize,
        /// Chooses the keys and their values.
        roll: u64,
        /// Whether a snapshot is held meanwhile. Then the file always gets a sequence number, which unequal trees
        /// require.
        holds_snapshot: bool,
    },
    /// Change options of a family while jobs run.
    SetOptions(usize, Change),
    /// Wait until files are older than [`TTL_SECONDS`].
    Age,
    /// Take a snapshot.
    Snapshot,
    /// Release the live snapshot at this position.
    Release(usize),
    /// Flush a family's memtable.
    Flush(usize),
    /// Compact a family, without Rockmill until [`Step::Offload`].
    Compact(usize, Compaction),
    /// Close both databases and open them with the second shape. No snapshot is live.
    Reopen,
    /// One `CompactFiles` of a family whose trees are still equal, with Rockmill, compared entry by entry. The roll
    /// chooses the files.
    Measure(usize, u64),
    /// Offer all further compactions to Rockmill.
    Offload,
}

/// A column family.
#[derive(Clone, Debug)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// Its tree.
    pub tree: TreeShape,
    /// Whether it has the other compaction style after [`Step::Reopen`].
    pub changes_style: bool,
    /// Its files before [`Step::Reopen`]: any shape.
    pub before: TableShape,
    /// Its files afterwards: a shape that Rockmill supports.
    pub after: TableShape,
    /// The order of its keys.
    pub order: KeyOrder,
    /// Every key that a step may name, in that order.
    pub keys: Vec<Vec<u8>>,
    /// Its merge operator, `NAME[:OPTIONS]`.
    pub merge_operator: Option<&'static str>,
}

/// RocksDB's merge operators that Rockmill has.
const MERGE_OPERATORS: [&str; 11] = [
    "uint64add",
    "UInt64AddOperator",
    "put",
    "max",
    "bytesxor",
    "stringappend",
    "stringappend:delimiter=||",
    "stringappend:delimiter={, }",
    "stringappend:delimiter={ }",
    "stringappend:delimiter={}",
    "stringappendtest",
];

/// Features of only some cases.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Some single-deleted keys were put twice, which leaves their reads undefined.
    pub breaks_single_delete: bool,
    /// Ranges of keys are deleted.
    pub range_deletes: bool,
    /// Files are ingested.
    pub ingests: bool,
    /// Some values are wide-column entities.
    pub entities: bool,
    /// Families have merge operators, and operands are merged.
    pub merges: bool,
    /// Options change beside running jobs.
    pub changes_options: bool,
    /// Files become older than [`TTL_SECONDS`]. This affects only automatic compactions.
    pub ages: bool,
    /// Keys up to 100 KB, values up to 8 MiB, blocks of 1 MiB.
    pub large: bool,
}

impl Extras {
    fn random(rng: &mut StdRng, breaks_single_delete: bool, auto_compactions: bool) -> Self {
        let has_all = rng.random_bool(0.1);
        Self {
            breaks_single_delete,
            range_deletes: has_all || rng.random_bool(0.35),
            ingests: has_all || rng.random_bool(0.2),
            entities: !has_all && rng.random_bool(0.2),
            merges: has_all || rng.random_bool(0.3),
            changes_options: rng.random_bool(if auto_compactions { 0.5 } else { 0.1 }),
            ages: auto_compactions && rng.random_bool(0.1),
            large: rng.random_bool(0.05),
        }
    }
}

/// A whole case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The seed it was made from.
    pub seed: u64,
    /// Whether RocksDB picks compactions automatically and offers all of them to Rockmill. Then only reads and the
    /// final state are compared, because the picks depend on timing.
    pub auto_compactions: bool,
    /// `max_subcompactions`.
    pub subcompactions: u32,
    /// Features of only some cases.
    pub extras: Extras,
    /// Filter bits passed to the service. OPTIONS files do not contain them, and not all inputs show them.
    pub filter_bits_per_key: Option<f64>,
    /// One to four column families.
    pub families: Vec<Family>,
    /// Steps in order.
    pub steps: Vec<Step>,
}

impl Case {
    /// Creates the case of `seed`. `breaks_single_delete` adds Put, Put, SingleDelete sequences, whose result is
    /// undefined in RocksDB.
    #[must_use]
    pub fn new(seed: u64, breaks_single_delete: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let auto_compactions = rng.random_bool(0.2);
        let extras = Extras::random(&mut rng, breaks_single_delete, auto_compactions);
        let filter_bits_per_key = rng.random_range(1.0..20.0);
        let tells_filter_bits = rng.random_bool(0.8);
        let mut families: Vec<Family> = (0..rng.random_range(1..=MAX_FAMILIES))
            .map(|index| Family::random(&mut rng, index, extras))
            .collect();
        for family in &mut families {
            family.before.filter = family.before.filter.with_bits(filter_bits_per_key);
            family.after.filter = family.after.filter.with_bits(filter_bits_per_key);
        }
        let subcompactions = rng.random_range(1..=MAX_SUBCOMPACTIONS);
        let mut writer = Writer {
            live: families.iter().map(|f| vec![0; f.keys.len()]).collect(),
            families: &families,
            rng,
            snapshots: 0,
            extras,
            has_parted: auto_compactions,
            steps: Vec::new(),
        };
        writer.script(auto_compactions);
        Self {
            seed,
            auto_compactions,
            subcompactions,
            extras,
            filter_bits_per_key: tells_filter_bits.then_some(filter_bits_per_key),
            steps: writer.steps,
            families,
        }
    }

    /// Returns the reasons for which Rockmill may decline jobs of the case. Any other reason is a failure.
    #[must_use]
    pub fn may_be_declined_for(&self) -> Vec<&'static str> {
        let extras = self.extras;
        // A change to LZ4HC.
        let has_dictionary = self.families.iter().any(|f| f.after.dictionary_bytes > 0);
        let has_filter = self.families.iter().any(|f| f.after.filter != Filter::None);
        [
            (extras.breaks_single_delete, SINGLE_DELETE_CONTRACT),
            (extras.range_deletes, RANGE_TOMBSTONES),
            (extras.merges && extras.entities, MERGE_OPERANDS),
            (extras.merges && extras.large, MEMORY_BUDGET),
            (
                extras.changes_options && has_dictionary,
                COMPRESSION_DICTIONARY,
            ),
            (
                has_filter && self.filter_bits_per_key.is_none(),
                FILTER_POLICY,
            ),
        ]
        .into_iter()
        .filter_map(|(may_be, reason)| may_be.then_some(reason))
        .collect()
    }
}

impl Family {
    /// Makes an operand of a value. For numbers, some have other lengths and count as 0.
    pub fn operand(&self, mut value: Vec<u8>) -> Vec<u8> {
        let mut operator = self.merge_operator.iter();
        if operator.any(|name| name.to_lowercase().contains("uint64")) {
            value.resize(if value.len() % 7 == 6 { 5 } else { 8 }, 1);
        }
        value
    }

    fn random(rng: &mut StdRng, index: usize, extras: Extras) -> Self {
        let sizes = Sizes::of(extras);
        let pool = *[8, 40, 200, 600].choose(rng).expect("not empty");
        let mut keys: Vec<Vec<u8>> = (0..pool).map(|n| random_key(rng, sizes, n)).collect();
        // A GPU's kernels merge no operands beside SingleDeletes.
        let singles = match extras.merges && rng.random_bool(0.5) {
            true => 0,
            false => rng.random_range(0..=pool / 4),
        };
        keys.extend(
            (0..singles).map(|n| [SINGLE_DELETE_PREFIX, &random_key(rng, sizes, n)].concat()),
        );
        let order = match rng.random_bool(0.3) {
            true => KeyOrder::ReverseBytewise,
            false => KeyOrder::Bytewise,
        };
        keys.sort_by(|a, b| order.compare(a, b));
        keys.dedup();
        let (mut before, mut after) = (TableShape::any(rng), TableShape::supported(rng));
        after.with_late_features(rng);
        let merge_operator = extras
            .merges
            .then(|| *MERGE_OPERATORS.choose(rng).expect("not empty"));
        if extras.large {
            (before.block_size, after.block_size) = (LARGE_BLOCK, LARGE_BLOCK);
        }
        Self {
            name: if index == 0 {
                rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME.to_owned()
            } else {
                format!("family {index}")
            },
            tree: TreeShape::random(rng),
            changes_style: rng.random_bool(0.15),
            before,
            after,
            order,
            keys,
            merge_operator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: u64 = 40;

    /// Replays the steps and returns the highest number of Puts of a single-deleted key between SingleDeletes.
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

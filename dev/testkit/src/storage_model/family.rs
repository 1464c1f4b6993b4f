//! A column family with one pending compaction.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_core::{Identity, Job, JobInfo, KeyRange, MergeOperators, Plan};
use rockmill_format::index::IndexShortening;
use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::RangeTombstone;
use rockmill_format::wire::CompactionServiceInput;

use super::database::{DB_ID, DIR, MANIFEST_NUMBER, OPTIONS_NUMBER};
use crate::cases::tables::{self, DELETE, Entry, MERGE, PUT};

const FIRST_INPUT: u64 = 11;
pub const LAST_LEVEL: u32 = 6;
/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;
/// Block size of input files.
const BLOCK_BYTES: u64 = 512;
/// Time of the oldest input data; only the files themselves contain it.
pub const OLDEST_ANCESTOR_TIME: u64 = 1_600_000_000;

/// The merge operator of all column families in OPTIONS, and its separator of operands.
pub(super) const MERGE_OPERATOR: &str = "{id=StringAppendOperator;delimiter=+;}";
const DELIMITER: u8 = b'+';

/// Returns the operator as a user states it.
pub fn merge_operators() -> MergeOperators {
    let stated = "stringappend:delimiter=+".parse();
    MergeOperators::of([&stated.expect("RocksDB has it")]).expect("there is one")
}

/// Parameters for drawing a column family.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Number of keys; each file has only some of them.
    pub keys: Range<u32>,
    /// Number of input files of a compaction from level 0.
    pub files: RangeInclusive<u64>,
    /// Level from which its compaction starts.
    pub start_level: u32,
    /// Whether some families have values larger than a block.
    pub may_have_large_values: bool,
    /// Target size of output files.
    pub target_bytes: Range<u64>,
    /// Target size of output blocks.
    pub block_bytes: u64,
    /// Name and order of the comparator.
    pub comparator: (&'static str, KeyOrder),
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            keys: 2..250,
            files: 1..=4,
            start_level: 0,
            may_have_large_values: true,
            target_bytes: 1024..8192,
            block_bytes: BLOCK_BYTES,
            comparator: ("leveldb.BytewiseComparator", KeyOrder::Bytewise),
        }
    }
}

/// A column family; its compaction takes all of its files to the last level.
#[derive(Debug)]
pub struct Family {
    pub id: u32,
    pub name: String,
    /// Level from which its compaction starts.
    pub start_level: u32,
    /// The `CompactionServiceInput`.
    pub message: Vec<u8>,
    /// Keys and values after its compaction.
    pub expected: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Bytes of the input files; the next field is their number.
    pub bytes: u64,
    pub files: u64,
    /// Entries in the input files, without range tombstones; the next fields are the bytes of their keys and values.
    pub entries: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
}

/// An input file with its record in the MANIFEST.
#[derive(Debug)]
pub struct Input {
    pub number: u64,
    pub level: u32,
    pub epoch: u8,
    pub sequences: (u64, u64),
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl Input {
    pub fn name(&self) -> String {
        format!("{:06}.sst", self.number)
    }
}

/// Sets what differs from run to run, so that a repeated job writes the same bytes.
pub fn set_identity(job: &mut Job, session_id: String, checksum_seed: u64) {
    job.unix_time = 1_700_000_000;
    job.identity = Identity {
        session_id,
        host: "host".to_owned(),
        checksum_seed,
    };
}

impl Family {
    pub(super) fn name_of(id: u32) -> String {
        match id {
            0 => "default".to_owned(),
            id => format!("family{id}"),
        }
    }

    /// Draws overlapping files, the oldest possibly in the last level. Their numbers continue after earlier ones.
    pub(super) fn draw(
        rng: &mut SmallRng,
        id: u32,
        shape: &Shape,
        others: u64,
    ) -> (Self, Vec<Input>) {
        let mut family = Self {
            id,
            name: Self::name_of(id),
            start_level: shape.start_level,
            message: Vec::new(),
            expected: BTreeMap::new(),
            bytes: 0,
            files: 0,
            entries: 0,
            key_bytes: 0,
            value_bytes: 0,
        };
        let inputs = family.draw_inputs(rng, shape, FIRST_INPUT + others);
        (family, inputs)
    }

    /// Adds the job of compacting all `inputs` to the last level.
    pub(super) fn offered(self, inputs: &[Input], manifest_size: u64) -> Self {
        let message = CompactionServiceInput {
            cf_name: self.name.clone().into_bytes(),
            input_files: inputs.iter().rev().map(Input::name).collect(),
            output_level: LAST_LEVEL as i32,
            db_id: DB_ID.to_vec(),
            options_file_number: OPTIONS_NUMBER,
            min_manifest_file_number: MANIFEST_NUMBER,
            min_manifest_file_size: manifest_size,
            options: None,
            ..CompactionServiceInput::default()
        };
        Self {
            message: message.encode(),
            ..self
        }
    }

    /// Returns the job information that RocksDB passes with the message.
    pub fn info(&self, session: &str) -> JobInfo {
        JobInfo {
            db_name: DIR.to_owned(),
            db_session_id: session.to_owned(),
            cf_id: self.id,
            job_id: 0,
            reason: MANUAL,
            is_full_compaction: true,
            is_manual_compaction: true,
            is_bottommost_level: true,
            base_input_level: self.start_level as i32,
            output_level: LAST_LEVEL as i32,
            is_in_bottom_pool: false,
            rocksdb_version: None,
            plugins: None,
            picked_compression: None,
        }
    }

    /// Draws files from old to new, and what remains of their entries.
    fn draw_inputs(&mut self, rng: &mut SmallRng, shape: &Shape, first: u64) -> Vec<Input> {
        let keys = rng.random_range(shape.keys.clone());
        let kinds = Kinds {
            large_values: rng.random_ratio(1, 16) && shape.may_have_large_values,
            operands: rng.random_ratio(1, 3),
            range_tombstones: rng.random_ratio(1, 3),
            order: shape.comparator.1,
        };
        let oldest_is_deep: bool = rng.random();
        let mut sequence = 0;
        let mut inputs = Vec::new();
        let files = rng.random_range(shape.files.clone());
        self.files = match shape.start_level {
            0 => files,
            // Files of one level do not overlap.
            _ => 1 + u64::from(oldest_is_deep),
        };
        for i in 0..self.files {
            let level = match i == 0 && oldest_is_deep {
                true => LAST_LEVEL,
                false => shape.start_level,
            };
            let first_sequence = sequence + 1;
            let (mut entries, tombstones) = self.draw_input(rng, keys, kinds, &mut sequence);
            let mut plan = self.input_plan(shape);
            if plan.rules.order == KeyOrder::ReverseBytewise {
                entries.reverse();
            }
            plan.output.properties.now = OLDEST_ANCESTOR_TIME + i;
            let files = tables::write_with(&plan, &entries, &tombstones);
            let [(file, bytes)] = <[_; 1]>::try_from(files.expect("they can be written"))
                .expect("no file is too large");
            self.bytes += bytes.len() as u64;
            inputs.push(Input {
                number: first + i,
                level,
                epoch: i as u8 + 1,
                sequences: (first_sequence, sequence),
                smallest: file.smallest,
                largest: file.largest,
                bytes,
            });
        }
        inputs
    }

    /// Draws the contents of a file, which has at least one entry or range tombstone.
    fn draw_input(
        &mut self,
        rng: &mut SmallRng,
        keys: u32,
        kinds: Kinds,
        sequence: &mut u64,
    ) -> (Vec<Entry>, Vec<RangeTombstone>) {
        let density = rng.random_range(0.1..=1.0);
        let (mut entries, mut tombstones) = (Vec::new(), Vec::new());
        for key in 0..keys {
            if kinds.range_tombstones && rng.random_ratio(1, 30) {
                *sequence += 1;
                let tombstone = draw_tombstone(rng, keys, kinds.order, *sequence);
                let (begin, end) = (tombstone.begin.clone(), tombstone.end.clone());
                let range = KeyRange {
                    begin: Some(begin),
                    end: Some(end),
                };
                (self.expected).retain(|key, _| !range.contains_in(kinds.order, key));
                tombstones.push(tombstone);
            }
            let must = key == keys - 1 && entries.is_empty() && tombstones.is_empty();
            if !rng.random_bool(density) && !must {
                continue;
            }
            *sequence += 1;
            let entry = draw_entry(rng, key, *sequence, kinds);
            self.expect(&entry);
            self.entries += 1;
            self.key_bytes += entry.key.len() as u64;
            self.value_bytes += entry.value.len() as u64;
            entries.push(entry);
        }
        (entries, tombstones)
    }

    /// Applies an entry that is newer than all before.
    fn expect(&mut self, entry: &Entry) {
        match (entry.kind(), self.expected.get_mut(&entry.key)) {
            (DELETE, _) => {
                self.expected.remove(&entry.key);
            }
            (MERGE, Some(value)) => {
                value.push(DELIMITER);
                value.extend_from_slice(&entry.value);
            }
            _ => {
                (self.expected).insert(entry.key.clone(), entry.value.clone());
            }
        }
    }

    fn input_plan(&self, shape: &Shape) -> Plan {
        let (comparator, order) = shape.comparator;
        let mut plan = tables::plan();
        plan.rules.order = order;
        plan.output.table.index.order = order;
        if KeyOrder::from_comparator(comparator.as_bytes()).is_none() {
            plan.output.properties.comparator_name = Some(comparator.to_owned());
            plan.output.table.index.shortening = IndexShortening::None;
        }
        plan.output.table.block_size = BLOCK_BYTES;
        plan.output.properties.column_family_id = self.id;
        plan.output.properties.column_family_name = self.name.clone().into_bytes();
        plan
    }
}

/// Kinds of entries of a family, beside values and tombstones of keys, and their order.
#[derive(Debug, Clone, Copy)]
struct Kinds {
    large_values: bool,
    operands: bool,
    range_tombstones: bool,
    order: KeyOrder,
}

fn user_key(key: u32) -> Vec<u8> {
    format!("key{key:06}").into_bytes()
}

fn draw_entry(rng: &mut SmallRng, key: u32, sequence: u64, kinds: Kinds) -> Entry {
    const LARGE_BYTES: usize = 1 << 20;
    let kind = match rng.random_range(0..12) {
        0..2 => DELETE,
        2..5 if kinds.operands => MERGE,
        _ => PUT,
    };
    let len = match kind {
        DELETE => 0,
        // More than the engine writes at a time.
        _ if kinds.large_values && rng.random_ratio(1, 100) => rng.random_range(0..LARGE_BYTES),
        _ => rng.random_range(0..120),
    };
    Entry::new(
        &user_key(key),
        sequence,
        kind,
        &tables::noise(rng.random(), len),
    )
}

/// Draws a range tombstone, which may extend beyond the last key.
fn draw_tombstone(rng: &mut SmallRng, keys: u32, order: KeyOrder, sequence: u64) -> RangeTombstone {
    let begin = rng.random_range(0..keys);
    let most = *[3, keys].choose(rng).expect("there are two");
    let (begin, end) = (
        user_key(begin),
        user_key(begin + rng.random_range(1..=most)),
    );
    let (begin, end) = match order {
        KeyOrder::Bytewise => (begin, end),
        KeyOrder::ReverseBytewise => (end, begin),
    };
    RangeTombstone {
        begin,
        end,
        sequence,
    }
}

//! A column family with one pending compaction.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};

use rand::Rng;
use rand::rngs::SmallRng;
use rockmill_core::{JobInfo, Plan};
use rockmill_format::wire::CompactionServiceInput;

use super::database::{DB_ID, DIR, MANIFEST_NUMBER, OPTIONS_NUMBER};
use crate::cases::tables::{self, DELETE, Entry, PUT};

const FIRST_INPUT: u64 = 11;
pub const LAST_LEVEL: u32 = 6;
/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;
/// Block size of input files.
const BLOCK_BYTES: u64 = 512;
/// Time of the oldest input data; only the files themselves contain it.
pub const OLDEST_ANCESTOR_TIME: u64 = 1_600_000_000;

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
    /// Entries in the input files; the next fields are the bytes of their keys and values.
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

    /// Draws files from old to new. The newest entry of each key is expected, unless it is a tombstone.
    fn draw_inputs(&mut self, rng: &mut SmallRng, shape: &Shape, first: u64) -> Vec<Input> {
        let keys = rng.random_range(shape.keys.clone());
        let large_values = rng.random_ratio(1, 16) && shape.may_have_large_values;
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
            let density = rng.random_range(0.1..=1.0);
            let first_sequence = sequence + 1;
            let mut entries = Vec::new();
            for key in 0..keys {
                if !rng.random_bool(density) && (key, entries.len()) != (keys - 1, 0) {
                    continue;
                }
                sequence += 1;
                let entry = draw_entry(rng, key, sequence, large_values);
                match entry.kind() {
                    PUT => (self.expected).insert(entry.key.clone(), entry.value.clone()),
                    _ => self.expected.remove(&entry.key),
                };
                self.key_bytes += entry.key.len() as u64;
                self.value_bytes += entry.value.len() as u64;
                entries.push(entry);
            }
            let mut plan = self.input_plan();
            plan.output.properties.now = OLDEST_ANCESTOR_TIME + i;
            let bytes = tables::one_file(&plan, &entries);
            self.bytes += bytes.len() as u64;
            inputs.push(Input {
                number: first + i,
                level,
                epoch: i as u8 + 1,
                sequences: (first_sequence, sequence),
                smallest: entries[0].internal_key(),
                largest: entries[entries.len() - 1].internal_key(),
                bytes,
            });
        }
        self.entries = sequence;
        inputs
    }

    fn input_plan(&self) -> Plan {
        let mut plan = tables::plan();
        plan.output.table.block_size = BLOCK_BYTES;
        plan.output.properties.column_family_id = self.id;
        plan.output.properties.column_family_name = self.name.clone().into_bytes();
        plan
    }
}

fn draw_entry(rng: &mut SmallRng, key: u32, sequence: u64, large_values: bool) -> Entry {
    const LARGE_BYTES: usize = 1 << 20;
    let kind = if rng.random_ratio(1, 6) { DELETE } else { PUT };
    let len = match kind {
        DELETE => 0,
        // More than the engine writes at a time.
        _ if large_values && rng.random_ratio(1, 100) => rng.random_range(0..LARGE_BYTES),
        _ => rng.random_range(0..120),
    };
    let key = format!("key{key:06}").into_bytes();
    Entry::new(&key, sequence, kind, &tables::noise(rng.random(), len))
}

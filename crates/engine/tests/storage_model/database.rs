//! Small databases with one compaction to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_core::{JobInfo, Plan};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::coding::{put_length_prefixed, put_varint};
use rockmill_format::wire::CompactionServiceInput;

use super::disk::{Disk, Luck};
use super::tables::{self, DELETE, Entry, PUT};

pub const DIR: &str = "/db";
const OPTIONS_NUMBER: u64 = 7;
const MANIFEST_NUMBER: u64 = 5;
const FIRST_INPUT: u64 = 11;
const LAST_LEVEL: u32 = 6;
const DB_ID: &[u8] = b"some-db";
/// `CompactionReason::kManualCompaction`.
const MANUAL: i32 = 9;
const BLOCK_BYTES: u64 = 512;

/// A database on its disk.
#[derive(Debug)]
pub struct Database {
    pub disk: Disk,
    /// Every file, none of which may change.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// The `CompactionServiceInput`.
    pub message: Vec<u8>,
    /// Keys and values that its compaction leaves.
    pub expected: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// An input file with what the MANIFEST says of it.
struct Input {
    number: u64,
    level: u32,
    sequences: (u64, u64),
    smallest: Vec<u8>,
    largest: Vec<u8>,
    bytes: Vec<u8>,
}

impl Database {
    /// Some overlapping files, the oldest perhaps in the last level, with the job of compacting them
    /// all into the last level.
    pub fn draw(rng: &mut SmallRng) -> Self {
        let mut expected = BTreeMap::new();
        let inputs = draw_inputs(rng, &mut expected);
        let dir = Path::new(DIR);
        let mut files: BTreeMap<PathBuf, Vec<u8>> = inputs
            .iter()
            .map(|input| (dir.join(name(input)), input.bytes.clone()))
            .collect();
        let manifest = format!("MANIFEST-{MANIFEST_NUMBER:06}");
        let manifest_bytes = manifest_of(&inputs);
        let manifest_size = manifest_bytes.len() as u64;
        files.insert(dir.join("CURRENT"), format!("{manifest}\n").into());
        files.insert(dir.join(&manifest), manifest_bytes);
        let options = dir.join(format!("OPTIONS-{OPTIONS_NUMBER:06}"));
        files.insert(options, options_text(rng).into());
        let message = CompactionServiceInput {
            cf_name: b"default".to_vec(),
            input_files: inputs.iter().rev().map(name).collect(),
            output_level: LAST_LEVEL as i32,
            db_id: DB_ID.to_vec(),
            options_file_number: OPTIONS_NUMBER,
            min_manifest_file_number: MANIFEST_NUMBER,
            min_manifest_file_size: manifest_size,
            ..CompactionServiceInput::default()
        };
        Self {
            disk: on_disk(&files),
            files,
            message: message.encode(),
            expected,
        }
    }

    /// What RocksDB says beside the message.
    pub fn info(session: &str) -> JobInfo {
        JobInfo {
            db_name: DIR.to_owned(),
            db_session_id: session.to_owned(),
            cf_id: 0,
            job_id: 0,
            reason: MANUAL,
            is_full_compaction: true,
            is_manual_compaction: true,
            is_bottommost_level: true,
            base_input_level: 0,
            output_level: LAST_LEVEL as i32,
            is_in_bottom_pool: false,
        }
    }
}

fn name(input: &Input) -> String {
    format!("{:06}.sst", input.number)
}

fn on_disk(files: &BTreeMap<PathBuf, Vec<u8>>) -> Disk {
    let mut disk = Disk::new();
    for step in disk.steps_to_make(Path::new(DIR)) {
        disk.take_step(&step).expect("an empty disk");
    }
    for (path, bytes) in files {
        let node = disk.create(path).expect("an empty disk");
        disk.append(node, bytes);
    }
    disk.after_crash(&mut Luck::Best)
}

/// Files from old to new; the newest entry of each key goes into `expected` if it is no tombstone.
fn draw_inputs(rng: &mut SmallRng, expected: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Input> {
    const MOST_KEYS: u32 = 250;
    let keys = rng.random_range(2..MOST_KEYS);
    let large_values = rng.random_ratio(1, 16);
    let oldest_is_deep: bool = rng.random();
    let mut sequence = 0;
    let mut inputs = Vec::new();
    for i in 0..rng.random_range(1..=4) {
        let level = if i == 0 && oldest_is_deep {
            LAST_LEVEL
        } else {
            0
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
                PUT => expected.insert(entry.key.clone(), entry.value.clone()),
                _ => expected.remove(&entry.key),
            };
            entries.push(entry);
        }
        inputs.push(Input {
            number: FIRST_INPUT + i,
            level,
            sequences: (first_sequence, sequence),
            smallest: entries[0].internal_key(),
            largest: entries[entries.len() - 1].internal_key(),
            bytes: tables::one_file(&input_plan(), &entries),
        });
    }
    inputs
}

fn draw_entry(rng: &mut SmallRng, key: u32, sequence: u64, large_values: bool) -> Entry {
    const LARGE_BYTES: usize = 1 << 20;
    let kind = if rng.random_ratio(1, 6) { DELETE } else { PUT };
    let len = match kind {
        DELETE => 0,
        // More than the engine gives to the storage at a time.
        _ if large_values && rng.random_ratio(1, 100) => rng.random_range(0..LARGE_BYTES),
        _ => rng.random_range(0..120),
    };
    let key = format!("key{key:06}").into_bytes();
    Entry::new(&key, sequence, kind, &tables::noise(rng.random(), len))
}

fn input_plan() -> Plan {
    let mut plan = tables::plan();
    plan.table.block_size = BLOCK_BYTES;
    plan
}

/// A log of one edit that adds all files.
fn manifest_of(inputs: &[Input]) -> Vec<u8> {
    // `version_edit.h:Tag`, `NewFileCustomTag`.
    const COMPARATOR: u64 = 1;
    const NEXT_FILE_NUMBER: u64 = 3;
    const LAST_SEQUENCE: u64 = 4;
    const NEW_FILE_4: u64 = 103;
    const TERMINATE: u64 = 1;
    const EPOCH_NUMBER: u64 = 13;
    const DB_ID_TAG: u64 = (1 << 13) + 1;
    let mut edit = Vec::new();
    put_varint(&mut edit, DB_ID_TAG);
    put_length_prefixed(&mut edit, DB_ID);
    put_varint(&mut edit, COMPARATOR);
    put_length_prefixed(&mut edit, b"leveldb.BytewiseComparator");
    for number in [NEXT_FILE_NUMBER, 100, LAST_SEQUENCE, 1 << 20] {
        put_varint(&mut edit, number);
    }
    for input in inputs {
        let size = input.bytes.len() as u64;
        for number in [NEW_FILE_4, u64::from(input.level), input.number, size] {
            put_varint(&mut edit, number);
        }
        put_length_prefixed(&mut edit, &input.smallest);
        put_length_prefixed(&mut edit, &input.largest);
        for number in [input.sequences.0, input.sequences.1, EPOCH_NUMBER] {
            put_varint(&mut edit, number);
        }
        put_length_prefixed(&mut edit, &[(input.number - FIRST_INPUT + 1) as u8]);
        put_varint(&mut edit, TERMINATE);
    }
    log_of(&edit)
}

/// A log of one record that fits a block; `db/log_format.h`.
fn log_of(record: &[u8]) -> Vec<u8> {
    const WHOLE_RECORD: u8 = 1;
    let mut guarded = vec![WHOLE_RECORD];
    guarded.extend_from_slice(record);
    let (&last, head) = guarded.split_last().expect("it holds the type");
    let mut log = ChecksumType::Crc32c
        .compute(head, last)
        .to_le_bytes()
        .to_vec();
    let len = u16::try_from(record.len()).expect("a block is larger");
    log.extend_from_slice(&len.to_le_bytes());
    log.extend_from_slice(&guarded);
    log
}

/// Small output files, so that a job has several slices and files.
fn options_text(rng: &mut SmallRng) -> String {
    let compressions = ["kNoCompression", "kLZ4Compression", "kSnappyCompression"];
    let compression = compressions.choose(rng).expect("there are some");
    let policies = ["nullptr", "bloomfilter:10:false"];
    let policy = policies.choose(rng).expect("there are some");
    let target = rng.random_range(1024..8192);
    let [direct_reads, direct_writes] = [0; 2].map(|_| rng.random_ratio(1, 3));
    let bytes_per_sync = *[0, 1, 2000].choose(rng).expect("there are some");
    format!(
        r#"[Version]
  rocksdb_version=11.12.0
  options_file_version=1.1
[DBOptions]
  file_checksum_gen_factory=nullptr
  bytes_per_sync={bytes_per_sync}
  use_direct_reads={direct_reads}
  use_direct_io_for_flush_and_compaction={direct_writes}
[CFOptions "default"]
  comparator=leveldb.BytewiseComparator
  compaction_filter=nullptr
  compaction_filter_factory=nullptr
  sst_partitioner_factory=nullptr
  compression_manager=nullptr
  compression={compression}
  target_file_size_base={target}
[TableOptions/BlockBasedTable "default"]
  block_size={BLOCK_BYTES}
  filter_policy={policy}
  user_defined_index_factory=nullptr
  flush_block_policy_factory=FlushBlockBySizePolicyFactory
"#
    )
}

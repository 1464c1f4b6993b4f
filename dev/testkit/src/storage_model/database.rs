//! Small databases with one pending compaction per column family.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::coding::{put_length_prefixed, put_varint};

use super::disk::{Disk, Survival};
use super::family::{Family, Input, MERGE_OPERATOR, Shape};

pub const DIR: &str = "/db";
pub(super) const OPTIONS_NUMBER: u64 = 7;
pub(super) const MANIFEST_NUMBER: u64 = 5;
pub(super) const DB_ID: &[u8] = b"some-db";
const COMPARATOR_NAME: &[u8] = b"leveldb.BytewiseComparator";

/// A database on its disk.
#[derive(Debug)]
pub struct Database {
    pub disk: Disk,
    /// Contents of every file; none may change.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Column families; the first is the default one.
    pub families: Vec<Family>,
}

impl Database {
    /// Draws a database with only the default column family.
    pub fn draw(rng: &mut SmallRng) -> Self {
        Self::with_families(rng, &[Shape::default()])
    }

    /// Draws a database with column families of these shapes.
    pub fn with_families(rng: &mut SmallRng, shapes: &[Shape]) -> Self {
        let dir = Path::new(DIR);
        let mut files = BTreeMap::new();
        let mut families: Vec<(Family, Vec<Input>)> = Vec::new();
        for (id, shape) in (0..).zip(shapes) {
            families.push(Family::draw(rng, id, shape, files.len() as u64));
            let inputs = families.last().into_iter().flat_map(|(_, inputs)| inputs);
            files.extend(inputs.map(|input| (dir.join(input.name()), input.bytes.clone())));
        }
        let manifest = format!("MANIFEST-{MANIFEST_NUMBER:06}");
        let manifest_bytes = manifest_of(
            families
                .iter()
                .map(|(family, inputs)| (family.id, family.name.as_str(), &inputs[..])),
        );
        let manifest_size = manifest_bytes.len() as u64;
        files.insert(dir.join("CURRENT"), format!("{manifest}\n").into());
        files.insert(dir.join(&manifest), manifest_bytes);
        let options = dir.join(format!("OPTIONS-{OPTIONS_NUMBER:06}"));
        files.insert(options, options_text(rng, shapes).into());
        let families = families.into_iter();
        Self {
            disk: on_disk(&files),
            families: families
                .map(|(family, inputs)| family.offered(&inputs, manifest_size))
                .collect(),
            files,
        }
    }

    /// Returns the default column family.
    pub fn family(&self) -> &Family {
        &self.families[0]
    }
}

fn on_disk(files: &BTreeMap<PathBuf, Vec<u8>>) -> Disk {
    let mut disk = Disk::default();
    for step in disk.steps_to_make(Path::new(DIR)) {
        disk.take_step(&step).expect("an empty disk");
    }
    for (path, bytes) in files {
        let node = disk.create(path).expect("an empty disk");
        disk.append(node, bytes);
    }
    disk.after_crash(&mut Survival::Best)
}

/// Makes a log with edits for each column family, given by id and name. An edit adds all its files; for a family other
/// than the default one, an earlier edit creates it.
pub fn manifest_of<'a>(families: impl Iterator<Item = (u32, &'a str, &'a [Input])>) -> Vec<u8> {
    // `version_edit.h:Tag`, `NewFileCustomTag`.
    const COMPARATOR: u64 = 1;
    const LOG_NUMBER: u64 = 2;
    const NEXT_FILE_NUMBER: u64 = 3;
    const LAST_SEQUENCE: u64 = 4;
    const COLUMN_FAMILY: u64 = 200;
    const COLUMN_FAMILY_ADD: u64 = 201;
    const DB_ID_TAG: u64 = (1 << 13) + 1;
    let mut first = Vec::new();
    put_varint(&mut first, DB_ID_TAG);
    put_length_prefixed(&mut first, DB_ID);
    put_varint(&mut first, COMPARATOR);
    put_length_prefixed(&mut first, COMPARATOR_NAME);
    for (tag, number) in [
        (LOG_NUMBER, 0),
        (NEXT_FILE_NUMBER, 100),
        (LAST_SEQUENCE, 1 << 20),
    ] {
        put_varint(&mut first, tag);
        put_varint(&mut first, number);
    }
    let mut log = Vec::new();
    for (id, name, inputs) in families {
        let mut edit = std::mem::take(&mut first);
        if id > 0 {
            let of_family = |edit: &mut Vec<u8>| {
                put_varint(edit, COLUMN_FAMILY);
                put_varint(edit, u64::from(id));
            };
            let mut creation = Vec::new();
            of_family(&mut creation);
            put_varint(&mut creation, COLUMN_FAMILY_ADD);
            put_length_prefixed(&mut creation, name.as_bytes());
            put_varint(&mut creation, COMPARATOR);
            put_length_prefixed(&mut creation, COMPARATOR_NAME);
            put_record(&mut log, &creation);
            of_family(&mut edit);
        }
        inputs.iter().for_each(|input| put_file(&mut edit, input));
        put_record(&mut log, &edit);
    }
    log
}

/// Appends the part of an edit that adds a file.
fn put_file(edit: &mut Vec<u8>, input: &Input) {
    // `version_edit.h:Tag`, `NewFileCustomTag`.
    const NEW_FILE_4: u64 = 103;
    const TERMINATE: u64 = 1;
    const EPOCH_NUMBER: u64 = 13;
    let size = input.bytes.len() as u64;
    for number in [NEW_FILE_4, u64::from(input.level), input.number, size] {
        put_varint(edit, number);
    }
    put_length_prefixed(edit, &input.smallest);
    put_length_prefixed(edit, &input.largest);
    for number in [input.sequences.0, input.sequences.1, EPOCH_NUMBER] {
        put_varint(edit, number);
    }
    put_length_prefixed(edit, &[input.epoch]);
    put_varint(edit, TERMINATE);
}

/// Appends a record that fits a block to a log; `db/log_format.h`.
fn put_record(log: &mut Vec<u8>, record: &[u8]) {
    const WHOLE_RECORD: u8 = 1;
    const BLOCK_BYTES: usize = 32 << 10;
    let mut guarded = vec![WHOLE_RECORD];
    guarded.extend_from_slice(record);
    let (&last, head) = guarded.split_last().expect("it holds the type");
    let checksum = ChecksumType::Crc32c.compute(head, last);
    log.extend_from_slice(&checksum.to_le_bytes());
    let len = u16::try_from(record.len()).expect("a block is larger");
    log.extend_from_slice(&len.to_le_bytes());
    log.extend_from_slice(&guarded);
    assert!(log.len() < BLOCK_BYTES, "a block holds less");
}

/// Makes OPTIONS with small output files, so that a job has several tasks and files.
fn options_text(rng: &mut SmallRng, shapes: &[Shape]) -> String {
    let families: Vec<_> = (0..)
        .zip(shapes)
        .map(|(id, shape)| family_options(rng, id, shape))
        .collect();
    let [direct_reads, direct_writes] = [0; 2].map(|_| rng.random_ratio(1, 3));
    let bytes_per_sync = *[0, 1, 2000].choose(rng).expect("there are some");
    let families = families.concat();
    format!(
        r#"[Version]
  rocksdb_version=11.12.0
  options_file_version=1.1
[DBOptions]
  file_checksum_gen_factory=nullptr
  bytes_per_sync={bytes_per_sync}
  use_direct_reads={direct_reads}
  use_direct_io_for_flush_and_compaction={direct_writes}
{families}"#
    )
}

fn family_options(rng: &mut SmallRng, id: u32, shape: &Shape) -> String {
    let compressions = ["kNoCompression", "kLZ4Compression", "kSnappyCompression"];
    let compression = compressions.choose(rng).expect("there are some");
    let policies = ["nullptr", "bloomfilter:10:false"];
    let policy = policies.choose(rng).expect("there are some");
    let target = rng.random_range(shape.target_bytes.clone());
    let (name, block_bytes) = (Family::name_of(id), shape.block_bytes);
    let (comparator, _) = shape.comparator;
    format!(
        r#"[CFOptions "{name}"]
  comparator={comparator}
  compaction_filter=nullptr
  compaction_filter_factory=nullptr
  sst_partitioner_factory=nullptr
  compression_manager=nullptr
  merge_operator={MERGE_OPERATOR}
  compression={compression}
  target_file_size_base={target}
[TableOptions/BlockBasedTable "{name}"]
  block_size={block_bytes}
  filter_policy={policy}
  user_defined_index_factory=nullptr
  flush_block_policy_factory=FlushBlockBySizePolicyFactory
"#
    )
}

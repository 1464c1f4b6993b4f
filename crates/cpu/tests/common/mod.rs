//! What the tests share: files in memory, plans with defaults, entries.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use rockmill_core::{
    Backend, CancelToken, Cutting, Error, InputTable, KeyRange, OutputFile, Plan, PropertiesPlan,
    RangesBeneath, ReadAt, Result, Rules, Slice, SliceReport, SliceWork, SstFile, SstSink,
    TablePlan, kv_hash, open_table,
};
use rockmill_cpu::decode::{Head, RunReader};
use rockmill_cpu::retain::{Sink, Source};
use rockmill_cpu::writer::SstWriter;
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionSettings;
use rockmill_format::index::{IndexSettings, IndexShortening};
use rockmill_format::key;

pub mod plans;
pub mod raw;

pub const PUT: u8 = 0x01;
pub const DELETE: u8 = 0x00;
pub const SINGLE_DELETE: u8 = 0x07;

/// A proptest configuration whose failures are kept beside the test and tried again first;
/// `PROPTEST_CASES` overrides the number of cases and `PROPTEST_RNG_SEED` the seed.
pub fn config(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    config
}

/// An entry in full.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub tag: u64,
    pub value: Vec<u8>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 24;
        let cut = |bytes: &[u8]| match bytes.len() {
            len if len > SHOWN => format!("{}..({len})", bytes[..SHOWN].escape_ascii()),
            _ => bytes.escape_ascii().to_string(),
        };
        let (seq, kind) = (self.seq(), self.kind());
        write!(f, "{}@{seq}:{kind}={}", cut(&self.key), cut(&self.value))
    }
}

impl Entry {
    pub fn new(key: &[u8], seq: u64, kind: u8, value: &[u8]) -> Self {
        Self {
            key: key.to_vec(),
            tag: key::pack_tag(seq, kind),
            value: value.to_vec(),
        }
    }

    pub fn seq(&self) -> u64 {
        self.tag >> 8
    }

    pub fn kind(&self) -> u8 {
        self.tag as u8
    }

    pub fn internal_key(&self) -> Vec<u8> {
        key::join(&self.key, self.tag)
    }

    pub fn hash(&self) -> u64 {
        rockmill_core::entry_hash(kv_hash(&self.key, &self.value), self.tag)
    }

    /// Sorts as internal keys do.
    pub fn order(&self) -> (Vec<u8>, std::cmp::Reverse<u64>) {
        (self.key.clone(), std::cmp::Reverse(self.tag))
    }
}

/// Sum of the entries' hashes.
pub fn hash_sum<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> u64 {
    entries
        .into_iter()
        .fold(0, |sum: u64, entry| sum.wrapping_add(entry.hash()))
}

/// A list of entries as the source of `retain`.
#[derive(Debug)]
pub struct VecSource<'a> {
    entries: &'a [Entry],
    at: usize,
}

impl<'a> VecSource<'a> {
    pub fn new(entries: &'a [Entry]) -> Self {
        Self { entries, at: 0 }
    }
}

impl Source for VecSource<'_> {
    fn head(&self) -> Option<Head<'_>> {
        let entry = self.entries.get(self.at)?;
        Some(Head {
            prefix: rockmill_core::key_prefix(&entry.key),
            user_key: &entry.key,
            tag: entry.tag,
            value: &entry.value,
            kv_hash: kv_hash(&entry.key, &entry.value),
        })
    }

    fn advance(&mut self) -> Result<()> {
        assert!(self.at < self.entries.len(), "advanced behind the end");
        self.at += 1;
        Ok(())
    }
}

/// Collects what `retain` emits, and checks the hash and the flag that come with each.
#[derive(Debug, Default)]
pub struct VecSink(pub Vec<Entry>);

impl Sink for VecSink {
    fn emit(
        &mut self,
        user_key: &[u8],
        tag: u64,
        value: &[u8],
        hash: u64,
        first_of_key: bool,
    ) -> Result<()> {
        assert_eq!(hash, kv_hash(user_key, value), "hash of an emitted entry");
        let first = self.0.last().is_none_or(|last| last.key != user_key);
        assert_eq!(first_of_key, first, "first_of_key of an emitted entry");
        self.0.push(Entry {
            key: user_key.to_vec(),
            tag,
            value: value.to_vec(),
        });
        Ok(())
    }
}

/// Name of every file in memory.
pub const FILE_NAME: &str = "000007.sst";

/// An input file in memory.
#[derive(Debug, Clone)]
pub struct MemFile(pub Vec<u8>);

impl ReadAt for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let found = usize::try_from(offset)
            .ok()
            .and_then(|start| self.0.get(start..start.checked_add(buf.len())?));
        match found {
            Some(bytes) => buf.copy_from_slice(bytes),
            None => return Err(Error::corruption(FILE_NAME, offset, "the file ends early")),
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn name(&self) -> &str {
        FILE_NAME
    }
}

/// An output file in memory.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct MemOutput {
    pub number: u64,
    pub bytes: Vec<u8>,
    pub finished: bool,
}

/// Output files in memory, numbered from `first`.
#[derive(Debug, Default)]
pub struct MemSink {
    files: Arc<Mutex<Vec<MemOutput>>>,
    first: u64,
}

impl MemSink {
    pub fn numbered_from(first: u64) -> Self {
        let files = Arc::default();
        Self { files, first }
    }

    pub fn into_files(self) -> Vec<MemOutput> {
        std::mem::take(&mut self.files.lock().expect("no writer panicked"))
    }
}

struct MemSstFile {
    files: Arc<Mutex<Vec<MemOutput>>>,
    at: usize,
}

impl SstFile for MemSstFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.files.lock().expect("no writer panicked")[self.at]
            .bytes
            .extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.files.lock().expect("no writer panicked")[self.at].finished = true;
        Ok(())
    }
}

impl SstSink for MemSink {
    fn create(&mut self) -> Result<(u64, Box<dyn SstFile>)> {
        let mut files = self.files.lock().expect("no writer panicked");
        let number = self.first + files.len() as u64;
        files.push(MemOutput {
            number,
            ..MemOutput::default()
        });
        let file = MemSstFile {
            files: Arc::clone(&self.files),
            at: files.len() - 1,
        };
        Ok((number, Box::new(file)))
    }
}

/// Compacts the entries of `inputs` in `range` on a backend that accepts them: its report, and the files from number
/// 1 on.
pub fn compact(
    backend: &impl Backend,
    inputs: &[InputTable],
    plan: &Plan,
    range: &KeyRange,
    cancel: &CancelToken,
) -> Result<(SliceReport, Vec<MemOutput>)> {
    backend.accepts(plan, inputs)?;
    let slice = Slice {
        index: 0,
        range: range.clone(),
    };
    let run = backend.survivors(SliceWork {
        inputs,
        plan,
        slice: &slice,
        read_ahead_bytes: 1 << 16,
        cancel,
        progress: None,
    })?;
    let mut sink = MemSink::numbered_from(1);
    let report = backend.write_ssts(run, &mut sink)?;
    Ok((report, sink.into_files()))
}

/// A plan that keeps everything, in one file without compression and filter.
pub fn plan() -> Plan {
    Plan {
        range: KeyRange::default(),
        rules: Rules {
            snapshots: Vec::new(),
            bottommost: false,
            beneath: RangesBeneath::Unknown,
            enforce_single_del_contracts: true,
        },
        table: table_plan(),
        cutting: cutting(u64::MAX),
        properties: properties_plan(),
        paranoid_hash: false,
        file_checksum: false,
    }
}

pub fn table_plan() -> TablePlan {
    TablePlan {
        format_version: 7,
        checksum: ChecksumType::Xxh3,
        block_size: 4096,
        restart_interval: 16,
        delta_keys: true,
        common_prefix: false,
        index: IndexSettings {
            format_version: 7,
            restart_interval: 1,
            shortening: IndexShortening::Separators,
            common_prefix: false,
        },
        compression: CompressionSettings::none(),
        compress_index: false,
        filter: None,
    }
}

pub fn cutting(max_output_file_size: u64) -> Cutting {
    Cutting {
        single_file: false,
        target_file_size: max_output_file_size,
        max_output_file_size,
        size_is_upper_bound: false,
        compression_ratio: (1, 1),
        grandparents: Vec::new(),
        max_compaction_bytes: u64::MAX,
        level_style: true,
    }
}

pub fn properties_plan() -> PropertiesPlan {
    PropertiesPlan {
        db_id: b"some-db".to_vec(),
        session_id: "ABCDEFGHIJKLMNOPQRST".to_owned(),
        host: "host".to_owned(),
        checksum_seed: 0x1234_5678_9abc_def0,
        column_family_id: 0,
        column_family_name: b"default".to_vec(),
        output_level: 3,
        filter_policy_name: None,
        prefix_extractor_name: None,
        whole_key_filtering: true,
        decouple_partitioned_filters: false,
        merge_operator_name: None,
        compression_options: String::new(),
        now: 1_700_000_000,
        ancestors: Vec::new(),
        newest_key_time: 0,
    }
}

/// Writes `entries`, which must be in order; gives what the writer says beside the bytes.
pub fn write(plan: &Plan, entries: &[Entry]) -> Result<Vec<(OutputFile, Vec<u8>)>> {
    let mut sink = MemSink::numbered_from(1);
    let mut writer = SstWriter::new(plan, &mut sink)?;
    let mut before: Option<&[u8]> = None;
    for entry in entries {
        let first = before != Some(&entry.key);
        let hash = kv_hash(&entry.key, &entry.value);
        writer.emit(&entry.key, entry.tag, &entry.value, hash, first)?;
        before = Some(&entry.key);
    }
    let files = writer.finish()?;
    let outputs = sink.into_files();
    assert_eq!(files.len(), outputs.len());
    assert!(outputs.iter().all(|output| output.finished));
    Ok(files
        .into_iter()
        .zip(outputs.into_iter().map(|output| output.bytes))
        .collect())
}

/// One file of `entries`, which are not empty.
pub fn one_file(plan: &Plan, entries: &[Entry]) -> Vec<u8> {
    let mut files = write(plan, entries).expect("entries can be written");
    assert_eq!(files.len(), 1);
    files.remove(0).1
}

pub fn open(bytes: Vec<u8>) -> Result<InputTable> {
    open_table(Box::new(MemFile(bytes)))
}

/// All entries of a table in a range, and what the reader counted.
pub fn read(
    table: &InputTable,
    range: &KeyRange,
    read_ahead_bytes: usize,
) -> Result<(Vec<Entry>, rockmill_cpu::decode::RunTotals)> {
    let cancel = CancelToken::new();
    let mut run = RunReader::open(table, range, read_ahead_bytes, &cancel)?;
    let mut entries = Vec::new();
    while let Some(head) = run.head() {
        assert_eq!(head.kv_hash, kv_hash(head.user_key, head.value));
        assert_eq!(head.prefix, rockmill_core::key_prefix(head.user_key));
        entries.push(entry_of(&head));
        run.advance()?;
    }
    Ok((entries, run.totals()))
}

pub fn entry_of(head: &Head<'_>) -> Entry {
    Entry {
        key: head.user_key.to_vec(),
        tag: head.tag,
        value: head.value.to_vec(),
    }
}

/// A range of user keys from two optional bounds.
pub fn range(begin: Option<&[u8]>, end: Option<&[u8]>) -> KeyRange {
    KeyRange {
        begin: begin.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
    }
}

/// User keys up to 2 KiB: edge bytes, long shared prefixes, anything.
pub fn keys() -> impl Strategy<Value = Vec<u8>> {
    const LONGEST: usize = 2048;
    let edge = prop::sample::select(vec![0u8, 1, 0x7f, 0xfe, 0xff]);
    let long_prefix = (
        prop::sample::select(vec![1usize, 7, 8, 15, 16, 17, 120, 1000, LONGEST - 4]),
        proptest::collection::vec(edge.clone(), 0..4),
    );
    prop_oneof![
        4 => proptest::collection::vec(edge, 0..6),
        3 => long_prefix.prop_map(|(len, suffix)| {
            let mut key = vec![b'p'; len];
            key.extend(suffix);
            key
        }),
        2 => proptest::collection::vec(any::<u8>(), 0..24),
    ]
}

/// Values from nothing to 64 KiB, some compressible.
pub fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => proptest::collection::vec(any::<u8>(), 0..40),
        4 => (any::<u8>(), 0usize..700).prop_map(|(byte, len)| vec![byte; len]),
        2 => (any::<u64>(), 0usize..3000).prop_map(|(seed, len)| noise(seed, len)),
        1 => (any::<u8>(), 0usize..=65536).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Bytes that do not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Kinds of entries that are handled.
pub fn kinds() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(PUT), 1 => Just(DELETE), 1 => Just(SINGLE_DELETE)]
}

/// Sorted entries of up to `max_keys` user keys, most with one version, some with many.
pub fn entries(max_keys: usize) -> impl Strategy<Value = Vec<Entry>> {
    let seq = prop_oneof![
        6 => 0u64..1000,
        1 => Just(key::MAX_SEQUENCE),
        1 => 0..=key::MAX_SEQUENCE,
    ];
    let version = || (seq.clone(), kinds(), values());
    let versions = prop_oneof![
        6 => proptest::collection::vec(version(), 1..2),
        2 => proptest::collection::vec(version(), 1..4),
        1 => proptest::collection::vec(version(), 1..24),
    ];
    proptest::collection::btree_map(keys(), versions, 1..max_keys).prop_map(|groups| {
        let mut out = Vec::new();
        for (key, mut versions) in groups {
            versions.sort_by_key(|&(seq, ..)| std::cmp::Reverse(seq));
            versions.dedup_by_key(|&mut (seq, ..)| seq);
            for (seq, kind, value) in versions {
                out.push(Entry::new(&key, seq, kind, &value));
            }
        }
        out
    })
}

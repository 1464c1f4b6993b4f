//! Slices to measure: entries of given sizes in overlapping runs, as files that the CPU backend's writer makes.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use rockmill_core::{
    Backend, CancelToken, Cutting, Error, InputTable, Plan, PropertiesPlan, RangesBeneath, Result,
    Rules, TablePlan, kv_hash, open_table,
};
use rockmill_cpu::retain::Sink;
use rockmill_cpu::writer::SstWriter;
use rockmill_format::compression::{CompressionSettings, CompressionType};
use rockmill_format::filter::FilterOptions;
use rockmill_format::key::{ValueType, pack_tag};

use super::shape::SliceShape;
use crate::io::{JobInput, JobIo};
use crate::staging::{StagingDir, StagingSink, file_number};
use crate::storage::{LocalStorage, base_name};

const TARGET_FILE_BYTES: u64 = 64 << 20;
const BLOOM_MILLIBITS: u32 = 10_000;

/// What a slice is made of. Keys differ in their first eight bytes at the latest; the rest of a key, and a value, are
/// random, half of a value if something compresses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Bytes of a user key, 4 or more.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Inputs, at most 64.
    pub runs: u32,
    /// Of those, how many have a key; the newest entry survives.
    pub versions: u32,
    /// How blocks are stored.
    pub compression: CompressionType,
    /// Bytes of keys and values in all inputs, about.
    pub raw_bytes: u64,
}

impl Workload {
    fn keys(&self) -> u64 {
        let entry_bytes = (self.key_bytes + self.value_bytes) as u64;
        (self.raw_bytes / entry_bytes / u64::from(self.versions)).max(1)
    }

    /// `16x256:none 4/8`: what it is of any size: sizes of key and value, compression, versions of so many runs.
    pub fn kind(&self) -> String {
        let compression = match self.compression {
            CompressionType::None => "none".to_owned(),
            other => other.name().to_lowercase(),
        };
        let (key, value) = (self.key_bytes, self.value_bytes);
        let (versions, runs) = (self.versions, self.runs);
        format!("{key}x{value}:{compression} {versions}/{runs}")
    }

    fn random_value_bytes(&self) -> usize {
        match self.compression {
            CompressionType::None => self.value_bytes,
            _ => self.value_bytes / 2,
        }
    }
}

/// `16x256:none 4/8 32 MB`: as [`Workload::kind`], and bytes.
impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:.1} MB", self.kind(), self.raw_bytes as f64 / 1e6)
    }
}

/// A workload's files, which go away when dropped, and what a slice over them is to do.
#[derive(Debug)]
pub struct Made {
    /// The files, in a folder of their own.
    pub(super) tables: Vec<InputTable>,
    pub(super) plan: Plan,
    shape: SliceShape,
    _dir: StagingDir,
}

impl Made {
    /// Makes the files in a folder `name` in `dir`.
    ///
    /// # Errors
    /// Storage; Cancelled once `cancel` is set, as by what follows.
    pub fn new(workload: &Workload, dir: &Path, name: &str, cancel: &CancelToken) -> Result<Self> {
        let keys = workload.keys();
        let set_key = |i, key: &mut [u8]| spread_key(key, i, keys);
        Self::with_keys(workload, dir, name, set_key, cancel)
    }

    /// The same with keys that `set_key` makes of their numbers, in their order.
    ///
    /// # Errors
    /// Storage.
    pub fn with_keys(
        workload: &Workload,
        dir: &Path,
        name: &str,
        set_key: impl Fn(u64, &mut [u8]),
        cancel: &CancelToken,
    ) -> Result<Self> {
        let io = job_io();
        let staging = StagingDir::create(Arc::new(LocalStorage), dir, name)?;
        let mut plan = plan(workload);
        plan.cutting.single_file = true;
        write_runs(workload, &set_key, &plan, &staging, &io, cancel)?;
        plan.cutting.single_file = false;
        let mut tables = Vec::new();
        for run in 0..workload.runs as usize {
            let path = staging.file(file_number(run, 0)?);
            match JobInput::open(&io, &path) {
                Ok(file) => tables.push(open_table(Box::new(file))?),
                // A run to which no key was drawn.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(Error::storage(&base_name(&path), "open it", &e)),
            }
        }
        let sum = |of: fn(&InputTable) -> u64| tables.iter().map(of).sum::<u64>();
        let bytes_in = sum(|table| table.meta.properties.data_size);
        plan.cutting.compression_ratio = (
            bytes_in,
            sum(|table| table.meta.properties.uncompressed_data_size),
        );
        let shape = SliceShape {
            bytes_in,
            entries: sum(|table| table.meta.properties.num_entries),
            key_bytes: sum(|table| table.meta.properties.raw_key_size),
            value_bytes: sum(|table| table.meta.properties.raw_value_size),
            runs: tables.len() as u32,
            bytes_out: bytes_in / u64::from(workload.versions),
            compression: workload.compression,
        };
        Ok(Self {
            tables,
            plan,
            shape,
            _dir: staging,
        })
    }

    /// Whether a backend does such slices.
    pub fn is_for<B: Backend>(&self, backend: &B) -> bool {
        backend.accepts(&self.plan, &self.tables).is_ok()
    }

    /// The inputs.
    pub fn tables(&self) -> &[InputTable] {
        &self.tables
    }

    /// What is to be done with them.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What a model is told of the slice; of the output it knows how many versions a key has.
    pub fn shape(&self) -> &SliceShape {
        &self.shape
    }
}

pub(super) fn job_io() -> Arc<JobIo> {
    Arc::new(JobIo::new(Arc::new(LocalStorage), CancelToken::new()))
}

/// Run 0 is the oldest. Which runs have a key is drawn for each key.
fn write_runs(
    workload: &Workload,
    set_key: impl Fn(u64, &mut [u8]),
    plan: &Plan,
    dir: &StagingDir,
    io: &Arc<JobIo>,
    cancel: &CancelToken,
) -> Result<()> {
    let keys = workload.keys();
    let runs = u64::from(workload.runs);
    let mut sinks: Vec<StagingSink> = (0..workload.runs as usize)
        .map(|run| StagingSink::new(dir, Arc::clone(io), run))
        .collect();
    let writers: Result<Vec<_>> = sinks
        .iter_mut()
        .map(|sink| SstWriter::new(plan, sink))
        .collect();
    let mut writers = writers?;
    let mut entry = Entry::new(workload);
    for i in 0..keys {
        cancel.check()?;
        set_key(i, &mut entry.key);
        let mut chosen = chosen_runs(i, runs, u64::from(workload.versions));
        while chosen != 0 {
            let run = u64::from(chosen.trailing_zeros());
            chosen &= chosen - 1;
            let sequence = 1 + run * keys + i;
            entry.set_value(sequence);
            let tag = pack_tag(sequence, ValueType::Value as u8);
            let hash = kv_hash(&entry.key, &entry.value);
            writers[run as usize].emit(&entry.key, tag, &entry.value, hash, true)?;
        }
    }
    writers
        .into_iter()
        .try_for_each(|writer| writer.finish().map(drop))
}

/// A set of `versions` runs (Floyd's sampling), as bits.
fn chosen_runs(key: u64, runs: u64, versions: u64) -> u64 {
    let mut chosen = 0;
    for last in runs - versions.min(runs)..runs {
        let drawn = mix(key * runs + last) % (last + 1);
        let run = if chosen >> drawn & 1 == 0 {
            drawn
        } else {
            last
        };
        chosen |= 1_u64 << run;
    }
    chosen
}

/// The entry at hand.
struct Entry {
    key: Vec<u8>,
    value: Vec<u8>,
    random_value_bytes: usize,
}

impl Entry {
    fn new(workload: &Workload) -> Self {
        Self {
            key: vec![0; workload.key_bytes],
            value: vec![0; workload.value_bytes],
            random_value_bytes: workload.random_value_bytes(),
        }
    }

    fn set_value(&mut self, seed: u64) {
        fill(&mut self.value[..self.random_value_bytes], seed);
    }
}

/// Key `i` of so many: spread over all numbers of its width, in their order.
fn spread_key(key: &mut [u8], i: u64, keys: u64) {
    let spread = (u128::from(i) << 64) / u128::from(keys);
    let head = (spread as u64).to_be_bytes();
    let (first, rest) = key.split_at_mut(head.len().min(key.len()));
    first.copy_from_slice(&head[..first.len()]);
    fill(rest, i);
}

fn fill(bytes: &mut [u8], seed: u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = mix(seed ^ (i as u64) << 48).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// splitmix64's last steps.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// RocksDB's defaults, a Bloom filter of 10 bits, the bottommost level.
fn plan(workload: &Workload) -> Plan {
    Plan {
        rules: Rules {
            bottommost: true,
            beneath: RangesBeneath::Nothing,
            ..Rules::default()
        },
        table: TablePlan {
            compression: CompressionSettings {
                kind: workload.compression,
                ..CompressionSettings::none()
            },
            filter: Some(FilterOptions::whole_keys(BLOOM_MILLIBITS)),
            ..TablePlan::default()
        },
        cutting: Cutting {
            target_file_size: TARGET_FILE_BYTES,
            max_output_file_size: TARGET_FILE_BYTES,
            ..Cutting::default()
        },
        properties: PropertiesPlan {
            db_id: b"model".to_vec(),
            session_id: "ABCDEFGHIJKLMNOPQRST".to_owned(),
            host: "host".to_owned(),
            checksum_seed: 1,
            column_family_name: b"default".to_vec(),
            output_level: 6,
            filter_policy_name: Some("bloomfilter".to_owned()),
            whole_key_filtering: true,
            now: 1_700_000_000,
            ..PropertiesPlan::default()
        },
        ..Plan::default()
    }
}

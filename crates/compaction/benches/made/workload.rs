//! Subcompactions to measure: entries of given sizes in overlapping runs.

use rockmill_core::{
    CompactionRules, DeeperLevels, OutputPlan, OutputSplitting, Plan, PropertiesPlan, TablePlan,
};
use rockmill_format::compression::{CompressionSettings, CompressionType};
use rockmill_format::filter::FilterOptions;

const TARGET_FILE_BYTES: u64 = 64 << 20;
const BLOOM_MILLIBITS: u32 = 10_000;

/// Contents of a subcompaction. Keys differ within their first eight bytes. The rest of a key is random, and so is a
/// value, or half of it if the blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Workload {
    /// Bytes of a user key, 4 or more.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Number of inputs, at most 64.
    pub runs: u32,
    /// Number of runs that contain a key; the newest entry survives.
    pub versions: u32,
    /// Compression of blocks.
    pub compression: CompressionType,
    /// Approximate bytes of keys and values in all inputs.
    pub raw_bytes: u64,
}

impl Workload {
    /// Number of keys, each in `versions` runs.
    pub(super) fn keys(&self) -> u64 {
        let entry_bytes = (self.key_bytes + self.value_bytes) as u64;
        (self.raw_bytes / entry_bytes / u64::from(self.versions)).max(1)
    }

    /// Creates key `i`: keys are spread over all numbers of their width, in order.
    pub(super) fn set_key(&self, i: u64, key: &mut [u8]) {
        let spread = (u128::from(i) << 64) / u128::from(self.keys());
        let head = (spread as u64).to_be_bytes();
        let (first, rest) = key.split_at_mut(head.len().min(key.len()));
        first.copy_from_slice(&head[..first.len()]);
        fill(rest, i);
    }

    /// Returns the runs that contain a key, as bits: a set of `versions` runs, drawn for each key (Floyd's sampling).
    pub(super) fn chosen_runs(&self, key: u64) -> u64 {
        let (runs, versions) = (u64::from(self.runs), u64::from(self.versions));
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

    /// Number of bytes at the start of a value that do not compress.
    pub(super) fn random_value_bytes(&self) -> usize {
        match self.compression {
            CompressionType::None => self.value_bytes,
            _ => self.value_bytes / 2,
        }
    }
}

/// Fills `bytes` with random bytes, which are the same for the same seed.
pub(super) fn fill(bytes: &mut [u8], seed: u64) {
    for (i, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = mix(seed ^ (i as u64) << 48).to_le_bytes();
        chunk.copy_from_slice(&word[..chunk.len()]);
    }
}

/// The last steps of splitmix64.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Returns a plan with RocksDB's defaults, a Bloom filter of 10 bits, at the bottommost level.
pub(super) fn plan(workload: &Workload) -> Plan {
    Plan {
        rules: CompactionRules {
            bottommost: true,
            deeper: DeeperLevels::Nothing,
            ..CompactionRules::default()
        },
        output: OutputPlan {
            table: TablePlan {
                compression: CompressionSettings {
                    kind: workload.compression,
                    ..CompressionSettings::none()
                },
                filter: Some(FilterOptions::whole_keys(BLOOM_MILLIBITS)),
                ..TablePlan::default()
            },
            splitting: OutputSplitting {
                target_file_size: TARGET_FILE_BYTES,
                max_output_file_size: TARGET_FILE_BYTES,
                ..OutputSplitting::default()
            },
            properties: PropertiesPlan {
                db_id: b"model".to_vec(),
                session_id: "ABCDEFGHIJKLMNOPQRST".to_owned(),
                host: "host".to_owned(),
                checksum_seed: 1,
                column_family_name: b"default".to_vec(),
                output_level: 6,
                bottommost: true,
                filter_policy_name: Some("bloomfilter".to_owned()),
                whole_key_filtering: true,
                now: 1_700_000_000,
                ..PropertiesPlan::default()
            },
            ..OutputPlan::default()
        },
        ..Plan::default()
    }
}

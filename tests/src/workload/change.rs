//! Options that change while a database is open.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

/// New values of some mutable options, drawn from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Change(u64);

impl Change {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        Self(rng.next_u64())
    }

    /// Returns one or several options with their values, as `SetOptions` parses them. None of them affects which
    /// entries a compaction keeps.
    #[must_use]
    pub fn options(self) -> Vec<(&'static str, String)> {
        let mut rng = StdRng::seed_from_u64(self.0);
        let count = rng.random_range(1..=3);
        let chosen: Vec<&Option> = OPTIONS.choose_multiple(&mut rng, count).collect();
        let drawn = chosen.iter().map(|(name, draw)| (*name, draw(&mut rng)));
        drawn.collect()
    }
}

/// An option's name, and a function that draws its value.
type Option = (&'static str, fn(&mut StdRng) -> String);

const OPTIONS: &[Option] = &[
    ("compression", compression),
    ("bottommost_compression", compression),
    ("target_file_size_base", |rng| bytes(rng, 14..21)),
    ("max_bytes_for_level_base", |rng| bytes(rng, 16..24)),
    ("max_compaction_bytes", |rng| bytes(rng, 16..26)),
    ("level0_file_num_compaction_trigger", |rng| {
        rng.random_range(2..8).to_string()
    }),
    ("ttl", seconds),
    ("periodic_compaction_seconds", seconds),
    ("paranoid_file_checks", |rng| {
        one_of(rng, &["false", "true"])
    }),
    ("verify_output_flags", |rng| one_of(rng, &VERIFY_OUTPUT)),
    ("prefix_extractor", prefix),
    ("block_based_table_factory", table),
];

/// No verification; `kVerifyIteration`; the same with `kVerifyBlockChecksum`. The latter two are for remote
/// compactions.
const VERIFY_OUTPUT: [&str; 3] = ["0", "2050", "2051"];

fn one_of(rng: &mut StdRng, texts: &[&str]) -> String {
    (*texts.choose(rng).expect("not empty")).to_owned()
}

fn compression(rng: &mut StdRng) -> String {
    let names = [
        "kNoCompression",
        "kSnappyCompression",
        "kLZ4Compression",
        "kLZ4HCCompression",
        "kZSTD",
        "kZlibCompression",
    ];
    one_of(rng, &names)
}

fn bytes(rng: &mut StdRng, log2: std::ops::Range<u32>) -> String {
    (1_u64 << rng.random_range(log2)).to_string()
}

fn seconds(rng: &mut StdRng) -> String {
    one_of(rng, &["0", "1", "86400"])
}

fn prefix(rng: &mut StdRng) -> String {
    let names = [
        "nullptr",
        "rocksdb.FixedPrefix.3",
        "rocksdb.FixedPrefix.7",
        "rocksdb.CappedPrefix.5",
    ];
    one_of(rng, &names)
}

fn table(rng: &mut StdRng) -> String {
    let block_size = bytes(rng, 8..17);
    let restart_interval = rng.random_range(1..20);
    let filter = one_of(rng, &["nullptr", "bloomfilter:10:false", "ribbonfilter:8"]);
    format!(
        "{{block_size={block_size};block_restart_interval={restart_interval};filter_policy={filter}}}"
    )
}

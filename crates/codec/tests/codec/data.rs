//! Blocks of several kinds, each a function of a seed and its size.

use std::sync::LazyLock;

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngCore, SeedableRng};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Entries with values as `db_bench` makes them: of each 100 bytes, the second half repeats the first.
    DbBench,
    /// Entries with values from a pool of which half is random.
    HalfRandom,
    /// Entries with JSON-like text.
    Json,
    /// Entries with random keys of 8 bytes and values of 32, of which half is zero.
    SmallEntries,
    /// Entries with random keys of 16 bytes and values of 256, of which half is zero.
    LargeEntries,
    /// Bytes that cannot be compressed.
    Noise,
    /// Runs of one byte, of all lengths.
    Runs,
    /// One short piece, repeated with rare changes.
    Period,
}

impl Kind {
    /// What databases hold.
    pub const USUAL: [Self; 3] = [Self::DbBench, Self::HalfRandom, Self::Json];
    /// Kinds as benchmarks make them.
    pub const RANDOM_KEYS: [Self; 2] = [Self::SmallEntries, Self::LargeEntries];
    pub const ALL: [Self; 8] = [
        Self::DbBench,
        Self::HalfRandom,
        Self::Json,
        Self::SmallEntries,
        Self::LargeEntries,
        Self::Noise,
        Self::Runs,
        Self::Period,
    ];
}

const VALUE_BYTES: usize = 256;

pub fn block(kind: Kind, seed: u64, len: usize) -> Vec<u8> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut block = Vec::with_capacity(len + 2 * VALUE_BYTES);
    match kind {
        Kind::DbBench => entries(&mut block, len, &mut rng, db_bench_value),
        Kind::HalfRandom => {
            let pool = &*POOL;
            entries(&mut block, len, &mut rng, |rng, value| {
                let from = rng.random_range(0..pool.len() - VALUE_BYTES);
                value.extend_from_slice(&pool[from..from + VALUE_BYTES]);
            });
        }
        Kind::Json => entries(&mut block, len, &mut rng, json_value),
        Kind::SmallEntries => sorted_entries::<8>(&mut block, len, &mut rng, 32),
        Kind::LargeEntries => sorted_entries::<16>(&mut block, len, &mut rng, 256),
        Kind::Noise => {
            block.resize(len, 0);
            rng.fill_bytes(&mut block);
        }
        Kind::Runs => {
            while block.len() < len {
                let longest = 1 << rng.random_range(1..16);
                let run = rng.random_range(0..longest).min(len - block.len());
                block.extend(std::iter::repeat_n(rng.random_range(0..4), run));
            }
        }
        Kind::Period => {
            let period = 1 << rng.random_range(0..9);
            let period = rng.random_range(1..=period);
            for at in 0..len {
                let is_new = at < period || rng.random_ratio(1, 400);
                let byte = if is_new {
                    rng.random()
                } else {
                    block[at - period]
                };
                block.push(byte);
            }
        }
    }
    block.truncate(len);
    block
}

/// As in a data block: keys of 16 digits and a tag. 15 of 16 keys omit the prefix that they share with the one before.
fn entries(
    block: &mut Vec<u8>,
    len: usize,
    rng: &mut SmallRng,
    mut put_value: impl FnMut(&mut SmallRng, &mut Vec<u8>),
) {
    let mut id: u64 = rng.random_range(0..1 << 40);
    let mut last = Vec::new();
    for entry in 0.. {
        if block.len() >= len {
            return;
        }
        id += rng.random_range(1..5);
        let key = format!("{id:016}");
        put_key(block, rng, entry, key.as_bytes(), &mut last, &[0x80, 0x02]);
        let value_at = block.len();
        put_value(rng, block);
        block.truncate(value_at + VALUE_BYTES);
    }
}

/// Entries of random keys, sorted.
fn sorted_entries<const KEY: usize>(
    block: &mut Vec<u8>,
    len: usize,
    rng: &mut SmallRng,
    value_bytes: usize,
) {
    let mut keys: Vec<[u8; KEY]> = (0..=len / value_bytes).map(|_| rng.random()).collect();
    keys.sort_unstable();
    let mut last = Vec::new();
    for (entry, key) in keys.iter().enumerate() {
        if block.len() >= len {
            return;
        }
        let mut varint = vec![value_bytes as u8];
        if value_bytes >= 0x80 {
            varint = vec![value_bytes as u8 | 0x80, (value_bytes >> 7) as u8];
        }
        put_key(block, rng, entry, key, &mut last, &varint);
        let random = block.len();
        block.resize(random + value_bytes, 0);
        rng.fill_bytes(&mut block[random..][..value_bytes / 2]);
    }
}

/// The head of an entry: lengths, and the part of its key that it does not share with the previous one.
fn put_key(
    block: &mut Vec<u8>,
    rng: &mut SmallRng,
    entry: usize,
    key: &[u8],
    last: &mut Vec<u8>,
    value_len: &[u8],
) {
    let mut key = key.to_vec();
    key.extend(u64::to_le_bytes(rng.random_range(0..24_000_000) << 8 | 1));
    let same = key.iter().zip(&*last).take_while(|(a, b)| a == b).count();
    let shared = if entry.is_multiple_of(16) { 0 } else { same };
    block.extend([shared as u8, (key.len() - shared) as u8]);
    block.extend(value_len);
    block.extend_from_slice(&key[shared..]);
    *last = key;
}

fn db_bench_value(rng: &mut SmallRng, value: &mut Vec<u8>) {
    for _ in 0..VALUE_BYTES.div_ceil(100) {
        let from = value.len();
        value.extend((0..50).map(|_| rng.random_range(b' '..=b'~')));
        value.extend_from_within(from..);
    }
}

/// All bytes come twice, and 32 bytes twice in each 64.
static POOL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut rng = SmallRng::seed_from_u64(0);
    let mut pool = Vec::new();
    while pool.len() < 1 << 20 {
        let from = pool.len();
        for byte in rng.random::<[u8; 16]>() {
            pool.extend([byte, byte]);
        }
        pool.extend_from_within(from..);
    }
    pool
});

fn json_value(rng: &mut SmallRng, value: &mut Vec<u8>) {
    const FIRST: &str =
        "anna boris chen dora emil fatima george hana ivan julia kofi lena maria nils olga pedro";
    const LAST: &str = "smith garcia nguyen mueller rossi kim ivanova silva tanaka dubois novak khan okafor larsen \
                        costa weber";
    const CITIES: &str =
        "Berlin Lagos Osaka Lima Toronto Madrid Seoul Cairo Oslo Prague Mumbai Denver";
    const STATES: &str = "active pending closed suspended";
    const WORDS: &str = "the order was shipped late customer asked for refund about item delivery window next week \
                         gift card paid with credit please call before noon fragile replace broken screen under \
                         warranty manual review";
    let mut one_of = |words: &'static str| {
        let words: Vec<_> = words.split_whitespace().collect();
        *words.choose(rng).expect("there are some")
    };
    let (first, last) = (one_of(FIRST), one_of(LAST));
    let (city, state) = (one_of(CITIES), one_of(STATES));
    let mut below = |end: u32| rng.random_range(0..end);
    let mut text = format!(
        r#"{{"id":{},"user":"{first}.{last}{}","email":"{first}@example.com","city":"{city}","status":"{state}","#,
        below(1 << 30),
        below(1000),
    );
    text += &format!(
        r#""ts":"2026-{:02}-{:02}T{:02}:{:02}:{:02}Z","price":{}.{:02},"tags":[{},{}],"note":""#,
        1 + below(12),
        1 + below(28),
        below(24),
        below(60),
        below(60),
        below(2000),
        below(100),
        below(50),
        below(50),
    );
    let words: Vec<_> = WORDS.split_whitespace().collect();
    while text.len() < VALUE_BYTES {
        text += words.choose(rng).expect("there are some");
        text.push(' ');
    }
    text.truncate(VALUE_BYTES - 2);
    text += "\"}";
    value.extend(text.into_bytes());
}

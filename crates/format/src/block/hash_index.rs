//! The hash index of a data block (`table/block_based/data_block_hash_index.cc`).
//!
//! ```text
//! bucket u8 ...      number of the restart interval that has the keys of this hash; 255: none, 254: several have
//! number of buckets u16
//! ```
//!
//! The bucket of a user key is its hash modulo the number of buckets.

use crate::filter::seeded_hash;

const NO_ENTRY: u8 = 255;
const COLLISION: u8 = 254;
/// The last restart interval that a bucket can name.
const MAX_RESTART: usize = 253;
/// Maximum size of a block with a hash index.
pub(super) const MAX_BLOCK_BYTES: usize = 1 << 16;
/// `util/hash.h:GetSliceHash`.
const HASH_SEED: u32 = 397;
/// Bytes of the number of buckets.
pub(super) const COUNT_BYTES: usize = 2;
/// RocksDB's default for a `data_block_hash_table_util_ratio` that is not positive.
const DEFAULT_RATIO: f64 = 0.75;

/// Buckets that each key of a block asks for, with `keys_per_bucket` keys for each bucket.
pub fn buckets_per_key(keys_per_bucket: f64) -> f64 {
    let is_positive = keys_per_bucket > 0.0;
    1.0 / if is_positive {
        keys_per_bucket
    } else {
        DEFAULT_RATIO
    }
}

fn hash(user_key: &[u8]) -> u32 {
    seeded_hash(user_key, HASH_SEED)
}

/// Collects the keys of one block after another.
#[derive(Debug)]
pub(super) struct HashIndexBuilder {
    buckets_per_key: f64,
    /// Number of buckets for the keys so far. It is a sum, as in RocksDB: a product would round differently.
    num_buckets: f64,
    /// Hash and restart interval of each key.
    keys: Vec<(u32, u8)>,
    fits: bool,
}

impl HashIndexBuilder {
    /// A builder for blocks with `keys_per_bucket` keys for each bucket.
    pub(super) fn new(keys_per_bucket: f64) -> Self {
        Self {
            buckets_per_key: buckets_per_key(keys_per_bucket),
            num_buckets: 0.0,
            keys: Vec::new(),
            fits: true,
        }
    }

    pub(super) fn add(&mut self, user_key: &[u8], restart: usize) {
        if restart > MAX_RESTART {
            self.fits = false;
            return;
        }
        self.keys.push((hash(user_key), restart as u8));
        self.num_buckets += self.buckets_per_key;
    }

    /// Appends the index to a block of `block_bytes`, its last word included, and starts again. Returns false if the
    /// block gets no index.
    pub(super) fn finish(&mut self, block_bytes: usize, out: &mut Vec<u8>) -> bool {
        // An odd number, because the hash distributes badly over powers of two.
        let num_buckets = (self.num_buckets as u16).max(1) | 1;
        let len = usize::from(num_buckets) + COUNT_BYTES;
        let fits = self.fits && block_bytes.saturating_add(len) <= MAX_BLOCK_BYTES;
        if fits {
            let start = out.len();
            out.resize(start + usize::from(num_buckets), NO_ENTRY);
            let buckets = &mut out[start..];
            for &(hash, restart) in &self.keys {
                let bucket = &mut buckets[hash as usize % usize::from(num_buckets)];
                *bucket = match *bucket {
                    NO_ENTRY => restart,
                    same if same == restart => restart,
                    _ => COLLISION,
                };
            }
            out.extend_from_slice(&num_buckets.to_le_bytes());
        }
        self.keys.clear();
        self.num_buckets = 0.0;
        self.fits = true;
        fits
    }
}

/// Whether a lookup by these buckets finds a key of the restart interval. Without buckets, every lookup searches all of
/// the block.
pub(super) fn finds(buckets: &[u8], user_key: &[u8], restart: usize) -> bool {
    let bucket = (hash(user_key) as usize).checked_rem(buckets.len());
    bucket.is_none_or(|at| buckets[at] == COLLISION || usize::from(buckets[at]) == restart)
}

//! The writes of all writers, and the resulting content of a database.

use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rust_rocksdb::{DB, WriteBatch};

use super::shape::FAMILIES;
use crate::content::Content;

/// Number of writing threads of the killed process; each writes its own keys.
pub const WRITERS: usize = 3;
/// Number of the checking process as a writer.
pub const CHECKER: usize = WRITERS;

/// Number of keys per writer: few, so that most writes overwrite an older one.
const KEYS: u32 = 1500;
/// Number of keys with many versions.
const HOT_KEYS: u32 = 40;
const MAX_OPERATIONS: usize = 12;
/// One batch in `LARGE_EVERY` is large and fills several blocks of the WAL.
const LARGE_EVERY: u32 = 400;
const LARGE_OPERATIONS: usize = 600;
const LONGEST_VALUE: usize = 300;
const DELETE_EVERY: u32 = 6;

/// One write of a batch.
#[derive(Debug, PartialEq, Eq)]
struct Operation {
    /// Index into [`FAMILIES`].
    family: usize,
    key: Vec<u8>,
    /// `None` deletes the key.
    value: Option<Vec<u8>>,
}

/// Returns the key under which each family stores the number of a writer's last batch.
#[must_use]
pub fn count_key(writer: usize) -> Vec<u8> {
    format!("w{writer}/count").into_bytes()
}

/// All writes, determined by a seed.
#[derive(Clone, Copy, Debug)]
pub struct Script {
    seed: u64,
}

impl Script {
    /// Creates the script of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns batch `number`, from 1, of `writer`. It touches every family, so that a partial loss is detected.
    fn operations(self, writer: usize, number: u64) -> Vec<Operation> {
        let mut rng = SmallRng::seed_from_u64(mixed(&[self.seed, writer as u64, number]));
        let count = if rng.random_ratio(1, LARGE_EVERY) {
            LARGE_OPERATIONS
        } else {
            rng.random_range(1..=MAX_OPERATIONS)
        };
        let mut operations: Vec<_> = (0..count).map(|_| random(&mut rng, writer)).collect();
        operations.extend((0..FAMILIES.len()).map(|family| Operation {
            family,
            key: count_key(writer),
            value: Some(number.to_string().into_bytes()),
        }));
        operations
    }

    /// Writes batch `number` of `writer` to `db`.
    ///
    /// # Errors
    ///
    /// RocksDB's error, as text.
    pub fn write(self, db: &DB, writer: usize, number: u64) -> Result<(), String> {
        let families = handles(db)?;
        let mut batch = WriteBatch::default();
        for operation in self.operations(writer, number) {
            let family = families[operation.family];
            match operation.value {
                Some(value) => batch.put_cf(family, operation.key, value),
                None => batch.delete_cf(family, operation.key),
            }
        }
        db.write(&batch)
            .map_err(|e| format!("batch {number} of writer {writer}: {e}"))
    }
}

/// Returns the handles of all [`FAMILIES`].
///
/// # Errors
///
/// An error if one was not opened.
pub fn handles(db: &DB) -> Result<[&rust_rocksdb::ColumnFamily; FAMILIES.len()], String> {
    let mut handles = Vec::new();
    for name in FAMILIES {
        let handle = db.cf_handle(name);
        handles.push(handle.ok_or_else(|| format!("no column family {name}"))?);
    }
    handles
        .try_into()
        .map_err(|_| "a column family is missing".to_owned())
}

fn random(rng: &mut SmallRng, writer: usize) -> Operation {
    let keys = if rng.random_ratio(1, 8) {
        HOT_KEYS
    } else {
        KEYS
    };
    let number = rng.random_range(0..keys);
    Operation {
        family: rng.random_range(0..FAMILIES.len()),
        key: format!("w{writer}/{number:05}").into_bytes(),
        value: (!rng.random_ratio(1, DELETE_EVERY)).then(|| {
            // Half of it is compressible.
            let mut value = vec![b'v'; rng.random_range(0..=LONGEST_VALUE)];
            let half = value.len() / 2;
            rng.fill_bytes(&mut value[half..]);
            value
        }),
    }
}

/// Mixes several numbers into one, with the steps of `splitmix64`.
fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |hash, part| {
        let sum = (hash ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let sum = (sum ^ (sum >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let sum = (sum ^ (sum >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        sum ^ (sum >> 31)
    })
}

/// Content of a database after a number of batches of each writer.
#[derive(Debug)]
pub struct Model {
    script: Script,
    counts: [u64; WRITERS + 1],
    /// Content by family.
    content: [Content; FAMILIES.len()],
}

impl Model {
    /// Creates the content before the first batch.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            script,
            counts: [0; WRITERS + 1],
            content: Default::default(),
        }
    }

    /// Number of batches of each writer; the checking process is the last.
    #[must_use]
    pub fn counts(&self) -> &[u64; WRITERS + 1] {
        &self.counts
    }

    /// Content by family.
    #[must_use]
    pub fn content(&self) -> &[Content; FAMILIES.len()] {
        &self.content
    }

    /// Adds a writer's batches up to `number`.
    pub fn advance(&mut self, writer: usize, number: u64) {
        for batch in self.counts[writer] + 1..=number {
            for operation in self.script.operations(writer, batch) {
                let content = &mut self.content[operation.family];
                match operation.value {
                    Some(value) => content.insert(operation.key, value),
                    None => content.remove(&operation.key),
                };
            }
        }
        self.counts[writer] = number.max(self.counts[writer]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_a_function_of_seed_writer_and_number() {
        let batch = |seed, writer, number| Script::new(seed).operations(writer, number);
        assert_eq!(batch(1, 2, 3), batch(1, 2, 3));
        let others = [batch(2, 2, 3), batch(1, 1, 3), batch(1, 2, 4)];
        assert!(others.iter().all(|other| *other != batch(1, 2, 3)));
    }

    #[test]
    fn every_batch_leaves_its_number_in_every_family() {
        let mut model = Model::new(Script::new(1));
        model.advance(0, 7);
        model.advance(1, 3);
        for content in model.content() {
            assert_eq!(content[&count_key(0)], b"7");
            assert_eq!(content[&count_key(1)], b"3");
        }
        assert_eq!(model.counts()[..2], [7, 3]);
    }
}

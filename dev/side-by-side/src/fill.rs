//! Writes the entries on several threads, while earlier runs are being flushed.

use std::io::Write;
use std::thread;
use std::time::Duration;

use indicatif::ProgressBar;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rockmill_terminal::signals;
use rust_rocksdb::{DB, Error, FlushOptions, Options, WriteBatch, WriteOptions, properties};

use crate::progress;
use crate::spec::{DatabaseSpec, Keys};

const BATCH_ENTRIES: u64 = 1000;
const BATCH_BYTES: u64 = 1 << 20;
/// Every run of a command writes the same entries.
const SEED: u64 = 0x526f_636b_6d69_6c6c;
/// Number of runs that are flushed while the next one fills.
const FLUSHES: u64 = 4;
/// RocksDB uses a quarter of the background jobs for flushes.
const JOBS_PER_FLUSH: u64 = 4;
/// RocksDB slows writers down when all but one of the write buffers are full.
const SPARE_WRITE_BUFFERS: u64 = 4;
/// The largest that RocksDB accepts, because this module ends each run itself.
const WRITE_BUFFER_BYTES: usize = 64 << 30;
/// One key in `OLDER_EVERY` has an older entry.
const OLDER_EVERY: u64 = 16;
/// More than glibc ever takes from its heap (32 MiB), so that a run's memory is returned to the system at once.
/// Otherwise a compaction would reuse it, and its peak memory would look too small.
const ARENA_BLOCK_BYTES: usize = 64 << 20;

/// Sets the options for filling.
pub fn prepare(options: &mut Options) {
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_arena_block_size(ARENA_BLOCK_BYTES);
    options.set_max_write_buffer_number((FLUSHES + SPARE_WRITE_BUFFERS) as i32);
    options.set_max_background_jobs((FLUSHES * JOBS_PER_FLUSH) as i32);
    // There are no readers during the fill, so a batch need not wait for those of other threads.
    options.set_unordered_write(true);
    // The last flush is waited for. If a signal ends the fill, the rest is not needed.
    options.set_avoid_flush_during_shutdown(true);
}

/// Writes all runs; each becomes a file in level 0. If a signal comes, the rest is not written.
pub fn fill(db: &DB, spec: &DatabaseSpec) -> Result<(), Error> {
    let entries = spec.workload.entries;
    let progress = progress::bar(entries);
    let keys = (entries / spec.versions).max(1);
    let writers = spec.writers.min(keys);
    let mut writers: Vec<_> = (0..writers)
        .map(|number| Writer::new(spec, number, writers))
        .collect();
    let run_entries = entries.div_ceil(spec.runs);
    let mut written = 0;
    while written < entries && !signals::token().is_cancelled() {
        let run_end = (written + run_entries).min(entries);
        write_run(db, &mut writers, run_end - written, &progress)?;
        written = run_end;
        flush(db, written == entries)?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// Writes one older entry for some of the keys, spread over all keys.
pub fn fill_older(db: &DB, spec: &DatabaseSpec) -> Result<(), Error> {
    let older = DatabaseSpec {
        delete_every: None,
        delete_range_every: None,
        operands: false,
        filtered: false,
        ..spec.clone()
    };
    let keys = (spec.workload.entries / spec.versions).max(1);
    let mut writer = Writer::new(&older, 0, OLDER_EVERY.min(keys));
    let entries = writer.keys;
    let progress = progress::bar(entries);
    writer.write(db, entries, &progress)?;
    progress.finish_and_clear();
    flush(db, true)
}

fn write_run(
    db: &DB,
    writers: &mut [Writer<'_>],
    entries: u64,
    progress: &ProgressBar,
) -> Result<(), Error> {
    let all = writers.len() as u64;
    thread::scope(|scope| {
        let threads: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let until = |number| entries * number / all;
                let share = until(writer.number + 1) - until(writer.number);
                scope.spawn(move || writer.write(db, share, progress))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|p| std::panic::resume_unwind(p))
        })
    })
}

/// Starts to flush the memtable; waits for the end of the flush if it is the last.
fn flush(db: &DB, is_last: bool) -> Result<(), Error> {
    const POLL: Duration = Duration::from_millis(1);
    let number = |property| Ok::<_, Error>(db.property_int_value(property)?.unwrap_or(0));
    // Memtables that still wait for a thread when the next run comes would be flushed into the same file. After an
    // error nothing progresses, and the flush returns the error.
    while number(properties::BACKGROUND_ERRORS)? == 0
        && (number(properties::MEM_TABLE_FLUSH_PENDING)? > 0
            || number(properties::NUM_IMMUTABLE_MEM_TABLE)? >= FLUSHES)
    {
        thread::sleep(POLL);
    }
    let mut options = FlushOptions::default();
    options.set_wait(is_last);
    db.flush_opt(&options)
}

/// One of the threads. It has its own keys, so that the newest version of a key does not depend on thread scheduling.
struct Writer<'a> {
    spec: &'a DatabaseSpec,
    number: u64,
    writers: u64,
    rng: SmallRng,
    /// Number of distinct keys of this writer, if keys are drawn.
    keys: u64,
    written: u64,
}

impl<'a> Writer<'a> {
    fn new(spec: &'a DatabaseSpec, number: u64, writers: u64) -> Self {
        let keys = (spec.workload.entries / spec.versions).max(1);
        Self {
            spec,
            number,
            writers,
            rng: SmallRng::seed_from_u64(SEED.wrapping_add(number)),
            keys: (keys - number).div_ceil(writers),
            written: 0,
        }
    }

    fn write(&mut self, db: &DB, entries: u64, progress: &ProgressBar) -> Result<(), Error> {
        let workload = &self.spec.workload;
        let most = (BATCH_BYTES / workload.entry_bytes() as u64).clamp(1, BATCH_ENTRIES);
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        let mut key = vec![0; workload.key_bytes];
        let mut value = vec![0; workload.value_bytes];
        let mut batch = WriteBatch::default();
        let end = self.written + entries;
        while self.written < end && !signals::token().is_cancelled() {
            let batch_entries = most.min(end - self.written);
            for _ in 0..batch_entries {
                self.add_entry(&mut batch, &mut key, &mut value);
            }
            db.write_opt(&batch, &options)?;
            batch.clear();
            progress.inc(batch_entries);
        }
        Ok(())
    }

    fn add_entry(&mut self, batch: &mut WriteBatch, key: &mut [u8], value: &mut [u8]) {
        let drawn = match self.spec.versions {
            1 => self.written,
            _ => self.rng.random_range(0..self.keys),
        };
        self.written += 1;
        write_key(self.spec.keys, drawn * self.writers + self.number, key);
        if let Some(every) = self.spec.delete_range_every
            && self.rng.random_ratio(1, every)
        {
            return batch.delete_range(&*key, range_end(key, self.keys * self.writers).as_slice());
        }
        match self.spec.delete_every {
            Some(every) if self.rng.random_ratio(1, every) => batch.delete(key),
            _ => {
                let random_bytes = self.spec.workload.random_value_bytes();
                self.rng.fill_bytes(&mut value[..random_bytes]);
                match self.spec.operands {
                    true => batch.merge(key, value),
                    false => batch.put(key, value),
                }
            }
        }
    }
}

/// Writes the key of a number. Different numbers give different keys.
pub fn write_key(keys: Keys, number: u64, mut key: &mut [u8]) {
    match keys {
        Keys::Decimal => {
            let width = key.len();
            write!(key, "{number:0width$}").expect("a number of entries has fewer digits");
        }
        Keys::Mixed => {
            let mut bits = number;
            for piece in key.chunks_mut(size_of::<u64>()) {
                bits = mix(bits);
                piece.copy_from_slice(&bits.to_be_bytes()[..piece.len()]);
            }
        }
    }
}

/// Returns the end of a range that begins with `key` and has some keys, if all `keys` are spread evenly.
fn range_end(key: &[u8], keys: u64) -> Vec<u8> {
    const COVERED_KEYS: u64 = 4;
    let mut end = key.to_vec();
    if let Some((first, _)) = end.split_first_chunk_mut() {
        let width = (u64::MAX / keys.max(1)).saturating_mul(COVERED_KEYS);
        *first = u64::from_be_bytes(*first)
            .saturating_add(width)
            .to_be_bytes();
    }
    end
}

/// A bijection on all numbers (the finalizer of splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_mixed_ones_spread() {
        const NUMBERS: u64 = 10_000;
        for keys in [Keys::Decimal, Keys::Mixed] {
            for width in [8, 13, 16, 64] {
                let key = |number| {
                    let mut key = vec![0; width];
                    write_key(keys, number, &mut key);
                    key
                };
                let all: HashSet<_> = (0..NUMBERS).map(key).collect();
                assert_eq!(all.len() as u64, NUMBERS, "{keys:?} {width}");
            }
        }
        let first_bytes: HashSet<_> = (0..NUMBERS)
            .map(|number| {
                let mut key = [0; 8];
                write_key(Keys::Mixed, number, &mut key);
                key[0]
            })
            .collect();
        assert_eq!(first_bytes.len(), 256);
    }
}

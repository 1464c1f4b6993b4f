//! Databases whose keys and values follow from numbers, and the host's reads of them. `kernels/functors.hpp` makes the
//! same ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rockmill_live::LiveDatabase;
use rockmill_side_by_side::machine::usual_threads;
use rockmill_side_by_side::progress;
use rockmill_side_by_side::workload::Compression;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::{
    BlockBasedOptions, Cache, DB, Direction, Error, IngestExternalFileOptions, IteratorMode,
    Options, ReadOptions, SstFileWriter, WriteBatch,
};

/// Bytes of a key.
pub const KEY_BYTES: usize = 16;
const KEY_START: [u8; 8] = *b"numberd.";

/// Bytes of values in each file.
const FILE_BYTES: u64 = 64 << 20;

/// Keys of a call of MultiGet.
const BATCH: usize = 256;

/// Minimum keys for which another thread is started.
const KEYS_OF_THREAD: usize = 512;

/// Memory of a value in RocksDB's block cache, relative to its bytes.
const CACHE_SHARE: u64 = 2;

/// Maximum bytes of RocksDB's block cache.
const MAX_CACHE_BYTES: u64 = 24 << 30;

/// `hash.hpp:fold`.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> u64::BITS) as u64
}

/// A number that depends on all bits of `number`, without pattern.
pub fn mixed(number: u64) -> u64 {
    fold(number ^ PRIMES[0], PRIMES[1])
}

const PRIMES: [u64; 4] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
];

/// The key with a number.
pub fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..8].copy_from_slice(&KEY_START);
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Writes the value with a number and a version.
pub fn value_of(number: u64, version: u64, value: &mut [u8]) {
    let start = fold(number ^ PRIMES[0], version ^ PRIMES[1]) ^ PRIMES[2];
    for (at, word) in value.chunks_exact_mut(size_of::<u64>()).enumerate() {
        let own = match at {
            0 => version,
            at => fold(start, at as u64 ^ PRIMES[3]),
        };
        word.copy_from_slice(&own.to_ne_bytes());
    }
}

/// A database that is open. Dropping it removes it.
pub struct Database {
    pub db: Arc<DB>,
    pub live: Arc<dyn rockmill_scan::Database>,
    pub keys: u64,
    path: PathBuf,
}

impl Drop for Database {
    fn drop(&mut self) {
        // The whole folder is removed at the end. Open files keep their space until they are closed.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Shape of a database.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub keys: u64,
    /// Approximate size of a value.
    pub value_bytes: u64,
    pub compression: Compression,
    pub direct_reads: bool,
}

impl Shape {
    /// Uncompressed values of one size.
    pub fn of(keys: u64, value_bytes: usize) -> Self {
        Self {
            keys,
            value_bytes: value_bytes as u64,
            compression: Compression::None,
            direct_reads: false,
        }
    }
}

fn refused(path: &Path, error: &impl std::fmt::Display) -> Failure {
    Failure::Environment(format!("{}: {error}", path.display()))
}

impl Database {
    /// Makes a database with values that follow from numbers.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn of_numbers(folder: &Path, shape: Shape) -> Result<Self, Failure> {
        Self::new(folder, shape, &|number, value| {
            value.resize(shape.value_bytes as usize, 0);
            value_of(number, 0, value);
        })
    }

    /// Makes a database of the keys below a number, all of them in one level. `value` writes the value of a key.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn new(
        folder: &Path,
        shape: Shape,
        value: &(dyn Fn(u64, &mut Vec<u8>) + Sync),
    ) -> Result<Self, Failure> {
        let path = folder.join("database");
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_compression_type(shape.compression.of_rocksdb());
        options.set_use_direct_reads(shape.direct_reads);
        options.set_allow_fallocate(false);
        let mut table = BlockBasedOptions::default();
        let cached = (shape.keys * (shape.value_bytes + KEY_BYTES as u64) * CACHE_SHARE)
            .min(MAX_CACHE_BYTES);
        table.set_block_cache(&Cache::new_hyper_clock_cache(cached as usize, 0));
        options.set_block_based_table_factory(&table);
        let db = write(&path, &options, shape, value).map_err(|e| refused(&path, &e))?;
        let db = Arc::new(db);
        Ok(Self {
            live: Arc::new(LiveDatabase::new(Arc::clone(&db))),
            db,
            keys: shape.keys,
            path,
        })
    }

    /// Bytes of the table files.
    ///
    /// # Errors
    /// Environment if the system refuses.
    pub fn file_bytes(&self) -> Result<u64, Failure> {
        let files = self.db.live_files().map_err(|e| refused(&self.path, &e))?;
        Ok(files.iter().map(|file| file.size as u64).sum())
    }

    /// Gets the values of numbered keys with MultiGet on `threads` threads. `rows` takes the values, each of
    /// `value_bytes` bytes.
    ///
    /// # Errors
    /// Data if a key is missing or has a value of another size; Environment if RocksDB refuses.
    pub fn get_rows(
        &self,
        numbers: &[u64],
        threads: usize,
        rows: &mut [u8],
        value_bytes: usize,
    ) -> Result<(), Failure> {
        let chunk = chunk_of(numbers.len(), threads);
        let parts = numbers
            .chunks(chunk)
            .zip(rows.chunks_mut(chunk * value_bytes));
        let get = |(numbers, rows): (&[u64], &mut [u8])| {
            let mut rows = rows.chunks_exact_mut(value_bytes);
            self.get_each(numbers, &mut |value| match rows.next() {
                Some(row) if row.len() == value.len() => {
                    row.copy_from_slice(value);
                    true
                }
                _ => false,
            })
        };
        on_threads(parts, get).map(|_| ())
    }

    /// Gets contiguous values of any size. Returns where each begins in words of four bytes, and where the last one
    /// ends.
    ///
    /// # Errors
    /// Environment if RocksDB refuses; Data if a key is missing.
    pub fn get_lists(
        &self,
        numbers: &[u64],
        threads: usize,
    ) -> Result<(Vec<u64>, Vec<u8>), Failure> {
        let chunk = chunk_of(numbers.len(), threads);
        let parts = on_threads(numbers.chunks(chunk), |numbers| {
            let (mut lens, mut bytes) = (Vec::new(), Vec::new());
            self.get_each(numbers, &mut |value| {
                lens.push((value.len() / size_of::<u32>()) as u64);
                bytes.extend_from_slice(value);
                true
            })?;
            Ok((lens, bytes))
        })?;
        Ok(joined(parts))
    }

    fn get_each(
        &self,
        numbers: &[u64],
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        for numbers in numbers.chunks(BATCH) {
            let keys = numbers.iter().map(|&number| key_of(number));
            let values = self.db.batched_multi_get_pinned(keys, false);
            for (number, value) in numbers.iter().zip(values) {
                let value = value.map_err(|e| refused(&self.path, &e))?;
                if !value.is_some_and(|value| each(&value)) {
                    let what = format!("RocksDB has no proper value of key {number}");
                    return Err(Failure::Data(what));
                }
            }
        }
        Ok(())
    }

    /// Puts values of a version with WriteBatch on several threads.
    ///
    /// # Errors
    /// Environment if RocksDB refuses.
    pub fn put(
        &self,
        numbers: &[u64],
        threads: usize,
        version: u64,
        value_bytes: usize,
    ) -> Result<(), Failure> {
        let put = |numbers: &[u64]| {
            let mut value = vec![0; value_bytes];
            for numbers in numbers.chunks(BATCH) {
                let mut batch = WriteBatch::default();
                for &number in numbers {
                    value_of(number, version, &mut value);
                    batch.put(key_of(number), &value);
                }
                self.db.write(&batch).map_err(|e| refused(&self.path, &e))?;
            }
            Ok(())
        };
        on_threads(numbers.chunks(chunk_of(numbers.len(), threads)), put).map(|_| ())
    }

    /// Reads all values with an iterator for each core. `rows` takes the values, all of the same size.
    ///
    /// # Errors
    /// The errors of [`Database::get_rows`].
    pub fn scan_rows(&self, rows: &mut [u8], value_bytes: usize) -> Result<(), Failure> {
        let chunk = (self.keys as usize)
            .div_ceil(usual_threads() as usize)
            .max(1);
        let parts = rows.chunks_mut(chunk * value_bytes).enumerate();
        let scan = |(part, rows): (usize, &mut [u8])| {
            let mut rows = rows.chunks_exact_mut(value_bytes);
            self.scan(
                (part * chunk) as u64,
                chunk,
                &mut |value| match rows.next() {
                    Some(row) if row.len() == value.len() => {
                        row.copy_from_slice(value);
                        true
                    }
                    _ => false,
                },
            )
        };
        on_threads(parts, scan).map(|_| ())
    }

    /// Reads all values of any size, as [`Database::get_lists`] returns them.
    ///
    /// # Errors
    /// The errors of [`Database::get_lists`].
    pub fn scan_lists(&self) -> Result<(Vec<u64>, Vec<u8>), Failure> {
        let chunk = (self.keys as usize)
            .div_ceil(usual_threads() as usize)
            .max(1);
        let parts = on_threads((0..self.keys).step_by(chunk), |first| {
            let (mut lens, mut bytes) = (Vec::new(), Vec::new());
            self.scan(first, chunk, &mut |value| {
                lens.push((value.len() / size_of::<u32>()) as u64);
                bytes.extend_from_slice(value);
                true
            })?;
            Ok((lens, bytes))
        })?;
        Ok(joined(parts))
    }

    fn scan(
        &self,
        first: u64,
        len: usize,
        each: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut options = ReadOptions::default();
        options.fill_cache(false);
        let begin = key_of(first);
        let mode = IteratorMode::From(&begin, Direction::Forward);
        for row in self.db.iterator_opt(mode, options).take(len) {
            let (_, value) = row.map_err(|e| refused(&self.path, &e))?;
            if !each(&value) {
                let what = "RocksDB has a value of another size".to_owned();
                return Err(Failure::Data(what));
            }
        }
        Ok(())
    }
}

/// Keys of each thread.
fn chunk_of(keys: usize, threads: usize) -> usize {
    keys.div_ceil(threads.max(1)).max(KEYS_OF_THREAD)
}

/// Works on each part on its own thread; on this one if there is only one.
fn on_threads<P: Send, R: Send>(
    parts: impl Iterator<Item = P>,
    work: impl Fn(P) -> Result<R, Failure> + Sync,
) -> Result<Vec<R>, Failure> {
    let mut parts: Vec<_> = parts.collect();
    if parts.len() == 1 {
        return parts.pop().map(work).into_iter().collect();
    }
    thread::scope(|scope| {
        let work = &work;
        let threads = parts
            .into_iter()
            .map(|part| scope.spawn(move || work(part)));
        let threads: Vec<_> = threads.collect();
        let each = threads.into_iter();
        let each = each.map(|thread| thread.join().expect("it returns errors"));
        each.collect()
    })
}

/// Ends of lists of all parts, and the lists.
fn joined(parts: Vec<(Vec<u64>, Vec<u8>)>) -> (Vec<u64>, Vec<u8>) {
    let (mut offsets, mut all) = (vec![0], Vec::new());
    let mut end = 0;
    for (lens, bytes) in parts {
        offsets.extend(lens.into_iter().map(|len| {
            end += len;
            end
        }));
        all.extend_from_slice(&bytes);
    }
    (offsets, all)
}

fn write(
    path: &Path,
    options: &Options,
    shape: Shape,
    value: &(dyn Fn(u64, &mut Vec<u8>) + Sync),
) -> Result<DB, Error> {
    let db = DB::open(options, path)?;
    let files = (shape.keys * shape.value_bytes).div_ceil(FILE_BYTES).max(1);
    let first = |file: u64| shape.keys * file / files;
    let name = |file: u64| path.join(format!("ingest-{file}"));
    let progress = progress::bar(shape.keys);
    let next = AtomicU64::new(0);
    let write_file = |file: u64| {
        let mut writer = SstFileWriter::create(options);
        writer.open(name(file))?;
        let mut bytes = Vec::new();
        for number in first(file)..first(file + 1) {
            bytes.clear();
            value(number, &mut bytes);
            writer.put(key_of(number), &bytes)?;
        }
        progress.inc(first(file + 1) - first(file));
        writer.finish()
    };
    thread::scope(|scope| {
        let threads = (0..usual_threads()).map(|_| {
            scope.spawn(|| {
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        file if file < files => write_file(file)?,
                        _ => return Ok(()),
                    }
                }
            })
        });
        let threads: Vec<_> = threads.collect();
        let each = threads.into_iter();
        let each = each.map(|thread| thread.join().expect("it returns errors"));
        each.collect::<Result<(), Error>>()
    })?;
    let mut ingest = IngestExternalFileOptions::default();
    ingest.set_move_files(true);
    db.ingest_external_file_opts(&ingest, (0..files).map(name).collect())?;
    progress.finish_and_clear();
    Ok(db)
}

//! The demo's database: overwrites and Deletes of random keys, in overlapping files of level 0.

use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{BlockBasedOptions, DB, DBCompressionType, Options, WriteBatch, WriteOptions};

use super::rocksdb_failed;
use crate::outcome::Failure;

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// So many entries for each key, in the mean.
const VERSIONS: u64 = 2;
/// One entry in so many is a Delete.
const DELETE_EVERY: u32 = 16;
/// Level-0 files to merge.
const RUNS: u64 = 8;
const BATCH_ENTRIES: u64 = 1000;
/// Every run of the demo makes the same database.
const SEED: u64 = 0x526f_636b_6d69_6c6c;
/// Said to the service too, since filters of small demos would not tell.
pub const BLOOM_BITS_PER_KEY: f64 = 10.0;
const TARGET_FILE_BYTES: u64 = 32 << 20;

/// The workload in one line.
pub fn workload_name(entries: u64) -> String {
    format!("{KEY_BYTES}x{VALUE_BYTES}:lz4:{entries} entries, {VERSIONS} versions, {RUNS} runs")
}

/// Options of all of the demo's databases; `subcompactions` is RocksDB's own parallelism.
pub fn options(subcompactions: u32) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_disable_auto_compactions(true);
    options.set_write_buffer_size(1 << 30);
    options.set_level_zero_slowdown_writes_trigger(RUNS as i32 * 4);
    options.set_level_zero_stop_writes_trigger(RUNS as i32 * 8);
    options.set_target_file_size_base(TARGET_FILE_BYTES);
    options.set_max_subcompactions(subcompactions);
    options
}

/// Two copies of one database.
#[derive(Debug)]
pub struct Copies {
    /// For RocksDB.
    pub rocksdb: PathBuf,
    /// For Rockmill.
    pub rockmill: PathBuf,
}

/// Makes the database in `origin` and two copies beside it, which share its files.
pub fn make(origin: &Path, dir: &Path, entries: u64) -> Result<Copies, Failure> {
    let db = DB::open(&options(1), origin).map_err(|e| rocksdb_failed("make a database", &e))?;
    fill(&db, entries).map_err(|e| rocksdb_failed("write", &e))?;
    let copies = Copies {
        rocksdb: dir.join("rocksdb"),
        rockmill: dir.join("rockmill"),
    };
    let checkpoint = Checkpoint::new(&db).map_err(|e| rocksdb_failed("make a checkpoint", &e))?;
    for copy in [&copies.rocksdb, &copies.rockmill] {
        checkpoint
            .create_checkpoint(copy)
            .map_err(|e| rocksdb_failed("make a checkpoint", &e))?;
    }
    Ok(copies)
}

fn fill(db: &DB, entries: u64) -> Result<(), rust_rocksdb::Error> {
    let progress = progress_bar(entries);
    let mut rng = SmallRng::seed_from_u64(SEED);
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    let keys = (entries / VERSIONS).max(1);
    let run_entries = entries.div_ceil(RUNS);
    let mut value = [0u8; VALUE_BYTES];
    let mut written = 0;
    while written < entries {
        let run_end = (written + run_entries).min(entries);
        while written < run_end {
            let batch_entries = BATCH_ENTRIES.min(run_end - written);
            let mut batch = WriteBatch::default();
            for _ in 0..batch_entries {
                let key = format!("{:0width$}", rng.random_range(0..keys), width = KEY_BYTES);
                if rng.random_ratio(1, DELETE_EVERY) {
                    batch.delete(key);
                } else {
                    // Half of a value compresses.
                    rng.fill_bytes(&mut value[..VALUE_BYTES / 2]);
                    batch.put(key, value);
                }
            }
            db.write_opt(&batch, &options)?;
            written += batch_entries;
            progress.inc(batch_entries);
        }
        db.flush()?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// A bar on standard error, which hides itself where that is no terminal.
fn progress_bar(entries: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("writing {wide_bar} {human_pos}/{human_len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(entries).with_style(style)
}

/// A sign of life while something of unknown length runs.
pub fn spinner(what: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

//! The database that clients use.

use std::path::Path;

use rockmill_side_by_side::rocksdb;
use rockmill_side_by_side::running_system::RunningSystem;
use rockmill_side_by_side::spec::BLOOM_BITS_PER_KEY;
use rockmill_terminal::outcome::Failure;
use rust_rocksdb::statistics::{Histogram, Ticker};
use rust_rocksdb::{
    BlockBasedOptions, ColumnFamily, ColumnFamilyDescriptor, DB, Options, WaitForCompactOptions,
};

use super::cell::{Cell, Clients, Traffic};

/// Write buffers per column family, so that clients can continue while some are being flushed.
const WRITE_BUFFERS: i32 = 4;
/// Size of the first level per size of a write buffer: RocksDB's own ratio.
const LEVEL_BASE_BUFFERS: u64 = 4;
/// One job for flushes and one for compactions.
const MIN_BACKGROUND_JOBS: u32 = 2;

const MICROS: f64 = 1e6;

/// More files than level 0 will have.
const ANY_FILES: i32 = i32::MAX;

/// Lets level 0 grow without limit and without stalls.
fn never_compact(options: &mut Options) {
    options.set_disable_auto_compactions(true);
    options.set_level_zero_slowdown_writes_trigger(ANY_FILES);
    options.set_level_zero_stop_writes_trigger(ANY_FILES);
    options.set_soft_pending_compaction_bytes_limit(0);
    options.set_hard_pending_compaction_bytes_limit(0);
}

/// An open database with its statistics.
pub struct Database {
    db: DB,
    /// Owns the statistics.
    options: Options,
    families: Vec<String>,
}

impl Database {
    /// Creates a database in a new folder; `running` does its compactions.
    ///
    /// # Errors
    /// Environment if it cannot be created.
    pub fn make(
        path: &Path,
        cell: &Cell,
        work: &Clients,
        running: &RunningSystem,
    ) -> Result<Self, Failure> {
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        options.enable_statistics();
        options.set_block_based_table_factory(&table);
        options.set_compression_type(work.records.compression.of_rocksdb());
        options.set_write_buffer_size(work.write_buffer_bytes as usize);
        options.set_max_write_buffer_number(WRITE_BUFFERS);
        options.set_target_file_size_base(work.write_buffer_bytes);
        let usual_base = LEVEL_BASE_BUFFERS * work.write_buffer_bytes;
        options.set_max_bytes_for_level_base(work.level_base_bytes.unwrap_or(usual_base));
        options.set_max_background_jobs(cell.threads.max(MIN_BACKGROUND_JOBS) as i32);
        options.set_max_subcompactions(cell.system.subcompactions(cell.threads));
        running.attach(&mut options);
        if !work.compacts {
            never_compact(&mut options);
        }
        let named = |number| match number {
            0 => rust_rocksdb::DEFAULT_COLUMN_FAMILY_NAME.to_owned(),
            number => number.to_string(),
        };
        let families: Vec<_> = (0..work.families).map(named).collect();
        let descriptors = families
            .iter()
            .map(|name| ColumnFamilyDescriptor::new(name, options.clone()));
        let db = DB::open_cf_descriptors(&options, path, descriptors)
            .map_err(|e| rocksdb::failed("make a database", &e))?;
        Ok(Self {
            db,
            options,
            families,
        })
    }

    /// RocksDB's handle.
    pub fn db(&self) -> &DB {
        &self.db
    }

    /// Returns all column families.
    pub fn families(&self) -> Vec<&ColumnFamily> {
        let handle = |name: &String| self.db.cf_handle(name);
        self.families.iter().filter_map(handle).collect()
    }

    /// Waits until nothing is left to flush or compact.
    ///
    /// # Errors
    /// Environment or Data if RocksDB failed at that.
    pub fn settle(&self) -> Result<(), Failure> {
        let waited = self.db.wait_for_compact(&WaitForCompactOptions::default());
        waited.map_err(|e| rocksdb::failed("compact", &e))
    }

    /// Returns the file traffic so far; the clients' bytes are not known here.
    pub fn traffic(&self) -> Traffic {
        let count = |ticker| self.options.get_ticker_count(ticker);
        let compactions = (self.options).get_histogram_data(Histogram::CompactionTime);
        Traffic {
            user_bytes: 0,
            flushed_bytes: count(Ticker::FlushWriteBytes),
            read_bytes: count(Ticker::CompactReadBytes) + count(Ticker::RemoteCompactReadBytes),
            written_bytes: count(Ticker::CompactWriteBytes)
                + count(Ticker::RemoteCompactWriteBytes),
            stalled_s: count(Ticker::StallMicros) as f64 / MICROS,
            compacted_s: compactions.sum() as f64 / MICROS,
        }
    }
}

//! A database of overlapping files in level 0, and copies of it.

use std::path::{Path, PathBuf};

use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::{BlockBasedOptions, DB, Options};

use super::workload::Workload;
use super::{fill, rocksdb_failed};
use crate::outcome::Failure;

/// Said to the service too, since filters of small databases would not tell.
pub const BLOOM_BITS_PER_KEY: f64 = 10.0;

/// What is in the database.
#[derive(Debug, Clone)]
pub struct Spec {
    pub workload: Workload,
    /// So many entries for each key, in the mean; with 1, each key is there once.
    pub versions: u64,
    /// Files in level 0 to merge.
    pub runs: u64,
    /// One entry in so many is a Delete.
    pub delete_every: Option<u32>,
    /// Threads that write at once. The newest version of each key depends on their number, so it is
    /// not the machine's number of cores.
    pub writers: u64,
    pub target_file_bytes: u64,
}

impl Spec {
    /// All that matters in one line.
    pub fn name(&self) -> String {
        let (versions, runs) = (self.versions, self.runs);
        format!("{}, {versions} versions, {runs} runs", self.workload)
    }

    /// Options to compact with; `subcompactions` is RocksDB's own parallelism.
    pub fn options(&self, subcompactions: u32) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_bloom_filter(BLOOM_BITS_PER_KEY, false);
        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_compression_type(self.workload.compression.of_rocksdb());
        options.set_disable_auto_compactions(true);
        options.set_target_file_size_base(self.target_file_bytes);
        options.set_max_subcompactions(subcompactions);
        options
    }
}

/// The database whose copies are compacted; closed, and never compacted itself.
pub struct Origin {
    path: PathBuf,
    options: Options,
}

impl Origin {
    /// Makes the database in a folder that is not there yet.
    pub fn make(path: PathBuf, spec: &Spec) -> Result<Self, Failure> {
        let mut options = spec.options(1);
        options.create_if_missing(true);
        fill::prepare(&mut options);
        let db = DB::open(&options, &path).map_err(|e| rocksdb_failed("make a database", &e))?;
        fill::fill(&db, spec).map_err(|e| rocksdb_failed("write", &e))?;
        drop(db);
        let options = spec.options(1);
        Ok(Self { path, options })
    }

    /// A copy in a folder that is not there yet. It shares the files, as hard links.
    pub fn copy_to(&self, path: &Path) -> Result<(), Failure> {
        let db = super::open(&self.path, &self.options)?;
        Checkpoint::new(&db)
            .and_then(|checkpoint| checkpoint.create_checkpoint(path))
            .map_err(|e| rocksdb_failed("make a checkpoint", &e))
    }
}

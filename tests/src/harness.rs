//! Small databases with a service: opens, fills and compacts them, and checks conditions afterwards.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use rust_rocksdb::compaction_filter::Decision;
use rust_rocksdb::{
    BottommostLevelCompaction, ColumnFamilyDescriptor, CompactOptions, DB,
    DEFAULT_COLUMN_FAMILY_NAME, Error, Options, WaitForCompactOptions,
};

use crate::content::Content;
use crate::damage::{replace, sst_files, with_flipped_bit};

/// Folder below the database's directory in which Rockmill keeps files before RocksDB takes them.
pub const STAGING: &str = "rockmill.staging";

/// Maximum number of parallel subcompactions.
const THREADS: usize = 2;
const MEMORY_BUDGET_BYTES: u64 = 256 << 20;
/// Number of flushes of [`fill`], which is also the number of overlapping files in L0.
const FLUSHES: usize = 4;
/// One write in `DELETE_EVERY` of [`fill`] is a Delete.
const DELETE_EVERY: u32 = 8;

/// Number of writes of [`compact_small_database`].
const SMALL_WRITES: usize = 2_000;

/// Background work of a small database ends long before this.
const QUIET_TIMEOUT_MICROS: u64 = 60_000_000;

/// Creates a service with default settings.
///
/// # Panics
///
/// If it cannot be built.
#[must_use]
pub fn service() -> rockmill::Service {
    rockmill::Service::builder()
        .min_job_bytes(0)
        .threads(THREADS)
        .memory_budget_bytes(MEMORY_BUDGET_BYTES)
        .build()
        .expect("the settings are good")
}

/// Returns options of a new database whose compactions go to `service` and run only on request.
#[must_use]
pub fn options(service: &rockmill::Service) -> Options {
    let mut options = local_options();
    options.set_compaction_service(service.clone());
    options
}

/// Returns [`options`] without a service, for RocksDB alone.
#[must_use]
pub fn local_options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    options
}

/// Opens a database with only the default column family, and with a handle to it.
///
/// # Errors
///
/// RocksDB's error.
pub fn try_open(options: &Options, path: &Path) -> Result<DB, Error> {
    let family = ColumnFamilyDescriptor::new(DEFAULT_COLUMN_FAMILY_NAME, options.clone());
    DB::open_cf_descriptors(options, path, [family])
}

/// Calls [`try_open`], which must succeed.
///
/// # Panics
///
/// If RocksDB cannot open the database.
#[must_use]
pub fn open(options: &Options, path: &Path) -> DB {
    try_open(options, path).unwrap_or_else(|e| panic!("open {}: {e}", path.display()))
}

/// Writes `writes` Puts and Deletes of random keys out of half that number, in four overlapping flushes. Returns the
/// content.
///
/// # Panics
///
/// If RocksDB refuses a write.
pub fn fill(db: &DB, writes: usize, seed: u64) -> Content {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut content = Content::new();
    for _ in 0..FLUSHES {
        for _ in 0..writes / FLUSHES {
            let number = rng.random_range(0..writes / 2);
            let key = format!("key{number:08}").into_bytes();
            if rng.random_ratio(1, DELETE_EVERY) {
                db.delete(&key).expect("delete");
                content.remove(&key);
            } else {
                let value = random_value(&mut rng);
                db.put(&key, &value).expect("put");
                content.insert(key, value);
            }
        }
        db.flush().expect("flush");
    }
    content
}

/// Puts one key into the database and the content.
///
/// # Panics
///
/// If RocksDB refuses the write.
pub fn put(db: &DB, content: &mut Content, key: &[u8], value: &[u8]) {
    db.put(key, value).expect("put");
    content.insert(key.to_vec(), value.to_vec());
}

/// Makes a value of which half is compressible.
fn random_value(rng: &mut StdRng) -> Vec<u8> {
    let mut value = vec![b'v'; rng.random_range(0..200)];
    let half = value.len() / 2;
    rng.fill_bytes(&mut value[half..]);
    value
}

/// Compacts the default column family down to and including the bottommost level.
pub fn compact_everything(db: &DB) {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(BottommostLevelCompaction::ForceOptimized);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
}

/// Writes and compacts a new database with `change`d options; `between` may change its files.
///
/// # Panics
///
/// If there is no room.
pub fn compact_small_database(
    service: &rockmill::Service,
    change: impl Fn(&mut Options),
    between: impl FnOnce(&DB),
) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut options = options(service);
    change(&mut options);
    let db = open(&options, &directory.path().join("db"));
    fill(&db, SMALL_WRITES, 1);
    between(&db);
    compact_everything(&db);
}

/// Lets `service` do jobs, decline others, and fail at others.
///
/// # Panics
///
/// If there is no room.
pub fn run_jobs_of_each_outcome(service: &rockmill::Service) {
    let filter = |options: &mut Options| {
        options.set_compaction_filter("keep", |_, _, _| Decision::Keep);
    };
    let damage = |db: &DB| {
        let file = sst_files(db).swap_remove(1);
        let bytes = std::fs::read(&file).expect("read");
        replace(&file, &with_flipped_bit(&bytes, 10)).expect("replace");
    };
    compact_small_database(service, |_| {}, |_| {});
    compact_small_database(service, filter, |_| {});
    compact_small_database(service, |_| {}, damage);
}

/// Waits until no flush or compaction runs or is due.
///
/// # Panics
///
/// If one has failed, or they do not end.
pub fn wait_for_compact(db: &DB) {
    let mut options = WaitForCompactOptions::default();
    options.set_timeout(QUIET_TIMEOUT_MICROS);
    db.wait_for_compact(&options)
        .expect("background work succeeds and ends");
}

/// Checks that the staging folder of the database at `path` is gone or empty.
///
/// # Panics
///
/// If it has any files.
pub fn assert_nothing_staged(path: &Path) {
    let Ok(staged) = std::fs::read_dir(path.join(STAGING)) else {
        return;
    };
    let left: Vec<_> = staged.flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left in the staging folder: {left:?}");
}

/// Checks that every scheduled job has ended in some way.
///
/// # Panics
///
/// If the numbers do not add up.
pub fn assert_jobs_add_up(stats: &rockmill::Stats) {
    let ended = stats.jobs_done + stats.jobs_declined + stats.jobs_failed;
    assert_eq!(stats.jobs_offered, ended, "{stats}");
    assert_eq!(
        stats.jobs_declined_by_reason.values().sum::<u64>(),
        stats.jobs_declined,
        "{stats}"
    );
}

/// Checks that Rockmill did every job.
///
/// # Panics
///
/// If there was none, or one was returned to RocksDB.
pub fn assert_done(stats: &rockmill::Stats) {
    assert!(stats.jobs_done > 0, "{stats}");
    assert_eq!(stats.jobs_done, stats.jobs_offered, "{stats}");
}

/// Checks that every job was declined, for one of `reasons`.
///
/// # Panics
///
/// If there was none, or one was done, failed, or declined for another reason.
pub fn assert_declined(stats: &rockmill::Stats, reasons: &[&str]) {
    assert!(stats.jobs_declined > 0, "{stats}");
    assert_eq!(stats.jobs_declined, stats.jobs_offered, "{stats}");
    let known = |reason: &&String| reasons.contains(&reason.as_str());
    let other = stats
        .jobs_declined_by_reason
        .keys()
        .find(|reason| !known(reason));
    assert_eq!(other, None, "expected {reasons:?}: {stats}");
}

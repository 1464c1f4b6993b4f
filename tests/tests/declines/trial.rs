//! The common course of a test: open, write, compact, check the counts, check the content.

use std::fs;
use std::path::Path;

use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, assert_jobs_add_up, assert_nothing_staged, compact_everything,
    fill, open, options, service,
};
use rockmill_tests::reasons::{FILTER_POLICY, SINGLE_DELETE_CONTRACT};
use rust_rocksdb::{BlockBasedOptions, DB, Options};

/// Number of writes of a small database.
const WRITES: usize = 2_000;

/// Writes Puts and Deletes.
pub fn plain(db: &DB) -> Content {
    fill(db, WRITES, 1)
}

/// Sets `change`d block-based table options in `options`.
pub fn with_table(change: impl Fn(&mut BlockBasedOptions)) -> impl Fn(&mut Options) {
    move |options| {
        let mut table = BlockBasedOptions::default();
        change(&mut table);
        options.set_block_based_table_factory(&table);
    }
}

/// Sets options from text, where the binding has no function for them.
pub fn with_text(text: &str) -> impl Fn(&mut Options) {
    move |options| {
        *options = options
            .get_options_from_string(text)
            .expect("RocksDB knows the option");
    }
}

/// Opens a database with `configure`d options, lets `write` write, compacts everything, and checks the content with
/// `check`, also after reopening. Returns the counts of the first run.
pub fn run_checked(
    configure: impl Fn(&mut Options),
    write: impl FnOnce(&DB) -> Content,
    check: impl Fn(&DB, &Content),
) -> rockmill::Stats {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("db");
    let service = service();
    let mut options = options(&service);
    configure(&mut options);
    let db = open(&options, &path);
    let content = write(&db);
    compact_everything(&db);
    let stats = service.stats();
    assert_told_in_time(&path, &stats);
    check(&db, &content);
    drop(db);
    check(&open(&options, &path), &content);
    assert!(stats.jobs_offered > 0, "no job reached the service");
    assert_eq!(stats.jobs_failed, 0, "{stats}");
    assert_jobs_add_up(&stats);
    assert_nothing_staged(&path);
    stats
}

/// Checks that RocksDB waited for no job that was declined, unless the reason shows only in entries or filters. After such a
/// wait it lists its whole tree in its LOG.
pub fn assert_told_in_time(db: &Path, stats: &rockmill::Stats) {
    const LISTING: &str = "DebugString After Wait";
    let declined = |reasons: &[&str]| -> u64 {
        let counts = reasons
            .iter()
            .map(|&reason| stats.jobs_declined_by_reason.get(reason));
        counts.flatten().sum()
    };
    let after_waits = declined(&[SINGLE_DELETE_CONTRACT]);
    let log = fs::read_to_string(db.join("LOG")).expect("RocksDB writes a LOG");
    let listed = log.matches(LISTING).count() as u64;
    let most = after_waits + declined(&[FILTER_POLICY]);
    assert!((after_waits..=most).contains(&listed), "{listed}: {stats}");
}

/// Calls [`run_checked`] with all kinds of reads.
pub fn run(
    configure: impl Fn(&mut Options),
    write: impl FnOnce(&DB) -> Content,
) -> rockmill::Stats {
    run_checked(configure, write, assert_content)
}

/// Checks that all jobs are declined for one of `reasons`.
pub fn declines(
    reasons: &[&str],
    configure: impl Fn(&mut Options),
    write: impl FnOnce(&DB) -> Content,
) {
    assert_declined(&run(configure, write), reasons);
}

/// Checks that all jobs are done.
pub fn takes(configure: impl Fn(&mut Options), write: impl FnOnce(&DB) -> Content) {
    assert_done(&run(configure, write));
}

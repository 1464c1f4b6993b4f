//! Jobs under a limit of open files that their inputs would exceed: RocksDB must always be able to open its own.

use std::path::Path;

use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, compact_everything, local_options, open, options, put, service,
};
use rockmill_tests::reasons::OPEN_FILES;
use rust_rocksdb::{DB, DBCompressionType, Options};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Limit of open files of the process, for all tests in this file.
const LIMIT: u64 = 256;
/// Files that RocksDB keeps open per database.
const MAX_OPEN_FILES: i32 = 40;

fn lower_the_limit() {
    let limit = Rlimit {
        current: Some(LIMIT),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, limit).expect("lower is allowed");
}

fn small(mut options: Options) -> Options {
    options.set_max_open_files(MAX_OPEN_FILES);
    options.set_target_file_size_base(8 << 10);
    options.set_compression_type(DBCompressionType::None);
    options
}

/// Writes the keys `first`, `first + step` and so on into one file of level 0, and returns their number.
fn flush(db: &DB, content: &mut Content, first: usize, step: usize) -> u64 {
    const KEYS: usize = 30_000;
    let numbers = (first..KEYS).step_by(step);
    let written = numbers.len() as u64;
    for number in numbers {
        let key = format!("key{number:08}").into_bytes();
        put(db, content, &key, format!("{first:0100}").as_bytes());
    }
    db.flush().expect("flush");
    written
}

fn tables(path: &Path) -> usize {
    let files = path.read_dir().expect("a folder").flatten();
    let is_table = |name: &str| name.ends_with(".sst");
    files
        .filter(|file| is_table(&file.file_name().to_string_lossy()))
        .count()
}

#[test]
fn a_job_of_more_inputs_than_may_be_open_is_done() {
    lower_the_limit();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut content = Content::new();
    let db = open(&small(local_options()), directory.path());
    let before = flush(&db, &mut content, 0, 1);
    compact_everything(&db);
    drop(db);
    let inputs = tables(directory.path());
    assert!(inputs as u64 > LIMIT, "{inputs} files");
    let service = service();
    let db = open(&small(options(&service)), directory.path());
    let entries = before + flush(&db, &mut content, 1, 3);
    compact_everything(&db);
    let stats = service.stats();
    assert_done(&stats);
    assert_eq!(
        (stats.jobs_done, stats.entries_read),
        (1, entries),
        "{stats}"
    );
    assert_content(&db, &content);
}

#[test]
fn a_job_that_needs_more_at_once_than_may_be_open_is_declined() {
    const FILES: usize = 100;
    lower_the_limit();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db = open(&small(options(&service)), directory.path());
    let mut content = Content::new();
    for first in 0..FILES {
        flush(&db, &mut content, first, FILES);
    }
    compact_everything(&db);
    assert_declined(&service.stats(), &[OPEN_FILES]);
    flush(&db, &mut content, 0, 1);
    assert_content(&db, &content);
}

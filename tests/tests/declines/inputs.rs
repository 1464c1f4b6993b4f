//! Inputs that Rockmill leaves to RocksDB although nothing in the options says so.

use std::fs;
use std::path::Path;

use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, compact_everything, local_options, open, options, service,
};
use rockmill_tests::reasons::{
    BLOB_FILES, COMPRESSION, DB_PATHS, GLOBAL_SEQUENCE_NUMBER, INPUT_MISSING, MEMORY_BUDGET,
    OPTIONS_FILE, TIERING, TIMED_PUTS,
};
use rust_rocksdb::{
    CompactOptions, DB, DBCompressionType, DBPath, Options, SstFileWriter, WriteBatch,
};

use crate::trial::{declines, plain, run};

/// `kTypeValuePreferredSeqno` (`db/dbformat.h`).
const TYPE_VALUE_PREFERRED_SEQNO: u8 = 0x18;
/// Sequence number at the start of a write batch, bytes (`db/write_batch.cc`).
const SEQUENCE_BYTES: usize = 8;

#[test]
fn an_ingested_file_with_a_global_sequence_number() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    let file = outside.path().join("ingested.sst");
    declines(
        &[GLOBAL_SEQUENCE_NUMBER],
        |_| {},
        |db| {
            let mut content = plain(db);
            let options = Options::default();
            let mut writer = SstFileWriter::create(&options);
            writer.open(&file).expect("open");
            for key in content.keys().step_by(2).cloned().collect::<Vec<_>>() {
                writer.put(&key, b"ingested").expect("put");
                content.insert(key, b"ingested".to_vec());
            }
            writer.finish().expect("finish");
            // The keys are there already, so RocksDB gives the whole file a sequence number above theirs.
            db.ingest_external_file(vec![&file]).expect("ingest");
            content
        },
    );
}

/// Opens the database with `first` options, without Rockmill, writes, closes it, and compacts it with
/// default options and Rockmill.
fn compact_older_files(
    first: impl Fn(&mut Options),
    write: impl FnOnce(&DB) -> Content,
) -> rockmill::Stats {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut older = local_options();
    first(&mut older);
    let content = write(&open(&older, directory.path()));
    let service = service();
    let db = open(&options(&service), directory.path());
    assert_content(&db, &content);
    compact_everything(&db);
    assert_content(&db, &content);
    service.stats()
}

#[test]
fn inputs_that_point_into_blob_files() {
    let with_blobs = |options: &mut Options| {
        options.set_enable_blob_files(true);
        options.set_min_blob_size(1);
    };
    assert_declined(&compact_older_files(with_blobs, plain), &[BLOB_FILES]);
}

#[test]
fn inputs_compressed_in_a_way_rockmill_cannot_read() {
    let bzip2 = |options: &mut Options| options.set_compression_type(DBCompressionType::Bz2);
    assert_declined(&compact_older_files(bzip2, plain), &[COMPRESSION]);
}

/// A write batch of one TimedPut. The binding has no TimedPut, so it is spelt out
/// (`write_batch.cc`: key, then value and write time packed).
fn timed_put_batch(key: &[u8], value: &[u8], unix_write_time: u64) -> WriteBatch {
    let packed = [value, &unix_write_time.to_le_bytes()].concat();
    let batch = [
        &[0; SEQUENCE_BYTES][..],
        &1_u32.to_le_bytes(),
        &[TYPE_VALUE_PREFERRED_SEQNO, key.len() as u8],
        key,
        &[packed.len() as u8],
        &packed,
    ]
    .concat();
    WriteBatch::from_data(&batch)
}

#[test]
fn timed_puts() {
    let with_times = |options: &mut Options| options.set_preserve_internal_time_seconds(1 << 30);
    let stats = compact_older_files(with_times, |db| {
        let mut content = plain(db);
        // So old that a preferred sequence number below the key's own exists: the flush keeps it.
        db.write(&timed_put_batch(b"timed", b"value", 1))
            .expect("write the timed put");
        content.insert(b"timed".to_vec(), b"value".to_vec());
        db.flush().expect("flush");
        content
    });
    assert_declined(&stats, &[TIMED_PUTS, TIERING]);
}

/// The OPTIONS files of a database.
fn options_files(path: &Path) -> Vec<std::path::PathBuf> {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    std::fs::read_dir(path)
        .expect("the database's directory")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| name(path).is_some_and(|name| name.starts_with("OPTIONS-")))
        .collect()
}

#[test]
fn a_missing_options_file() {
    declines(
        &[OPTIONS_FILE],
        |_| {},
        |db| {
            let content = plain(db);
            for file in options_files(db.path()) {
                std::fs::remove_file(file).expect("remove");
            }
            content
        },
    );
}

#[test]
fn a_truncated_options_file() {
    declines(
        &[OPTIONS_FILE],
        |_| {},
        |db| {
            let content = plain(db);
            for file in options_files(db.path()) {
                let text = std::fs::read(&file).expect("read");
                std::fs::write(&file, &text[..text.len() / 2]).expect("write");
            }
            content
        },
    );
}

#[test]
fn an_options_file_of_garbage() {
    declines(
        &[OPTIONS_FILE],
        |_| {},
        |db| {
            let content = plain(db);
            for file in options_files(db.path()) {
                std::fs::write(&file, b"\xff\x00[DBOptions\n=\n\n[[]]=}{").expect("write");
            }
            content
        },
    );
}

#[test]
fn options_changed_while_the_database_is_open() {
    let stats = run(
        |_| {},
        |db| {
            let content = plain(db);
            db.set_options(&[("compression", "kBZip2Compression")])
                .expect("set");
            content
        },
    );
    assert_declined(&stats, &[COMPRESSION]);
    let stats = run(
        |options| options.set_compression_type(DBCompressionType::Bz2),
        |db| {
            db.set_options(&[("compression", "kNoCompression")])
                .expect("set");
            plain(db)
        },
    );
    assert_done(&stats);
}

#[test]
fn all_files_in_another_directory() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    let path = DBPath::new(outside.path(), u64::MAX).expect("a path");
    declines(
        &[INPUT_MISSING],
        |options| options.set_db_paths(std::slice::from_ref(&path)),
        plain,
    );
}

#[test]
fn a_column_familys_files_in_another_directory() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    let path = DBPath::new(outside.path(), u64::MAX).expect("a path");
    declines(
        &[INPUT_MISSING],
        |options| options.set_cf_paths(std::slice::from_ref(&path)),
        plain,
    );
}

#[test]
fn some_files_in_another_directory() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (inside, outside) = (
        directory.path().join("db"),
        directory.path().join("outside"),
    );
    let service = service();
    let mut options = options(&service);
    options.set_db_paths(&[
        DBPath::new(&inside, 1).expect("a path"),
        DBPath::new(&outside, u64::MAX).expect("a path"),
    ]);
    let db = open(&options, &inside);
    let content = plain(&db);
    // No file lies outside yet, so this job may be taken: RocksDB moves its outputs.
    let mut to_second_path = CompactOptions::default();
    to_second_path.set_target_path_id(1);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &to_second_path);
    assert!(fs::read_dir(&outside).expect("list").count() > 0);
    assert_content(&db, &content);
    let declined = service.stats().jobs_declined;
    // The same writes again leave the same content.
    assert_eq!(plain(&db), content);
    compact_everything(&db);
    let stats = service.stats();
    assert!(stats.jobs_declined > declined, "{stats}");
    assert!(
        stats.declines.keys().all(|reason| reason == DB_PATHS),
        "{stats}"
    );
    assert_content(&db, &content);
}

#[test]
fn a_memory_budget_that_is_too_small_is_refused_or_declines() {
    let Ok(service) = rockmill::Service::builder().memory_budget_bytes(1).build() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = open(&options(&service), directory.path());
    let content = plain(&db);
    compact_everything(&db);
    assert_content(&db, &content);
    assert_declined(&service.stats(), &[MEMORY_BUDGET]);
}

#[test]
fn inputs_compressed_with_a_dictionary_are_taken() {
    for compression in [
        DBCompressionType::Lz4,
        DBCompressionType::Zstd,
        DBCompressionType::Zlib,
    ] {
        let stats = compact_older_files(
            |options| {
                options.set_compression_type(compression);
                options.set_compression_options(-14, i16::MAX.into(), 0, 4 << 10);
            },
            plain,
        );
        assert_done(&stats);
    }
}

//! Inputs that Rockmill leaves to RocksDB for a reason that is not in the options.

use std::fs;
use std::path::Path;

use rockmill_tests::batches;
use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, compact_everything, local_options, open, options, put, service,
};
use rockmill_tests::reasons::{
    BLOB_FILES, COMPRESSION, COMPRESSION_MANAGER, DB_PATHS, FILE_CHECKSUM, FLUSH_BLOCK_POLICY,
    INPUT_MISSING, MEMORY_BUDGET, OPTIONS_FILE, SST_PARTITIONER, TIERING,
};
use rust_rocksdb::{
    CompactOptions, CompactionOptions, DB, DBCompressionType, DBPath, Options, SstFileWriter,
};

use crate::trial::{assert_told_in_time, declines, plain, run, takes};

#[test]
fn an_ingested_file_with_a_global_sequence_number_is_no_reason() {
    let outside = tempfile::tempdir().expect("a temporary directory");
    let file = outside.path().join("ingested.sst");
    takes(
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
            // The keys exist already, so RocksDB gives the whole file a sequence number above theirs.
            db.ingest_external_file(vec![&file]).expect("ingest");
            content
        },
    );
}

/// Opens the database with `first` options, without Rockmill, writes, and closes it. Then compacts it with default
/// options and Rockmill.
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
    assert_told_in_time(directory.path(), &service.stats());
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

#[test]
fn timed_puts_are_no_reason() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path();
    // The key is in the last level, so a compaction to a higher level keeps the timed put.
    let mut content = {
        let db = open(&local_options(), path);
        let content = plain(&db);
        compact_everything(&db);
        content
    };
    let timed = content.keys().next().expect("not empty").clone();
    {
        // A flush keeps a timed put only if times are preserved, and its file then has a map of times.
        let mut with_times = local_options();
        with_times.set_preserve_internal_time_seconds(1 << 30);
        let db = open(&with_times, path);
        // The time is so old that there is a preferred sequence number below the key's own.
        db.write(&batches::timed_put(&timed, b"timed value", 1))
            .expect("write the timed put");
        content.insert(timed, b"timed value".to_vec());
        db.flush().expect("flush");
    }
    {
        // A compaction without preserved times drops the map and keeps the timed put.
        let db = open(&local_options(), path);
        let files = db.live_files().expect("live files");
        let top: Vec<_> = files.iter().filter(|file| file.level == 0).collect();
        assert_eq!(top.len(), 1);
        let family = db.cf_handle("default").expect("open");
        let names = top.iter().map(|file| file.name.as_str());
        db.compact_files_cf(family, &CompactionOptions::default(), names, 1)
            .expect("compact");
    }
    let service = service();
    let db = open(&options(&service), path);
    compact_everything(&db);
    assert_content(&db, &content);
    assert_done(&service.stats());
}

#[test]
fn inputs_with_a_map_of_times() {
    let with_times = |options: &mut Options| options.set_preserve_internal_time_seconds(1 << 30);
    assert_declined(&compact_older_files(with_times, plain), &[TIERING]);
}

/// Returns the OPTIONS files of a database.
fn options_files(path: &Path) -> Vec<std::path::PathBuf> {
    let name = |path: &Path| path.file_name().map(|n| n.to_string_lossy().into_owned());
    std::fs::read_dir(path)
        .expect("the database's directory")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| name(path).is_some_and(|name| name.starts_with("OPTIONS-")))
        .collect()
}

/// Checks that jobs are declined after this change of each OPTIONS file.
fn declines_with_changed_options(change: impl Fn(&Path)) {
    declines(
        &[OPTIONS_FILE],
        |_| {},
        |db| {
            let content = plain(db);
            options_files(db.path())
                .iter()
                .for_each(|file| change(file));
            content
        },
    );
}

#[test]
fn a_missing_options_file() {
    declines_with_changed_options(|file| fs::remove_file(file).expect("remove"));
}

#[test]
fn a_truncated_options_file() {
    declines_with_changed_options(|file| {
        let text = fs::read(file).expect("read");
        fs::write(file, &text[..text.len() / 2]).expect("write");
    });
}

#[test]
fn an_options_file_of_garbage() {
    declines_with_changed_options(|file| {
        fs::write(file, b"\xff\x00[DBOptions\n=\n\n[[]]=}{").expect("write");
    });
}

/// Sets an option in the OPTIONS file that the binding cannot set.
fn set_in_file(db: &DB, key: &str, value: &str) {
    let mut found = 0;
    for file in options_files(db.path()) {
        let text = fs::read_to_string(&file).expect("read");
        let lines = text.lines().map(|line| match line.trim().split_once('=') {
            Some((name, _)) if name == key => {
                found += 1;
                format!("  {key}={value}\n")
            }
            _ => format!("{line}\n"),
        });
        let text: String = lines.collect();
        fs::write(&file, text).expect("write");
    }
    assert!(found > 0, "no OPTIONS file has {key}");
}

#[test]
fn objects_of_classes_that_the_binding_cannot_make() {
    for (key, reason) in [
        ("file_checksum_gen_factory", FILE_CHECKSUM),
        ("compression_manager", COMPRESSION_MANAGER),
        ("flush_block_policy_factory", FLUSH_BLOCK_POLICY),
        ("sst_partitioner_factory", SST_PARTITIONER),
    ] {
        declines(
            &[reason],
            |_| {},
            |db| {
                let content = plain(db);
                set_in_file(db, key, "SomebodysOwn");
                content
            },
        );
    }
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
    // No file is outside yet, so this job may be accepted: RocksDB moves its outputs.
    let mut to_second_path = CompactOptions::default();
    to_second_path.set_target_path_id(1);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &to_second_path);
    assert!(fs::read_dir(&outside).expect("list").count() > 0);
    assert_content(&db, &content);
    let declined = service.stats().jobs_declined;
    // The same writes leave the same content.
    assert_eq!(plain(&db), content);
    compact_everything(&db);
    let stats = service.stats();
    assert!(stats.jobs_declined > declined, "{stats}");
    assert!(
        stats
            .jobs_declined_by_reason
            .keys()
            .all(|reason| reason == DB_PATHS),
        "{stats}"
    );
    assert_content(&db, &content);
}

/// Smallest memory budget of a service in bytes.
const MIN_BUDGET_BYTES: u64 = 32 << 20;

#[test]
fn a_memory_budget_that_is_too_small_is_refused() {
    let built = |bytes| {
        rockmill::Service::builder()
            .min_job_bytes(0)
            .memory_budget_bytes(bytes)
            .build()
    };
    let error = built(MIN_BUDGET_BYTES - 1).expect_err("refused");
    assert!(error.to_string().contains("memory_budget_bytes"), "{error}");
    assert!(built(MIN_BUDGET_BYTES).is_ok());
}

/// Compacts files with one value each, under the smallest memory budget.
fn compact_values_on_the_least_budget(value_bytes: usize) -> rockmill::Stats {
    const FILES: u8 = 4;
    let builder = rockmill::Service::builder()
        .min_job_bytes(0)
        .memory_budget_bytes(MIN_BUDGET_BYTES);
    let service = builder.build().expect("the settings are good");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let db = open(&options(&service), directory.path());
    let mut content = Content::new();
    for number in 0..FILES {
        put(
            &db,
            &mut content,
            b"overwritten",
            &vec![number; value_bytes],
        );
        put(&db, &mut content, &[number], b"value");
        db.flush().expect("flush");
    }
    compact_everything(&db);
    assert_content(&db, &content);
    service.stats()
}

#[test]
fn inputs_whose_blocks_do_not_fit_the_memory_budget() {
    // One block of each input is in memory at a time, so four blocks of this size are too much.
    const VALUE_BYTES: usize = 9 << 20;
    let stats = compact_values_on_the_least_budget(VALUE_BYTES);
    assert_declined(&stats, &[MEMORY_BUDGET]);
}

#[test]
fn the_least_memory_budget_is_enough_for_small_blocks() {
    assert_done(&compact_values_on_the_least_budget(1 << 10));
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

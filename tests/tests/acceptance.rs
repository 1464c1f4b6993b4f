//! RocksDB accepts Rockmill's files without Rockmill: the database is reopened, verified, read in every way,
//! checkpointed and compacted again.

use std::path::Path;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rockmill::{Device, OutputCache, Service};
use rockmill_cuda::Target;
use rockmill_tests::content::{Content, absent_neighbour, assert_content, read_everything};
use rockmill_tests::harness::{
    assert_done, assert_jobs_add_up, assert_nothing_staged, compact_everything, fill,
    local_options, open, options, put, service, wait_for_compact,
};
use rockmill_tests::seed;
use rockmill_tests::table::{Filter, Prefix, TableShape};
use rockmill_tests::tree::TreeShape;
use rust_rocksdb::checkpoint::Checkpoint;
use rust_rocksdb::statistics::Ticker;
use rust_rocksdb::{DB, DBCompressionType, Options};

/// Number of writes of a small database: some hundred KiB, several data blocks and files.
const WRITES: usize = 6_000;
/// Number of random table shapes, besides the fixed ones.
const DEFAULT_SHAPES: u64 = 24;

/// A tree with small files, so that a job writes several.
fn small_files() -> TreeShape {
    TreeShape {
        target_file_size: 64 << 10,
        write_buffer_size: 256 << 10,
        ..TreeShape::default()
    }
}

fn shaped(options: Options, table: &TableShape) -> Options {
    let mut options = table.apply(options);
    small_files().apply(&mut options);
    options
}

/// Creates a database at `path` that Rockmill compacted, closes it, and returns its content.
fn compacted(path: &Path, table: &TableShape, seed: u64) -> Content {
    compacted_by(&service_for(table), path, table, seed)
}

/// A service that is told the bits per key of partitioned filters: small partitions do not imply them.
fn service_for(table: &TableShape) -> Service {
    match table.filter {
        Filter::Bloom(bits) | Filter::Ribbon(bits) if table.partition_filters => Service::builder()
            .min_job_bytes(0)
            .filter_bits_per_key(bits)
            .build()
            .expect("valid settings"),
        _ => service(),
    }
}

fn compacted_by(service: &Service, path: &Path, table: &TableShape, seed: u64) -> Content {
    let db = open(&shaped(options(service), table), path);
    let content = fill(&db, WRITES, seed);
    compact_everything(&db);
    assert_done(&service.stats());
    assert_content(&db, &content);
    drop(db);
    assert_nothing_staged(path);
    content
}

/// Opens without a service and with all of RocksDB's checks.
fn open_strictly(path: &Path, table: &TableShape) -> DB {
    let mut options = shaped(local_options(), table);
    options.create_if_missing(false);
    options.set_paranoid_checks(true);
    options.set_verify_sst_unique_id_in_manifest(true);
    options.set_force_consistency_checks(true);
    open(&options, path)
}

fn accept(table: &TableShape, seed: u64) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("db");
    let content = compacted(&path, table, seed);
    let db = open_strictly(&path, table);
    db.verify_checksum().expect("every block's checksum holds");
    assert_content(&db, &content);

    let checkpoint_path = directory.path().join("checkpoint");
    let checkpoint = Checkpoint::new(&db).expect("a checkpoint");
    checkpoint
        .create_checkpoint(&checkpoint_path)
        .expect("links to all files");
    drop(checkpoint);
    let checkpoint = open_strictly(&checkpoint_path, table);
    assert_content(&checkpoint, &content);
    drop(checkpoint);

    compact_everything(&db);
    db.verify_checksum().expect("every block's checksum holds");
    assert_content(&db, &content);
}

#[test]
fn outputs_of_any_supported_table_shape_are_accepted() {
    let (first, shapes) = (seed::first_seed(), seed::cases(DEFAULT_SHAPES));
    for seed in first..first + shapes {
        let table = TableShape::supported(&mut StdRng::seed_from_u64(seed));
        println!("seed {seed}: {table:?}");
        accept(&table, seed);
    }
}

#[test]
fn outputs_are_accepted_whether_bytes_pass_by_the_page_cache_or_not() {
    let (table, service) = (TableShape::default(), service());
    for (reads, writes) in [(true, false), (false, true), (true, true)] {
        println!("direct reads {reads}, direct writes {writes}");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("db");
        let direct = |mut options: Options| {
            options.set_use_direct_reads(reads);
            options.set_use_direct_io_for_flush_and_compaction(writes);
            options.set_bytes_per_sync(100_000);
            shaped(options, &table)
        };
        let done = service.stats().jobs_done;
        let db = open(&direct(options(&service)), &path);
        let content = fill(&db, WRITES, 1);
        compact_everything(&db);
        assert!(service.stats().jobs_done > done, "{}", service.stats());
        drop(db);
        let db = open(&direct(local_options()), &path);
        db.verify_checksum().expect("every block's checksum holds");
        assert_content(&db, &content);
    }
    assert_done(&service.stats());
}

/// Only direct output, on the CPU or on a GPU's kernels on the host, with several chunks per file.
#[test]
fn outputs_that_pass_by_the_page_cache_alone_are_accepted() {
    const CHUNK_BYTES: usize = 16 << 10;
    let table = TableShape {
        filter: Filter::Bloom(10.0),
        ..TableShape::default()
    };
    for device in [Device::Cpu, Device::Kernels(Target::Host)] {
        let service = Service::builder()
            .min_job_bytes(0)
            .threads(2)
            .filter_bits_per_key(10.0)
            .device(device)
            .change(|settings| settings.cuda.chunk_bytes = CHUNK_BYTES)
            .output_cache(OutputCache::Bypass)
            .build()
            .expect("the settings are good");
        service.wait_for_device().expect("the device opens");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("db");
        let db = open(&shaped(options(&service), &table), &path);
        let content = fill(&db, WRITES, 1);
        compact_everything(&db);
        drop(db);
        let stats = service.stats();
        assert_done(&stats);
        assert_eq!(stats.jobs_redone_by_cpu, 0, "{stats}");
        // On a file system without direct I/O, outputs go through the cache and are counted.
        assert!(
            [0, stats.files_written].contains(&stats.files_cached_instead),
            "{stats}"
        );
        let db = open_strictly(&path, &table);
        db.verify_checksum().expect("every block's checksum holds");
        assert_content(&db, &content);
    }
}

#[test]
fn outputs_of_each_format_version_and_checksum_are_accepted() {
    for format_version in 2..=8 {
        for checksum in 0..=4 {
            let table = TableShape {
                format_version,
                checksum,
                filter: Filter::Bloom(10.0),
                ..TableShape::default()
            };
            println!("{table:?}");
            accept(&table, 1);
        }
    }
}

#[test]
fn outputs_of_each_compression_are_accepted() {
    for compression in [
        DBCompressionType::Snappy,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4hc,
        DBCompressionType::Zstd,
        DBCompressionType::Zlib,
    ] {
        let table = TableShape {
            compression,
            ..TableShape::default()
        };
        println!("{table:?}");
        accept(&table, 1);
    }
}

/// The host compresses the blocks that a GPU's kernels, here on the host, have laid out.
#[test]
fn outputs_that_a_library_compresses_for_a_gpu_are_accepted() {
    for compression in [
        DBCompressionType::Snappy,
        DBCompressionType::Lz4,
        DBCompressionType::Lz4hc,
        DBCompressionType::Zstd,
    ] {
        let table = TableShape {
            compression,
            ..TableShape::default()
        };
        println!("{table:?}");
        let service = Service::builder()
            .min_job_bytes(0)
            .threads(2)
            .device(Device::Kernels(Target::Host))
            .device_compression(false)
            .build()
            .expect("the settings are good");
        service.wait_for_device().expect("the device opens");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let content = compacted_by(&service, directory.path(), &table, 1);
        let stats = service.stats();
        assert_eq!(stats.jobs_redone_by_cpu, 0, "{stats}");
        assert_eq!(stats.subcompactions_redone_by_cpu, 0, "{stats}");
        let db = open_strictly(directory.path(), &table);
        db.verify_checksum().expect("every block's checksum holds");
        assert_content(&db, &content);
    }
}

/// Looks up `absent` keys and returns the percentage that a filter rejected.
fn turned_away_percent(db: &DB, options: &Options, ticker: Ticker, absent: &[Vec<u8>]) -> u64 {
    let before = options.get_ticker_count(ticker);
    for key in absent {
        assert_eq!(db.get(key).expect("get"), None);
    }
    (options.get_ticker_count(ticker) - before) * 100 / absent.len() as u64
}

#[test]
fn filters_turn_absent_keys_away() {
    for filter in [
        Filter::Bloom(10.0),
        Filter::Bloom(16.5),
        Filter::Ribbon(10.0),
    ] {
        let table = TableShape {
            filter,
            ..TableShape::default()
        };
        let directory = tempfile::tempdir().expect("a temporary directory");
        let content = compacted(directory.path(), &table, 1);
        let mut options = shaped(local_options(), &table);
        options.enable_statistics();
        let db = open(&options, directory.path());
        let absent: Vec<Vec<u8>> = content
            .keys()
            .filter_map(|key| absent_neighbour(&content, key))
            .collect();
        let percent = turned_away_percent(&db, &options, Ticker::BloomFilterUseful, &absent);
        // 10 bits per key give about 1 % false positives. An absent key outside all files needs no filter, but almost
        // all keys are inside.
        assert!(
            percent >= 95,
            "{filter:?} turned {percent} % of the absent keys away"
        );
    }
}

#[test]
fn prefix_filters_turn_absent_prefixes_away() {
    let table = TableShape {
        filter: Filter::Bloom(12.0),
        whole_key_filtering: false,
        prefix: Some(Prefix::Fixed("key00000000".len())),
        ..TableShape::default()
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let content = compacted(directory.path(), &table, 1);
    let mut options = shaped(local_options(), &table);
    options.enable_statistics();
    let db = open(&options, directory.path());
    let absent: Vec<Vec<u8>> = (0..WRITES / 2)
        .map(|number| format!("key{number:08}").into_bytes())
        .filter(|key| !content.contains_key(key))
        .collect();
    assert!(!absent.is_empty());
    let percent = turned_away_percent(&db, &options, Ticker::BloomFilterPrefixUseful, &absent);
    assert!(
        percent >= 90,
        "{percent} % of the absent prefixes were turned away"
    );
    assert_content(&db, &content);
}

/// Opens with automatic compactions, all offered to Rockmill.
fn open_automatic(path: &Path, service: &rockmill::Service, tree: &TreeShape) -> DB {
    let mut options = options(service);
    tree.apply(&mut options);
    options.set_disable_auto_compactions(false);
    open(&options, path)
}

/// Waits until no compaction runs, and checks that RocksDB picks no file where it looks again. A change of options makes it
/// look, and the wait ends when it has found nothing.
fn assert_quiet(db: &DB, service: &rockmill::Service) {
    wait_for_compact(db);
    let jobs = service.stats().jobs_offered;
    assert!(jobs > 0, "no job reached the service");
    db.set_options(&[("disable_auto_compactions", "false")])
        .expect("it stays as it is");
    wait_for_compact(db);
    assert_eq!(
        service.stats().jobs_offered,
        jobs,
        "files are picked again and again"
    );
}

#[test]
fn nothing_is_picked_again_when_all_is_compacted() {
    for universal in [false, true] {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let service = service();
        let tree = TreeShape {
            universal,
            level_base: 256 << 10,
            ..small_files()
        };
        let db = open_automatic(directory.path(), &service, &tree);
        let content = fill(&db, 4 * WRITES, 1);
        assert_quiet(&db, &service);
        compact_everything(&db);
        assert_quiet(&db, &service);
        assert_content(&db, &content);
        assert_done(&service.stats());
    }
}

#[test]
fn nothing_is_picked_again_after_a_snapshot_is_released() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db = open_automatic(directory.path(), &service, &small_files());
    let mut content = fill(&db, WRITES, 1);
    let snapshot = db.snapshot();
    for (key, value) in content.clone() {
        put(&db, &mut content, &key, &[&value, &b"newer"[..]].concat());
    }
    db.flush().expect("flush");
    compact_everything(&db);
    let marked = service.stats().jobs_offered;
    // Now RocksDB marks the bottommost files, because their older versions are obsolete.
    drop(snapshot);
    put(&db, &mut content, b"wake up", b"");
    db.flush().expect("flush");
    assert_quiet(&db, &service);
    assert!(
        service.stats().jobs_offered > marked,
        "the bottommost files were not compacted"
    );
    assert_content(&db, &content);
}

#[test]
fn a_snapshot_reads_the_same_before_and_after() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db = open(
        &shaped(options(&service), &TableShape::default()),
        directory.path(),
    );
    let old = fill(&db, WRITES, 1);
    let snapshot = db.snapshot();
    for key in old.keys() {
        db.delete(key).expect("delete");
    }
    db.flush().expect("flush");
    compact_everything(&db);
    assert_done(&service.stats());
    let pairs: Content = snapshot
        .iterator_opt(rust_rocksdb::IteratorMode::Start, read_everything())
        .map(|pair| pair.expect("readable"))
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect();
    assert!(
        pairs == old,
        "the snapshot has {} keys of {}",
        pairs.len(),
        old.len()
    );
    assert_content(&db, &Content::new());
    drop(snapshot);
    compact_everything(&db);
    assert_content(&db, &Content::new());
    assert!(
        db.live_files().expect("live files").is_empty(),
        "tombstones were kept for nothing"
    );
}

#[test]
fn deleting_everything_leaves_no_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db = open(&options(&service), directory.path());
    let content = fill(&db, WRITES, 1);
    for key in content.keys() {
        db.delete(key).expect("delete");
    }
    db.flush().expect("flush");
    compact_everything(&db);
    assert_done(&service.stats());
    assert!(db.live_files().expect("live files").is_empty());
    assert_content(&db, &Content::new());
}

#[test]
fn closing_a_database_does_not_wait_for_its_jobs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let content = {
        let db = open_automatic(directory.path(), &service, &small_files());
        let content = fill(&db, 8 * WRITES, 1);
        db.cancel_all_background_work(false);
        content
    };
    let table = TableShape::default();
    assert_content(&open_strictly(directory.path(), &table), &content);
    let db = open_automatic(directory.path(), &service, &small_files());
    assert_quiet(&db, &service);
    assert_content(&db, &content);
    drop(db);
    assert_nothing_staged(directory.path());
}

#[test]
fn two_databases_share_one_service() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let databases =
        ["one", "two"].map(|name| open(&options(&service), &directory.path().join(name)));
    let contents = std::thread::scope(|scope| {
        let run = |db, seed| {
            move || {
                let content = fill(db, WRITES, seed);
                compact_everything(db);
                content
            }
        };
        let threads = [
            scope.spawn(run(&databases[0], 1)),
            scope.spawn(run(&databases[1], 2)),
        ];
        threads.map(|thread| thread.join().expect("no panic"))
    });
    for (db, content) in databases.iter().zip(&contents) {
        assert_content(db, content);
    }
    let stats = service.stats();
    assert!(stats.jobs_done >= 2, "{stats}");
    assert_jobs_add_up(&stats);
}

#[test]
fn statistics_count_what_was_read_and_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let db = open(&options(&service), directory.path());
    let content = fill(&db, WRITES, 1);
    compact_everything(&db);
    let stats = service.stats();
    assert_eq!(stats.jobs_done, stats.jobs_offered, "{stats}");
    assert_eq!(stats.entries_written, content.len() as u64, "{stats}");
    assert!(stats.entries_read > stats.entries_written, "{stats}");
    let written: usize = db
        .live_files()
        .expect("live files")
        .iter()
        .map(|file| file.size)
        .sum();
    assert_eq!(stats.written_bytes, written as u64, "{stats}");
    assert!(stats.read_bytes >= stats.written_bytes, "{stats}");
    assert_eq!(stats.last_error, None);
    assert!(!stats.to_string().is_empty());
}

#[test]
fn recorded_jobs_are_kept() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let jobs = directory.path().join("jobs");
    let service = rockmill::Service::builder()
        .min_job_bytes(0)
        .record_jobs(&jobs)
        .build()
        .expect("the settings are good");
    let db = open(&options(&service), &directory.path().join("db"));
    let content = fill(&db, WRITES, 1);
    compact_everything(&db);
    assert_content(&db, &content);
    let files = std::fs::read_dir(&jobs)
        .expect("the folder of jobs")
        .count() as u64;
    assert_done(&service.stats());
    assert_eq!(files, service.stats().jobs_done);
}

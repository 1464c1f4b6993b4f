//! Options of the database and of column families that Rockmill leaves to RocksDB, read from the
//! OPTIONS file.

use std::cell::Cell;

use rockmill_tests::content::{Content, assert_content};
use rockmill_tests::harness::{
    assert_declined, assert_done, assert_jobs_add_up, open, options, put, service, wait_for_compact,
};
use rockmill_tests::reasons::{
    BLOB_FILES, COMPACTION_STYLE, COMPRESSION, COMPRESSION_DICTIONARY, INGEST_BEHIND,
    PREFIX_EXTRACTOR, TEMPERATURE, TIERING,
};
use rust_rocksdb::{
    DBCompactionStyle, DBCompressionType, FifoCompactOptions, FileChecksumGenFactory, Options,
    SliceTransform, SstPartitionerFactory, Temperature,
};

use crate::trial::{declines, plain, run_checked, takes, with_table, with_text};

#[test]
fn blob_files() {
    declines(
        &[BLOB_FILES],
        |options| {
            options.set_enable_blob_files(true);
            options.set_min_blob_size(1);
        },
        plain,
    );
}

#[test]
fn blob_garbage_collection() {
    declines(
        &[BLOB_FILES],
        |options| {
            options.set_enable_blob_files(true);
            options.set_enable_blob_gc(true);
            options.set_blob_gc_age_cutoff(1.0);
        },
        plain,
    );
}

fn universal(options: &mut Options) {
    options.set_compaction_style(DBCompactionStyle::Universal);
}

#[test]
fn ingest_behind() {
    declines(
        &[INGEST_BEHIND],
        |options| {
            universal(options);
            options.set_allow_ingest_behind(true);
        },
        plain,
    );
}

#[test]
fn ingest_behind_of_one_column_family() {
    declines(
        &[INGEST_BEHIND],
        |options| {
            universal(options);
            options.set_cf_allow_ingest_behind(true);
        },
        plain,
    );
}

#[test]
fn universal_style_is_no_reason() {
    takes(universal, plain);
}

#[test]
fn two_write_queues_without_transactions_are_no_reason() {
    takes(|options| options.set_two_write_queues(true), plain);
}

#[test]
fn unordered_writes_without_transactions_are_no_reason() {
    takes(|options| options.set_unordered_write(true), plain);
}

#[test]
fn a_partitioner_by_fixed_prefixes_is_no_reason() {
    let factory = SstPartitionerFactory::fixed_prefix("key000000".len());
    takes(
        |options| options.set_sst_partitioner_factory(&factory),
        plain,
    );
}

#[test]
fn rocksdbs_own_collector_is_no_reason() {
    const WINDOW: usize = 128;
    takes(
        |options| options.add_compact_on_deletion_collector_factory(WINDOW, WINDOW, 0.9),
        plain,
    );
}

#[test]
fn fifo_style() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let mut options = options(&service);
    let mut fifo = FifoCompactOptions::default();
    fifo.set_allow_compaction(true);
    options.set_fifo_compaction_options(&fifo);
    options.set_compaction_style(DBCompactionStyle::Fifo);
    options.set_disable_auto_compactions(false);
    let db = open(&options, directory.path());
    let mut content = Content::new();
    // Enough flushes that RocksDB merges files within L0.
    for number in 0..12_u8 {
        put(&db, &mut content, b"overwritten each time", &[number]);
        put(&db, &mut content, &[number], b"value");
        db.flush().expect("flush");
    }
    wait_for_compact(&db);
    assert_content(&db, &content);
    assert_declined(&service.stats(), &[COMPACTION_STYLE]);
    assert_jobs_add_up(&service.stats());
}

#[test]
fn compression_that_rockmill_does_not_write() {
    let bzip2 = DBCompressionType::Bz2;
    declines(
        &[COMPRESSION],
        |options| options.set_compression_type(bzip2),
        plain,
    );
    declines(
        &[COMPRESSION],
        |options| options.set_bottommost_compression_type(bzip2),
        plain,
    );
    let levels = [DBCompressionType::None, bzip2];
    declines(
        &[COMPRESSION],
        |options| options.set_compression_per_level(&levels),
        plain,
    );
}

#[test]
fn samples_of_other_compressions() {
    declines(
        &[COMPRESSION],
        |options| options.set_sample_for_compression(1),
        plain,
    );
}

#[test]
fn file_checksums_by_crc32c_are_no_reason() {
    let factory = FileChecksumGenFactory::crc32c();
    takes(
        |options| options.set_file_checksum_gen_factory(&factory),
        |db| {
            let content = plain(db);
            rockmill_tests::harness::compact_everything(db);
            db.verify_file_checksums()
                .expect("Rockmill's checksums hold");
            content
        },
    );
}

#[test]
fn internal_times_are_preserved() {
    const DAY_SECONDS: u64 = 86_400;
    declines(
        &[TIERING],
        |options| options.set_preserve_internal_time_seconds(DAY_SECONDS),
        plain,
    );
    declines(
        &[TIERING],
        |options| {
            universal(options);
            options.set_preclude_last_level_data_seconds(DAY_SECONDS);
        },
        plain,
    );
}

#[test]
fn temperatures() {
    let warm = Temperature::Warm as i32;
    declines(
        &[TEMPERATURE],
        |options| options.set_last_level_temperature(warm),
        plain,
    );
    declines(
        &[TEMPERATURE],
        |options| options.set_default_write_temperature(warm),
        plain,
    );
}

#[test]
fn a_custom_prefix_extractor() {
    declines(
        &[PREFIX_EXTRACTOR],
        |options| {
            let first_half =
                SliceTransform::create("first-half", |key| &key[..key.len() / 2], None);
            options.set_prefix_extractor(first_half);
            with_table(|t| t.set_bloom_filter(10.0, false))(options);
        },
        plain,
    );
}

#[test]
fn a_compression_dictionary() {
    declines(
        &[COMPRESSION_DICTIONARY],
        |options| {
            options.set_compression_type(DBCompressionType::Lz4hc);
            options.set_compression_options(-14, i16::MAX.into(), 0, 4 << 10);
        },
        plain,
    );
}

const WITH_DICTIONARIES: [DBCompressionType; 3] = [
    DBCompressionType::Zstd,
    DBCompressionType::Zlib,
    DBCompressionType::Lz4,
];

/// Compacts with dictionaries, and lets `check` look at the dictionary of each file and at its blocks that need it. RocksDB
/// reads all files.
fn with_dictionaries(
    codec: DBCompressionType,
    window_bits: i32,
    max_dict_bytes: i32,
    configure: impl Fn(&mut Options),
    check: impl Fn(&[u8], &[bool]),
) {
    let configure = |options: &mut Options| {
        options.set_compression_type(codec);
        options.set_compression_options(window_bits, i16::MAX.into(), 0, max_dict_bytes);
        configure(options);
    };
    let stats = run_checked(configure, plain, |db, content| {
        assert_content(db, content);
        db.verify_checksum().expect("the files are whole");
        let files = db.live_files().expect("live files");
        assert!(!files.is_empty());
        for file in files {
            let path = db.path().join(file.name.trim_start_matches('/'));
            let (dictionary, need_it) =
                rockmill_tests::internal::dictionary(&path).expect("a file");
            check(&dictionary, &need_it);
        }
    });
    assert_done(&stats);
}

#[test]
fn a_dictionary_of_samples_is_no_reason() {
    const DICTIONARY_BYTES: usize = 3 << 10;
    for codec in WITH_DICTIONARIES {
        // Only ZSTD trains, and these samples would be too few.
        for trained in [0, 1 << 20] {
            if codec == DBCompressionType::Zstd && trained > 0 {
                continue;
            }
            let configure = |options: &mut Options| {
                options.set_zstd_max_train_bytes(trained);
                // Some blocks wait for the dictionary, and others are written later.
                with_text("compression_opts={max_dict_buffer_bytes=10000;}")(options);
                options.set_target_file_size_base(24 << 10);
            };
            let most_blocks = Cell::new(0);
            let check = |dictionary: &[u8], need_it: &[bool]| {
                let found = (dictionary.len(), need_it);
                assert!(
                    (1..=DICTIONARY_BYTES).contains(&found.0),
                    "{codec:?}: {found:?}"
                );
                assert!(need_it.iter().all(|&needs| needs), "{codec:?}: {found:?}");
                most_blocks.set(need_it.len().max(most_blocks.get()));
            };
            with_dictionaries(codec, -14, DICTIONARY_BYTES as i32, configure, check);
            assert!(most_blocks.get() > 4, "{codec:?}: {most_blocks:?}");
        }
    }
}

#[test]
fn a_trained_dictionary_is_no_reason() {
    const DICTIONARY_BYTES: usize = 3 << 10;
    for selects in [true, false] {
        let configure = |options: &mut Options| {
            with_table(|table| table.set_block_size(256))(options);
            options.set_zstd_max_train_bytes(1 << 20);
            with_text(&format!(
                "compression_opts={{use_zstd_dict_trainer={selects};}}"
            ))(options);
        };
        let check = |dictionary: &[u8], need_it: &[bool]| {
            assert_eq!(dictionary[..4], 0xEC30_A437_u32.to_le_bytes());
            assert!(dictionary.len() <= DICTIONARY_BYTES);
            assert!(need_it.len() > 4 && need_it.iter().all(|&needs| needs));
        };
        with_dictionaries(
            DBCompressionType::Zstd,
            -14,
            DICTIONARY_BYTES as i32,
            configure,
            check,
        );
    }
}

#[test]
fn very_short_dictionaries_are_none() {
    for codec in WITH_DICTIONARIES {
        for bytes in 1..8 {
            let check = |dictionary: &[u8], need_it: &[bool]| {
                assert!(
                    dictionary.is_empty() && !need_it.contains(&true),
                    "{codec:?} {bytes}"
                );
            };
            with_dictionaries(codec, -14, bytes, |_| {}, check);
        }
    }
}

#[test]
fn rocksdb_can_read_zlib_with_a_dictionary_that_is_longer_than_its_window() {
    const DICTIONARY_BYTES: usize = 64 << 10;
    for window_bits in [-15, -14, -9] {
        let check = |dictionary: &[u8], need_it: &[bool]| {
            assert_eq!(dictionary.len(), DICTIONARY_BYTES, "{window_bits}");
            assert!(need_it.contains(&true), "{window_bits}");
        };
        let zlib = DBCompressionType::Zlib;
        with_dictionaries(zlib, window_bits, DICTIONARY_BYTES as i32, |_| {}, check);
    }
}

#[test]
fn paranoid_file_checks_are_no_reason() {
    takes(|options| options.set_paranoid_file_checks(true), plain);
}

#[test]
fn outputs_checked_in_every_way_are_no_reason() {
    /// Every kind of check, in local and in remote compactions (`VerifyOutputFlags::kVerifyAll`, except the sign bit,
    /// which the binding's type cannot hold).
    const EVERY_CHECK: i32 = i32::MAX;
    takes(
        |options| options.set_verify_output_flags(EVERY_CHECK),
        plain,
    );
}

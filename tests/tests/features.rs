//! Compactions with options and entries that only some databases have: the files and entries equal RocksDB's.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_core::CancelToken;
use rockmill_format::block::{Block, BlockBuilder, BlockLayout, ValueForm};
use rockmill_format::filter::{FilterBuilder, FilterFormat, FilterOptions};
use rockmill_format::index::{
    IndexBuilder, IndexPartitions, IndexSettings, IndexShortening, encode_index,
};
use rockmill_format::key::KeyOrder;
use rockmill_format::prefix::PrefixExtractor;
use rockmill_snapshot::tree::TreeFollower;
use rockmill_storage::LocalStorage;
use rockmill_tests::harness::{
    assert_done, compact_everything, fill, local_options, open, options, service,
};
use rockmill_tests::{batches, content, internal, seed};
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, CompactionOptions, DB, DBCompactionStyle,
    DBCompressionType, DataBlockIndexType, Options, SliceTransform, SstFileWriter,
    SstPartitionerFactory,
};

/// Creates the same database twice, compacts one with RocksDB and the other with Rockmill, which has to do all jobs,
/// and returns the result of `look` for each.
fn both<T>(
    configure: impl Fn(&mut Options),
    write: impl Fn(&DB),
    compact: impl Fn(&DB),
    look: impl Fn(&DB) -> T,
) -> [T; 2] {
    [false, true].map(|offloads| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut quiet = local_options();
        configure(&mut quiet);
        write(&open(&quiet, directory.path()));
        let service = service();
        let mut options = match offloads {
            true => options(&service),
            false => local_options(),
        };
        configure(&mut options);
        let db = open(&options, directory.path());
        compact(&db);
        if offloads {
            assert_done(&service.stats());
        }
        look(&db)
    })
}

/// Compacts all files of level 0 into a level.
fn compact_level_0(db: &DB, level: i32) {
    let files = db.live_files().expect("live files");
    let top = files.iter().filter(|file| file.level == 0);
    let names = top.map(|file| file.name.as_str());
    let family = db.cf_handle("default").expect("open");
    db.compact_files_cf(family, &CompactionOptions::default(), names, level)
        .expect("compact");
}

/// The MANIFEST's mark for compaction of each file of a level.
fn marks(path: &Path, level: u32) -> Vec<bool> {
    let mut follower = TreeFollower::default();
    follower
        .refresh(&LocalStorage, path, (0, 0), &CancelToken::new())
        .expect("a MANIFEST");
    let family = &follower.tree().column_families[&0];
    let files = family.levels.get(&level).into_iter().flatten();
    files.map(|(_, file)| file.marked_for_compaction).collect()
}

#[test]
fn files_are_marked_for_compaction_as_rocksdbs_collector_marks_them() {
    const KEYS: u32 = 600;
    let mut seen = [false; 2];
    for (window, trigger, ratio) in [
        (0, 0, 0.0),
        (0, 0, 0.3),
        (0, 0, 0.31),
        (0, 0, 1.0),
        (100, 0, 0.0),
        (100, 49, 0.0),
        (100, 50, 0.0),
        (100, 51, 0.0),
        (128, 51, 0.0),
        (300, 51, 0.0),
        (300, 120, 0.5),
    ] {
        let key = |number: u32| format!("key{number:06}");
        let [theirs, ours] = both(
            |options| {
                options.add_compact_on_deletion_collector_factory(window, trigger, ratio);
            },
            |db| {
                (0..KEYS).for_each(|number| db.put(key(number), b"value").expect("put"));
                db.flush().expect("flush");
                // Deletes stay if older entries are deeper: 50 in a row, and 3 of 10 in total.
                compact_level_0(db, 6);
                for number in 0..KEYS {
                    let is_deleted = (200..250).contains(&number)
                        || (!(150..300).contains(&number) && number % 45 < 13);
                    match is_deleted {
                        true => db.delete(key(number)).expect("delete"),
                        false => db.put(key(number), b"newer").expect("put"),
                    }
                }
                db.flush().expect("flush");
            },
            |db| compact_level_0(db, 1),
            |db| marks(db.path(), 1),
        );
        assert_eq!(ours, theirs, "{window} {trigger} {ratio}");
        assert_eq!(ours.len(), 1);
        seen[usize::from(ours[0])] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn files_end_where_a_partitioner_separates_keys() {
    for prefix_bytes in ["key".len(), "key00000".len(), "key000000".len(), 100] {
        let factory = SstPartitionerFactory::fixed_prefix(prefix_bytes);
        let [theirs, ours] = both(
            |options| options.set_sst_partitioner_factory(&factory),
            |db| drop(fill(db, 300, 7)),
            compact_everything,
            |db| {
                let files = internal::files(db, "default").expect("live files");
                files
                    .into_iter()
                    .map(|(facts, _)| facts)
                    .collect::<Vec<_>>()
            },
        );
        assert_eq!(ours, theirs, "{prefix_bytes}");
    }
}

#[test]
fn data_blocks_with_a_hash_index_are_rocksdbs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("table.sst");
    let mut hashed = 0;
    for (restart_interval, ratio, block_size) in [
        (1, 0.75, 4096),
        (16, 0.75, 4096),
        (3, 0.1, 900),
        (2, 1.0, 300),
        (7, 5.0, 4096),
        (16, 0.5, 60_000),
    ] {
        let mut table = BlockBasedOptions::default();
        table.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
        table.set_data_block_hash_ratio(ratio);
        table.set_block_restart_interval(restart_interval);
        table.set_block_size(block_size);
        let mut options = Options::default();
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&table);
        let mut writer = SstFileWriter::create(&options);
        writer.open(&path).expect("open");
        let mut rng = StdRng::seed_from_u64(block_size as u64);
        for number in 0..4000_u32 {
            let key = [
                &number.to_be_bytes()[..],
                &vec![0xf0; rng.random_range(0..9)],
            ]
            .concat();
            writer
                .put(key, vec![b'v'; rng.random_range(0..40)])
                .expect("put");
        }
        writer.finish().expect("finish");
        let layout = BlockLayout {
            user_keys: false,
            keys_per_bucket: Some(ratio),
            ..BlockLayout::plain(restart_interval as usize)
        };
        let mut builder = BlockBuilder::new(layout);
        for theirs in internal::data_blocks(&path).expect("readable") {
            let block = Block::parse(&theirs).expect("sound");
            let mut entries = block.entries(ValueForm::Sized, 1).expect("sound");
            let mut key = Vec::new();
            while let Some(entry) = entries.next_entry().expect("sound") {
                entry.restore_key(&mut key);
                builder.add(&key, entry.value);
            }
            assert!(
                builder.finish() == theirs,
                "{restart_interval} {ratio} {block_size}"
            );
            hashed += u32::from(block.has_hash_index());
        }
        std::fs::remove_file(&path).expect("remove");
    }
    assert!(hashed > 100, "{hashed}");
}

#[test]
fn partitions_of_indexes_and_filters_are_rocksdbs() {
    const KEYS: u32 = 6000;
    let (mut indexes, mut filters, mut with_sequences) = (0, 0, 0);
    for case in 0..48_u32 {
        let format_version = [4, 5, 6, 7, 8][case as usize % 5];
        let restart_interval = [1, 1, 3, 16][case as usize % 4];
        let metadata_block_size = [70, 300, 1000, 4096][case as usize / 4 % 4];
        let prefix = [None, Some(2), Some(3)][case as usize % 3];
        let whole_keys = prefix.is_none() || case % 2 == 0;
        let versions = case % 7 == 0;
        let mut table = BlockBasedOptions::default();
        table.set_format_version(format_version);
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_index_block_restart_interval(restart_interval);
        table.set_partition_filters(true);
        table.set_metadata_block_size(metadata_block_size);
        table.set_bloom_filter(10.0, false);
        table.set_whole_key_filtering(whole_keys);
        table.set_block_size(300);
        let mut options = local_options();
        options.set_compression_type(DBCompressionType::None);
        options.set_block_based_table_factory(&table);
        if let Some(prefix) = prefix {
            options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix));
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let db = open(&options, directory.path());
        let mut rng = StdRng::seed_from_u64(u64::from(case));
        let mut snapshots = Vec::new();
        for number in 0..KEYS {
            // Some keys have no prefix.
            let len = if rng.random_bool(0.01) { 1 } else { 4 };
            let key = &number.to_be_bytes()[4 - len..];
            db.put(key, vec![b'v'; rng.random_range(0..40)])
                .expect("put");
            if versions && number % 500 == 0 {
                for _ in 0..20 {
                    snapshots.push(db.snapshot());
                    db.put(key, [b'w'; 40]).expect("put");
                }
            }
        }
        db.flush().expect("flush");
        drop(snapshots);
        let files = db.live_files().expect("live files");
        let path = directory.path().join(files[0].name.trim_start_matches('/'));
        let tail = internal::tail(&path).expect("readable");

        let settings = IndexSettings {
            format_version: format_version as u32,
            restart_interval: restart_interval as usize,
            shortening: IndexShortening::Separators,
            common_prefix: format_version >= 8,
            partitions: Some(IndexPartitions {
                block_size: metadata_block_size as u64,
                deviation: 10,
            }),
            order: KeyOrder::Bytewise,
        };
        let mut index = IndexBuilder::new(settings);
        for (i, (_, last, handle)) in tail.blocks.iter().enumerate() {
            let next = tail.blocks.get(i + 1).map(|(first, ..)| first.as_slice());
            index.add(last, next, *handle);
        }
        let (top, partitions) = tail.index.split_last().expect("an index");
        let ours: Vec<_> = index.partitions().collect();
        assert_eq!(ours.len(), partitions.len(), "case {case}");
        let entries = ours
            .iter()
            .zip(partitions)
            .map(|((block, last), (handle, theirs))| {
                assert!(block == theirs, "case {case}");
                (*last, *handle)
            });
        let user_keys = index.has_user_keys();
        assert!(
            encode_index(settings, user_keys, entries) == top.1,
            "case {case}"
        );
        indexes += ours.len();
        with_sequences += u32::from(!user_keys);

        let options = FilterOptions {
            format: match format_version {
                4 => FilterFormat::Legacy,
                _ => FilterFormat::FastLocalBloom,
            },
            whole_key_filtering: whole_keys,
            prefix_extractor: prefix.map(PrefixExtractor::Fixed),
            optimize_filters_for_memory: true,
            ..FilterOptions::whole_keys(10_000)
        };
        let partitions = settings.partitions.expect("set above");
        let options = options.in_partitions_of(partitions.least_bytes(), prefix.is_some());
        let mut filter = FilterBuilder::new(options);
        tail.user_keys.iter().for_each(|key| filter.add(key));
        let (top, partitions) = tail.filter.split_last().expect("a filter");
        let ours = filter.finish_partitions();
        assert_eq!(ours.len(), partitions.len(), "case {case}");
        let entries = ours
            .iter()
            .zip(partitions)
            .map(|((part, block), (handle, theirs))| {
                assert!(block == theirs, "case {case}");
                (part.last_key.as_slice(), *handle)
            });
        assert!(
            encode_index(settings, user_keys, entries) == top.1,
            "case {case}"
        );
        assert_eq!(filter.num_added(), tail.properties.num_filter_entries);
        filters += ours.len();
    }
    assert!(
        indexes > 1000 && filters > 1000 && with_sequences > 3,
        "{indexes} {filters} {with_sequences}"
    );
}

#[test]
fn files_with_partitions_are_read_as_rocksdbs() {
    const KEYS: u32 = 20_000;
    for (bits, metadata_block_size, prefix) in [(10.0, 4096, None), (16.0, 2000, Some(3))] {
        let [theirs, ours] = both(
            |options| {
                let mut table = BlockBasedOptions::default();
                table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
                table.set_partition_filters(true);
                table.set_metadata_block_size(metadata_block_size);
                // OPTIONS have no bits, so that they are inferred.
                table.set_bloom_filter(bits, false);
                options.set_block_based_table_factory(&table);
                if let Some(prefix) = prefix {
                    options.set_prefix_extractor(SliceTransform::create_fixed_prefix(prefix));
                }
            },
            |db| {
                for number in 0..KEYS {
                    db.put((2 * number).to_be_bytes(), [b'v'; 30]).expect("put");
                    if number % 3000 == 0 {
                        db.flush().expect("flush");
                    }
                }
                db.flush().expect("flush");
            },
            compact_everything,
            |db| {
                let found = (0..2 * KEYS).filter(|number| {
                    let value = db.get(number.to_be_bytes()).expect("get");
                    value.is_some()
                });
                let found: Vec<_> = found.collect();
                let seeks = (0..2 * KEYS).step_by(37).map(|number| {
                    let mut iterator = db.raw_iterator();
                    iterator.seek(number.to_be_bytes());
                    let after = iterator.key().map(<[u8]>::to_vec);
                    iterator.seek_for_prev(number.to_be_bytes());
                    (after, iterator.key().map(<[u8]>::to_vec))
                });
                let seeks: Vec<_> = seeks.collect();
                let files = db.live_files().expect("live files");
                let tails = files.iter().map(|file| {
                    let path = db.path().join(file.name.trim_start_matches('/'));
                    internal::tail(&path).expect("readable")
                });
                let partitions: Vec<_> = tails
                    .map(|tail| (tail.index.len() > 1, tail.filter.len() > 2))
                    .collect();
                (found, seeks, partitions)
            },
        );
        assert_eq!(ours.0.len(), KEYS as usize);
        assert!(
            ours.2.iter().all(|&both| both == (true, true)),
            "{:?}",
            ours.2
        );
        assert!(ours == theirs, "{bits} {metadata_block_size}");
    }
}

/// Keys of the tests with range tombstones.
const KEYS: u32 = 20_000;

fn numbered(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

/// Options for many small files, and for jobs that are split.
fn small_files(options: &mut Options, universal: bool) {
    options.set_target_file_size_base(16 << 10);
    options.set_max_compaction_bytes(64 << 10);
    options.set_max_subcompactions(4);
    options.set_compression_type(DBCompressionType::None);
    if universal {
        options.set_compaction_style(DBCompactionStyle::Universal);
    }
}

/// All keys in the last level, deleted ranges above them.
fn delete_ranges(db: &DB, ranges: &[(u32, u32)]) {
    let family = db.cf_handle("default").expect("open");
    for number in 0..KEYS {
        db.put(numbered(number), b"old").expect("put");
    }
    db.flush().expect("flush");
    compact_level_0(db, 6);
    for &(begin, end) in ranges {
        db.delete_range_cf(family, numbered(begin), numbered(end))
            .expect("delete a range");
        db.flush().expect("flush");
    }
}

/// Numbers of the existing keys.
fn found(db: &DB) -> Vec<u32> {
    let pairs = content::scan_forward(db.raw_iterator_opt(content::read_everything()));
    let keys = pairs.expect("readable").into_iter();
    keys.map(|(key, _)| u32::from_be_bytes(key.try_into().expect("of four bytes")))
        .collect()
}

#[test]
fn deleted_ranges_stay_deleted_over_borders_of_files_and_subcompactions() {
    let ranges = [(2_000, 18_000), (0, 10), (17_000, 17_001), (19_990, 30_000)];
    let is_deleted = |number: u32| {
        ranges
            .iter()
            .any(|&(begin, end)| (begin..end).contains(&number))
    };
    let expected: Vec<_> = (0..KEYS).filter(|&number| !is_deleted(number)).collect();
    for universal in [false, true] {
        for between in [false, true] {
            let ends = both(
                |options| small_files(options, universal),
                |db| {
                    delete_ranges(db, &ranges);
                    // Without keys between them, files have only tombstones.
                    for number in (1..KEYS)
                        .filter(|number| between && number % 7 == 0 && !is_deleted(*number))
                    {
                        db.put(numbered(number), [b'n'; 100]).expect("put");
                    }
                    db.flush().expect("flush");
                },
                |db| {
                    compact_level_0(db, 3);
                    assert_eq!(found(db), expected, "{universal} {between}");
                    let files = internal::files(db, "default").expect("live files");
                    let files = files.iter().filter(|(file, _)| file.level == 3);
                    assert!(files.count() > 0);
                    compact_everything(db);
                },
                found,
            );
            assert_eq!(
                ends,
                [expected.clone(), expected.clone()],
                "{universal} {between}"
            );
        }
    }
}

#[test]
fn snapshots_see_what_was_deleted_after_them() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let service = service();
    let mut options = options(&service);
    small_files(&mut options, false);
    let db = open(&options, directory.path());
    delete_ranges(&db, &[]);
    let family = db.cf_handle("default").expect("open");
    let mut snapshots = Vec::new();
    for begin in (0..KEYS).step_by(5_000) {
        let before = found(&db);
        snapshots.push((db.snapshot(), before));
        db.delete_range_cf(family, numbered(begin), numbered(begin + 2_500))
            .expect("delete a range");
        db.put(numbered(begin), b"again").expect("put");
        db.flush().expect("flush");
    }
    let last = found(&db);
    for level in [1, 2, 6] {
        let files = db.live_files().expect("live files");
        let names: Vec<_> = files.iter().map(|file| file.name.as_str()).collect();
        let names = files
            .iter()
            .zip(names)
            .filter(|(file, _)| file.level < 6 || level == 6)
            .map(|(_, name)| name);
        db.compact_files_cf(family, &CompactionOptions::default(), names, level)
            .expect("compact");
        for (snapshot, before) in &snapshots {
            let mut read = content::read_everything();
            read.set_snapshot(snapshot);
            let pairs = content::scan_forward(db.raw_iterator_opt(read)).expect("readable");
            assert_eq!(pairs.len(), before.len(), "level {level}");
            let keys = pairs.iter().zip(before);
            keys.for_each(|((key, _), number)| assert_eq!(key[..], numbered(*number)));
        }
        assert_eq!(found(&db), last, "level {level}");
    }
    assert_done(&service.stats());
}

/// Timed puts survive a flush only with a map of times, which the next compaction drops.
fn write_timed_puts(path: &Path, seed: u64) {
    const KEYS: u32 = 40;
    let mut rng = StdRng::seed_from_u64(seed);
    {
        let db = open(&local_options(), path);
        for number in 0..KEYS {
            if rng.random_bool(0.5) {
                db.put(number.to_be_bytes(), b"at the bottom").expect("put");
            }
        }
        db.flush().expect("flush");
        compact_level_0(&db, 6);
    }
    {
        let mut with_times = local_options();
        with_times.set_preserve_internal_time_seconds(1 << 30);
        let db = open(&with_times, path);
        for round in 0..3_u8 {
            for number in 0..KEYS {
                let key = number.to_be_bytes();
                match rng.random_range(0..6) {
                    0 => db.delete(key).expect("delete"),
                    1 => db.put(key, [round]).expect("put"),
                    2 | 3 => {
                        // Old enough for a preferred sequence number below the entry's own.
                        let batch = batches::timed_put(&key, &[b't', round], 1);
                        db.write(&batch).expect("write the timed put");
                    }
                    _ => {}
                }
            }
            db.flush().expect("flush");
        }
    }
    compact_level_0(&open(&local_options(), path), 1);
}

#[test]
fn timed_puts_become_puts_where_rocksdb_makes_them_so() {
    const TIMED_PUT: u64 = 0x18;
    const ROUNDS: u64 = 8;
    let (mut before, mut after) = (0, 0);
    for seed in seed::seeds(ROUNDS) {
        println!("seed {seed}");
        for level in [2, 6] {
            let ends = [false, true].map(|offloads| {
                let directory = tempfile::tempdir().expect("a temporary directory");
                write_timed_puts(directory.path(), seed);
                let service = service();
                let options = match offloads {
                    true => options(&service),
                    false => local_options(),
                };
                let db = open(&options, directory.path());
                let entries = |db: &DB| internal::entries(db, "default", None, true);
                let timed = |entries: &[internal::Entry]| {
                    entries
                        .iter()
                        .filter(|entry| entry.kind() == TIMED_PUT)
                        .count()
                };
                before += timed(&entries(&db).expect("readable"));
                let names = db.live_files().expect("live files");
                let names = names.iter().filter(|file| file.level == 1 || level == 6);
                let names: Vec<_> = names.map(|file| file.name.clone()).collect();
                let family = db.cf_handle("default").expect("open");
                let names = names.iter().map(String::as_str);
                db.compact_files_cf(family, &CompactionOptions::default(), names, level)
                    .expect("compact");
                if offloads {
                    assert_done(&service.stats());
                }
                let entries = entries(&db).expect("readable");
                after += timed(&entries);
                entries
            });
            internal::compare(&ends[0], &ends[1]).unwrap_or_else(|e| panic!("level {level}: {e}"));
        }
    }
    assert!(0 < after && after < before, "{after} of {before}");
}

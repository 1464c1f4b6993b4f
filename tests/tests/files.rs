//! RocksDB and Rockmill write the same entries into one file each. Filters must be equal bit for bit. Properties must
//! be equal except for identity and effects of block splitting, and data blocks must have about the same size.

use std::collections::BTreeMap;
use std::path::Path;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rockmill_core::{InputTable, open_table};
use rockmill_format::table::names;
use rockmill_storage::{InputFileReader, LocalStorage};
use rockmill_tests::harness::{assert_done, compact_everything, local_options, open};
use rockmill_tests::seed::{cases, first_seed};
use rockmill_tests::table::{Filter, Prefix, TableShape};
use rust_rocksdb::{DB, DBCompactionStyle, DBCompressionType, Options};

const CASES: u64 = 40;
/// Allowed difference of the mean size of data blocks from RocksDB's, in percent.
const BLOCK_SIZE_TOLERANCE_PERCENT: u64 = 10;
/// Number of data blocks with which a mean is meaningful.
const ENOUGH_BLOCKS: u64 = 30;

fn fill_like_any_other(db: &DB, rng: &mut StdRng) {
    let keys = 1 + rng.random_range(0..3000) * rng.random_range(1..4);
    let key_len = rng.random_range(8..40);
    let value_len = rng.random_range(0..300);
    for flush in 0..2 {
        for i in 0..keys {
            let number = rng.random_range(0..keys);
            let key = format!("{number:0key_len$}");
            if (i + flush) % 9 == 0 {
                db.delete(key).expect("delete");
            } else {
                db.put(key, vec![b'v'; rng.random_range(0..=value_len)])
                    .expect("put");
            }
        }
        db.flush().expect("flush");
    }
}

/// Opens the only file of a database after everything was compacted.
fn only_file(db: &DB, dir: &Path) -> Option<InputTable> {
    let files = db.live_files().expect("live files");
    assert!(files.len() <= 1, "{} files", files.len());
    let name = files.first()?.name.trim_start_matches('/').to_owned();
    let file = InputFileReader::open(&LocalStorage, &dir.join(name)).expect("open");
    Some(open_table(Box::new(file)).expect("a sound file"))
}

fn filter(table: &InputTable) -> Option<Vec<u8>> {
    let handle = table.meta.metaindex.get(names::FULL_FILTER)?;
    Some(rockmill_core::read_block(table, *handle).expect("a sound block"))
}

/// Returns properties by name, without those that identify the file or depend on block splitting.
fn comparable_properties(table: &InputTable) -> BTreeMap<String, Vec<u8>> {
    const OWN: [&str; 13] = [
        "rocksdb.creating.db.identity",
        "rocksdb.creating.session.identity",
        "rocksdb.creation.time",
        "rocksdb.file.creation.time",
        "rocksdb.newest.key.time",
        "rocksdb.original.file.number",
        "rocksdb.data.size",
        "rocksdb.uncompressed.data.size",
        "rocksdb.index.size",
        "rocksdb.num.data.blocks",
        "rocksdb.num.data.blocks.compression.bypassed",
        "rocksdb.num.data.blocks.compression.rejected",
        "rocksdb.tail.start.offset",
    ];
    let entries = table.meta.properties.to_entries([0; 3]).into_iter();
    let named = entries.map(|(name, value)| (String::from_utf8_lossy(&name).into_owned(), value));
    named
        .filter(|(name, _)| !OWN.contains(&name.as_str()))
        // Whether the blocks of a small file are stored compressed depends on their boundaries, and so does the list of
        // compressions used.
        .filter(|(name, _)| name != "rocksdb.compression" || table.meta.index.len() > 1)
        .collect()
}

fn any_shape(rng: &mut StdRng) -> (TableShape, f64) {
    let bits = f64::from(rng.random_range(10..300)) / 10.0;
    let compression = [
        DBCompressionType::None,
        DBCompressionType::Lz4,
        DBCompressionType::Zstd,
    ];
    let shape = TableShape {
        format_version: rng.random_range(2..=8),
        filter: Filter::Bloom(bits),
        whole_key_filtering: rng.random_bool(0.7),
        prefix: match rng.random_range(0..3) {
            0 => None,
            1 => Some(Prefix::Fixed(rng.random_range(1..12))),
            _ => Some(Prefix::Capped(rng.random_range(1..50))),
        },
        compression: compression[rng.random_range(0..compression.len())],
        ..TableShape::default()
    };
    (shape, bits)
}

fn compacted(shape: &TableShape, options: Options, dir: &Path, seed: u64) -> Option<InputTable> {
    let mut options = shape.apply(options);
    options.set_target_file_size_base(1 << 30);
    let db = open(&options, dir);
    fill_like_any_other(&db, &mut StdRng::seed_from_u64(seed));
    compact_everything(&db);
    only_file(&db, dir)
}

#[test]
fn filters_and_properties_equal_rocksdbs() {
    let first = first_seed();
    let mut with_filter = 0;
    for seed in first..first + cases(CASES) {
        let (shape, bits) = any_shape(&mut StdRng::seed_from_u64(seed));
        println!("seed {seed}: {shape:?}");
        let dir = tempfile::tempdir().expect("a temporary directory");
        let service = rockmill::Service::builder()
            .min_job_bytes(0)
            .filter_bits_per_key(bits)
            .build()
            .expect("the settings are good");
        let theirs = compacted(&shape, local_options(), &dir.path().join("a"), seed);
        let mut options = local_options();
        options.set_compaction_service(service.clone());
        let ours = compacted(&shape, options, &dir.path().join("b"), seed);
        assert_done(&service.stats());
        let (Some(theirs), Some(ours)) = (theirs, ours) else {
            continue;
        };
        assert_eq!(filter(&theirs), filter(&ours), "seed {seed}");
        with_filter += u32::from(filter(&ours).is_some());
        assert_eq!(
            comparable_properties(&theirs),
            comparable_properties(&ours),
            "seed {seed}"
        );
        let mean = |table: &InputTable| {
            let properties = &table.meta.properties;
            properties.uncompressed_data_size / properties.num_data_blocks
        };
        if theirs.meta.properties.num_data_blocks >= ENOUGH_BLOCKS {
            let (theirs, ours) = (mean(&theirs), mean(&ours));
            let apart = theirs.abs_diff(ours) * 100 / theirs;
            println!("mean data block: {theirs} and {ours} bytes");
            assert!(
                apart <= BLOCK_SIZE_TOLERANCE_PERCENT,
                "seed {seed}: {theirs} {ours}"
            );
        }
    }
    assert!(with_filter > 0, "no case had a filter");
}

#[test]
fn the_number_of_bits_is_found_in_the_inputs_filters() {
    for filter_policy in [
        Filter::Bloom(7.0),
        Filter::Bloom(16.0),
        Filter::Ribbon(12.0),
    ] {
        let shape = TableShape {
            filter: filter_policy,
            ..TableShape::default()
        };
        let dir = tempfile::tempdir().expect("a temporary directory");
        let service = rockmill::Service::builder()
            .min_job_bytes(0)
            .build()
            .expect("defaults");
        let mut options = shape.apply(local_options());
        options.set_compaction_service(service.clone());
        let db = open(&options, dir.path());
        for i in 0..6000 {
            db.put(format!("key{:06}", i % 3000), b"value")
                .expect("put");
            if i % 3000 == 2999 {
                db.flush().expect("flush");
            }
        }
        compact_everything(&db);
        assert_done(&service.stats());
        let ours = only_file(&db, dir.path()).expect("a file");
        let (Filter::Bloom(bits) | Filter::Ribbon(bits)) = filter_policy else {
            unreachable!("only filters are listed");
        };
        let bytes = filter(&ours).expect("a filter").len() as f64;
        let keys = ours.meta.properties.num_filter_entries as f64;
        let found = bytes * 8.0 / keys;
        assert!(
            (found - bits).abs() < 0.3,
            "{filter_policy:?}: {found} bits a key"
        );
    }
}

#[test]
fn level_0_gets_one_file_in_its_place() {
    // With a single level, universal style compacts everything to level 0.
    let dir = tempfile::tempdir().expect("a temporary directory");
    let service = rockmill::Service::builder()
        .min_job_bytes(0)
        .build()
        .expect("defaults");
    let mut options = local_options();
    options.set_compaction_style(DBCompactionStyle::Universal);
    options.set_num_levels(1);
    options.set_target_file_size_base(16 << 10);
    options.set_compaction_service(service.clone());
    let mut rng = StdRng::seed_from_u64(first_seed());
    {
        let db = open(&options, dir.path());
        fill_like_any_other(&db, &mut rng);
        compact_everything(&db);
        assert!(only_file(&db, dir.path()).is_some());
        assert_done(&service.stats());
        db.put("000", "newer").expect("put");
        db.flush().expect("flush");
        db.put("000", "newest").expect("put");
        db.flush().expect("flush");
        compact_everything(&db);
    }
    let db = open(&options, dir.path());
    assert_eq!(db.get("000").expect("get").as_deref(), Some(&b"newest"[..]));
    assert_done(&service.stats());
}

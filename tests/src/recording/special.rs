//! Databases that random drawing rarely produces.

use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, DB, DBCompressionType, DataBlockIndexType, Options,
    SliceTransform,
};

use super::recorder::{Recorder, Take};
use super::{compact_level_0, quiet_options};
use crate::harness::{compact_everything, open};

/// Number of keys of a database.
const KEYS: u32 = 150;
/// Maximum size of a dictionary in bytes.
const DICTIONARY_BYTES: i32 = 4 << 10;
/// RocksDB's defaults of `window_bits` and `level`.
const WINDOW_BITS: i32 = -14;
const DEFAULT_LEVEL: i32 = 32767;

/// Makes a job with this name.
type Make = fn(&Recorder, &str) -> Result<(), String>;

/// All databases by name.
pub const ALL: [(&str, Make); 41] = [
    ("empty-output-bottommost", |r, name| {
        full(
            r,
            name,
            |_| {},
            |db| {
                put_all(db, b"value");
                delete_all(db);
            },
        )
    }),
    ("deletes-alone-above-nothing", |r, name| {
        full(
            r,
            name,
            |_| {},
            |db| {
                delete_all(db);
                delete_all(db);
            },
        )
    }),
    ("deletes-kept-above-older-data", |r, name| {
        above(r, name, |_| {}, delete_all)
    }),
    ("deletes-kept-by-a-snapshot", |r, name| {
        held(r, name, |db| put_all(db, b"value"), delete_all)
    }),
    ("versions-kept-by-a-snapshot", |r, name| {
        held(r, name, |db| put_all(db, b"old"), |db| put_all(db, b"new"))
    }),
    ("one-key-of-many-versions", |r, name| {
        full(
            r,
            name,
            |_| {},
            |db| {
                for number in 0..300_u32 {
                    db.put(b"key", number.to_be_bytes()).expect("put");
                    if number % 50 == 49 {
                        flush(db);
                    }
                }
            },
        )
    }),
    ("the-empty-key", |r, name| {
        full(
            r,
            name,
            |_| {},
            |db| {
                for value in [b"old", b"new"] {
                    db.put(b"", value).expect("put");
                    flush(db);
                }
            },
        )
    }),
    ("keys-of-2-kib", |r, name| {
        full(r, name, filtered, |db| keys_of(db, 2 << 10))
    }),
    ("keys-of-17-bytes", |r, name| {
        full(r, name, filtered, |db| keys_of(db, 17))
    }),
    ("keys-of-16-bytes", |r, name| {
        full(r, name, filtered, |db| keys_of(db, 16))
    }),
    ("values-of-300-kib", |r, name| {
        full(r, name, uncompressed, |db| large_values(db, 300 << 10))
    }),
    ("values-of-300-kib-zstd", |r, name| {
        full(r, name, zstd, |db| large_values(db, 300 << 10))
    }),
    ("many-slices", |r, name| {
        full(r, name, small_files, many_entries)
    }),
    ("many-slices-lz4", |r, name| {
        full(
            r,
            name,
            |o| {
                small_files(o);
                o.set_compression_type(DBCompressionType::Lz4);
            },
            many_entries,
        )
    }),
    ("many-slices-above-older-data", |r, name| {
        above(r, name, small_files, many_entries)
    }),
    ("many-inputs", |r, name| {
        full(r, name, uncompressed, |db| {
            (0..30).for_each(|n| put_some(db, n, 10))
        })
    }),
    ("level-0-to-level-0", |r, name| {
        within_level_0(r, name, uncompressed)
    }),
    ("level-0-to-level-0-zlib", |r, name| {
        within_level_0(r, name, |o| o.set_compression_type(DBCompressionType::Zlib))
    }),
    ("universal-to-the-last-level", |r, name| {
        full(
            r,
            name,
            |o| text(o, "compaction_style=kCompactionStyleUniversal"),
            rounds,
        )
    }),
    ("inputs-with-an-lz4-dictionary", |r, name| {
        dictionary(r, name, DBCompressionType::Lz4)
    }),
    ("inputs-with-a-zstd-dictionary", |r, name| {
        dictionary(r, name, DBCompressionType::Zstd)
    }),
    ("inputs-with-a-zlib-dictionary", |r, name| {
        dictionary(r, name, DBCompressionType::Zlib)
    }),
    ("inputs-with-a-two-level-index", |r, name| {
        older(r, name, |o| {
            table(o, |t| {
                t.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
                t.set_bloom_filter(10.0, false);
                t.set_partition_filters(true);
                t.set_block_size(256);
            })
        })
    }),
    ("inputs-with-a-hash-index", |r, name| {
        older(r, name, |o| {
            o.set_prefix_extractor(SliceTransform::create_fixed_prefix(3));
            table(o, |t| t.set_index_type(BlockBasedIndexType::HashSearch));
        })
    }),
    ("inputs-with-hashes-in-data-blocks", |r, name| {
        older(r, name, |o| {
            table(o, |t| {
                t.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
            })
        })
    }),
    ("inputs-with-separate-keys-and-values", |r, name| {
        older(r, name, |o| {
            table(o, |t| t.set_separate_key_value_in_data_block(true))
        })
    }),
    ("inputs-with-aligned-blocks", |r, name| {
        older(r, name, |o| {
            o.set_compression_type(DBCompressionType::None);
            table(o, |t| t.set_block_align(true));
        })
    }),
    ("inputs-of-two-codecs", |r, name| {
        older(r, name, |o| o.set_compression_type(DBCompressionType::Zlib))
    }),
    ("no-delta-encoding", |r, name| {
        rare(r, name, |t| t.set_use_delta_encoding(false))
    }),
    ("index-shortening-none", |r, name| {
        rare(r, name, |t| t.set_index_shortening(0))
    }),
    ("index-shortening-successor", |r, name| {
        rare(r, name, |t| t.set_index_shortening(2))
    }),
    ("index-not-compressed", |r, name| {
        rare(r, name, |t| t.set_enable_index_compression(false))
    }),
    ("filter-not-for-memory", |r, name| {
        rare(r, name, |t| {
            t.set_bloom_filter(10.0, false);
            t.set_optimize_filters_for_memory(false);
        })
    }),
    ("filter-hybrid", |r, name| {
        rare(r, name, |t| t.set_hybrid_ribbon_filter(10.0, 3))
    }),
    ("compression-per-level", |r, name| {
        let levels = [
            DBCompressionType::None,
            DBCompressionType::Snappy,
            DBCompressionType::Zstd,
        ];
        above(r, name, |o| o.set_compression_per_level(&levels), rounds)
    }),
    ("compression-options-of-the-last-level", |r, name| {
        full(
            r,
            name,
            |o| {
                text(
                    o,
                    "bottommost_compression=kZSTD;bottommost_compression_opts={level=9;checksum=true;enabled=true;}",
                )
            },
            rounds,
        )
    }),
    ("compression-that-rarely-pays", |r, name| {
        full(
            r,
            name,
            |o| {
                text(
                    o,
                    "compression=kZSTD;compression_opts={max_compressed_bytes_per_kb=300;}",
                )
            },
            rounds,
        )
    }),
    ("single-delete-over-a-delete-allowed", |r, name| {
        full(
            r,
            name,
            |o| o.set_enforce_single_del_contracts(false),
            single_delete_over_a_delete,
        )
    }),
    ("paranoid-with-file-checksums", |r, name| {
        full(
            r,
            name,
            |o| {
                o.set_paranoid_file_checks(true);
                o.set_file_checksum_gen_factory(&rust_rocksdb::FileChecksumGenFactory::crc32c());
            },
            rounds,
        )
    }),
    ("prefixes-alone-in-the-filter", |r, name| {
        full(
            r,
            name,
            |o| {
                o.set_prefix_extractor(SliceTransform::create_fixed_prefix(5));
                table(o, |t| {
                    t.set_bloom_filter(10.0, false);
                    t.set_whole_key_filtering(false);
                });
            },
            rounds,
        )
    }),
    ("a-merge-operator-without-operands", |r, name| {
        full(
            r,
            name,
            |o| o.set_merge_operator_associative("none", |_, _, _| None),
            rounds,
        )
    }),
];

fn key(number: u32) -> Vec<u8> {
    format!("key{number:06}").into_bytes()
}

pub(super) fn flush(db: &DB) {
    db.flush().expect("flush");
}

pub(super) fn put_some(db: &DB, from: u32, step: usize) {
    for number in (from..from + KEYS).step_by(step) {
        let value = vec![b'a' + (number % 7) as u8; number as usize % 90];
        db.put(key(number), value).expect("put");
    }
    flush(db);
}

fn put_all(db: &DB, value: &[u8]) {
    (0..KEYS).for_each(|number| db.put(key(number), value).expect("put"));
    flush(db);
}

fn delete_all(db: &DB) {
    (0..KEYS).for_each(|number| db.delete(key(number)).expect("delete"));
    flush(db);
}

/// Writes three overlapping files with Deletes.
pub(super) fn rounds(db: &DB) {
    put_some(db, 0, 1);
    put_some(db, 40, 3);
    (0..KEYS)
        .step_by(4)
        .for_each(|number| db.delete(key(number)).expect("delete"));
    flush(db);
}

fn keys_of(db: &DB, bytes: usize) {
    for round in 0..2_u32 {
        for number in 0..40_u32 {
            let mut key = vec![b'k'; bytes];
            key[bytes - 5..].copy_from_slice(format!("{:05}", number * (round + 1)).as_bytes());
            db.put(key, round.to_be_bytes()).expect("put");
        }
        flush(db);
    }
}

fn large_values(db: &DB, bytes: usize) {
    for round in 0..2 {
        for number in 0..3 {
            db.put(key(number * 2 + round), vec![b'v'; bytes])
                .expect("put");
        }
        flush(db);
    }
}

fn many_entries(db: &DB) {
    const MANY: u32 = 4_000;
    for round in 0..2 {
        for number in (round..MANY).step_by(1 + round as usize) {
            db.put(key(number), [b'v'; 20]).expect("put");
        }
        flush(db);
    }
}

/// Writes a Put, a Delete and a SingleDelete of one key, each in a separate file.
pub(super) fn single_delete_over_a_delete(db: &DB) {
    put_some(db, 0, 5);
    db.put(b"mixed", b"value").expect("put");
    flush(db);
    db.delete(b"mixed").expect("delete");
    flush(db);
    db.single_delete(b"mixed").expect("single delete");
    flush(db);
}

fn uncompressed(options: &mut Options) {
    options.set_compression_type(DBCompressionType::None);
}

fn zstd(options: &mut Options) {
    options.set_compression_type(DBCompressionType::Zstd);
}

fn filtered(options: &mut Options) {
    uncompressed(options);
    table(options, |t| t.set_bloom_filter(10.0, false));
}

fn small_files(options: &mut Options) {
    uncompressed(options);
    options.set_target_file_size_base(8 << 10);
}

pub(super) fn table(options: &mut Options, change: impl Fn(&mut BlockBasedOptions)) {
    let mut table = BlockBasedOptions::default();
    change(&mut table);
    options.set_block_based_table_factory(&table);
}

/// Sets options from text.
fn text(options: &mut Options, text: &str) {
    let set = options.get_options_from_string(text);
    *options = set.expect("RocksDB knows the option");
}

/// Opens a database with `configure`d options and a recorder.
pub(super) fn opened(
    recorder: &Recorder,
    path: &std::path::Path,
    configure: impl Fn(&mut Options),
) -> DB {
    let mut options = quiet_options();
    configure(&mut options);
    options.set_compaction_service(recorder.clone());
    open(&options, path)
}

pub(super) fn scratch() -> Result<tempfile::TempDir, String> {
    tempfile::tempdir().map_err(|e| e.to_string())
}

/// Records the full compaction.
fn full(
    recorder: &Recorder,
    name: &str,
    configure: impl Fn(&mut Options),
    write: impl Fn(&DB),
) -> Result<(), String> {
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), configure);
    write(&db);
    recorder.during(Take::one(name), || {
        compact_everything(&db);
        Ok(())
    })
}

/// Records a compaction to level 1 with older data in the last level.
fn above(
    recorder: &Recorder,
    name: &str,
    configure: impl Fn(&mut Options),
    write: impl Fn(&DB),
) -> Result<(), String> {
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), |options| {
        options.set_level_compaction_dynamic_level_bytes(false);
        configure(options);
    });
    rounds(&db);
    let mut to_the_last = rust_rocksdb::CompactOptions::default();
    to_the_last.set_change_level(true);
    to_the_last.set_target_level(6);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &to_the_last);
    write(&db);
    recorder.during(Take::one(name), || compact_level_0(&db, "default", 1))
}

/// Records the compaction of writes before and after a snapshot.
fn held(
    recorder: &Recorder,
    name: &str,
    before: impl Fn(&DB),
    after: impl Fn(&DB),
) -> Result<(), String> {
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), uncompressed);
    before(&db);
    let _snapshot = db.snapshot();
    after(&db);
    recorder.during(Take::one(name), || {
        compact_everything(&db);
        Ok(())
    })
}

fn within_level_0(
    recorder: &Recorder,
    name: &str,
    configure: impl Fn(&mut Options),
) -> Result<(), String> {
    let directory = scratch()?;
    let db = opened(recorder, directory.path(), configure);
    rounds(&db);
    recorder.during(Take::one(name), || compact_level_0(&db, "default", 0))
}

/// Records a compaction of older files with another format together with newer ones.
fn older(recorder: &Recorder, name: &str, first: impl Fn(&mut Options)) -> Result<(), String> {
    let directory = scratch()?;
    let mut options = quiet_options();
    first(&mut options);
    rounds(&open(&options, directory.path()));
    let db = opened(recorder, directory.path(), uncompressed);
    put_some(&db, 20, 2);
    recorder.during(Take::one(name), || {
        compact_everything(&db);
        Ok(())
    })
}

fn dictionary(recorder: &Recorder, name: &str, codec: DBCompressionType) -> Result<(), String> {
    older(recorder, name, |options| {
        options.set_compression_type(codec);
        options.set_compression_options(WINDOW_BITS, DEFAULT_LEVEL, 0, DICTIONARY_BYTES);
    })
}

fn rare(recorder: &Recorder, name: &str, change: fn(&mut BlockBasedOptions)) -> Result<(), String> {
    full(recorder, name, |options| table(options, change), rounds)
}

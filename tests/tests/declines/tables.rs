//! Table formats and block-based table options that Rockmill leaves to RocksDB.

use rockmill_tests::content::Content;
use rockmill_tests::harness::assert_declined;
use rockmill_tests::reasons::{
    BLOCK_ALIGN, FILTER_POLICY, INDEX_TYPE, PREFIX_EXTRACTOR, SEPARATE_KEY_VALUE, TABLE_FACTORY,
    USER_DEFINED_INDEX,
};
use rust_rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, DB, DBCompressionType, DataBlockIndexType,
    IndexBlockSearchType, KeyEncodingType, Options, PlainTableFactoryOptions, SliceTransform,
};

use crate::trial::{declines, plain, run_checked, takes, with_table, with_text};

#[test]
fn plain_tables() {
    let plain_table = |options: &mut Options| {
        options.set_allow_mmap_reads(true);
        options.set_plain_table_factory(&PlainTableFactoryOptions {
            user_key_length: 0,
            bloom_bits_per_key: 0,
            hash_table_ratio: 0.0,
            index_sparseness: 16,
            huge_page_tlb_size: 0,
            encoding_type: KeyEncodingType::Plain,
            full_scan_mode: false,
            store_index_in_file: false,
        });
    };
    // Plain tables cannot be scanned backward.
    let check = |db: &DB, content: &Content| {
        for (key, value) in content {
            assert_eq!(db.get(key).expect("get").as_ref(), Some(value));
        }
        let pairs = db.iterator(rust_rocksdb::IteratorMode::Start).count();
        assert_eq!(pairs, content.len());
    };
    assert_declined(&run_checked(plain_table, plain, check), &[TABLE_FACTORY]);
}

#[test]
fn a_two_level_index_is_no_reason() {
    let two_level = with_table(|t| t.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch));
    takes(two_level, plain);
}

#[test]
fn a_hash_index_is_no_reason() {
    let hash = |options: &mut Options| {
        options.set_prefix_extractor(SliceTransform::create_fixed_prefix("key000".len()));
        with_table(|t| t.set_index_type(BlockBasedIndexType::HashSearch))(options);
    };
    takes(hash, plain);
}

#[test]
fn an_index_with_first_keys() {
    let first_keys =
        with_text("block_based_table_factory={index_type=kBinarySearchWithFirstKey;};");
    declines(&[INDEX_TYPE], first_keys, plain);
}

#[test]
fn partitioned_filters_are_no_reason() {
    let partitioned = with_table(|t| {
        t.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        t.set_bloom_filter(10.0, false);
        t.set_partition_filters(true);
    });
    takes(partitioned, plain);
}

#[test]
fn a_hash_index_in_data_blocks_is_no_reason() {
    let hash = with_table(|t| t.set_data_block_index_type(DataBlockIndexType::BinaryAndHash));
    takes(hash, plain);
}

#[test]
fn separate_keys_and_values() {
    let separate = with_table(|t| t.set_separate_key_value_in_data_block(true));
    declines(&[SEPARATE_KEY_VALUE], separate, plain);
}

#[test]
fn aligned_blocks() {
    let aligned = |options: &mut Options| {
        options.set_compression_type(DBCompressionType::None);
        with_table(|t| t.set_block_align(true))(options);
    };
    declines(&[BLOCK_ALIGN], aligned, plain);
}

#[test]
fn a_user_defined_index() {
    let trie = with_table(|t: &mut BlockBasedOptions| {
        t.set_user_defined_index_factory_from_string("trie_index")
            .expect("built in");
    });
    declines(&[USER_DEFINED_INDEX], trie, plain);
}

#[test]
fn a_filter_that_rockmill_does_not_write() {
    let legacy = with_text(
        "block_based_table_factory={filter_policy=rocksdb.internal.LegacyBloomFilter:10;};",
    );
    declines(&[FILTER_POLICY], legacy, plain);
}

#[test]
fn the_newest_format_version_is_no_reason() {
    const NEWEST: i32 = 8;
    takes(with_table(|t| t.set_format_version(NEWEST)), plain);
}

#[test]
fn known_filters_are_no_reason() {
    takes(with_table(|t| t.set_bloom_filter(10.0, false)), plain);
    // The old block-based filters were removed: RocksDB treats this as a full filter.
    takes(with_table(|t| t.set_bloom_filter(10.0, true)), plain);
    // The OPTIONS file names these policies without their bits, which are inferred from the inputs' filters.
    takes(with_table(|t| t.set_ribbon_filter(10.0)), plain);
    takes(with_table(|t| t.set_hybrid_ribbon_filter(10.0, 3)), plain);
}

fn with_noop_prefix(options: &mut Options) {
    options.set_prefix_extractor(SliceTransform::create_noop());
}

#[test]
fn an_unknown_prefix_extractor_without_a_filter_is_no_reason() {
    takes(with_noop_prefix, plain);
}

#[test]
fn a_prefix_extractor_that_does_nothing_under_a_filter() {
    let filtered = |options: &mut Options| {
        with_noop_prefix(options);
        with_table(|t| t.set_bloom_filter(10.0, false))(options);
    };
    declines(&[PREFIX_EXTRACTOR], filtered, plain);
}

#[test]
fn rarer_table_options_are_no_reason() {
    let rare: [fn(&mut BlockBasedOptions); 6] = [
        |t| t.set_use_delta_encoding(false),
        |t| t.set_index_shortening(0),
        |t| t.set_index_shortening(2),
        |t| t.set_enable_index_compression(false),
        |t| {
            t.set_bloom_filter(10.0, false);
            t.set_optimize_filters_for_memory(false);
        },
        |t| t.set_verify_compression(true),
    ];
    for change in rare {
        takes(with_table(change), plain);
    }
}

#[test]
fn hints_for_interpolation_are_a_reason_where_they_are_read() {
    takes(with_table(|t| t.set_uniform_cv_threshold(0.5)), plain);
    let read = with_table(|t| {
        t.set_uniform_cv_threshold(0.5);
        t.set_index_block_search_type(IndexBlockSearchType::Auto);
    });
    declines(&[INDEX_TYPE], read, plain);
}

#[test]
fn aligned_super_blocks() {
    let aligned = with_table(|t| t.set_super_block_alignment_size(64 << 10));
    declines(&[BLOCK_ALIGN], aligned, plain);
}

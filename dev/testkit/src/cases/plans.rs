//! Random table plans.

use proptest::prelude::*;
use rockmill_core::{FilterPlan, TablePlan};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::{CompressionSettings, CompressionType, DEFAULT_LEVEL};
use rockmill_format::filter::FilterFormat;
use rockmill_format::index::{IndexSettings, IndexShortening};
use rockmill_format::key::KeyOrder;
use rockmill_format::prefix::PrefixExtractor;

pub const ALL_CHECKSUMS: [ChecksumType; 5] = [
    ChecksumType::None,
    ChecksumType::Crc32c,
    ChecksumType::XxHash,
    ChecksumType::XxHash64,
    ChecksumType::Xxh3,
];

fn compressions() -> impl Strategy<Value = CompressionSettings> {
    let levels = prop::sample::select(vec![DEFAULT_LEVEL, -5, 0, 1, 6]);
    let kinds = prop::sample::select(CompressionType::ALL.to_vec());
    (
        kinds,
        levels,
        any::<bool>(),
        prop::sample::select(vec![0u32, 896, 1023]),
    )
        .prop_map(
            |(kind, level, zstd_checksum, max_compressed_bytes_per_kb)| CompressionSettings {
                kind,
                level,
                zstd_checksum,
                max_compressed_bytes_per_kb,
                ..CompressionSettings::none()
            },
        )
}

fn filters() -> impl Strategy<Value = Option<FilterPlan>> {
    let extractor = prop_oneof![
        (0usize..6).prop_map(PrefixExtractor::Fixed),
        (0usize..6).prop_map(PrefixExtractor::Capped),
    ];
    let format = prop::sample::select(vec![FilterFormat::FastLocalBloom, FilterFormat::Legacy]);
    let filter = (
        format,
        prop::sample::select(vec![0u32, 1000, 9900, 100_000]),
        any::<bool>(),
        proptest::option::of(extractor),
        any::<bool>(),
    );
    proptest::option::of(filter.prop_map(
        |(format, millibits_per_key, whole, extractor, memory)| FilterPlan {
            format,
            millibits_per_key,
            whole_key_filtering: whole,
            prefix_extractor: extractor,
            optimize_filters_for_memory: memory,
            hashes_per_partition: None,
        },
    ))
}

/// Plans of all kinds of tables.
pub fn table_plans() -> impl Strategy<Value = TablePlan> {
    let format = (2u32..=8, prop::sample::select(ALL_CHECKSUMS.to_vec()));
    let sizes = (
        prop::sample::select(vec![1u64, 64, 300, 4096, 1 << 20]),
        prop::sample::select(vec![1usize, 2, 16, 1000]),
        prop::sample::select(vec![1usize, 3, 16]),
    );
    let shortening = prop::sample::select(vec![
        IndexShortening::None,
        IndexShortening::Separators,
        IndexShortening::SeparatorsAndSuccessor,
    ]);
    let switches = any::<[bool; 4]>();
    (
        format,
        sizes,
        shortening,
        switches,
        compressions(),
        filters(),
    )
        .prop_map(
            |(format, sizes, shortening, switches, compression, filter)| {
                let (format_version, checksum) = format;
                let (block_size, restart_interval, index_restart_interval) = sizes;
                let [delta_keys, common_prefix, compress_index, hash_index] = switches;
                let common_prefix = common_prefix && delta_keys && format_version >= 8;
                TablePlan {
                    format_version,
                    checksum,
                    block_size,
                    restart_interval,
                    delta_keys,
                    common_prefix,
                    keys_per_bucket: hash_index.then_some(0.75),
                    index: IndexSettings {
                        format_version,
                        restart_interval: index_restart_interval,
                        shortening,
                        common_prefix,
                        partitions: None,
                        order: KeyOrder::Bytewise,
                    },
                    compression,
                    compress_index,
                    filter,
                    prefixes: None,
                }
            },
        )
}

//! `open_table` and `RunReader` read back what `SstWriter` writes, and all its counts are right.

use rockmill_testkit::cases as common;

use common::plans::table_plans;
use common::{DELETE, Entry, PUT, config, open, plan, read};
use proptest::prelude::*;
use rockmill_core::{
    ContentHash, FilterPart, FilterPlan, InputTable, KeyRange, OutputFile, OutputSplitting, Plan,
    filter_parts, parts_of,
};
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::filter::{FilterFormat, FilterKind, FilterReader};
use rockmill_format::handle::{BLOCK_TRAILER_SIZE, BlockHandle};
use rockmill_format::index::IndexPartitions;
use rockmill_format::key::KeyOrder;
use rockmill_format::table::names;
use rockmill_format::xxph3;

fn splittings() -> impl Strategy<Value = OutputSplitting> {
    let size = prop::sample::select(vec![1u64, 500, 5000, u64::MAX]);
    let ratio = prop::sample::select(vec![(1u64, 1u64), (1, 3), (0, 0), (3, 1)]);
    (size, ratio, any::<bool>()).prop_map(|(size, compression_ratio, single_file)| {
        OutputSplitting {
            compression_ratio,
            single_file,
            ..common::splitting(size)
        }
    })
}

/// Partitions of the index, and whether the filter has some too.
fn partitions() -> impl Strategy<Value = Option<(IndexPartitions, bool)>> {
    let block_size = prop::sample::select(vec![1u64, 60, 150, 1000]);
    let deviation = prop::sample::select(vec![0u64, 10, 100]);
    let partitions = (block_size, deviation).prop_map(|(block_size, deviation)| IndexPartitions {
        block_size,
        deviation,
    });
    proptest::option::of((partitions, any::<bool>()))
}

fn plans() -> impl Strategy<Value = Plan> {
    let parts = (table_plans(), splittings(), any::<u64>(), partitions());
    parts.prop_map(|(table, splitting, checksum_seed, partitions)| {
        let mut plan = plan();
        plan.output.table = table;
        if let Some((partitions, has_filter_partitions)) = partitions {
            let table = &mut plan.output.table;
            table.index.partitions = Some(partitions);
            if has_filter_partitions {
                let bytes = partitions.least_bytes();
                table.filter = table.filter.map(|filter| {
                    filter.in_partitions_of(bytes, filter.prefix_extractor.is_some())
                });
            }
        }
        plan.output.splitting = splitting;
        plan.output.paranoid_hash = true;
        plan.output.file_checksum = true;
        plan.output.properties.checksum_seed = checksum_seed;
        plan
    })
}

fn common_len(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

fn varint_len(value: usize) -> u64 {
    let mut rest = value >> 7;
    let mut len = 1;
    while rest > 0 {
        rest >>= 7;
        len += 1;
    }
    len
}

/// Bytes of an entry encoded against its predecessor in the file.
fn encoded_len(before: &[u8], entry: &Entry, delta_keys: bool) -> u64 {
    let key = entry.internal_key();
    let shared = if delta_keys {
        common_len(before, &key)
    } else {
        0
    };
    let rest = key.len() - shared;
    let value = entry.value.len();
    varint_len(shared) + varint_len(rest) + varint_len(value) + (rest + value) as u64
}

/// The entries of each file, each in its blocks.
type Cut = Vec<Vec<Vec<Entry>>>;

/// The expected ends of files and blocks by the rules.
fn expected_cut(plan: &Plan, entries: &[Entry]) -> Cut {
    let mut files: Cut = Vec::new();
    let (mut encoded, mut block) = (0u64, 0);
    let mut before: Option<&Entry> = None;
    for entry in entries {
        let (stored, raw) = plan.output.splitting.compression_ratio;
        let size = if raw == 0 || stored >= raw {
            encoded
        } else {
            (u128::from(encoded) * u128::from(stored) / u128::from(raw)) as u64
        };
        let new_key = before.is_none_or(|before| before.key != entry.key);
        let full = !plan.output.splitting.single_file
            && size >= plan.output.splitting.max_output_file_size;
        if before.is_none() || new_key && full {
            files.push(Vec::new());
            (encoded, block, before) = (0, 0, None);
        }
        let blocks = files.last_mut().expect("pushed above");
        let number = encoded / plan.output.table.block_size;
        if blocks.is_empty() || number != block {
            blocks.push(Vec::new());
        }
        block = number;
        blocks.last_mut().expect("pushed above").push(entry.clone());
        let before_key = before.map(Entry::internal_key).unwrap_or_default();
        encoded += encoded_len(&before_key, entry, plan.output.table.delta_keys);
        before = Some(entry);
    }
    files
}

/// Payload and trailer type of a block of a file.
fn block_payload(table: &InputTable, bytes: &[u8], handle: BlockHandle) -> (Vec<u8>, u8) {
    let start = handle.offset as usize;
    let stored = &bytes[start..start + handle.size as usize + BLOCK_TRAILER_SIZE];
    let (payload, kind) = table
        .meta
        .footer
        .guard
        .open(stored, handle.offset)
        .expect("block is sound");
    let mut out = Vec::new();
    Decompressor::new(Vec::new())
        .decompress(kind, payload, &mut out)
        .expect("block decompresses");
    (out, kind as u8)
}

/// Checks a block's entries, restarts and common prefix; returns its uncompressed size and type.
fn check_block(
    plan: &Plan,
    (payload, kind): (Vec<u8>, u8),
    expected: &[Entry],
) -> Result<(u64, u8), TestCaseError> {
    let interval = plan.output.table.restart_interval;
    let block = Block::parse(&payload)?;
    let mut entries = block.entries(ValueForm::Sized, interval as u32)?;
    let (mut found, mut key) = (0, Vec::new());
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut key);
        prop_assert!(found < expected.len(), "block with too many entries");
        prop_assert_eq!(&key, &expected[found].internal_key());
        let shares = plan.output.table.delta_keys && found % interval != 0;
        let before = if shares {
            expected[found - 1].internal_key()
        } else {
            vec![]
        };
        prop_assert_eq!(entry.shared, common_len(&before, &key));
        found += 1;
    }
    prop_assert_eq!(found, expected.len(), "entries of a block");
    prop_assert_eq!(block.num_restarts(), expected.len().div_ceil(interval));
    let prefix = expected.iter().fold(expected[0].key.len(), |len, entry| {
        len.min(common_len(&expected[0].key, &entry.key))
    });
    let prefix = if plan.output.table.common_prefix {
        prefix
    } else {
        0
    };
    prop_assert_eq!(block.common_prefix(), &expected[0].key[..prefix]);
    Ok((payload.len() as u64, kind))
}

fn check_filter(plan: &Plan, table: &InputTable, bytes: &[u8], entries: &[Entry]) {
    let properties = &table.meta.properties;
    let parts = filter_parts(table).expect("sound");
    if parts.is_empty() {
        assert_eq!(
            (properties.num_filter_entries, properties.filter_size),
            (0, 0)
        );
        let adds = plan.output.table.filter.is_some_and(|filter| {
            filter.millibits_per_key > 0
                && (filter.whole_key_filtering
                    || entries.iter().any(|entry| {
                        let extractor = filter.prefix_extractor;
                        extractor.is_some_and(|e| e.transform(&entry.key).is_some())
                    }))
        });
        assert!(!adds, "no filter was written");
        return;
    }
    let options = plan.output.table.filter.expect("a filter was asked for");
    let is_partitioned = options.hashes_per_partition.is_some();
    let name = match is_partitioned {
        true => names::PARTITIONED_FILTER,
        false => names::FULL_FILTER,
    };
    let (top, _) = block_payload(table, bytes, table.meta.metaindex[name]);
    let of_parts = parts.iter().filter(|_| is_partitioned);
    let of_parts: usize = of_parts.map(|part| part.payload.len()).sum();
    assert_eq!(properties.filter_size, (top.len() + of_parts) as u64);
    let kind = match options.format {
        FilterFormat::FastLocalBloom => FilterKind::Bloom,
        FilterFormat::Legacy => FilterKind::Legacy,
    };
    for entry in entries {
        // Versions of a key may fill several partitions.
        let of_key = &parts[parts_of(&parts, KeyOrder::Bytewise, &entry.key)];
        assert!(!of_key.is_empty());
        for part in of_key {
            check_part(&options, kind, part, entry);
        }
    }
}

fn check_part(options: &FilterPlan, kind: FilterKind, part: &FilterPart, entry: &Entry) {
    let filter = FilterReader::parse(&part.payload).expect("filter parses");
    assert_eq!(filter.kind(), kind);
    if options.whole_key_filtering {
        assert!(filter.may_contain(&entry.key), "{entry:?}");
    }
    if let Some(prefix) = options
        .prefix_extractor
        .and_then(|e| e.transform(&entry.key))
    {
        assert!(filter.may_contain(prefix), "prefix of {entry:?}");
    }
}

/// Compares the counted properties with a recount.
fn check_properties(
    plan: &Plan,
    table: &InputTable,
    entries: &[Entry],
    blocks: &[(u64, u8)],
) -> Result<(), TestCaseError> {
    let properties = &table.meta.properties;
    let data_size: u64 = table
        .meta
        .index
        .iter()
        .map(|entry| entry.handle.size + BLOCK_TRAILER_SIZE as u64)
        .sum();
    let seqs = || entries.iter().map(Entry::seq);
    let count = |selected: fn(&Entry) -> u64| entries.iter().map(selected).sum::<u64>();
    prop_assert_eq!(properties.num_entries, entries.len() as u64);
    prop_assert_eq!(
        properties.num_deletions,
        count(|e| u64::from(e.kind() != PUT))
    );
    prop_assert_eq!(properties.raw_key_size, count(|e| e.key.len() as u64 + 8));
    prop_assert_eq!(properties.raw_value_size, count(|e| e.value.len() as u64));
    prop_assert_eq!(properties.num_data_blocks, blocks.len() as u64);
    prop_assert_eq!(properties.data_size, data_size);
    prop_assert_eq!(properties.tail_start_offset, data_size);
    let uncompressed: u64 = blocks.iter().map(|block| block.0).sum();
    prop_assert_eq!(properties.uncompressed_data_size, uncompressed);
    let stored = blocks.iter().filter(|block| block.1 == 0).count() as u64;
    let off = plan.output.table.compression.kind == CompressionType::None;
    let (rejected, bypassed) = if off { (0, stored) } else { (stored, 0) };
    prop_assert_eq!(properties.num_data_blocks_compression_rejected, rejected);
    prop_assert_eq!(properties.num_data_blocks_compression_bypassed, bypassed);
    prop_assert_eq!(Some(properties.key_smallest_seqno), seqs().min());
    prop_assert_eq!(Some(properties.key_largest_seqno), seqs().max());
    let index = table.meta.index_handle;
    let has_partitions = plan.output.table.index.partitions.is_some();
    prop_assert_eq!(
        table.meta.index_partitions.len() as u64,
        properties.index_partitions
    );
    prop_assert_eq!(properties.index_partitions > 0, has_partitions);
    prop_assert_eq!(properties.top_level_index_size > 0, has_partitions);
    if !plan.output.table.compress_index && !has_partitions {
        prop_assert_eq!(
            properties.index_size,
            index.size + BLOCK_TRAILER_SIZE as u64
        );
    }
    prop_assert_eq!(properties.num_merge_operands, 0);
    prop_assert_eq!(properties.num_range_deletions, 0);
    prop_assert_eq!(
        properties.format_version,
        u64::from(plan.output.table.format_version)
    );
    let name = String::from_utf8_lossy(&properties.compression_name).into_owned();
    for &(_, kind) in blocks.iter().filter(|block| block.1 != 0) {
        let named = if plan.output.table.format_version >= 7 {
            name.contains(&format!("{kind:02X};"))
        } else {
            Some(name.as_str()) == CompressionType::from_code(kind).map(CompressionType::name)
        };
        prop_assert!(named, "{name} does not name type {kind}");
    }
    Ok(())
}

/// Checks the writer's description of a file.
fn check_output(output: &OutputFile, bytes: &[u8], entries: &[Entry]) -> Result<(), TestCaseError> {
    let (first, last) = (&entries[0], &entries[entries.len() - 1]);
    prop_assert_eq!(output.size, bytes.len() as u64);
    prop_assert_eq!(&output.smallest, &first.internal_key());
    prop_assert_eq!(&output.largest, &last.internal_key());
    prop_assert_eq!(output.file_checksum, Some(crc32c::crc32c(bytes)));
    let mut content = ContentHash::default();
    let mut paranoid = 0;
    for entry in entries {
        content.push(entry.hash());
        paranoid = xxph3::hash64_seeded(&entry.internal_key(), paranoid);
        paranoid = xxph3::hash64_seeded(&entry.value, paranoid);
    }
    prop_assert_eq!(output.content, content);
    prop_assert_eq!(output.paranoid_hash, paranoid);
    Ok(())
}

fn check_file(
    plan: &Plan,
    (output, bytes): &(OutputFile, Vec<u8>),
    blocks: &[Vec<Entry>],
) -> Result<u32, TestCaseError> {
    let entries = blocks.concat();
    let table = open(bytes.clone())?;
    check_output(output, bytes, &entries)?;
    let (found, totals) = read(&table, &KeyRange::default(), 1000)?;
    prop_assert_eq!(&found, &entries);
    prop_assert_eq!(totals.entries, entries.len() as u64);
    prop_assert_eq!(totals.hash, common::hash_sum(&entries));
    prop_assert_eq!(totals.bytes_read, table.meta.properties.data_size);
    prop_assert_eq!(table.meta.index.len(), blocks.len());
    let mut payloads = Vec::new();
    for (described, expected) in table.meta.index.iter().zip(blocks) {
        let payload = block_payload(&table, bytes, described.handle);
        payloads.push(check_block(plan, payload, expected)?);
    }
    prop_assert_eq!(&output.properties, &table.meta.properties);
    check_properties(plan, &table, &entries, &payloads)?;
    check_filter(plan, &table, bytes, &entries);
    Ok(table.meta.footer.guard.base_context_checksum)
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn tables_round_trip(plan in plans(), entries in common::entries(40)) {
        let files = common::write(&plan, &entries)?;
        let cut = expected_cut(&plan, &entries);
        prop_assert_eq!(files.len(), cut.len());
        let mut bases = Vec::new();
        for (i, (file, blocks)) in files.iter().zip(&cut).enumerate() {
            prop_assert_eq!(file.0.number, i as u64 + 1);
            prop_assert_eq!(file.0.properties.orig_file_number, i as u64 + 1);
            bases.push(check_file(&plan, file, blocks)?);
        }
        for pair in cut.windows(2) {
            let (last, first) = (pair[0].concat().pop(), pair[1].concat().swap_remove(0));
            prop_assert_ne!(last.map(|entry| entry.key), Some(first.key));
        }
        if plan.output.table.format_version >= 6 {
            let count = bases.len();
            bases.sort_unstable();
            bases.dedup();
            prop_assert_eq!(bases.len(), count, "base context checksums repeat");
        }
        let again = common::write(&plan, &entries)?;
        prop_assert!(files.iter().map(|f| &f.1).eq(again.iter().map(|f| &f.1)));
    }
}

#[test]
fn nothing_written_is_no_file() {
    assert!(common::write(&plan(), &[]).expect("runs").is_empty());
}

#[test]
fn outputs_take_the_oldest_time_of_the_inputs_they_overlap() {
    let mut plan = plan();
    plan.output.splitting = common::splitting(1);
    let key = |key: &[u8]| rockmill_format::key::join(key, rockmill_format::key::pack_tag(5, PUT));
    plan.output.properties.ancestors = vec![
        (key(b"a"), key(b"c"), 700),
        (key(b"b"), key(b"b"), 600),
        (key(b"c"), key(b"d"), 0),
        (key(b"c"), key(b"e"), 900),
    ];
    let entries = [b"a", b"b", b"d", b"x"].map(|key| Entry::new(key, 5, PUT, b"v"));
    let files = common::write(&plan, &entries).expect("writes");
    let times: Vec<_> = files
        .iter()
        .map(|file| file.0.oldest_ancester_time)
        .collect();
    assert_eq!(times, [700, 600, 900, 600]);
}

#[test]
fn tombstones_alone_make_a_file() {
    let entries = [Entry::new(b"", 3, DELETE, b"")];
    let table = open(common::one_file(&plan(), &entries)).expect("opens");
    let (found, _) = read(&table, &KeyRange::default(), 4096).expect("reads");
    assert_eq!(found, entries);
}

#[test]
fn counting_the_tail_ends_files_earlier() {
    let entries: Vec<_> = (0..10_000u32)
        .map(|i| Entry::new(&i.to_be_bytes(), 1, PUT, &[7; 20]))
        .collect();
    let files = |size_is_upper_bound| {
        let mut plan = plan();
        plan.output.splitting = OutputSplitting {
            size_is_upper_bound,
            ..common::splitting(20_000)
        };
        plan.output.table.filter = Some(FilterPlan::whole_keys(10_000));
        common::write(&plan, &entries).expect("writes")
    };
    let (plain, bounded) = (files(false), files(true));
    assert!(bounded.len() > plain.len());
    let largest = |files: &[(OutputFile, Vec<u8>)]| files.iter().map(|f| f.0.size).max();
    assert!(largest(&bounded) <= Some(20_000), "{:?}", largest(&bounded));
}

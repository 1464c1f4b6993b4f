//! Tests with whole tables, sound and damaged.

use std::sync::Arc;

use rockmill_core::{InputTable, Result};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionType;
use rockmill_format::filter::METADATA_LEN;
use rockmill_format::footer::{FOOTER_SIZE, Footer};
use rockmill_format::handle::BlockHandle;
use rockmill_format::table::names;
use rockmill_terminal::outcome::Failure;

use super::table::{Checked, check, check_opened};
use crate::test_tables::{FILE_NAME, open, sst, sst_under};

const KEYS: u64 = 100;

fn checked(bytes: Vec<u8>) -> Result<Checked> {
    check(&open(bytes)?)
}

/// Asserts that the command reports damage, with its place.
fn assert_bad(bytes: Vec<u8>, case: &str) {
    let failure = check_opened(open(bytes)).expect_err(case);
    let said = failure.to_string();
    assert!(matches!(failure, Failure::Data(_)), "{case}: {said}");
    assert!(
        said.contains(FILE_NAME) && said.contains("offset"),
        "{case}: {said}"
    );
}

fn footer(bytes: &[u8]) -> Option<Footer> {
    let start = bytes.len() - FOOTER_SIZE;
    Footer::decode(&bytes[start..], bytes.len() as u64).ok()
}

#[test]
fn sound_tables_of_all_versions_pass() {
    for format_version in 2..=8 {
        let found = checked(sst(format_version, KEYS)).expect("sound");
        assert_eq!(found.entries, Some(KEYS));
        assert_eq!(found.sequences, Some((1, KEYS)));
        assert!(found.blocks > Some(1));
        assert!(found.not_checked.is_empty(), "{found:?}");
        let prefixes = KEYS - 1;
        assert_eq!(
            found.filter,
            format!("Bloom: {KEYS} keys, {prefixes} prefixes")
        );
    }
}

#[test]
fn every_flipped_bit_is_found() {
    for format_version in [5, 7] {
        let sound = sst(format_version, 20);
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            // The footer has no checksum before version 6, and its padding is unused.
            let in_footer = at >= sound.len() - FOOTER_SIZE;
            let is_padding = format_version == 5 && in_footer && footer(&bytes) == footer(&sound);
            if !is_padding {
                assert_bad(bytes, &format!("version {format_version}, byte {at}"));
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let sound = sst(5, 20);
    for len in 0..sound.len() {
        assert_bad(sound[..len].to_vec(), &format!("{len} bytes"));
    }
}

#[test]
fn a_file_without_checksums_is_not_called_good() {
    for format_version in [5, 7] {
        let bytes = sst_under(ChecksumType::None, format_version, KEYS);
        let found = checked(bytes).expect("nothing wrong can be seen");
        assert_eq!(found.entries, Some(KEYS));
        let why = "the blocks' bytes, because the file has no checksums";
        assert!(found.not_checked.contains(why), "{found:?}");
    }
}

#[test]
fn a_false_negative_is_found_although_the_checksum_holds() {
    let mut bytes = sst(7, KEYS);
    let meta = open(bytes.clone()).expect("sound").table.meta;
    let handle = meta.metaindex[names::FULL_FILTER];
    let start = handle.offset as usize;
    let end = start + handle.size as usize;
    bytes[start..end - METADATA_LEN].fill(0);
    let payload = bytes[start..end].to_vec();
    let mut trailer = Vec::new();
    let guard = meta.footer.guard;
    guard.put_trailer(&payload, CompressionType::None, handle.offset, &mut trailer);
    bytes[end..end + trailer.len()].copy_from_slice(&trailer);
    let error = checked(bytes).expect_err("the filter is empty");
    assert!(error.what.contains("false negative"), "{error}");
    assert_eq!(error.offset, Some(handle.offset));
}

#[test]
fn prefixes_are_asked_for_as_well_as_keys() {
    let changed = |name: &[u8]| {
        let mut sst = open(sst(7, KEYS)).expect("sound");
        Arc::make_mut(&mut sst.table.meta)
            .properties
            .prefix_extractor_name = name.to_vec();
        check(&sst)
    };
    let error = changed(b"rocksdb.FixedPrefix.6")
        .expect_err("prefixes of another length are not in the filter");
    assert!(error.what.contains("prefix"), "{error}");
    let found = changed(b"Mine").expect("keys alone");
    assert!(found.filter.ends_with(&format!(" {KEYS} keys")));
    let why = "the prefixes in the filter, because prefix extractor Mine is not known";
    assert!(found.not_checked.contains(why), "{found:?}");
}

#[test]
fn every_misstated_property_is_found() {
    type Change = fn(&mut rockmill_format::properties::TableProperties);
    let changes: [(&str, Change); 9] = [
        ("num_entries", |p| p.num_entries += 1),
        ("num_deletions", |p| p.num_deletions += 1),
        ("num_merge_operands", |p| p.num_merge_operands += 1),
        ("num_range_deletions", |p| p.num_range_deletions += 1),
        ("raw_key_size", |p| p.raw_key_size += 1),
        ("raw_value_size", |p| p.raw_value_size += 1),
        ("num_data_blocks", |p| p.num_data_blocks += 1),
        ("key_smallest_seqno", |p| p.key_smallest_seqno += 1),
        ("key_largest_seqno", |p| p.key_largest_seqno += 1),
    ];
    for (name, change) in changes {
        let mut sst = open(sst(7, KEYS)).expect("sound");
        change(&mut Arc::make_mut(&mut sst.table.meta).properties);
        let error = check(&sst).expect_err(name);
        assert!(error.what.contains(&format!("property {name} ")), "{error}");
    }
}

#[test]
fn all_but_the_order_is_checked_under_another_comparator() {
    let reverse = |change: fn(&mut InputTable)| {
        let mut sst = open(sst(7, KEYS)).expect("sound");
        Arc::make_mut(&mut sst.table.meta)
            .properties
            .comparator_name = b"Reverse".to_vec();
        change(&mut sst.table);
        check(&sst)
    };
    let found = reverse(|_| {}).expect("sound");
    assert_eq!(
        (found.entries, found.sequences),
        (Some(KEYS), Some((1, KEYS)))
    );
    assert_eq!(found.filter, "Bloom: not asked");
    let why = found.not_checked.first().expect("the order");
    assert!(
        why.contains("order") && why.contains("comparator Reverse"),
        "{why}"
    );
    let error = reverse(|table| Arc::make_mut(&mut table.meta).properties.num_entries += 1)
        .expect_err("a count");
    assert!(error.what.contains("num_entries"), "{error}");
}

#[test]
fn blocks_of_another_compression_are_checked_by_their_checksums() {
    const BZIP2: u8 = 3;
    let mut bytes = sst(7, KEYS);
    let meta = open(bytes.clone()).expect("sound").table.meta;
    let BlockHandle { offset, size } = meta.index[1].handle;
    let end = (offset + size) as usize;
    let payload = bytes[offset as usize..end].to_vec();
    let checksum = meta.footer.guard.checksum(&payload, BZIP2, offset);
    bytes[end] = BZIP2;
    bytes[end + 1..][..4].copy_from_slice(&checksum.to_le_bytes());
    let found = checked(bytes.clone()).expect("what is known is sound");
    assert_eq!(
        (found.entries, found.blocks),
        (None, Some(meta.index.len() as u64))
    );
    let why = "the entries of some data blocks, because compression BZip2 is not known";
    assert!(found.not_checked.contains(why), "{found:?}");
    for at in [offset as usize, meta.index[2].handle.offset as usize] {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        let error = checked(damaged).expect_err("a block is damaged");
        assert_eq!(error.offset, Some(at as u64), "{error}");
    }
}

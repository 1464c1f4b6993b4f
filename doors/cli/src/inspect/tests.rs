//! Tests with whole tables.

use rockmill_format::handle::BlockHandle;
use rockmill_terminal::output::{Stop, USUAL_COLUMNS};
use serde_json::Value;

use super::layout::layout;
use super::{Extent, json, text};
use crate::test_tables::{open, sst};

const ALL: Extent = Extent {
    blocks: usize::MAX,
    entries: Some(usize::MAX),
};

#[test]
fn the_regions_cover_the_file_without_overlap() {
    for format_version in 2..=8 {
        let table = open(sst(format_version, 100)).expect("sound");
        let layout = layout(&table);
        assert_eq!(layout.damage, None);
        let mut end = 0;
        for region in &layout.regions {
            assert_eq!(region.offset, end, "{region:?}");
            assert_ne!(region.name, "unused");
            end += region.size;
        }
        assert_eq!(end, table.table.meta.file_size);
    }
}

#[test]
fn lines_fit_the_terminal() {
    let table = open(sst(7, 100)).expect("sound");
    let mut out = Vec::new();
    text::print(&mut out, &table, ALL).expect("memory takes all");
    let text = String::from_utf8(out).expect("text");
    for line in text.lines() {
        assert!(line.len() <= usize::from(USUAL_COLUMNS), "{line}");
    }
    assert!(text.contains("0014-00000099"));
}

#[test]
fn json_has_what_the_file_has() {
    let table = open(sst(7, 100)).expect("sound");
    let mut out = Vec::new();
    json::print(&mut out, &table, ALL).expect("memory takes all");
    let document: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(document["properties"]["num_entries"], 100);
    let entries = document["entries"].as_array().expect("a list");
    assert_eq!(entries.len(), 100);
    assert_eq!(entries[1]["user_key"], "0000-00000001");
    assert_eq!(entries[1]["sequence"], 2);
    assert_eq!(entries[1]["type"], "Value");
    assert_eq!(entries[1]["value_size"], 20);
    let blocks = document["blocks"].as_array().expect("a list");
    assert_eq!(blocks.len(), table.table.meta.index.len());
    let in_blocks = blocks.iter().map(|block| block["entries"].as_u64());
    assert_eq!(in_blocks.sum::<Option<u64>>(), Some(100));
}

#[test]
fn limits_hold() {
    let table = open(sst(7, 100)).expect("sound");
    let mut out = Vec::new();
    let extent = Extent {
        blocks: 2,
        entries: Some(3),
    };
    json::print(&mut out, &table, extent).expect("memory takes all");
    let document: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(document["blocks"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["entries"].as_array().map(Vec::len), Some(3));
}

#[test]
fn json_is_whole_after_damage_and_says_what_is_wrong() {
    let mut bytes = sst(7, 100);
    let second = open(bytes.clone()).expect("sound").table.meta.index[1].handle;
    bytes[second.offset as usize] ^= 1;
    let table = open(bytes).expect("data blocks are not read yet");
    let mut out = Vec::new();
    let stop = json::print(&mut out, &table, ALL).expect_err("a damaged block");
    assert!(matches!(stop, Stop::Failed(failure) if failure.exit_code() == 1));
    let document: Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(document["blocks"].as_array().map(Vec::len), Some(1));
    let error = document["error"].as_str().expect("a text");
    assert!(
        error.contains(&format!("(at offset {})", second.offset)),
        "{error}"
    );
}

#[test]
fn blocks_of_another_compression_are_listed_without_what_they_hold() {
    const BZIP2: u8 = 3;
    let mut bytes = sst(7, 100);
    let meta = open(bytes.clone()).expect("sound").table.meta;
    let BlockHandle { offset, size } = meta.index[1].handle;
    let end = (offset + size) as usize;
    let checksum = (meta.footer.guard).checksum(&bytes[offset as usize..end], BZIP2, offset);
    bytes[end] = BZIP2;
    bytes[end + 1..][..4].copy_from_slice(&checksum.to_le_bytes());
    let table = open(bytes).expect("data blocks are not read yet");
    let mut out = Vec::new();
    let stop = json::print(&mut out, &table, ALL).expect_err("not all is known");
    assert!(matches!(stop, Stop::Failed(failure) if failure.exit_code() == 4));
    let document: Value = serde_json::from_slice(&out).expect("JSON");
    assert!(document["error"].is_null(), "{document}");
    let block = &document["blocks"][1];
    assert_eq!(block["compression"], "BZip2");
    assert!(block["entries"].is_null(), "{block}");
    let why = "the contents of some data blocks, because compression BZip2 is not known";
    assert_eq!(document["not_shown"], serde_json::json!([why]));
    let behind = &document["blocks"][2];
    assert!(behind["entries"].as_u64() > Some(0), "{behind}");
    let mut out = Vec::new();
    text::print(&mut out, &table, ALL).expect_err("not all is known");
    let text = String::from_utf8(out).expect("text");
    assert!(text.ends_with(&format!("Not shown\n{why}\n")), "{text}");
}

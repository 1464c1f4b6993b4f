//! SST files around arbitrary data blocks, which no writer would produce.

use std::collections::BTreeMap;

use rockmill_format::block::{BlockBuilder, BlockLayout};
use rockmill_format::checksum::ChecksumType;
use rockmill_format::footer::{FOOTER_SIZE, Footer};
use rockmill_format::handle::{BlockGuard, BlockHandle};
use rockmill_format::key;
use rockmill_format::properties::TableProperties;
use rockmill_format::table::{encode_metaindex, encode_properties, names};

/// A data block: separator, payload and compression type.
pub type RawBlock = (Vec<u8>, Vec<u8>, u8);

const FORMAT_VERSION: u32 = 5;

const GUARD: BlockGuard = BlockGuard {
    checksum: ChecksumType::None,
    base_context_checksum: 0,
    is_legacy: false,
};

fn append(out: &mut Vec<u8>, payload: &[u8], kind: u8) -> BlockHandle {
    let handle = BlockHandle {
        offset: out.len() as u64,
        size: payload.len() as u64,
    };
    out.extend_from_slice(payload);
    out.push(kind);
    out.extend_from_slice(&[0; 4]);
    handle
}

/// A file of format_version 5 without checksums; its property says `restart_interval`.
pub fn file_of_blocks(blocks: &[RawBlock], restart_interval: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut index = BlockBuilder::new(BlockLayout::plain(1));
    for (separator, payload, kind) in blocks {
        let handle = append(&mut out, payload, *kind);
        let mut value = Vec::new();
        handle.encode(&mut value);
        index.add(&key::join(separator, 0), &value);
    }
    let index = append(&mut out, index.finish(), 0);
    let properties = TableProperties {
        index_type: Some(0),
        data_block_restart_interval: restart_interval,
        index_block_restart_interval: 1,
        format_version: u64::from(FORMAT_VERSION),
        ..TableProperties::default()
    };
    let properties = append(&mut out, &encode_properties(&properties, [0; 3]), 0);
    let metaindex = BTreeMap::from([(names::PROPERTIES.to_vec(), properties)]);
    let metaindex = append(&mut out, &encode_metaindex(&metaindex), 0);
    let footer = Footer {
        format_version: FORMAT_VERSION,
        guard: GUARD,
        metaindex,
        index: Some(index),
    };
    let footer: [u8; FOOTER_SIZE] = footer.encode(out.len() as u64);
    out.extend_from_slice(&footer);
    out
}

/// A block of entries given as `(shared, key suffix, value)` with restarts every `interval` entries, encoded without
/// checks.
pub fn block_of(entries: &[(u32, Vec<u8>, Vec<u8>)], interval: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut restarts = Vec::new();
    for (i, (shared, suffix, value)) in entries.iter().enumerate() {
        if i % interval == 0 {
            restarts.push(out.len() as u32);
        }
        for number in [*shared, suffix.len() as u32, value.len() as u32] {
            rockmill_format::coding::put_varint(&mut out, u64::from(number));
        }
        out.extend_from_slice(suffix);
        out.extend_from_slice(value);
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    for restart in &restarts {
        out.extend_from_slice(&restart.to_le_bytes());
    }
    out.extend_from_slice(&(restarts.len() as u32).to_le_bytes());
    out
}

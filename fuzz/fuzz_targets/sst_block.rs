//! One block: decompression, then entries, index entries and range tombstones, as the first three bytes choose.
//!
//! Entries and range tombstones that decode are encoded again, and must decode to the same. Fragments of range tombstones
//! delete what these delete.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_core::Fragments;
use rockmill_format::Result;
use rockmill_format::block::{Block, BlockBuilder, BlockLayout, ValueForm};
use rockmill_format::compression::{CompressionType, Decompressor};
use rockmill_format::index::{IndexCoding, decode_index};
use rockmill_format::key::KeyOrder;
use rockmill_format::range_tombstone::{
    RangeTombstone, decode_range_tombstones, encode_range_tombstones,
};

/// Dictionary of the blocks that use one.
const DICTIONARY: &[u8] = b"user00000000000001000000value";

fuzz_target!(|input: &[u8]| {
    let Some((&[coding, interval, storage], payload)) = input.split_first_chunk() else {
        return;
    };
    let restart_interval = u32::from(interval % 32);
    let Some(block) = decompress(storage, payload) else {
        return;
    };
    let _ = decode_index(
        &block,
        IndexCoding {
            user_keys: coding & 1 != 0,
            delta_values: coding & 2 != 0,
            first_keys: coding & 4 != 0,
            format_version: 2 + u32::from(coding >> 5) % 7,
            restart_interval,
            order: (coding & 8 == 0).then_some(KeyOrder::Bytewise),
        },
    );
    if let Ok(Some(tombstones)) = decode_range_tombstones(&block, u64::MAX) {
        check_tombstones(&tombstones);
    }
    if let Ok(entries) = read_entries(&block, restart_interval) {
        check_round_trip(&entries, coding, restart_interval);
    }
});

/// The block, stored as `storage` says: compression type, and in the top bit whether there is a dictionary.
fn decompress(storage: u8, payload: &[u8]) -> Option<Vec<u8>> {
    let kind = CompressionType::from_code(storage & 7)?;
    let dictionary = if storage >> 7 == 0 { &[] } else { DICTIONARY };
    let mut block = Vec::new();
    Decompressor::new(dictionary.to_vec())
        .decompress(kind, payload, &mut block)
        .ok()?;
    Some(block)
}

fn read_entries(block: &[u8], restart_interval: u32) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut entries = Block::parse(block)?.entries(ValueForm::Sized, restart_interval)?;
    let (mut key, mut out) = (Vec::new(), Vec::new());
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut key);
        out.push((key.clone(), entry.value.to_vec()));
    }
    Ok(out)
}

fn check_round_trip(entries: &[(Vec<u8>, Vec<u8>)], coding: u8, restart_interval: u32) {
    let delta_keys = coding & 8 != 0;
    let mut builder = BlockBuilder::new(BlockLayout {
        restart_interval: restart_interval.max(1) as usize,
        delta_keys,
        values: ValueForm::Sized,
        common_prefix: delta_keys && coding & 16 != 0,
        user_keys: coding & 1 != 0,
        keys_per_bucket: (coding & 32 != 0).then_some(0.75),
    });
    for (key, value) in entries {
        builder.add(key, value);
    }
    let again = read_entries(builder.finish(), restart_interval).expect("our own block");
    assert_eq!(again, entries);
}

fn check_tombstones(tombstones: &[RangeTombstone]) {
    /// Each is compared with all others.
    const MOST: usize = 100;
    let again = encode_range_tombstones(tombstones);
    let again = decode_range_tombstones(&again, u64::MAX).expect("our own block");
    assert_eq!(again.as_deref(), Some(tombstones));
    let few = &tombstones[..tombstones.len().min(MOST)];
    let fragments = Fragments::new(KeyOrder::Bytewise, few, &[]);
    for key in few.iter().flat_map(|one| [&one.begin, &one.end]) {
        let covering = few.iter().filter(|one| one.begin <= *key && *key < one.end);
        let newest = covering.map(|one| one.sequence).max();
        let found = fragments.covering(key, &mut 0);
        assert_eq!(found.map(|fragment| fragment.sequences[0]), newest);
    }
}

//! A whole SST file: all parts that a compaction, `inspect` and `verify` read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rockmill_format::block::{Block, ValueForm};
use rockmill_format::compression::Decompressor;
use rockmill_format::filter::FilterReader;
use rockmill_format::handle::BlockHandle;
use rockmill_format::range_tombstone::decode_range_tombstones;
use rockmill_format::table::{TableMeta, decode_filter_partitions, names};
use rockmill_format::{Error, Result, key};

/// Memory for range tombstones.
const MOST_TOMBSTONE_BYTES: u64 = 64 << 10;

fuzz_target!(|file: &[u8]| {
    // Most inputs are not valid SST files; they only have to end in an error.
    let _ = read_table(file);
});

fn read_table(file: &[u8]) -> Result<()> {
    let mut read = |offset: u64, len: usize| {
        let start = usize::try_from(offset).expect("offsets lie in the file");
        Ok(file[start..][..len].to_vec())
    };
    let (meta, _) = TableMeta::open_known(file.len() as u64, &mut read, |error: Error| error)?;
    let restart_interval = meta
        .properties
        .data_block_restart_interval
        .try_into()
        .unwrap_or(u32::MAX);
    let mut data = meta.footer.guard.decompressor(meta.dictionary.clone());
    for entry in &meta.index {
        // A corrupt block does not hide the ones behind it from the fuzzer.
        let _ = read_block(file, &meta, entry.handle, &mut data)
            .and_then(|block| read_entries(&block, restart_interval));
    }
    let mut plain = meta.footer.guard.decompressor(Vec::new());
    if let Some(&handle) = meta.metaindex.get(names::RANGE_DELETIONS) {
        // A corrupt block does not hide the filter from the fuzzer.
        let _ = read_block(file, &meta, handle, &mut plain)
            .and_then(|block| decode_range_tombstones(&block, MOST_TOMBSTONE_BYTES));
    }
    if let Some(&handle) = meta.metaindex.get(names::FULL_FILTER) {
        ask_filter(&read_block(file, &meta, handle, &mut plain)?)?;
    }
    if let Some(&handle) = meta.metaindex.get(names::PARTITIONED_FILTER) {
        let top = read_block(file, &meta, handle, &mut plain)?;
        for partition in decode_filter_partitions(&top, &meta)? {
            ask_filter(&read_block(file, &meta, partition.handle, &mut plain)?)?;
        }
    }
    Ok(())
}

fn read_block(
    file: &[u8],
    meta: &TableMeta,
    handle: BlockHandle,
    decompressor: &mut Decompressor,
) -> Result<Vec<u8>> {
    let len = handle.stored_len(file.len() as u64)?;
    let stored = &file[handle.offset as usize..][..len];
    let (payload, kind) = meta.footer.guard.open(stored, handle.offset)?;
    let mut block = Vec::new();
    decompressor.decompress(kind, payload, &mut block)?;
    Ok(block)
}

fn read_entries(block: &[u8], restart_interval: u32) -> Result<()> {
    let mut entries = Block::parse(block)?.entries(ValueForm::Sized, restart_interval)?;
    let mut internal_key = Vec::new();
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut internal_key);
        let _ = key::split(&internal_key);
        assert!(entry.value_offset + entry.value.len() <= block.len());
    }
    Ok(())
}

fn ask_filter(payload: &[u8]) -> Result<()> {
    let _ = FilterReader::parse(payload)?.may_contain(b"user key");
    Ok(())
}

//! Blocks in every layout, as they are and damaged.

use proptest::prelude::*;
use rockmill_core::{ErrorKind, KeyRange};
use rockmill_cpu::CpuBackend;
use rockmill_format::block::common_prefix_len;
use rockmill_format::coding::put_varint;
use rockmill_format::compression::CompressionType;

use super::cases::{key_of, runs};
use super::{compact, device, difference, essence};
use crate::common::{self, Entry, config, open};

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn damaged_blocks_are_noticed_and_named(
        runs in runs(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let file = common::one_file(&common::plan(), &runs[0]);
        let sound = open(file.clone())?;
        let last = sound.meta.index.last().expect("a block").handle;
        let data_bytes = (last.offset + last.size) as usize + 5;
        let mut damaged = file;
        damaged[at.index(data_bytes)] ^= 1 << bit;
        let inputs = [open(damaged)?];
        let range = KeyRange::default();
        let error = compact(device(), &inputs, &common::plan(), &range).expect_err("damaged");
        prop_assert!(matches!(error.kind, ErrorKind::Corruption | ErrorKind::Device | ErrorKind::Unsupported), "{}", error);
        prop_assert_eq!(error.file.as_deref(), Some(common::FILE_NAME));
        let (from, to) = (error.offset.expect("an offset"), data_bytes as u64);
        prop_assert!(from < to, "{} of {}", from, to);
    }
}

/// A block of entries whose values are stored apart from their keys, with a hash index if requested.
fn block_apart(entries: &[Entry], interval: usize, hash_index: bool) -> Vec<u8> {
    let (mut block, mut restarts, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut before: Vec<u8> = Vec::new();
    for (i, entry) in entries.iter().enumerate() {
        let key = entry.internal_key();
        let at_restart = i % interval == 0;
        let shared = match at_restart {
            true => 0,
            false => common_prefix_len(&before, &key),
        };
        if at_restart {
            restarts.push(block.len() as u32);
        }
        for number in [shared, key.len() - shared, entry.value.len()] {
            put_varint(&mut block, number as u64);
        }
        if at_restart {
            put_varint(&mut block, values.len() as u64);
        }
        block.extend_from_slice(&key[shared..]);
        values.extend_from_slice(&entry.value);
        before = key;
    }
    let values_at = block.len() as u32;
    block.extend_from_slice(&values);
    let mut packed = restarts.len() as u32 | 1 << 28;
    restarts.iter().for_each(|r| block.extend(r.to_le_bytes()));
    if hash_index {
        block.extend_from_slice(&[1, 0, 255, 3, 0]);
        packed |= 1 << 31;
    }
    block.extend(values_at.to_le_bytes());
    block.extend(packed.to_le_bytes());
    block
}

/// Files for the damage test: plain, with prefixes stored once, with values apart; keys of one length or of several,
/// short or long.
fn files_to_damage() -> Vec<Vec<u8>> {
    let entries = |len: fn(u32) -> usize| {
        let mut entries: Vec<_> = (0..200u32)
            .map(|n| Entry::new(&key_of(n, len(n)), 1, common::PUT, &[7; 20]))
            .collect();
        entries.sort_by_key(Entry::order);
        entries.dedup_by_key(|entry| entry.key.clone());
        entries
    };
    let lists = [
        entries(|_| 16),
        entries(|n| 4 + n as usize % 13),
        entries(|n| 10 + n as usize % 40),
    ];
    let mut files = Vec::new();
    for list in &lists {
        files.push(common::one_file(&common::plan(), list));
        let mut plan = common::plan();
        plan.output.table.format_version = 8;
        plan.output.table.common_prefix = true;
        plan.output.table.index.format_version = 8;
        plan.output.table.index.common_prefix = true;
        plan.output.table.block_size = 300;
        files.push(common::one_file(&plan, list));
        for kind in [
            CompressionType::Snappy,
            CompressionType::Lz4,
            CompressionType::Zstd,
            CompressionType::Zlib,
        ] {
            let mut plan = common::plan();
            plan.output.table.compression.kind = kind;
            files.push(common::one_file(&plan, list));
        }
        for hash_index in [false, true] {
            let blocks: Vec<_> = list
                .chunks(25)
                .map(|part| {
                    let separator = part.last().map(|entry| entry.key.clone());
                    let block = block_apart(part, 4, hash_index);
                    (separator.unwrap_or_default(), block, 0)
                })
                .collect();
            files.push(common::raw::file_of_blocks(&blocks, 4));
        }
    }
    files
}

#[test]
fn every_layout_of_blocks_is_read() {
    for (i, file) in files_to_damage().into_iter().enumerate() {
        let inputs = [open(file).expect("sound")];
        let (plan, range) = (common::plan(), KeyRange::default());
        let (report, files) = compact(&CpuBackend, &inputs, &plan, &range).expect("reads");
        let (found_report, found) = compact(device(), &inputs, &plan, &range).expect("reads");
        assert_eq!(difference(&files, &found), None, "file {i}");
        assert_eq!(essence(&report), essence(&found_report));
    }
}

/// Blocks with right checksums and arbitrary contents.
#[test]
fn hostile_blocks_give_errors_or_entries_but_never_a_crash() {
    use rand_like::Noise;
    let plan = common::plan();
    let files = files_to_damage();
    let cases = common::config(4000).cases as usize;
    let mut noise = Noise(0x5eed);
    let mut errors = 0;
    for case in 0..cases {
        let file = &files[case % files.len()];
        let table = open(file.clone()).expect("sound");
        let guard = table.meta.footer.guard;
        let mut bytes = file.clone();
        for block in &table.meta.index {
            let handle = block.handle;
            let (start, size) = (handle.offset as usize, handle.size as usize);
            for _ in 0..noise.below(4) {
                // Frames are small and important.
                let from_end = noise.below(2) == 0;
                let at = match from_end {
                    true => start + size - 1 - noise.below(size.min(16)),
                    false => start + noise.below(size),
                };
                bytes[at] = [0, 1, 16, 24, 127, 128, 255][noise.below(7)];
            }
            let codec = bytes[start + size];
            let sum = guard.checksum(&bytes[start..start + size], codec, handle.offset);
            bytes[start + size + 1..start + size + 5].copy_from_slice(&sum.to_le_bytes());
        }
        let inputs = [open(bytes).expect("the index is sound")];
        let range = KeyRange::default();
        let ours = compact(device(), &inputs, &plan, &range);
        match compact(&CpuBackend, &inputs, &plan, &range) {
            Ok((report, files)) => {
                // The device may refuse blocks that the CPU accepts, but not read them differently.
                if let Ok((found_report, found)) = ours {
                    assert_eq!(difference(&files, &found), None, "case {case}");
                    assert_eq!(essence(&report), essence(&found_report));
                }
            }
            Err(_) => {
                errors += 1;
                assert!(
                    ours.is_err(),
                    "case {case}: the CPU backend refused what the device took"
                );
            }
        }
    }
    assert!(errors > 0 && errors < cases, "{errors} of {cases} failed");
}

/// A few random numbers without a library.
mod rand_like {
    pub struct Noise(pub u64);

    impl Noise {
        pub fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 33) as usize % n
        }
    }
}

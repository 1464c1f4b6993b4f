use proptest::prelude::*;
use rockmill_format::coding::put_length_prefixed;
use rockmill_format::key::{self, pack_tag};

use super::mem_table::EntryRef;
use super::*;

/// `kTypeValue`, of the default column family.
const PUT: u8 = 1;
/// `kTypeRangeDeletion`, of the default column family.
const DELETE_RANGE: u8 = 0x0f;

fn batch(sequence: u64, kind: u8, pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let count = pairs.len() as u32;
    let mut out = [&sequence.to_le_bytes()[..], &count.to_le_bytes()].concat();
    for (key, value) in pairs {
        out.push(kind);
        put_length_prefixed(&mut out, key);
        put_length_prefixed(&mut out, value);
    }
    out
}

fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let key = prop::collection::vec(0u8..3, 0..4);
    let value = prop_oneof![0usize..50, 3000usize..6000].prop_map(|len| vec![7; len]);
    prop::collection::vec((key, value), 1..40)
}

proptest! {
    #[test]
    fn entries_are_sorted_and_their_memory_is_counted(
        batches in prop::collection::vec(pairs(), 1..5),
        sort_between: bool,
        from in 0u64..100,
    ) {
        let mut unflushed = Unflushed::new(usize::MAX);
        let mut expected = Vec::new();
        let mut sequence = 1;
        for pairs in &batches {
            let bytes = batch(sequence, PUT, pairs);
            unflushed.add_batch(&bytes, |family, sequence| family == 0 && sequence >= from).unwrap();
            for (key, value) in pairs {
                if sequence >= from {
                    expected.push((key.clone(), !pack_tag(sequence, PUT), value.clone()));
                }
                sequence += 1;
            }
            if sort_between && let Some(family) = unflushed.families.get_mut(&0) {
                family.sort();
            }
        }
        prop_assert_eq!(unflushed.last_sequence, sequence - 1);
        expected.sort();
        let mut family = unflushed.families.remove(&0).unwrap_or_default();
        family.sort();
        let found: Vec<_> = family.entries().map(|(key, value)| {
            let (key, tag) = key::split(key).unwrap();
            (key.to_vec(), !tag, value.to_vec())
        }).collect();
        prop_assert_eq!(&found, &expected);
        let taken: usize = family.chunks.iter().map(Vec::capacity).sum();
        prop_assert!(unflushed.bytes >= taken + found.len() * size_of::<EntryRef>());
    }

    #[test]
    fn adding_any_bytes_is_total(bytes: Vec<u8>, kind: u8, pairs in pairs()) {
        for bytes in [bytes, batch(3, kind, &pairs)] {
            let _ = Unflushed::new(5000).add_batch(&bytes, |_, _| true);
        }
    }
}

#[test]
fn ranges_and_sequence_numbers_must_ascend() {
    let range = |begin: &[u8], end: &[u8]| [(begin.to_vec(), end.to_vec())];
    let mut unflushed = Unflushed::new(usize::MAX);
    let mut add = |sequence, begin: &[u8], end: &[u8]| {
        let bytes = batch(sequence, DELETE_RANGE, &range(begin, end));
        unflushed.add_batch(&bytes, |_, _| true).map_err(|e| e.kind)
    };
    assert_eq!(add(5, b"a", b"b"), Ok(()));
    assert_eq!(add(6, b"b", b"a"), Err(ErrorKind::Corruption));
    let shared = Err(ErrorKind::Declined(DeclineReason::Allow2pc));
    assert_eq!(add(5, b"a", b"b"), shared);
    assert_eq!(add(9, b"a", b"b"), Ok(()));
    let numbers = unflushed.families[&0]
        .range_tombstones()
        .iter()
        .map(|t| t.sequence);
    assert_eq!(numbers.collect::<Vec<_>>(), [5, 9]);
}

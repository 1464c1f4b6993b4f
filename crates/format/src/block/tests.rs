use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[test]
fn a_block_says_whether_its_keys_are_evenly_spread() {
    for (bit, is_uniform) in [(0, false), (UNIFORM_BIT, true)] {
        let bytes = [0_u32.to_le_bytes(), (1 | bit).to_le_bytes()].concat();
        let block = Block::parse(&bytes).expect("an empty block");
        assert_eq!(block.is_uniform(), is_uniform);
    }
}

fn read(bytes: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut out = Vec::new();
    let mut key = Vec::new();
    let mut entries = Block::parse(bytes)?.entries(ValueForm::Sized, 3)?;
    while let Some(entry) = entries.next_entry()? {
        entry.restore_key(&mut key);
        out.push((key.clone(), entry.value.to_vec()));
    }
    Ok(out)
}

fn keys() -> impl Strategy<Value = BTreeMap<Vec<u8>, Vec<u8>>> {
    let key = proptest::collection::vec(prop::sample::select(vec![0u8, 1, 255]), 0..6);
    let value = proptest::collection::vec(any::<u8>(), 0..5);
    proptest::collection::btree_map(key, value, 0..40)
}

proptest! {
    #[test]
    fn blocks_round_trip(
        entries in keys(),
        front in proptest::collection::vec(any::<u8>(), 0..20),
        restart_interval in 1usize..20,
        delta_keys: bool,
        strip: bool,
        hash in proptest::option::of(0.0f64..4.0),
    ) {
        let layout = BlockLayout {
            keys_per_bucket: hash,
            delta_keys,
            common_prefix: strip && delta_keys,
            ..BlockLayout::plain(restart_interval)
        };
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(key, value)| ([&front[..], &key].concat(), value))
            .collect();
        let mut builder = BlockBuilder::new(layout);
        for round in 0..2 {
            for (key, value) in &entries {
                builder.add(key, value);
            }
            let block = builder.finish();
            prop_assert_eq!(&read(block)?, &entries, "round {}", round);
            if layout.common_prefix && !entries.is_empty() {
                prop_assert!(Block::parse(block)?.common_prefix().starts_with(&front));
            }
        }
    }

    #[test]
    fn reading_is_total(
        entries in keys(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut builder = BlockBuilder::new(BlockLayout::plain(2));
        for (key, value) in &entries {
            builder.add(key, value);
        }
        let mut block = builder.finish().to_vec();
        for (at, byte) in edits {
            let at = at.index(block.len());
            block[at] = byte;
        }
        let _ = read(&block);
    }

    #[test]
    fn common_prefixes_are_the_longest(a: Vec<u8>, b: Vec<u8>, front: Vec<u8>) {
        let (a, b) = ([&front[..], &a].concat(), [&front[..], &b].concat());
        let expected = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        prop_assert_eq!(common_prefix_len(&a, &b), expected);
    }
}

#[test]
fn separated_values_are_found() {
    // Two intervals of two entries; the values "1" "22" "333" are contiguous.
    let keys = [
        &[0, 1, 1, 0, b'a'][..],
        &[1, 1, 2, b'b'],
        &[0, 1, 3, 3, b'c'],
    ]
    .concat();
    let mut block = keys.clone();
    block.extend_from_slice(b"122333");
    for word in [0, 9, keys.len() as u32, 2 | SEPARATED_BIT] {
        block.extend_from_slice(&u32::to_le_bytes(word));
    }
    let parsed = Block::parse(&block).expect("well formed");
    let mut entries = parsed.entries(ValueForm::Sized, 2).expect("interval");
    let mut found = Vec::new();
    while let Some(entry) = entries.next_entry().expect("well formed") {
        found.push(entry.value.to_vec());
    }
    assert_eq!(found, [&b"1"[..], b"22", b"333"]);
    assert!(parsed.entries(ValueForm::Sized, 0).is_err());
}

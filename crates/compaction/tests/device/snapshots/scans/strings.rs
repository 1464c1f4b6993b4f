//! Strings in groups are the same on each backend, wherever a plan uses them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rockmill_core::KeyRange;
use rockmill_core::scan::{Instruction, Literal, Number, NumberFormat, StringGroups, ValueKind};
use rockmill_cpu::CpuBackend;

use super::{ALL, Draw, device, scan, table};
use crate::common::{Entry, PUT, config};

/// Bytes of a padded group.
const PADDED: u8 = 3;

/// Three strings: two in the key, one in the value behind the number of its spaces; most of them whole.
fn row(draw: &mut Draw<'_>) -> (Vec<u8>, Vec<u8>) {
    let mut key = StringGroups::encode_counted(&draw.bytes(5));
    key.extend(padded(&draw.bytes(2)));
    let mut value = draw.bytes(1);
    value.truncate(1);
    value.resize(1, StringGroups::SPACES_OFFSET as u8 + 1);
    value.extend(padded(&draw.bytes(4)));
    // Parts of one byte and of several: a few are truncated.
    let cut = draw.bytes(3);
    if cut.len() > 3 {
        key.truncate(key.len() - cut.len() % key.len());
        value.truncate(value.len() - cut.len() % value.len());
    }
    (key, value)
}

fn padded(string: &[u8]) -> Vec<u8> {
    let mut stored = Vec::new();
    let groups = string.len().div_ceil(usize::from(PADDED)).max(1);
    for group in 1..=groups {
        let own = string
            .chunks(PADDED.into())
            .nth(group - 1)
            .unwrap_or_default();
        stored.extend_from_slice(own);
        stored.resize(group * usize::from(PADDED + 1) - 1, b' ');
        stored.push(if group == groups { 2 } else { 3 });
    }
    stored
}

/// The strings of [`row`], as registers from 4 on.
fn strings() -> [(Instruction, ValueKind); 6] {
    use ValueKind::{Bytes, Integer};
    const KEY: u16 = 0;
    const VALUE: u16 = 1;
    const ZERO: u16 = 2;
    let string = |from, at, groups, spaces| Instruction::String {
        from,
        at,
        groups,
        spaces,
    };
    let counted = StringGroups::Counted;
    let padded = StringGroups::Padded { bytes: PADDED };
    let number = Number {
        bytes: 1,
        is_big_endian: true,
        format: NumberFormat::Unsigned,
    };
    let (from, at, groups) = (KEY, ZERO, counted);
    let size = Instruction::StringSize { from, at, groups };
    let (from, at) = (VALUE, ZERO);
    let spaces = Instruction::Load { from, at, number };
    let one = Instruction::Constant(Literal::Integer(1));
    [
        (size, Integer),
        (one, Integer),
        (spaces, Integer),
        (string(KEY, ZERO, counted, None), Bytes),
        (string(KEY, 4, padded, None), Bytes),
        (string(VALUE, 5, padded, Some(6)), Bytes),
    ]
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn any_scan_of_strings_in_groups_makes_the_same_batches_on_each_backend(
        rows in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..30), 1..60),
        plans in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..6),
    ) {
        let rows: BTreeMap<_, _> = rows.iter().map(|bytes| row(&mut Draw(bytes))).collect();
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| Entry::new(key, 1, PUT, value);
        let tables = table(&rows.iter().map(entry).collect::<Vec<_>>());
        let range = KeyRange::default();
        for plan in plans {
            let plan = Draw(&plan).plan_with(false, &strings());
            let meant = scan(&CpuBackend, &tables, &range, ALL, &plan);
            prop_assert_eq!(scan(device(), &tables, &range, ALL, &plan), meant, "{:#?}", plan);
        }
    }
}

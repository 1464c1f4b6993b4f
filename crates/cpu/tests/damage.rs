//! Damage to files is found: an error names the file and the place, and entries never differ.

use rockmill_testkit::cases as common;

use common::plans::{ALL_CHECKSUMS, table_plans};
use common::{Entry, config, open, plan, read};
use proptest::prelude::*;
use rockmill_core::{ErrorKind, InputTable, KeyRange, Plan, TablePlan};
use rockmill_format::footer::FOOTER_SIZE;
use rockmill_format::table::names;

/// Places of a file in which every flipped bit must cause an error: data blocks, index, properties, metaindex, and a
/// footer with a checksum. Each with the place that the error must name.
fn guarded_places(table: &InputTable, len: u64) -> Vec<(u64, u64)> {
    let meta = &table.meta;
    let mut handles: Vec<_> = meta.index.iter().map(|entry| entry.handle).collect();
    handles.extend([meta.index_handle, meta.footer.metaindex]);
    handles.extend(meta.metaindex.get(names::PROPERTIES));
    let mut places: Vec<_> = handles
        .iter()
        .map(|handle| (handle.offset, handle.checked_end().expect("in the file")))
        .collect();
    if meta.footer.format_version >= 6 {
        places.push((len - FOOTER_SIZE as u64, len));
    }
    places
}

fn open_and_read(bytes: Vec<u8>) -> rockmill_core::Result<Vec<Entry>> {
    let table = open(bytes)?;
    read(&table, &KeyRange::default(), 4096).map(|(entries, _)| entries)
}

fn plan_of(table: TablePlan) -> Plan {
    let mut plan = plan();
    plan.output.table = table;
    plan
}

proptest! {
    #![proptest_config(config(300))]

    #[test]
    fn a_flipped_bit_is_an_error_with_its_place(
        mut table in table_plans(),
        checksum in prop::sample::select(ALL_CHECKSUMS[1..].to_vec()),
        entries in common::entries(12),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..8, any::<bool>()), 20),
    ) {
        table.checksum = checksum;
        let bytes = common::one_file(&plan_of(table), &entries);
        let len = bytes.len() as u64;
        let places = guarded_places(&open(bytes.clone())?, len);
        for (index, bit, in_tail) in flips {
            // Half of the flips are in the tail, which may be far smaller than the data blocks.
            let start = if in_tail { bytes.len().saturating_sub(1500) } else { 0 };
            let at = start + index.index(bytes.len() - start);
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let place = places.iter().find(|&&(from, to)| (from..to).contains(&(at as u64)));
            let error = match (open_and_read(damaged), place) {
                (Err(error), _) => error,
                (Ok(found), None) => {
                    prop_assert_eq!(&found, &entries, "other entries after a flip at {}", at);
                    continue;
                }
                (Ok(_), Some(_)) => return Err(TestCaseError::fail(format!("flip at {at} of {len}"))),
            };
            prop_assert!(
                matches!(error.kind, ErrorKind::Corruption | ErrorKind::Declined(_)),
                "{error}"
            );
            prop_assert_eq!(error.file.as_deref(), Some(common::FILE_NAME), "{}", &error);
            let offset = error.offset;
            prop_assert!(offset.is_some(), "{error}");
            // A flipped format_version makes the footer name other places.
            let inside = place.filter(|place| place.1 < len);
            if let (Some(&(from, to)), Some(offset)) = (inside, offset) {
                prop_assert!((from..to).contains(&offset), "flip at {at}: {error}");
            }
        }
    }

    #[test]
    fn a_file_cut_short_is_an_error(
        table in table_plans(),
        entries in common::entries(12),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = common::one_file(&plan_of(table), &entries);
        bytes.truncate(cut.index(bytes.len()));
        let error = open(bytes).expect_err("a file without its end");
        prop_assert_eq!(error.file.as_deref(), Some(common::FILE_NAME));
    }
}

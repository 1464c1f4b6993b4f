//! A view of a database that another handle has open uses a secondary instance.

mod helpers;

use rockmill_testkit::scans as common;
use std::ptr;
use std::sync::Arc;

use helpers::*;
use rockmill_live::SecondaryStore;
use rockmill_scan::{Database, Directory, Store, Write, Written};
use rockmill_testkit::scans::options;
use rockmill_view::{CallerStream, Keys, RingSettings, Rows, Target, View};
use rust_rocksdb::{ColumnFamilyDescriptor, DB};

const ROW_BYTES: usize = 64;

/// Statuses and values of keys, by a lookup with a ring.
fn look_up(view: &View, numbers: &[u32]) -> Vec<(u8, Vec<u8>)> {
    let keys: Vec<u8> = numbers.iter().flat_map(|&n| numbered(n)).collect();
    let mut rows = vec![0u8; numbers.len() * ROW_BYTES];
    let (mut statuses, mut sizes) = (vec![9u8; numbers.len()], vec![9u32; numbers.len()]);
    // SAFETY: the host's kernels use this memory before the call returns.
    unsafe {
        let keys = Keys::fixed(keys.as_ptr(), 4, numbers.len() as u64);
        let rows = Rows::new(rows.as_mut_ptr(), ROW_BYTES as u64, statuses.as_mut_ptr());
        let rows = rows.with_sizes(sizes.as_mut_ptr());
        let stream = CallerStream::new(ptr::null_mut());
        let hold = view.hold(stream).expect("a hold");
        hold.lookup(&keys, &rows, stream).expect("looked up");
    }
    let values = rows.chunks(ROW_BYTES).zip(sizes);
    let values = values.map(|(row, size)| row[..size as usize].to_vec());
    statuses.into_iter().zip(values).collect()
}

#[test]
fn a_secondary_instance_answers_what_another_handle_has_written_and_refuses_writes() {
    if target() != Target::Host {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let own = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let primary = DB::open_cf_descriptors(&options(), dir.path(), families());
    let primary = primary.expect("the database opens");
    let mut of_secondary = options();
    of_secondary.set_max_open_files(-1);
    let secondary =
        DB::open_cf_descriptors_as_secondary(&of_secondary, dir.path(), own.path(), families());
    let secondary = Arc::new(secondary.expect("a secondary instance"));
    let store = Arc::new(SecondaryStore::new(secondary, "default"));
    let database: Arc<dyn Database> = Arc::new(Directory::open(dir.path()).expect("a database"));
    let view = builder(&database, "default")
        .ring(RingSettings::default())
        .store(Arc::clone(&store) as Arc<dyn Store>);
    let view = view.open().expect("a view");
    let found = |number: u32, more: &[u8]| (Rows::FOUND, [&[number as u8; 40], more].concat());
    let absent = (Rows::NOT_FOUND, Vec::new());
    assert_eq!(look_up(&view, &[7, 5000]), [found(7, b""), absent.clone()]);

    for round in 1..4u8 {
        // Operands in a file, and in the log only.
        primary.merge(numbered(7), [round]).expect("merged");
        primary.flush().expect("flushed");
        primary.merge(numbered(8), [round]).expect("merged");
        primary.delete(numbered(u32::from(round))).expect("deleted");
        view.refresh().expect("refreshed");
        let operands: Vec<u8> = (1..=round).collect();
        let expected = [
            found(7, &operands),
            found(8, &operands),
            absent.clone(),
            found(9, b""),
        ];
        assert_eq!(look_up(&view, &[7, 8, u32::from(round), 9]), expected);
        // Files that the secondary instance has open are deleted.
        primary.compact_range(None::<&[u8]>, None::<&[u8]>);
        assert_eq!(look_up(&view, &[7, 8]), expected[..2]);
    }

    let (key, value) = (&b"key"[..], &b"value"[..]);
    for write in [Write::Put { key, value }, Write::Delete { key }] {
        let written = store.write(&[write]).expect("an answer");
        assert_eq!(written, Written::ReadOnly);
    }
    assert_eq!(primary.get(b"key").expect("read"), None);
    assert_eq!(view.ring_counts().failed, 0);
}

fn families() -> [ColumnFamilyDescriptor; 1] {
    [ColumnFamilyDescriptor::new("default", options())]
}

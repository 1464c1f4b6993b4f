//! Each key of a view has RocksDB's value at the time of the view, and absent keys are absent.

mod helpers;

use rockmill_testkit::scans as common;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use helpers::*;
use proptest::prelude::*;
use rockmill_core::{ErrorKind, KeyRange};
use rockmill_live::LiveDatabase;
use rockmill_scan::{Database, Directory};
use rockmill_testkit::scans::*;
use rockmill_view::{CallerStream, Keys, RingSettings, Rows as ValueRows, Target};
use rust_rocksdb::{DB, WriteBatch};

proptest! {
    #![proptest_config(config(64))]

    #[test]
    fn a_view_of_a_directory_has_what_iterators_find(
        steps in history(Kinds { unlogged: false, merges: true }),
        flushes: bool,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("db");
        let db = open(&path);
        run(&db, dir.path(), &steps);
        if flushes {
            for name in FAMILIES {
                db.flush_cf(&db.cf_handle(name).expect("a family")).expect("flushed");
            }
        }
        drop(db);
        let (database, engine) = (directory(&path), engine());
        let db = open_read_only(&path);
        for family in FAMILIES {
            let builder = builder(&database, family).engine(Arc::clone(&engine));
            let estimate = builder.estimate().expect("estimate");
            let view = builder.open().expect("a view");
            let rows = rows(&db, family, &KeyRange::default());
            prop_assert_eq!(view.sequence(), db.latest_sequence_number());
            prop_assert_eq!(&view.asked(), &estimate.asked);
            let contents = view.contents();
            prop_assert!(contents.keys + contents.needs_host <= estimate.keys);
            prop_assert!(!flushes || contents.needs_host <= estimate.operands);
            let is_asked = |key: &[u8]| estimate.asked.iter().any(|asked| asked.range.contains(key));
            let inside = rows.iter().filter(|(key, _)| !is_asked(key));
            prop_assert_eq!(contents.keys + contents.needs_host, inside.count() as u64);
            compare(&view, &rows)?;
        }
    }

    #[test]
    fn a_view_of_an_open_database_stays_what_it_was(
        steps in history(Kinds { unlogged: true, merges: true }),
        parts in 1usize..5,
        may_flush: bool,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let db = Arc::new(open(&dir.path().join("db")));
        let live = LiveDatabase::new(Arc::clone(&db)).flush_every(may_flush.then_some(Duration::ZERO));
        let (database, engine): (Arc<dyn Database>, _) = (Arc::new(live), engine());
        let mut views = Vec::new();
        for steps in steps.chunks(steps.len().div_ceil(parts)) {
            run(&db, dir.path(), steps);
            for family in FAMILIES {
                let builder = builder(&database, family).engine(Arc::clone(&engine));
                let view = builder.open().expect("a view");
                views.push((view, rows(&db, family, &KeyRange::default())));
            }
        }
        for (view, rows) in &views {
            compare(view, rows)?;
        }
    }
}

#[test]
fn a_view_that_is_taken_while_others_write_has_whole_batches() {
    const KEYS: u32 = 50;
    const VIEWS: usize = 20;
    let dir = tempfile::tempdir().expect("a folder");
    let db = Arc::new(open(&dir.path().join("db")));
    let keys: Vec<_> = (0..KEYS).map(u32::to_be_bytes).collect();
    let write = |number: u64| {
        let mut batch = WriteBatch::default();
        keys.iter()
            .for_each(|key| batch.put(key, number.to_be_bytes()));
        db.write(&batch).expect("written");
    };
    write(0);
    let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    let (is_done, engine) = (AtomicBool::new(false), engine());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                write(number);
                if number % 100 == 0 {
                    db.flush().expect("flushed");
                }
                if is_done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut last = 0;
        for _ in 0..VIEWS {
            let builder = builder(&database, "default").engine(Arc::clone(&engine));
            let view = builder.open().expect("a view");
            let refs: Vec<_> = keys.iter().map(|key| &key[..]).collect();
            let found = view.get(&refs).expect("values");
            let numbers = found
                .iter()
                .flatten()
                .map(|value| u64::from_be_bytes(value[..].try_into().expect("eight bytes")));
            let numbers: Vec<_> = numbers.collect();
            assert_eq!(numbers, [numbers[0]; KEYS as usize]);
            assert!(numbers[0] >= last);
            last = numbers[0];
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn deleted_ranges_are_absent_and_operands_are_asked_for() {
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |db| {
        db.delete(numbered(9)).expect("deleted");
        db.merge(numbered(7), b"more").expect("merged");
        let family = db.cf_handle("default").expect("a family");
        db.delete_range_cf(family, numbered(1000), numbered(1010))
            .expect("deleted");
        db.flush().expect("flushed");
    });
    let without: Arc<dyn Database> = Arc::new(Directory::open(dir.path()).expect("a database"));
    let builder = builder(&without, "default");
    let estimate = builder.estimate().expect("estimate");
    assert_eq!((estimate.keys, estimate.operands), (5001, 1));
    // A record of 4 and 40 bytes has 16 and 48.
    assert!((5000 * 64..5001 * 64 + 100).contains(&estimate.record_bytes));
    assert_eq!(estimate.asked, []);
    let view = builder.open().expect("a view");
    let contents = view.contents();
    assert_eq!((contents.keys, contents.needs_host), (5000 - 10 - 2, 1));
    let found = view.get(
        &[8, 9, 1000, 1009, 1010, 5000]
            .map(numbered)
            .each_ref()
            .map(|key| &key[..]),
    );
    let value = |number: u32| Some(vec![number as u8; 40]);
    let meant = [value(8), None, None, None, value(1010), None];
    assert_eq!(found.expect("values"), meant);
    let error = view.get(&[&numbered(7)]).expect_err("no iterators");
    assert!(error.what.contains("no iterators are available"), "{error}");
}

#[test]
fn values_of_keys_on_the_device_come_into_rows() {
    if target() != Target::Host {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let view = builder(&directory(dir.path()), "default").open();
    let keys = [numbered(3), numbered(4999), numbered(5000), numbered(3)].concat();
    let (mut rows, mut statuses) = ([0u8; 4 * 40], [9u8; 4]);
    // SAFETY: the host's kernels use this memory before the call returns.
    unsafe {
        let keys = Keys::fixed(keys.as_ptr(), 4, 4);
        let rows = ValueRows::new(rows.as_mut_ptr(), 40, statuses.as_mut_ptr());
        let stream = CallerStream::new(ptr::null_mut());
        let looked_up = view.expect("a view").lookup(&keys, &rows, stream);
        looked_up.expect("looked up");
    }
    assert_eq!(statuses, [1, 1, 0, 1]);
    let meant = [3, 4999u32 as u8, 0, 3].map(|byte| [byte; 40]);
    assert_eq!(rows, meant.concat()[..]);
}

#[test]
fn a_lookup_that_cannot_work_names_the_argument_and_does_nothing() {
    if target() != Target::Host {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let view = builder(&directory(dir.path()), "default").open();
    let view = view.expect("a view");
    let (words, mut rows) = ([0u64; 4], [7u8; 16]);
    let (memory, into) = (words.as_ptr(), rows.as_mut_ptr());
    let bytes = memory.cast::<u8>();
    let nothing = ptr::null_mut();
    // SAFETY: none of these lookups accesses memory, since all of them are refused.
    let refused = unsafe {
        let keys = |len| Keys::fixed(bytes, 4, len);
        let values = |stride| ValueRows::new(into, stride, into);
        let offsets = bytes.wrapping_add(4).cast();
        [
            (
                Keys::fixed(ptr::null(), 4, 1),
                values(8),
                "keys: the pointer is null",
            ),
            (
                keys(1),
                ValueRows::new(nothing, 8, into),
                "rows: the pointer is null",
            ),
            (
                keys(1),
                ValueRows::new(into, 8, nothing),
                "statuses: the pointer is null",
            ),
            (
                keys(1 << 62),
                values(8),
                "keys: 4611686018427387904 times 4 bytes",
            ),
            (
                keys(2),
                values(u64::MAX),
                "rows: 2 times 18446744073709551615",
            ),
            (
                Keys::varied(bytes, offsets, 1),
                values(8),
                "is no multiple of 8",
            ),
            (
                keys(1),
                values(8).with_sizes(into.wrapping_add(1).cast()),
                "is no multiple of 4",
            ),
        ]
    };
    // SAFETY: on the host there are no streams.
    let stream = unsafe { CallerStream::new(nothing.cast()) };
    for (keys, values, sentence) in &refused {
        let error = view.lookup(keys, values, stream).expect_err(sentence);
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.what.contains(sentence), "{error}");
    }
    // Without keys, memory is not needed. SAFETY: as above.
    let none = unsafe {
        (
            Keys::fixed(ptr::null(), 4, 0),
            ValueRows::new(nothing, 8, nothing),
        )
    };
    view.lookup(&none.0, &none.1, stream).expect("no keys");
    assert_eq!(rows, [7; 16]);
}

#[test]
fn a_lookup_of_who_holds_a_view_asks_for_what_the_table_does_not_tell() {
    if target() != Target::Host {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let db = DB::open_cf(&options(), dir.path(), ["default"]).expect("the database opens");
    let db = Arc::new(db);
    // Iterators have to read the key.
    db.delete(numbered(3)).expect("deleted");
    db.delete(numbered(4)).expect("deleted");
    db.merge(numbered(4), [7; 40]).expect("written");
    let database: Arc<dyn Database> = Arc::new(LiveDatabase::new(Arc::clone(&db)));
    let view = builder(&database, "default").ring(RingSettings::default());
    let view = view.open().expect("a view");
    let keys = [2, 3, 4, 5000].map(numbered).concat();
    let look_up = |asks: bool| {
        let (mut rows, mut statuses) = ([0u8; 4 * 40], [9u8; 4]);
        // SAFETY: the host's kernels use this memory before the call returns.
        unsafe {
            let keys = Keys::fixed(keys.as_ptr(), 4, 4);
            let rows = ValueRows::new(rows.as_mut_ptr(), 40, statuses.as_mut_ptr());
            let stream = CallerStream::new(ptr::null_mut());
            let hold = view.hold(stream).expect("a hold");
            let looked_up = match asks {
                true => hold.lookup(&keys, &rows, stream),
                false => view.lookup(&keys, &rows, stream),
            };
            looked_up.expect("looked up");
        }
        (rows, statuses)
    };
    let (rows, statuses) = look_up(true);
    assert_eq!(statuses, [1, 0, 1, 0]);
    assert_eq!(rows, [[2; 40], [0; 40], [7; 40], [0; 40]].concat()[..]);
    let (_, statuses) = look_up(false);
    assert_eq!(statuses, [1, 0, 2, 0]);
}

#[test]
fn a_view_that_cannot_be_made_says_why() {
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let database = directory(dir.path());
    let error = builder(&database, "none")
        .open()
        .expect_err("there is none");
    assert!(error.what.contains("no column family \"none\""), "{error}");
    let small = builder(&database, "default").memory_bytes(100_000);
    let error = small.open().expect_err("it does not fit");
    assert_eq!(error.kind, ErrorKind::Device);
    assert!(
        error.what.contains("may take 100000: give it more memory"),
        "{error}"
    );
    let backwards = tempfile::tempdir().expect("a folder");
    let mut options = options();
    options.set_comparator("backwards", Box::new(|a, b| b.cmp(a)));
    with_rows(backwards.path(), &options, |_| {});
    let database: Arc<dyn Database> =
        Arc::new(Directory::open(backwards.path()).expect("a database"));
    let error = builder(&database, "default").open().expect_err("refused");
    assert!(
        error.what.contains("does not order keys by their bytes"),
        "{error}"
    );
}

#[test]
fn a_damaged_file_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    with_rows(dir.path(), &options(), |_| {});
    let files = std::fs::read_dir(dir.path()).expect("a folder");
    let mut files = files.map(|file| file.expect("a file").path());
    let file = files.find(|file| file.extension().is_some_and(|end| end == "sst"));
    let file = file.expect("a table");
    let mut bytes = std::fs::read(&file).expect("read");
    bytes[100] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let error = builder(&directory(dir.path()), "default").open();
    let error = error.expect_err("it is damaged");
    assert_eq!(error.kind, ErrorKind::Corruption);
    let name = file.file_name().expect("a name").to_string_lossy();
    assert!(error.to_string().contains(&*name), "{error}");
}

/// A writer of keys may know the hash, but not its seed.
#[test]
fn keys_whose_words_are_constants_of_the_hash_have_room() {
    const PRIMES: [u64; 5] = [
        0x9e37_79b1_85eb_ca87,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
        0x27d4_eb2f_1656_67c5,
    ];
    let dir = tempfile::tempdir().expect("a folder");
    let mut all = Vec::new();
    with_rows(dir.path(), &options(), |db| {
        for (prime, number) in PRIMES
            .iter()
            .flat_map(|prime| (0..3000u64).map(move |n| (prime, n)))
        {
            let [prime, number] = [prime, &number].map(|word| word.to_le_bytes());
            all.push([prime, number].concat());
            all.push([prime, number, [7; 8]].concat());
        }
        for key in &all {
            db.put(key, b"1").expect("written");
        }
    });
    let view = builder(&directory(dir.path()), "default");
    let view = view.open().expect("keys do not have equal hashes");
    let refs: Vec<_> = all.iter().map(Vec::as_slice).collect();
    let found = view.get(&refs).expect("values");
    assert!(found.iter().all(|value| value.as_deref() == Some(b"1")));
}

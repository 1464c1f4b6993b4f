//! Decoded groups in the cache of a device: scans find the same rows cold, warm, of parts of the keys, beside other tables, and
//! while groups are evicted; and never others if the cached bytes have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use rockmill_core::{Error, ErrorKind, InputTable, KeyRange, ReadAt, Result, SnapshotRules};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::faults::Faults;
use rockmill_cuda::{CudaBackend, CudaSettings, Target};
use rockmill_testkit::drawn_scans::Draw;

use super::cache::{LIMIT, backend, while_evicted};
use super::same_files::cases;
use super::snapshots::scans::{ALL, Scanned, scan, values};
use super::target;
use crate::common::{self, Entry, config, open};

/// The rows of some keys.
fn rows(device: &CudaBackend, tables: &[InputTable], range: &KeyRange) -> Scanned {
    scan(device, tables, range, ALL, &values(&[0, 1]))
}

/// A table that has several groups, of keys of some length.
fn table(keys: u32, key_bytes: usize) -> InputTable {
    let entry = |n: u32| {
        let value = common::noise(n.into(), 60);
        Entry::new(&cases::key_of(n, key_bytes), n.into(), common::PUT, &value)
    };
    let mut entries: Vec<_> = (0..keys).map(entry).collect();
    entries.sort_by_key(Entry::order);
    let mut plan = common::plan();
    plan.output.table.block_size = 256;
    open(common::one_file(&plan, &entries)).expect("sound")
}

/// A device whose groups have more than 128 blocks of a table of 2000 keys.
fn device_of_large_groups(target: Target, cache_bytes: u64) -> CudaBackend {
    let settings = CudaSettings {
        memory_bytes: Some(64 << 20),
        cache_bytes: Some(cache_bytes),
        cache_chunk_bytes: 16 << 10,
        ..CudaSettings::default()
    };
    CudaBackend::new(target, settings).expect("the device opens")
}

/// Random cases, and those in which a scan used a group.
static CASES: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

#[test]
fn scans_find_the_same_rows_whatever_is_cached() {
    random_scans_find_the_same_rows();
    let [all, hits] = [0, 1].map(|at| CASES[at].load(Ordering::Relaxed));
    assert!(16 * (hits + 10) > all, "{hits} of {all}");
}

proptest! {
    #![proptest_config(config(400))]

    fn random_scans_find_the_same_rows(
        runs in cases::runs(),
        plan in cases::table_plans(),
        limit in prop_oneof![Just(LIMIT), 0..50_000u64],
        plans in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 1..4),
        steps in proptest::collection::vec(
            (any::<[Option<prop::sample::Index>; 2]>(), any::<prop::sample::Index>(), 0u64..300, 0u8..8, any::<u64>()),
            1..8,
        ),
    ) {
        let tables = cases::tables(&runs, &plan);
        let all = runs.concat();
        let bound = |at: prop::sample::Index| all[at.index(all.len())].key.clone();
        let device = backend(limit);
        let mut flipped = 0;
        for (bounds, number, sequence, event, bit) in steps {
            let mut bounds = bounds.map(|at| at.map(bound));
            bounds.sort();
            let [begin, end] = bounds;
            let range = KeyRange { begin, end };
            let plan = Draw(&plans[number.index(plans.len())]).plan(false);
            let rules = SnapshotRules { sequence, ..ALL };
            // A memtable that is flushed later, or a file that is compacted away.
            let some = match bit % 3 {
                0 => &tables[..tables.len() / 2],
                _ => &tables[..],
            };
            let meant = scan(&CpuBackend, some, &range, rules, &plan);
            match event {
                0 => flipped += device.cache().flip(bit)?,
                1 => { device.cache().give_back(bit % 100_000); }
                2 => device.cache().set_limit(bit % 100_000),
                _ => {}
            }
            let scanned = || scan(&device, some, &range, rules, &plan);
            let found = match event {
                3 => while_evicted(device.cache(), scanned),
                _ => scanned(),
            };
            match (found, meant) {
                // A scan may have several faults, and the backends meet them in different orders.
                (Err(_), Err(_)) => {}
                // The CPU does it again if bytes of files have changed, which are used only without groups.
                (Err(ErrorKind::Corruption | ErrorKind::Device | ErrorKind::Unsupported), Ok(_)) if flipped > 0 => {}
                (found, meant) => prop_assert_eq!(found, meant),
            }
        }
        let hits = device.cache().column_accounts().hit_bytes.min(1);
        for (at, more) in [1, hits].into_iter().enumerate() {
            CASES[at].fetch_add(more, Ordering::Relaxed);
        }
    }
}

#[test]
fn the_second_scan_reads_nothing() {
    for key_bytes in [12, 24] {
        let tables = [table(200, key_bytes)];
        let device = backend(LIMIT);
        let range = KeyRange::default();
        let meant = rows(&device, &tables, &range);
        let columns = || device.cache().column_accounts();
        let first = columns();
        assert!(first.bytes > 0 && first.hit_bytes == 0, "{first:?}");
        assert!(rows(&device, &tables, &range) == meant);
        let second = columns();
        assert_eq!(
            (second.bytes, second.hit_bytes, second.miss_bytes),
            (first.bytes, first.bytes, first.miss_bytes)
        );
        assert_eq!(device.cache().accounts().miss_bytes, first.miss_bytes);
        device.cache().set_limit(0);
        device.trim();
        assert!(rows(&device, &tables, &range) == meant);
        assert_eq!((columns().bytes, device.cache().accounts().bytes), (0, 0));
    }
}

#[test]
fn a_flipped_bit_of_any_group_is_noticed_and_its_blocks_are_decoded_again() {
    for key_bytes in [12, 24] {
        let tables = [table(100, key_bytes)];
        let range = KeyRange::default();
        let meant = scan(&CpuBackend, &tables, &range, ALL, &values(&[0, 1]));
        for bit in (0..90_000).step_by(611) {
            let device = backend(LIMIT);
            assert!(rows(&device, &tables, &range) == meant);
            let columns = || device.cache().column_accounts();
            let bytes = columns().bytes;
            let flipped = device.cache().flip(bit).expect("the device works");
            assert!(flipped > 2);
            assert!(rows(&device, &tables, &range) == meant, "{bit}");
            assert_eq!((columns().mismatches, columns().bytes), (flipped as u64, 0));
            for _ in 0..2 {
                assert!(rows(&device, &tables, &range) == meant, "{bit}");
                assert_eq!(columns().bytes, bytes);
            }
        }
    }
}

#[test]
fn scans_of_parts_leave_all_groups_cached_and_a_scan_of_few_keys_adds_none() {
    let tables = [table(2000, 12)];
    let index = &tables[0].meta.index;
    let key = |block: usize| Some(index[block].separator.to_vec());
    let part = |begin, end| KeyRange { begin, end };
    let device = device_of_large_groups(target(), LIMIT);
    let columns = || device.cache().column_accounts();
    for few in [part(key(2), key(3)), part(None, key(0))] {
        rows(&device, &tables, &few).expect("sound");
        assert_eq!(columns().bytes, 0, "{} blocks", index.len());
    }
    let middle = key(index.len() / 2);
    for range in [part(None, middle.clone()), part(middle, None)] {
        let meant = scan(&CpuBackend, &tables, &range, ALL, &values(&[0, 1]));
        assert!(rows(&device, &tables, &range) == meant);
    }
    let (bytes, misses) = (columns().bytes, columns().miss_bytes);
    let all = KeyRange::default();
    let meant = scan(&CpuBackend, &tables, &all, ALL, &values(&[0, 1]));
    assert!(rows(&device, &tables, &all) == meant);
    assert_eq!((columns().bytes, columns().miss_bytes), (bytes, misses));
}

#[test]
fn the_same_file_has_the_entries_of_each_sequence_number() {
    let entry = |n: u64| Entry::new(&n.to_be_bytes(), 0, common::PUT, b"v");
    let entries: Vec<_> = (0..100).map(entry).collect();
    let file = common::one_file(&common::plan(), &entries);
    let device = backend(LIMIT);
    let count = |given: u64| {
        let table = open(file.clone()).expect("sound");
        let table = table.with_global_sequence(given).expect("it is one");
        let rules = SnapshotRules {
            sequence: 10,
            ..ALL
        };
        let range = KeyRange::default();
        let found = scan(&device, &[table], &range, rules, &values(&[0]));
        found.expect("sound").1.rows
    };
    for _ in 0..3 {
        assert_eq!([5, 20].map(count), [100, 0]);
    }
}

/// A file of which only the beginning can be read.
#[derive(Debug)]
struct Beginning {
    file: Arc<dyn ReadAt>,
    readable: u64,
}

impl ReadAt for Beginning {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if offset + buf.len() as u64 > self.readable {
            return Err(Error::new(ErrorKind::Storage, "a device has failed"));
        }
        self.file.read_exact_at(buf, offset)
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        self.file.name()
    }
}

#[test]
fn blocks_of_a_group_that_a_scan_does_not_need_may_be_unreadable() {
    let sound = table(200, 12);
    let index = &sound.meta.index;
    let range = KeyRange {
        begin: None,
        end: Some(index[1].separator.to_vec()),
    };
    let beginning = Beginning {
        file: Arc::clone(&sound.file),
        readable: index[sound.blocks_in_range(&range).end].handle.offset,
    };
    let tables = [sound.read_through(Arc::new(beginning))];
    let meant = scan(&CpuBackend, &[sound], &range, ALL, &values(&[0, 1]));
    let device = backend(LIMIT);
    for _ in 0..2 {
        assert!(rows(&device, &tables, &range) == meant);
    }
}

#[test]
fn a_scan_for_which_the_device_has_memory_only_without_groups_uses_none() {
    const STEP: u64 = 8 << 10;
    let tables = [table(2000, 12)];
    let index = &tables[0].meta.index;
    let range = KeyRange {
        begin: None,
        end: Some(index[9].separator.to_vec()),
    };
    let faults = Faults::none();
    let scans = |cache_bytes: u64, memory: u64| {
        let device = device_of_large_groups(Target::Faulty, cache_bytes);
        faults.limit_memory(memory);
        let found = rows(&device, &tables, &range);
        faults.end();
        (found, device.cache().column_accounts().bytes)
    };
    let suffices = |memory: &u64| scans(0, *memory).0.is_ok();
    let memory = (STEP..64 << 20).step_by(STEP as usize).find(suffices);
    let (found, cached) = scans(LIMIT, memory.expect("less than the budget"));
    let meant = scan(&CpuBackend, &tables, &range, ALL, &values(&[0, 1]));
    assert!(found == meant && cached == 0, "{cached}");
    assert!(scans(LIMIT, u64::MAX).1 > 0);
}

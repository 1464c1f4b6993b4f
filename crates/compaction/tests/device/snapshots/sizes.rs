//! Rows of any number and size come back, and no memory is reserved for them that only files need.

use rockmill_core::{Backend, KeyRange, Purpose, Visibility};
use rockmill_cpu::CpuBackend;
use rockmill_cuda::{CudaBackend, CudaSettings};

use super::super::target;
use super::{EVERYTHING, device, inspect, request};
use crate::common::{self, Entry, PUT, open};

/// More rows than are copied back at a time, and among them some that are larger than that.
#[test]
fn many_rows_and_large_ones_come_back_in_pieces() {
    const ROWS: u32 = 80_000;
    const LARGE: usize = 5 << 20;
    let value_bytes = |n: u32| match n {
        0 | 33_000 => LARGE,
        n if n % 2000 == 7 => 300_000,
        n => (n % 50) as usize,
    };
    for long_keys in [false, true] {
        let entry = |n: u32| {
            let mut key = n.to_be_bytes().to_vec();
            if long_keys {
                key.extend([b'k'; 30]);
            }
            Entry::new(&key, 1, PUT, &common::noise(u64::from(n), value_bytes(n)))
        };
        let mut entries: Vec<_> = (0..ROWS).map(entry).collect();
        // A key that is larger than one copy back.
        entries.push(Entry::new(&[0xff; LARGE][..], 2, PUT, b"small"));
        let keys_fit = if long_keys {
            entries.len()
        } else {
            entries.len() - 1
        };
        let entries = &entries[..keys_fit];
        let tables = [open(common::one_file(&common::plan(), entries)).expect("sound")];
        let (range, visibility) = (KeyRange::default(), Visibility::Snapshot(EVERYTHING));
        let (rows, _) = inspect(device(), &tables, &range, visibility).expect("they are read");
        assert!(rows == entries, "long keys: {long_keys}");
    }
}

#[test]
fn what_is_foreseen_of_rows_is_enough_and_less_than_what_files_need() {
    let entry = |n: u32| Entry::new(&n.to_be_bytes(), 1, PUT, &[7; 60]);
    let entries: Vec<_> = (0..20_000).map(entry).collect();
    let tables = [open(common::one_file(&common::plan(), &entries)).expect("sound")];
    let (range, plan) = (KeyRange::default(), common::plan());
    let snapshot = Visibility::Snapshot(EVERYTHING);
    let compaction = Visibility::Compaction(&plan.rules);
    let needs = [
        (snapshot, Purpose::Inspect),
        (compaction, Purpose::Inspect),
        (compaction, Purpose::WriteSst(&plan.output)),
    ]
    .map(|(visibility, purpose)| {
        let request = request(&tables, &range, visibility, purpose);
        let on_cpu = CpuBackend.footprint(&request);
        assert_eq!(on_cpu.device_bytes, 0);
        (device().footprint(&request).device_bytes, on_cpu.host_bytes)
    });
    assert!(
        needs[0].0 < needs[1].0 && needs[1].0 < needs[2].0,
        "{needs:?}"
    );
    assert!(
        needs[0].1 == needs[1].1 && needs[1].1 < needs[2].1,
        "{needs:?}"
    );
    let settings = CudaSettings {
        memory_bytes: Some(needs[0].0),
        ..CudaSettings::default()
    };
    let device = CudaBackend::new(target(), settings).expect("the device opens");
    let (rows, _) = inspect(&device, &tables, &range, snapshot).expect("there is memory");
    assert!(rows == entries);
}

//! Inputs that cannot be read exactly are refused, and damage is found.

use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::{
    Backend, CancelToken, Error, ErrorKind, InputTable, KeyRange, NeedsMerge, Operator, Purpose,
    ReadTask, Result, Row, RowSink, Support, Unsupported, Visibility,
};
use rockmill_cpu::CpuBackend;
use rockmill_format::properties::TableProperties;
use rockmill_format::table::names;

use super::{EVERYTHING, SnapshotRules, cases, device, drawn, inspect, request};
use crate::common::{self, Entry, PUT, config, open};

fn puts() -> Vec<Entry> {
    let put = |n: u8| Entry::new(&[b'k', n], 0, PUT, &[n; 30]);
    (0..100).map(put).collect()
}

fn table() -> InputTable {
    open(common::one_file(&common::plan(), &puts())).expect("sound")
}

/// Whether both backends support reading a table; their answers agree.
fn support(table: InputTable) -> Support {
    let (tables, range) = ([table], KeyRange::default());
    let visibility = Visibility::Snapshot(EVERYTHING);
    let request = request(&tables, &range, visibility, Purpose::Inspect);
    let support = CpuBackend.supports(&request);
    assert_eq!(device().supports(&request), support);
    support
}

#[test]
fn tables_that_do_not_say_all_alone_are_refused() {
    let changed = |change: fn(&mut TableProperties)| {
        let mut table = table();
        change(&mut Arc::make_mut(&mut table.meta).properties);
        table
    };
    let mut with_block = table();
    let meta = Arc::make_mut(&mut with_block.meta);
    let handle = meta.index_handle;
    meta.metaindex
        .insert(names::RANGE_DELETIONS.to_vec(), handle);
    let refused = [
        (with_block, Unsupported::RangeTombstones),
        (
            changed(|of| of.num_range_deletions = 1),
            Unsupported::RangeTombstones,
        ),
        (
            changed(|of| of.comparator_name = b"leveldb.BytewiseComparator.u64ts".to_vec()),
            Unsupported::Comparator,
        ),
        (
            changed(|of| of.user_defined_timestamps_persisted = 0),
            Unsupported::Comparator,
        ),
        (
            changed(|of| of.external_sst_file_version = Some(2)),
            Unsupported::UnknownSequence,
        ),
    ];
    for (table, kind) in refused {
        assert_eq!(support(table), Support::No(kind));
    }
    let first_version = changed(|of| of.external_sst_file_version = Some(1));
    let given = changed(|of| of.external_sst_file_version = Some(2)).with_global_sequence(7);
    for table in [table(), first_version, given.expect("it is one")] {
        assert_eq!(support(table), Support::Yes);
    }
}

#[test]
fn files_take_no_rows_that_need_a_merge() {
    let (tables, range, plan) = ([table()], KeyRange::default(), common::plan());
    for (needs_merge, support) in [
        (
            NeedsMerge::Mark,
            Support::No(Unsupported::NeedsMergeInFiles),
        ),
        (NeedsMerge::Error, Support::Yes),
    ] {
        let rules = SnapshotRules {
            needs_merge,
            ..EVERYTHING
        };
        let purpose = Purpose::WriteSst(&plan.output);
        let request = request(&tables, &range, Visibility::Snapshot(rules), purpose);
        assert_eq!(CpuBackend.supports(&request), support);
        assert_eq!(device().supports(&request), support);
    }
}

#[test]
fn numbers_beside_that_of_the_whole_table_are_an_error() {
    let mut entries = puts();
    entries[70] = Entry::new(&entries[70].key, 1, PUT, b"newer");
    let file = common::one_file(&common::plan(), &entries);
    let table = open(file).expect("sound").with_global_sequence(7);
    let tables = [table.expect("it is one")];
    let visibility = Visibility::Snapshot(EVERYTHING);
    let range = KeyRange::default();
    let on_cpu = inspect(&CpuBackend, &tables, &range, visibility);
    let on_device = inspect(device(), &tables, &range, visibility);
    for read in [on_cpu, on_device] {
        assert_eq!(read.expect_err("a number").kind, ErrorKind::Corruption);
    }
    let too_large = tables[0].clone().with_global_sequence(1 << 56);
    assert_eq!(too_large.expect_err("56 bits").kind, ErrorKind::Corruption);
}

/// Fails at the row with a number.
struct FailsAt(u64);

impl RowSink for FailsAt {
    fn row(&mut self, _: Row<'_>) -> Result<()> {
        self.0 -= 1;
        match self.0 {
            0 => Err(Error::new(ErrorKind::Storage, "no room")),
            _ => Ok(()),
        }
    }
}

fn ends_with_its_sink<B: Backend>(backend: &B) -> bool {
    let (tables, range) = ([table()], KeyRange::default());
    let task = ReadTask {
        reading: request(
            &tables,
            &range,
            Visibility::Snapshot(EVERYTHING),
            Purpose::Inspect,
        )
        .reading,
        cancel: &CancelToken::new(),
        progress: None,
    };
    let mut rows = FailsAt(50);
    let inspected = backend.run(task, Operator::Inspect { rows: &mut rows });
    inspected.is_err_and(|error| error.kind == ErrorKind::Storage) && rows.0 == 0
}

#[test]
fn a_task_ends_with_its_sink() {
    assert!(ends_with_its_sink(&CpuBackend) && ends_with_its_sink(device()));
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn damage_is_an_error_on_each_backend(
        runs in cases::runs(),
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let mut file = common::one_file(&common::plan(), &runs[0]);
        let sound = open(file.clone())?;
        let last = sound.meta.index.last().expect("a block").handle;
        let data_bytes = (last.offset + last.size) as usize + 5;
        file[at.index(data_bytes)] ^= 1 << bit;
        let tables = [open(file)?];
        let (range, visibility) = (KeyRange::default(), Visibility::Snapshot(EVERYTHING));
        let on_cpu = inspect(&CpuBackend, &tables, &range, visibility).expect_err("damaged");
        prop_assert_eq!(on_cpu.kind, ErrorKind::Corruption);
        let error = inspect(device(), &tables, &range, visibility).expect_err("damaged");
        prop_assert!(matches!(error.kind, ErrorKind::Corruption | ErrorKind::Device | ErrorKind::Unsupported), "{}", error);
        prop_assert_eq!(error.file, on_cpu.file);
    }

    /// Blocks with right checksums and arbitrary contents.
    #[test]
    fn hostile_blocks_give_errors_or_the_same_rows(
        runs in drawn::runs(),
        rules in drawn::rules(),
        bytes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        global_sequence in proptest::option::of(0u64..40),
    ) {
        if runs.is_empty() {
            return Ok(());
        }
        let mut file = runs[0].file();
        let blocks = open(file.clone())?.meta;
        for (at, byte) in bytes {
            let handle = blocks.index[at.index(blocks.index.len())].handle;
            let (start, size) = (handle.offset as usize, handle.size as usize);
            file[start + at.index(size)] = byte;
            let sum = blocks.footer.guard.checksum(&file[start..start + size], 0, handle.offset);
            file[start + size + 1..start + size + 5].copy_from_slice(&sum.to_le_bytes());
        }
        let table = open(file)?;
        let tables = [match global_sequence {
            Some(sequence) => table.with_global_sequence(sequence)?,
            None => table,
        }];
        let (range, visibility) = (KeyRange::default(), Visibility::Snapshot(rules));
        let on_cpu = inspect(&CpuBackend, &tables, &range, visibility);
        let on_device = inspect(device(), &tables, &range, visibility);
        match on_cpu {
            // The device may refuse blocks that the CPU accepts, but not read them differently.
            Ok(rows) => prop_assert!(on_device.is_err() || on_device == Ok(rows)),
            Err(_) => prop_assert!(on_device.is_err()),
        }
    }
}

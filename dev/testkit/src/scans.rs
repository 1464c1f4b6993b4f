//! Random histories of a database, and its rows as RocksDB's iterators and as scans find them.

#![allow(missing_docs, reason = "names of plain records and constants")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use rockmill_core::scan::{Batch, ColumnType, Instruction, OutputColumn, ScanOutput, ScanPlan};
use rockmill_core::{CancelToken, Error, ErrorKind, KeyRange, Result};
use rockmill_scan::{FamilySnapshot, IteratorRead, Iterators, PieceReport, RowFn, ScanEngine};
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, IngestExternalFileOptions, MergeOperands, Options, ReadOptions,
    SstFileWriter, WriteOptions,
};

pub type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub const FAMILIES: [&str; 2] = ["default", "other"];

/// Something that is done to a column family, by its number.
#[derive(Debug, Clone)]
pub enum Step {
    Put(usize, u8, usize),
    /// Past the log.
    PutUnlogged(usize, u8),
    Delete(usize, u8),
    /// Deletes a key that was put once.
    SingleDelete(usize, u8),
    DeleteRange(usize, u8, u8),
    Merge(usize, u8),
    /// Ingests a file with keys from a first one on.
    Ingest(usize, u8, u8),
    Flush(usize),
    Compact(usize),
    /// A snapshot is taken, or the one that was taken is released.
    Snapshot,
}

/// Limits of histories.
#[derive(Debug, Clone, Copy)]
pub struct Kinds {
    pub unlogged: bool,
    pub merges: bool,
}

pub fn history(kinds: Kinds) -> impl Strategy<Value = Vec<Step>> {
    let family = || 0..FAMILIES.len();
    let key = any::<u8>;
    let value = prop_oneof![4 => 0usize..40, 1 => 2000usize..9000];
    let mut steps = vec![
        (
            30,
            (family(), key(), value)
                .prop_map(|(f, k, v)| Step::Put(f, k, v))
                .boxed(),
        ),
        (
            8,
            (family(), key())
                .prop_map(|(f, k)| Step::Delete(f, k))
                .boxed(),
        ),
        (
            6,
            (family(), key())
                .prop_map(|(f, k)| Step::SingleDelete(f, k))
                .boxed(),
        ),
        (
            2,
            (family(), key(), 1u8..40)
                .prop_map(|(f, k, n)| Step::DeleteRange(f, k, n))
                .boxed(),
        ),
        (
            2,
            (family(), key(), 1u8..20)
                .prop_map(|(f, k, n)| Step::Ingest(f, k, n))
                .boxed(),
        ),
        (4, family().prop_map(Step::Flush).boxed()),
        (2, family().prop_map(Step::Compact).boxed()),
        (2, Just(Step::Snapshot).boxed()),
    ];
    if kinds.merges {
        steps.push((
            2,
            (family(), key())
                .prop_map(|(f, k)| Step::Merge(f, k))
                .boxed(),
        ));
    }
    if kinds.unlogged {
        steps.push((
            2,
            (family(), key())
                .prop_map(|(f, k)| Step::PutUnlogged(f, k))
                .boxed(),
        ));
    }
    prop::collection::vec(prop::strategy::Union::new_weighted(steps), 1..120)
}

pub fn options() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_merge_operator_associative("concatenation", concatenate);
    options.set_level_zero_file_num_compaction_trigger(3);
    options.set_target_file_size_base(16 << 10);
    options
}

fn concatenate(_: &[u8], old: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let parts = old.into_iter().chain(operands.iter());
    Some(parts.flatten().copied().collect())
}

pub fn open(path: &Path) -> DB {
    let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options()));
    DB::open_cf_descriptors(&options(), path, families).expect("the database opens")
}

/// Opens the database as it is. If it is open elsewhere, a compaction may delete a file meanwhile, and it is opened again.
pub fn open_read_only(path: &Path) -> DB {
    const ATTEMPTS: usize = 20;
    let mut database = options();
    database.set_allow_2pc(true);
    let open = || {
        let families = FAMILIES.map(|name| ColumnFamilyDescriptor::new(name, options()));
        DB::open_cf_descriptors_read_only(&database, path, families, false)
    };
    let attempts = (1..ATTEMPTS).map(|_| open());
    let opened = attempts.flatten().next();
    opened.unwrap_or_else(|| open().expect("the database opens"))
}

/// Runs the steps. Values name the step that wrote them.
pub fn run(db: &DB, scratch: &Path, steps: &[Step]) {
    let mut snapshot = None;
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Snapshot => {
                snapshot = match snapshot {
                    None => Some(db.snapshot()),
                    Some(_) => None,
                };
            }
            step => run_one(db, scratch, number, step),
        }
    }
}

/// Keys of SingleDelete are separate from the others, because they must have been put once.
fn key_of(key: u8) -> Vec<u8> {
    match key % 3 {
        0 => format!("{key:03}").into_bytes(),
        1 => format!("{key:03}-a-longer-key-of-more-than-sixteen-bytes").into_bytes(),
        _ => vec![key],
    }
}

pub fn run_one(db: &DB, scratch: &Path, number: usize, step: &Step) {
    let family = |at: &usize| db.cf_handle(FAMILIES[*at]).expect("it is there");
    let value = |len: usize| {
        let mut value = format!("{number}").into_bytes();
        value.resize(value.len().max(len), b'.');
        value
    };
    let done = match step {
        Step::Put(f, k, len) => db.put_cf(&family(f), key_of(*k), value(*len)),
        Step::PutUnlogged(f, k) => {
            let mut unlogged = WriteOptions::default();
            unlogged.disable_wal(true);
            db.put_cf_opt(&family(f), key_of(*k), value(0), &unlogged)
        }
        Step::Delete(f, k) => db.delete_cf(&family(f), key_of(*k)),
        Step::SingleDelete(f, k) => {
            let key = [b"single-", &key_of(*k)[..], number.to_string().as_bytes()].concat();
            db.put_cf(&family(f), &key, value(10)).expect("written");
            match k % 2 {
                0 => db.single_delete_cf(&family(f), &key),
                _ => Ok(()),
            }
        }
        Step::DeleteRange(f, k, n) => {
            let end = format!("{:03}", u16::from(*k) + u16::from(*n));
            db.delete_range_cf(&family(f), format!("{k:03}"), end)
        }
        Step::Merge(f, k) => db.merge_cf(&family(f), key_of(*k), value(3)),
        Step::Ingest(f, k, n) => {
            let path = scratch.join(format!("{number}.sst"));
            let options = options();
            let mut writer = SstFileWriter::create(&options);
            writer.open(&path).expect("a file");
            let keys = (0..*n).map(|i| key_of(k.saturating_add(i)));
            let keys: std::collections::BTreeSet<_> = keys.collect();
            keys.iter()
                .for_each(|key| writer.put(key, value(5)).expect("written"));
            writer.finish().expect("a file");
            let mut options = IngestExternalFileOptions::default();
            options.set_move_files(true);
            db.ingest_external_file_cf_opts(&family(f), &options, vec![path])
        }
        Step::Flush(f) => db.flush_cf(&family(f)),
        Step::Compact(f) => {
            db.compact_range_cf(&family(f), None::<&[u8]>, None::<&[u8]>);
            Ok(())
        }
        Step::Snapshot => Ok(()),
    };
    done.expect("RocksDB does it");
}

/// The rows that RocksDB's iterators find.
pub fn rows(db: &DB, family: &str, range: &KeyRange) -> Rows {
    let mut rows = Vec::new();
    read(db, family, range, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        Ok(())
    })
    .expect("no errors");
    rows
}

pub fn read(db: &DB, family: &str, range: &KeyRange, row: RowFn<'_>) -> Result<()> {
    let mut options = ReadOptions::default();
    if let Some(begin) = &range.begin {
        options.set_iterate_lower_bound(begin.clone());
    }
    if let Some(end) = &range.end {
        options.set_iterate_upper_bound(end.clone());
    }
    // A database that was opened without names has no handle.
    let mut iterator = match db.cf_handle(family) {
        Some(family) => db.raw_iterator_cf_opt(&family, options),
        None => db.raw_iterator_opt(options),
    };
    iterator.seek_to_first();
    while let Some((key, value)) = iterator.item() {
        row(key, value)?;
        iterator.next();
    }
    iterator
        .status()
        .map_err(|e| Error::new(ErrorKind::Storage, e.to_string()))
}

/// Iterators over a directory that no process has open.
#[derive(Debug)]
pub struct ReadOnly;

impl Iterators for ReadOnly {
    fn read(&self, what: &IteratorRead<'_>, row: RowFn<'_>) -> Result<()> {
        read(&open_read_only(what.path), what.family, what.range, row)
    }
}

/// A plan whose rows are keys and values.
pub fn keys_and_values() -> Arc<ScanPlan> {
    let column = |register| OutputColumn {
        register,
        stored: ColumnType::Bytes,
    };
    Arc::new(ScanPlan {
        checks: Vec::new(),
        instructions: vec![Instruction::Key, Instruction::Value],
        output: ScanOutput::Rows(vec![column(0), column(1)]),
        ..ScanPlan::default()
    })
}

/// Keys and values in a batch.
pub fn rows_of(batch: &Batch) -> Rows {
    let cell = |column: usize, row: usize| {
        let column = &batch.columns[column];
        let (start, end) = (
            column.offsets[row] as usize,
            column.offsets[row + 1] as usize,
        );
        column.values[start..end].to_vec()
    };
    (0..batch.rows)
        .map(|row| (cell(0, row), cell(1, row)))
        .collect()
}

/// The rows of a scan of a snapshot, and the reports.
pub fn scan(
    engine: &ScanEngine,
    snapshot: &Arc<FamilySnapshot>,
    ranges: &[KeyRange],
    piece_bytes: u64,
) -> (Rows, Vec<PieceReport>) {
    let (plan, cancel) = (keys_and_values(), CancelToken::new());
    let (mut rows, mut reports) = (Vec::new(), Vec::new());
    for piece in snapshot.pieces(ranges, piece_bytes) {
        let output = engine
            .run(snapshot, &piece, &plan, &cancel)
            .expect("it runs");
        let before = rows.len();
        for batch in &output.batches {
            rows.extend(rows_of(batch));
        }
        assert_eq!((rows.len() - before) as u64, output.report.selected);
        assert!(
            rows[before..]
                .iter()
                .all(|(key, _)| piece.range.contains(key))
        );
        reports.push(output.report);
    }
    (rows, reports)
}

/// Ranges of keys, and how large pieces are.
pub fn scans() -> impl Strategy<Value = (Vec<KeyRange>, u64)> {
    let bound = || prop::option::weighted(0.7, any::<u8>().prop_map(key_of));
    let range = (bound(), bound()).prop_map(|(begin, end)| KeyRange { begin, end });
    let all = Just(vec![KeyRange::default()]);
    let ranges = prop_oneof![all, prop::collection::vec(range, 1..4)];
    (ranges, prop_oneof![1u64..5000, Just(1 << 30)])
}

/// The rows of all families in some ranges, each row once.
pub fn rows_in(db: &DB, ranges: &[KeyRange]) -> BTreeMap<&'static str, Rows> {
    let all = KeyRange::default();
    let of = |family| {
        let rows = rows(db, family, &all);
        let is_in = |(key, _): &(Vec<u8>, Vec<u8>)| ranges.iter().any(|range| range.contains(key));
        (family, rows.into_iter().filter(is_in).collect())
    };
    FAMILIES.into_iter().map(of).collect()
}

//! Statements over a directory whose rows RocksDB's iterators read, also while another process writes to it.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::{DataType, UInt64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_core::{DeclineReason, Error, ErrorKind, Result as CoreResult};
use rockmill_scan::{
    Database, Directory, MergeOperators, ScanEngine, ScanSettings, Snapshot, StatedOperator,
};
use rockmill_sql::{ReadOnly, Reads, Scans, decode_scan, encode_scan};
use rust_rocksdb::{
    ColumnFamilyDescriptor, DB, DBWithThreadMode, IngestExternalFileOptions, MergeOperands,
    MultiThreaded, Options, SstFileWriter, WriteBatch,
};
use tokio::runtime::Runtime;

/// A session over a directory. `memory_bytes` limits the host memory of its scans.
fn session_with(
    folder: &Path,
    memory_bytes: Option<u64>,
    stated: &[&str],
    reads: Reads,
) -> SessionContext {
    let settings = ScanSettings {
        memory_bytes,
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).unwrap();
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let stated = stated.iter().map(|text| text.parse().unwrap());
    let stated: Vec<StatedOperator> = stated.collect();
    let database = Directory::open(folder).unwrap();
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let database = database.with_merge_operators(MergeOperators::of(&stated).unwrap());
    let scans = Scans::new(engine, Arc::new(database)).reading(reads);
    scans.register(&session).unwrap();
    session
}

fn session(folder: &Path) -> SessionContext {
    session_with(folder, None, &[], Reads::Files)
}

/// The cells of the only row.
fn row(runtime: &Runtime, session: &SessionContext, query: &str) -> Result<Vec<ScalarValue>> {
    let batches = runtime.block_on(async { session.sql(query).await?.collect().await })?;
    let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
    assert_eq!(rows, 1, "{query}");
    let batch = batches.iter().find(|batch| batch.num_rows() == 1).unwrap();
    let cells = batch.columns().iter();
    Ok(cells
        .map(|column| ScalarValue::try_from_array(column, 0).unwrap())
        .collect())
}

fn count(session: &SessionContext, family: &str) -> i64 {
    let runtime = Runtime::new().unwrap();
    let query = format!("select count(*) from \"{family}\"");
    match &row(&runtime, session, &query).unwrap()[..] {
        [ScalarValue::Int64(Some(count))] => *count,
        other => panic!("{other:?}"),
    }
}

/// Rockmill's own error within one of DataFusion.
fn own(error: &DataFusionError) -> Error {
    match error.find_root() {
        DataFusionError::External(error) => error.downcast_ref::<Error>().unwrap().clone(),
        other => panic!("{other}"),
    }
}

fn created() -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options
}

/// Column families with the same options.
fn descriptors(options: &Options, names: &[&str]) -> Vec<ColumnFamilyDescriptor> {
    let names = names.iter();
    names
        .map(|name| ColumnFamilyDescriptor::new(*name, options.clone()))
        .collect()
}

/// A program's own functions may have names of others.
#[test]
fn a_function_of_the_program_is_computed_whatever_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    for key in ["a1", "b1", "b2"] {
        db.put(key, "value").unwrap();
    }
    db.flush().unwrap();
    let session = session(folder.path());
    let runtime = Runtime::new().unwrap();
    let query = "select count(*) from \"default\" where starts_with(key, 'b')";
    let counted = |expected: i64| {
        let row = row(&runtime, &session, query).unwrap();
        assert_eq!(row, [ScalarValue::Int64(Some(expected))]);
    };
    counted(2);
    let never = create_udf(
        "starts_with",
        vec![DataType::Binary, DataType::Utf8],
        DataType::Boolean,
        Volatility::Immutable,
        Arc::new(|_| Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(false))))),
    );
    session.register_udf(never);
    counted(0);
}

/// A join executes its probe side before it reads its build side.
#[test]
fn a_scan_whose_rows_are_not_read_yet_takes_no_thread() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    for number in 0..100u32 {
        db.put(number.to_be_bytes(), b"value").unwrap();
    }
    db.flush().unwrap();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = threads.enable_all().max_blocking_threads(1);
    let runtime = runtime.build().unwrap();
    let session = session(folder.path());
    let rows = runtime.block_on(async {
        let frame = session.sql("select key from \"default\"").await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let execute = || plan.execute(0, session.task_ctx()).unwrap();
        let waiting: Vec<_> = (0..3).map(|_| execute()).collect();
        let first = datafusion::physical_plan::common::collect(execute());
        let first = tokio::time::timeout(std::time::Duration::from_secs(60), first).await;
        let mut rows = vec![first.expect("a thread is free").unwrap()];
        for stream in waiting {
            rows.push(
                datafusion::physical_plan::common::collect(stream)
                    .await
                    .unwrap(),
            );
        }
        rows
    });
    let counts = rows
        .iter()
        .map(|batches| batches.iter().map(|batch| batch.num_rows()).sum::<usize>());
    assert_eq!(counts.collect::<Vec<_>>(), [100; 4]);
}

type Db = DBWithThreadMode<MultiThreaded>;

/// Number of rows of each of two column families, and the initial amount of each row.
const ROWS: u64 = 300;
const AMOUNT: u64 = 1000;
const FAMILIES: [&str; 2] = ["a", "b"];

/// A value with an amount, most of which goes into a blob file.
fn value(amount: u64) -> Vec<u8> {
    [&amount.to_be_bytes()[..], &[7; 200]].concat()
}

/// A database that constantly flushes and compacts.
fn open_busy(path: &Path) -> Db {
    let mut options = created();
    options.set_write_buffer_size(128 << 10);
    options.set_level_zero_file_num_compaction_trigger(2);
    options.set_enable_blob_files(true);
    options.set_min_blob_size(100);
    options.set_enable_blob_gc(true);
    options.set_blob_gc_age_cutoff(0.7);
    let db = Db::open_cf_descriptors(&options, path, descriptors(&options, &FAMILIES)).unwrap();
    for name in FAMILIES {
        let family = db.cf_handle(name).unwrap();
        for row in 0..ROWS {
            db.put_cf(&family, row.to_be_bytes(), value(AMOUNT))
                .unwrap();
        }
    }
    db
}

/// Moves amounts between rows, each time in one batch, until `stop` is set. Many batches delete a range of rows, and put
/// them again.
fn moves(db: &Db, stop: &AtomicBool) -> u64 {
    let families = FAMILIES.map(|name| db.cf_handle(name).unwrap());
    let mut amounts = [[AMOUNT; ROWS as usize]; 2];
    let mut done = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = ((done * 7 % ROWS) as usize, (done * 13 % ROWS) as usize);
        let moved = amounts[0][from].min(done % 5);
        amounts[0][from] -= moved;
        amounts[1][to] += moved;
        let mut batch = WriteBatch::default();
        if done.is_multiple_of(3) {
            let begin = (from as u64).to_be_bytes();
            let end = (from as u64 + 4).to_be_bytes();
            batch.delete_range_cf(&families[0], begin, end);
            let deleted = (from as u64..).zip(&amounts[0][from..]);
            for (row, amount) in deleted.take(4) {
                batch.put_cf(&families[0], row.to_be_bytes(), value(*amount));
            }
        }
        for (family, row) in [(0, from), (1, to)] {
            let key = (row as u64).to_be_bytes();
            batch.put_cf(&families[family], key, value(amounts[family][row]));
        }
        db.write(&batch).unwrap();
        done += 1;
    }
    done
}

#[test]
fn a_busy_writer_with_blobs_and_range_tombstones_stops_no_statement() {
    const STATEMENTS: usize = 101;
    const LEAST_ANSWERS: usize = 95;
    const TOTAL: &str = "select sum(amount), count(*) from (select u64be(value, 0) as amount from a
                         union all select u64be(value, 0) from b)";
    let folder = tempfile::tempdir().unwrap();
    let db = open_busy(folder.path());
    let session = session(folder.path());
    let runtime = Runtime::new().unwrap();
    let stop = AtomicBool::new(false);
    let (mut answers, mut errors, mut moved) = (0, Vec::new(), 0);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| moves(&db, &stop));
        let statements = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STATEMENTS {
                match row(&runtime, &session, TOTAL) {
                    Ok(found) => {
                        let rows = 2 * ROWS;
                        let expected = [
                            ScalarValue::UInt64(Some(rows * AMOUNT)),
                            ScalarValue::Int64(Some(rows as i64)),
                        ];
                        assert_eq!(found, expected);
                        answers += 1;
                    }
                    Err(error) => errors.push(own(&error)),
                }
            }
        }));
        stop.store(true, Ordering::Relaxed);
        moved = writer.join().unwrap();
        if let Err(panic) = statements {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(answers >= LEAST_ANSWERS, "{answers} answers; {errors:?}");
    // The database was busy: files were flushed and compacted.
    let last_file = db
        .live_files()
        .unwrap()
        .iter()
        .map(|file| file.name.clone())
        .max();
    println!("{answers} answers, {moved} moves, up to {last_file:?}, {errors:?}");
    assert!(moved > STATEMENTS as u64);
    let gone = ErrorKind::Declined(DeclineReason::InputMissing);
    for error in errors {
        assert!([gone, ErrorKind::Storage].contains(&error.kind), "{error}");
    }
    // Iterators read blobs. The log may have newer values of all rows.
    for name in FAMILIES {
        db.flush_cf(&db.cf_handle(name).unwrap()).unwrap();
    }
    let plan = runtime.block_on(async {
        let frame = session.sql(&format!("explain analyze {TOTAL}")).await?;
        frame.collect().await
    });
    let plan = plan.unwrap();
    let text = plan[0].column(1).as_string::<i32>();
    let by_iterators = text
        .iter()
        .flatten()
        .any(|plan| plan.contains("pieces_by_iterators"));
    assert!(by_iterators, "{text:?}");
}

#[test]
fn a_session_sees_an_ingestion_that_takes_no_sequence_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    let db = DB::open(&created(), &path).unwrap();
    db.put("a", "1").unwrap();
    let session = session_with(&path, None, &[], Reads::Iterators);
    assert_eq!(count(&session, "default"), 1);
    let before = db.latest_sequence_number();
    let file = folder.path().join("ingested.sst");
    let options = Options::default();
    let mut writer = SstFileWriter::create(&options);
    writer.open(&file).unwrap();
    writer.put("b", "2").unwrap();
    writer.finish().unwrap();
    db.ingest_external_file_opts(&IngestExternalFileOptions::default(), vec![&file])
        .unwrap();
    assert_eq!(db.latest_sequence_number(), before);
    assert_eq!(count(&session, "default"), 2);
}

#[test]
fn a_session_sees_what_was_written_to_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    let session = session_with(folder.path(), None, &[], Reads::Iterators);
    for rows in 0..5 {
        assert_eq!(count(&session, "default"), rows);
        db.put(rows.to_string(), "").unwrap();
    }
    drop(db);
    assert_eq!(count(&session, "default"), 5);
}

#[test]
fn a_closed_database_is_read_by_iterators_whatever_lies_in_its_log() {
    let mut reverse = created();
    reverse.set_comparator(
        "rocksdb.ReverseBytewiseComparator",
        Box::new(|a, b| b.cmp(a)),
    );
    let mut in_place = created();
    in_place.set_inplace_update_support(true);
    in_place.set_allow_concurrent_memtable_write(false);
    for options in [reverse, in_place] {
        for flushed in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let db = DB::open(&options, folder.path()).unwrap();
            for row in 0..13 {
                db.put(format!("{row:02}"), "older").unwrap();
                db.put(format!("{row:02}"), "newer").unwrap();
                if flushed && row == 6 {
                    db.flush().unwrap();
                }
            }
            drop(db);
            let runtime = Runtime::new().unwrap();
            let query = "select count(*), min(value), max(value), min(key) from \"default\" where key < '07' or key > '08'";
            let found = row(&runtime, &session(folder.path()), query).unwrap();
            let bytes = |text: &str| ScalarValue::Binary(Some(text.as_bytes().to_vec()));
            let expected = [
                ScalarValue::Int64(Some(11)),
                bytes("newer"),
                bytes("newer"),
                bytes("00"),
            ];
            assert_eq!(found, expected);
            assert_eq!(count(&session(folder.path()), "default"), 13);
        }
    }
}

#[test]
fn a_log_that_does_not_fit_into_the_memory_is_read_by_iterators() {
    const MEMORY_BYTES: u64 = 32 << 20;
    const LOG_ROWS: u64 = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open_cf(&created(), folder.path(), ["default", "other"]).unwrap();
    for row in 0..LOG_ROWS {
        db.put(row.to_be_bytes(), [row as u8; 1000]).unwrap();
    }
    db.put_cf(&db.cf_handle("other").unwrap(), "key", "value")
        .unwrap();
    drop(db);
    let small = session_with(folder.path(), Some(MEMORY_BYTES), &[], Reads::Files);
    assert_eq!(count(&small, "default"), LOG_ROWS as i64);
    assert_eq!(count(&small, "other"), 1);
    assert_eq!(count(&session(folder.path()), "default"), LOG_ROWS as i64);
}

#[test]
fn a_log_that_was_written_over_since_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    db.put("key", "value").unwrap();
    drop(db);
    let session = session_with(folder.path(), None, &[], Reads::Iterators);
    let runtime = Runtime::new().unwrap();
    let plan = runtime.block_on(async {
        let frame = session.sql(ALL_ROWS).await?;
        frame.create_physical_plan().await
    });
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut paths = names.map(|entry| entry.unwrap().path());
    let log = paths.find(|path| path.extension().is_some_and(|e| e == "log"));
    let log = std::fs::File::options()
        .write(true)
        .open(log.unwrap())
        .unwrap();
    let plan = plan.unwrap();
    let read = || {
        let error = runtime.block_on(collect(Arc::clone(&plan), session.task_ctx()));
        own(&error.unwrap_err())
    };
    let gone = ErrorKind::Declined(DeclineReason::InputMissing);
    log.write_all_at(b"the next log", 0).unwrap();
    let error = read();
    assert_eq!(error.kind, gone, "{error}");
    log.set_len(3).unwrap();
    let error = read();
    assert_eq!(error.kind, gone, "{error}");
}

#[test]
fn the_comparator_of_another_column_family_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let mut own = created();
    own.set_comparator(
        "mine",
        Box::new(|a, b| a.len().cmp(&b.len()).then(b.cmp(a))),
    );
    let families = || {
        ["default", "mine", "plain"].map(|name| {
            let options = if name == "plain" {
                created()
            } else {
                own.clone()
            };
            ColumnFamilyDescriptor::new(name, options)
        })
    };
    let db = DB::open_cf_descriptors(&own, folder.path(), families()).unwrap();
    for row in 0..90 {
        for name in ["default", "mine", "plain"] {
            let family = db.cf_handle(name).unwrap();
            db.put_cf(&family, row.to_string(), "value").unwrap();
            if row % 40 == 39 {
                db.flush_cf(&family).unwrap();
                db.compact_range_cf(&family, None::<&[u8]>, None::<&[u8]>);
            }
        }
    }
    let plain = db.cf_handle("plain").unwrap();
    db.delete_range_cf(&plain, "2", "3").unwrap();
    drop(db);
    let session = session(folder.path());
    assert_eq!(count(&session, "plain"), 79);
    let runtime = Runtime::new().unwrap();
    let error = row(&runtime, &session, "select count(*) from mine").unwrap_err();
    let error = own_error(&error);
    assert!(error.contains("comparator mine"), "{error}");
}

fn own_error(error: &DataFusionError) -> String {
    own(error).to_string()
}

/// Keys and values of the default column family.
fn rows(session: &SessionContext, query: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let runtime = Runtime::new().unwrap();
    let batches = runtime.block_on(async { session.sql(query).await?.collect().await })?;
    let of_batch = batches.iter().flat_map(|batch| {
        let (keys, values) = (
            batch.column(0).as_binary::<i32>(),
            batch.column(1).as_binary::<i32>(),
        );
        let cells = keys.iter().zip(values);
        cells
            .map(|(key, value)| (key.unwrap().to_vec(), value.unwrap().to_vec()))
            .collect::<Vec<_>>()
    });
    let mut rows: Vec<_> = of_batch.collect();
    rows.sort();
    Ok(rows)
}

const ALL_ROWS: &str = "select key, value from \"default\"";

#[test]
fn a_stated_operator_merges_as_rocksdb_does() {
    let number = |number: u64| number.to_le_bytes().to_vec();
    for (stated, operands) in [
        ("uint64add", [1, 20, 300].map(number)),
        ("UInt64AddOperator", [1, u64::MAX, 300].map(number)),
        (
            "default=stringappend:delimiter=|",
            ["a", "b", "c"].map(Vec::from),
        ),
        (
            "stringappend:delimiter={, }",
            ["a", "b", "c"].map(Vec::from),
        ),
        ("stringappend", ["a", "", "c"].map(Vec::from)),
        ("stringappendtest", ["a", "b", "c"].map(Vec::from)),
        ("max", ["a", "c", "b"].map(Vec::from)),
        ("put", ["a", "c", "b"].map(Vec::from)),
        ("bytesxor", ["ab", "cd", "b"].map(Vec::from)),
    ] {
        let operator: StatedOperator = stated.parse().unwrap();
        let text = format!("merge_operator={}", operator.operator.option_value());
        let mut options = created().get_options_from_string(text).unwrap();
        options.create_if_missing(true);
        let folder = tempfile::tempdir().unwrap();
        let db = DB::open(&options, folder.path()).unwrap();
        db.put("plain", "value").unwrap();
        db.put("base", &operands[0]).unwrap();
        for operand in &operands {
            db.merge("base", operand).unwrap();
            db.merge("none", operand).unwrap();
            db.flush().unwrap();
        }
        db.merge("none", &operands[1]).unwrap();
        let expected = ["base", "none", "plain"].map(|key| {
            let value = db.get(key).unwrap().unwrap();
            (key.as_bytes().to_vec(), value)
        });
        drop(db);
        let session = session_with(folder.path(), None, &[stated], Reads::Files);
        assert_eq!(rows(&session, ALL_ROWS).unwrap(), expected, "{stated}");
        let unstated = self::session(folder.path());
        let error = own(&rows(&unstated, ALL_ROWS).unwrap_err());
        assert_eq!(
            error.kind,
            ErrorKind::Declined(DeclineReason::MergeOperands)
        );
    }
}

#[test]
fn a_table_that_a_statement_makes_of_the_database_merges_and_reads_as_the_database_does() {
    let folder = tempfile::tempdir().unwrap();
    let text = "merge_operator={id=UInt64AddOperator}";
    let mut options = created().get_options_from_string(text).unwrap();
    options.create_if_missing(true);
    let db = DB::open(&options, folder.path()).unwrap();
    for number in [1u64, 20] {
        db.merge("key", number.to_le_bytes()).unwrap();
        db.flush().unwrap();
    }
    let session = session_with(folder.path(), None, &["uint64add"], Reads::Files);
    let runtime = Runtime::new().unwrap();
    let made = format!(
        "create external table made stored as rocksdb location '{}'",
        folder.path().display()
    );
    let made = runtime.block_on(async { session.sql(&made).await?.collect().await });
    made.unwrap();
    let expected = [(b"key".to_vec(), 21u64.to_le_bytes().to_vec())];
    assert_eq!(rows(&session, ALL_ROWS).unwrap(), expected);
    assert_eq!(
        rows(&session, "select key, value from made").unwrap(),
        expected
    );
}

/// A directory in which a row is written before and after each snapshot, so that no two have the same rows.
#[derive(Debug)]
struct Written {
    directory: Directory,
    db: Arc<DB>,
    rows: AtomicU32,
}

impl Written {
    fn write(&self) {
        let row = self.rows.fetch_add(1, Ordering::Relaxed);
        self.db.put(row.to_be_bytes(), "").unwrap();
    }

    fn beside(
        &self,
        take: impl FnOnce() -> CoreResult<Arc<Snapshot>>,
    ) -> CoreResult<Arc<Snapshot>> {
        self.write();
        let taken = take();
        self.write();
        taken
    }
}

impl Database for Written {
    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn families(&self) -> CoreResult<Vec<String>> {
        self.directory.families()
    }

    fn snapshot(&self, engine: &Arc<ScanEngine>) -> CoreResult<Arc<Snapshot>> {
        self.beside(|| self.directory.snapshot(engine))
    }

    fn snapshot_of(
        &self,
        engine: &Arc<ScanEngine>,
        families: &[&str],
    ) -> CoreResult<Arc<Snapshot>> {
        self.beside(|| self.directory.snapshot_of(engine, families))
    }
}

#[test]
fn all_tables_of_a_folder_in_a_statement_are_in_one_snapshot_in_any_order() {
    let folder = tempfile::tempdir().unwrap();
    let engine = ScanEngine::new(ScanSettings::default()).unwrap();
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let database = Written {
        db: Arc::new(DB::open(&created(), folder.path()).unwrap()),
        directory: Directory::open(folder.path()).unwrap(),
        rows: AtomicU32::new(0),
    };
    let scans = Scans::new(engine, Arc::new(database));
    scans.register(&session).unwrap();
    let runtime = Runtime::new().unwrap();
    let made = format!(
        "create external table made stored as rocksdb location '{}'",
        folder.path().display()
    );
    let made = runtime.block_on(async { session.sql(&made).await?.collect().await });
    made.unwrap();
    for [one, other] in [["made", "\"default\""], ["\"default\"", "made"]] {
        for query in [
            format!("select (select count(*) from {one}) a, (select count(*) from {other}) b"),
            format!(
                "select count(x.key), count(y.key) from {one} x full join {other} y on x.key = y.key"
            ),
        ] {
            let counts = row(&runtime, &session, &query).unwrap();
            assert_eq!(counts[0], counts[1], "{query}");
        }
    }
}

#[test]
fn tables_that_another_database_object_defines_leave_the_folder_to_that_of_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let engine = ScanEngine::new(ScanSettings::default()).unwrap();
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let db = Arc::new(DB::open(&created(), folder.path()).unwrap());
    let of_session = Written {
        db: Arc::clone(&db),
        directory: Directory::open(folder.path()).unwrap(),
        rows: AtomicU32::new(0),
    };
    let scans = Scans::new(Arc::clone(&engine), Arc::new(of_session));
    scans.register(&session).unwrap();
    let other = Directory::open(folder.path()).unwrap();
    let other = Scans::new(engine, Arc::new(other));
    assert!(other.register(&session).is_err(), "there are tables");
    let runtime = Runtime::new().unwrap();
    let made = |name: &str, location: &str| {
        format!("create external table {name} stored as rocksdb location '{location}'")
    };
    let defined = runtime.block_on(other.define(&session, &made("others", ".")));
    defined.unwrap();
    let made = made("made", folder.path().to_str().unwrap());
    let made = runtime.block_on(async { session.sql(&made).await?.collect().await });
    made.unwrap();
    let query = "select (select count(*) from made) a, (select count(*) from \"default\") b";
    let counts = row(&runtime, &session, query).unwrap();
    assert_eq!(counts[0], counts[1]);
    // This one has no rows beside its snapshots.
    let count = "select count(*) from others";
    let [first, second] = [(); 2].map(|()| row(&runtime, &session, count).unwrap());
    assert_eq!(first, second);
}

#[test]
fn a_link_that_leads_elsewhere_leaves_tables_of_the_folder_alone() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let engine = ScanEngine::new(ScanSettings::default()).unwrap();
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let [one, other, link] = ["one", "other", "link"].map(|name| folder.path().join(name));
    for (path, rows) in [(&one, 1u8), (&other, 2)] {
        let db = DB::open(&created(), path).unwrap();
        (0..rows).for_each(|row| db.put([row], "").unwrap());
    }
    let make = |name: &str, location: &Path| {
        let made = format!(
            "create external table {name} stored as rocksdb location '{}'",
            location.display()
        );
        let made = runtime.block_on(async { session.sql(&made).await?.collect().await });
        made.unwrap();
    };
    let count = |name: &str| {
        let query = format!("select count(*) from {name}");
        row(&runtime, &session, &query).unwrap().remove(0)
    };
    std::os::unix::fs::symlink(&one, &link).unwrap();
    make("first", &link);
    assert_eq!(count("first"), ScalarValue::Int64(Some(1)));
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&other, &link).unwrap();
    make("of_one", &one);
    make("of_link", &link);
    let counts = ["first", "of_one", "of_link"].map(count);
    assert_eq!(counts, [2, 1, 2].map(|rows| ScalarValue::Int64(Some(rows))));
}

#[test]
fn a_decimal_has_no_more_digits_than_its_type() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    let prices: [i64; 5] = [99_999, -99_999, 0, 100_000, -3_000_000_000];
    for (id, price) in (0u8..).zip(prices) {
        db.put([id], price.to_le_bytes()).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let session = session(folder.path());
    let runtime = Runtime::new().unwrap();
    let run =
        |statement: &str| runtime.block_on(async { session.sql(statement).await?.collect().await });
    for (table, on_error) in [("refuses", "error"), ("nulls", "null")] {
        let made = format!(
            "create external table {table} (id int unsigned not null, price decimal(5, 2) not null) stored as rocksdb \
             location '{}' options ('key' 'u8 id', 'value' 'i64le price', 'on_error' '{on_error}')",
            folder.path().display()
        );
        run(&made).unwrap();
    }
    for query in [
        "select price from refuses",
        "select count(*) from refuses where price > 1",
        "select max(price) from refuses",
    ] {
        let error = own(&run(query).unwrap_err()).to_string();
        let what = "the bytes of column price are not a value of its type";
        assert!(error.contains(what), "{query}: {error}");
    }
    for (query, expected) in [
        ("select count(price) from nulls", 3),
        ("select count(*) from nulls where price is null", 2),
        ("select count(*) from nulls where price > 1", 1),
    ] {
        let counted = row(&runtime, &session, query).unwrap();
        assert_eq!(counted, [ScalarValue::Int64(Some(expected))], "{query}");
    }
}

#[test]
fn a_nullable_column_of_the_key_orders_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let db = DB::open(&created(), folder.path()).unwrap();
    // More than one batch.
    const ROWS: u16 = 20_000;
    for id in 0..ROWS {
        let is_null = u8::from(id % 3 == 0);
        db.put(id.to_be_bytes(), [is_null, 0, 7]).unwrap();
    }
    db.flush().unwrap();
    drop(db);
    let session = session(folder.path());
    let runtime = Runtime::new().unwrap();
    let made = format!(
        "create external table made (id int unsigned, x int not null) stored as rocksdb location '{}' \
         options ('key' 'u16be id', 'value' 'nulls(1), u16be x')",
        folder.path().display()
    );
    let made = runtime.block_on(async { session.sql(&made).await?.collect().await });
    made.unwrap();
    let count = |number: i64| [ScalarValue::Int64(Some(number))];
    let nulls = i64::from(ROWS.div_ceil(3));
    let groups = i64::from(ROWS) - nulls + 1;
    for (query, expected) in [
        (
            "select count(*) from (select id from made group by id)",
            groups,
        ),
        (
            "select count(*) from (select distinct id from made)",
            groups,
        ),
        (
            "select count(*) from (select id from made order by id nulls first limit 5) where id is null",
            5,
        ),
        (
            "select count(*) from made group by id having id is null",
            nulls,
        ),
    ] {
        let counted = row(&runtime, &session, query).unwrap();
        assert_eq!(counted, count(expected), "{query}");
    }
}

#[test]
fn operands_without_a_stated_operator_are_an_error_and_other_rows_are_not() {
    // A merge operator of the application, which adds integers of four bytes.
    let add = |_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands| {
        let all = existing.into_iter().chain(operands);
        let sum = all
            .map(|bytes| u32::from_be_bytes(bytes.try_into().unwrap()))
            .sum::<u32>();
        Some(sum.to_be_bytes().to_vec())
    };
    for flushed in [true, false] {
        let mut options = created();
        options.set_merge_operator_associative("UInt64AddOperator", add);
        let folder = tempfile::tempdir().unwrap();
        let families = descriptors(&options, &["default", "other"]);
        let db = DB::open_cf_descriptors(&options, folder.path(), families).unwrap();
        for row in 0..100 {
            db.put(format!("plain{row:03}"), "value").unwrap();
        }
        let default = db.cf_handle("default").unwrap();
        db.delete_range_cf(&default, "plain010", "plain020")
            .unwrap();
        for operand in [1_u32, 20] {
            db.merge("count", operand.to_be_bytes()).unwrap();
        }
        let other = db.cf_handle("other").unwrap();
        db.put_cf(&other, "kept", "value").unwrap();
        db.put_cf(&other, "lost", "value").unwrap();
        db.delete_range_cf(&other, "l", "m").unwrap();
        if flushed {
            db.flush().unwrap();
        }
        drop(db);
        let session = session(folder.path());
        let error = own(&rows(&session, ALL_ROWS).unwrap_err());
        assert_eq!(
            error.kind,
            ErrorKind::Declined(DeclineReason::MergeOperands)
        );
        for said in [
            "\"default\"",
            "UInt64AddOperator",
            "--merge-operator 'default=NAME'",
        ] {
            assert!(error.what.contains(said), "{error}");
        }
        let plain = format!("{ALL_ROWS} where starts_with(key, 'plain')");
        assert_eq!(rows(&session, &plain).unwrap().len(), 90);
        assert_eq!(
            rows(&session, "select key, value from other")
                .unwrap()
                .len(),
            1
        );
    }
}

#[test]
fn a_table_states_the_operator_of_its_column_family() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = created();
    options.set_uint64add_merge_operator();
    let db = DB::open(&options, folder.path()).unwrap();
    for operand in [1_u64, 20] {
        db.merge("count", operand.to_le_bytes()).unwrap();
    }
    drop(db);
    let session = session(folder.path());
    let create = |name: &str, operator: &str| {
        format!(
            "create external table {name} (k varchar not null, n bigint unsigned not null) stored as rocksdb \
             location '{}' options ('key' 'rest k', 'value' 'u64le n', 'merge_operator' '{operator}')",
            folder.path().display()
        )
    };
    let runtime = Runtime::new().unwrap();
    let define = |text: String| runtime.block_on(session.sql(&text)).map(|_| ());
    define(create("counts", "uint64add")).unwrap();
    let batches =
        runtime.block_on(async { session.sql("select n from counts").await?.collect().await });
    let batches = batches.unwrap();
    assert_eq!(
        batches[0].column(0).as_primitive::<UInt64Type>().value(0),
        21
    );
    let error = define(create("again", "max")).unwrap_err().to_string();
    assert!(error.contains("two merge operators"), "{error}");
    let error = define(create("other", "mine")).unwrap_err().to_string();
    assert!(
        error.contains("\"mine\"") && error.contains("uint64add"),
        "{error}"
    );
}

#[test]
fn the_stated_operator_goes_with_a_scan_to_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = created();
    options.set_uint64add_merge_operator();
    let db = DB::open(&options, folder.path()).unwrap();
    for operand in [1_u64, 20] {
        db.merge("count", operand.to_le_bytes()).unwrap();
    }
    drop(db);
    let runtime = Runtime::new().unwrap();
    let answer = |stated: &[&str]| {
        let session = session_with(folder.path(), None, stated, Reads::Files);
        let plan = runtime.block_on(async {
            let frame = session.sql(ALL_ROWS).await?;
            frame.create_physical_plan().await
        });
        let bytes = encode_scan(plan.unwrap().as_ref()).unwrap().unwrap();
        let other = ScanEngine::new(ScanSettings::default()).unwrap();
        let decoded = decode_scan(&bytes, &other).unwrap();
        runtime.block_on(collect(decoded, session.task_ctx()))
    };
    let batches = answer(&["default=uint64add"]).unwrap();
    assert_eq!(
        batches[0].column(1).as_binary::<i32>().value(0),
        21_u64.to_le_bytes()
    );
    let error = own(&answer(&[]).unwrap_err());
    assert_eq!(
        error.kind,
        ErrorKind::Declined(DeclineReason::MergeOperands)
    );
}

/// Column families of two files each, named `f0` and so on.
fn many_families(folder: &Path, families: usize) {
    let names: Vec<_> = (0..families).map(|at| format!("f{at}")).collect();
    let mut names: Vec<_> = names.iter().map(String::as_str).collect();
    names.push("default");
    let mut options = created();
    options.set_disable_auto_compactions(true);
    let db = DB::open_cf_descriptors(&options, folder, descriptors(&options, &names)).unwrap();
    for (at, name) in names.iter().enumerate() {
        let family = db.cf_handle(name).unwrap();
        for row in 0..2 {
            db.put_cf(&family, format!("{at}"), format!("{row}"))
                .unwrap();
            db.put_cf(&family, format!("{row} of {at}"), "").unwrap();
            db.flush_cf(&family).unwrap();
        }
        db.put_cf(&family, "in the log", "").unwrap();
    }
}

/// Tables in a folder that this process has open.
fn open_tables(folder: &Path) -> usize {
    let folder = folder.canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    open.filter(|path| path.starts_with(&folder) && path.to_string_lossy().ends_with(".sst"))
        .count()
}

#[test]
fn a_statement_opens_the_files_of_the_column_families_that_it_reads() {
    const FAMILIES: usize = 12;
    let folder = tempfile::tempdir().unwrap();
    many_families(folder.path(), FAMILIES);
    let session = session(folder.path());
    let runtime = Runtime::new().unwrap();
    let all = 2 * (FAMILIES + 1);
    // RocksDB's iterators need the default column family.
    for (statement, open, rows) in [
        ("select key from f3", 4, 4),
        ("select key from \"default\"", 2, 4),
        (
            "select a.key from f3 a join f4 b on a.value = b.value where a.key < '4'",
            6,
            7,
        ),
        (
            "select key from f3 where key not in (select key from f4)",
            6,
            3,
        ),
        ("select key from f3 union all select key from f3", 4, 8),
        (
            "with recursive r as (select 1 as n union all select n + 1 from r where n < 3) select n from r, f5 where f5.key = '5'",
            all,
            3,
        ),
        ("explain select key from f3", 4, 2),
        ("select family from rocksdb_families", 0, FAMILIES + 1),
        (
            "select family from rocksdb_families, f3 where key = '3'",
            all,
            FAMILIES + 1,
        ),
    ] {
        let plan = runtime.block_on(async {
            let frame = session.sql(statement).await?;
            frame.create_physical_plan().await
        });
        let plan = plan.unwrap();
        if !statement.starts_with("explain") {
            assert_eq!(open_tables(folder.path()), open, "{statement}");
        }
        let batches = runtime.block_on(collect(plan, session.task_ctx())).unwrap();
        let found: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(found, rows, "{statement}");
        // Tasks may hold their files a moment longer.
        while open_tables(folder.path()) > 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
fn iterators_read_one_column_family_after_another() {
    let folder = tempfile::tempdir().unwrap();
    many_families(folder.path(), 3);
    let session = session_with(folder.path(), None, &[], Reads::Iterators);
    for family in ["f1", "f0", "f1", "default", "f2"] {
        assert_eq!(count(&session, family), 4, "{family}");
    }
}

#[test]
fn a_column_family_that_cannot_be_read_costs_itself_alone() {
    let folder = tempfile::tempdir().unwrap();
    many_families(folder.path(), 4);
    let runtime = Runtime::new().unwrap();
    let session = session(folder.path());
    let listed = |session: &SessionContext, family: &str| {
        let query = format!(
            "select files, entries, bytes > 0 from rocksdb_families where family = '{family}'"
        );
        row(&runtime, session, &query).unwrap()
    };
    let (files, is_large) = (
        ScalarValue::UInt64(Some(2)),
        ScalarValue::Boolean(Some(true)),
    );
    let read = [
        files.clone(),
        ScalarValue::UInt64(Some(5)),
        is_large.clone(),
    ];
    let unread = [files, ScalarValue::UInt64(None), is_large];
    for family in ["f0", "f1", "f2"] {
        assert_eq!(listed(&session, family), read);
    }
    let file_of = |family: &str| {
        let query = format!("select min(file) from rocksdb_files where family = '{family}'");
        match row(&runtime, &session, &query).unwrap()[..] {
            [ScalarValue::UInt64(Some(number))] => folder.path().join(format!("{number:06}.sst")),
            ref other => panic!("{other:?}"),
        }
    };
    let (gone, damaged) = (file_of("f0"), file_of("f1"));
    std::fs::remove_file(gone).unwrap();
    let bytes = std::fs::metadata(&damaged).unwrap().len();
    let file = std::fs::File::options().write(true).open(&damaged).unwrap();
    file.write_all_at(&[0; 8], bytes - 8).unwrap();
    // A session keeps the tables that it has opened.
    let session = self::session(folder.path());
    assert_eq!(listed(&session, "f0"), unread);
    assert_eq!(listed(&session, "f1"), unread);
    assert_eq!(listed(&session, "f2"), read);
    let query = "select count(*), count(entries) from rocksdb_files";
    let counts = [10, 6].map(|count| ScalarValue::Int64(Some(count)));
    assert_eq!(row(&runtime, &session, query).unwrap(), counts);
    assert_eq!(count(&session, "f2"), 4);
    assert_eq!(count(&session, "default"), 4);
    for (family, kind) in [("f0", ErrorKind::Storage), ("f1", ErrorKind::Corruption)] {
        let query = format!("select count(*) from {family}");
        let error = own(&row(&runtime, &session, &query).unwrap_err());
        assert_eq!(error.kind, kind, "{error}");
    }
}

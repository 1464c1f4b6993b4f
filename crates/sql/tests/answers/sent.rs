//! Scans as bytes: damaged bytes, and changes of the directory meanwhile.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rockmill_scan::{Directory, ScanEngine};
use rockmill_sql::{ReadOnly, Scans, decode_scan};
use rust_rocksdb::{DB, Options};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::common;

const TABLE: &str = "create external table t (id int unsigned not null, name varchar, amount decimal(9, 2) not null, \
    at timestamp not null, ratio double not null) stored as rocksdb location '$DB' options ('key' 'ordered(i8) amount, u32be id', \
    'value' 'nulls(1), i64le at, f64le ratio, varint name')";

const QUERIES: [&str; 4] = [
    "select key, value from \"default\" where key > x'80'",
    "select name, at, amount from t where name like 'n%' and ratio < 30 and id in (1, 5, 7, 30)",
    "select name, count(*), sum(amount), max(at) from t where id <> 4 group by name",
    "select ratio, id from t where amount > 0.05 limit 3",
];

fn put(db: &DB, ids: std::ops::Range<u32>) {
    for id in ids {
        let mut key = vec![id as u8 ^ 0x80];
        key.extend(id.to_be_bytes());
        let mut value = vec![u8::from(id % 5 == 0)];
        value.extend(i64::from(id).to_le_bytes());
        value.extend(f64::from(id).to_le_bytes());
        value.extend([2, b'n', b'0' + (id % 3) as u8]);
        db.put(key, value).unwrap();
    }
}

fn open(folder: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    DB::open(&options, folder).unwrap()
}

async fn session(folder: &Path, engine: &Arc<ScanEngine>) -> SessionContext {
    let config = SessionConfig::new().with_target_partitions(2);
    let session = rockmill_sql::session(config, engine).unwrap();
    let database = Directory::open(folder).unwrap();
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let scans = Scans::new(Arc::clone(engine), Arc::new(database));
    scans.register(&session).unwrap();
    let table = TABLE.replace("$DB", &folder.display().to_string());
    scans.define(&session, &table).await.unwrap();
    session
}

async fn planned(session: &SessionContext, query: &str) -> Arc<dyn ExecutionPlan> {
    let frame = session.sql(query).await.unwrap();
    frame.create_physical_plan().await.unwrap()
}

/// The bytes of a plan's first scan.
fn bytes(plan: &Arc<dyn ExecutionPlan>) -> Vec<u8> {
    let found = rockmill_sql::encode_scan(plan.as_ref()).unwrap();
    found.unwrap_or_else(|| bytes(plan.children()[0]))
}

/// Replaces one of the values within a value by one of some others.
fn damage(value: &mut Value, at: prop::sample::Index, other: prop::sample::Index) {
    let others = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(0),
        json!(1),
        json!(65535),
        json!(u64::MAX),
        json!(""),
        json!("Utf8"),
        json!([]),
        json!([[]]),
        json!({}),
    ];
    let mut places = Vec::new();
    let mut rest = vec![String::new()];
    while let Some(place) = rest.pop() {
        match value.pointer(&place).unwrap() {
            Value::Array(items) => rest.extend((0..items.len()).map(|i| format!("{place}/{i}"))),
            Value::Object(items) => rest.extend(items.keys().map(|key| format!("{place}/{key}"))),
            _ => {}
        }
        places.push(place);
    }
    let mut choices = others.to_vec();
    // Or by another one within the same value.
    choices.extend(places.iter().filter_map(|place| {
        let found = value.pointer(place)?;
        (!found.is_object() && !found.is_array()).then(|| found.clone())
    }));
    let place = at.get(&places);
    *value.pointer_mut(place).unwrap() = other.get(&choices).clone();
}

#[test]
fn damaged_bytes_are_refused_or_a_scan() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    put(&db, 0..40);
    db.flush().unwrap();
    put(&db, 20..60);
    drop(db);
    let (_, engine) = common::engine();
    let session = runtime.block_on(session(folder.path(), &engine));
    let scans: Vec<Value> = QUERIES
        .iter()
        .map(|query| runtime.block_on(planned(&session, query)))
        .map(|plan| serde_json::from_slice(&bytes(&plan)).unwrap())
        .collect();
    let index = any::<prop::sample::Index>;
    let drawn = (
        prop::sample::select(scans),
        prop::collection::vec((index(), index()), 0..3),
        prop::collection::vec((index(), any::<u8>()), 0..2),
    );
    let (mut runs, mut refused) = (0, 0);
    let counts = std::cell::RefCell::new((&mut runs, &mut refused));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(1000));
    let outcome = runner.run(&drawn, |(mut scan, changes, bytes)| {
        for (at, other) in changes {
            damage(&mut scan, at, other);
        }
        let mut text = scan.to_string().into_bytes();
        for (at, byte) in bytes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let (runs, refused) = &mut *counts.borrow_mut();
        match decode_scan(&text, &engine) {
            Ok(plan) => {
                // It may find a row that does not fit.
                let _ = runtime.block_on(collect(plan, session.task_ctx()));
                **runs += 1;
            }
            Err(_) => **refused += 1,
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(
        runs > 100 && refused > 100,
        "{runs} ran, {refused} were refused"
    );
}

#[test]
fn a_scan_reads_its_version_while_the_files_and_logs_are_there() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (_, engine) = common::engine();
    let query = "select name, count(*), sum(ratio), max(id) from t group by name order by name";
    let db = open(folder.path());
    put(&db, 0..40);
    let answer = |plan| {
        let session = SessionContext::new();
        let batches = runtime.block_on(collect(plan, session.task_ctx()));
        pretty_format_batches(&batches.unwrap())
            .unwrap()
            .to_string()
    };
    let decoded = |bytes: &[u8]| {
        let error = decode_scan(bytes, &engine).err();
        error.map(|error| error.strip_backtrace())
    };
    let plan = || {
        let session = runtime.block_on(session(folder.path(), &engine));
        runtime.block_on(planned(&session, query))
    };
    let in_log = plan();
    let in_log_bytes = bytes(&in_log);
    let meant = answer(plan());
    // Later writes are hidden.
    put(&db, 30..50);
    assert_eq!(
        answer(common::sent(Arc::clone(&in_log), &engine).unwrap()),
        meant
    );
    db.flush().unwrap();
    let says = "unflushed entries of column family \"default\" that the plan reads are gone: plan the query again";
    let gone = decoded(&in_log_bytes).expect("the log is gone");
    assert!(gone.contains(says), "{gone}");
    let flushed = plan();
    let (flushed_bytes, meant) = (bytes(&flushed), answer(plan()));
    put(&db, 45..60);
    db.flush().unwrap();
    assert_eq!(
        answer(common::sent(Arc::clone(&flushed), &engine).unwrap()),
        meant
    );
    db.compact_range(None::<&[u8]>, None::<&[u8]>);
    let gone = decoded(&flushed_bytes).expect("the files are gone");
    assert!(gone.contains(says), "{gone}");
    // The plan itself keeps them open.
    assert_eq!(answer(flushed), meant);
}

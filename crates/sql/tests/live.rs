//! Statements over a database that is open and written to.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::common::ScalarValue;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::live::LiveDatabase;
use rockmill_scan::{ScanEngine, ScanSettings};
use rockmill_sql::Scans;
use rust_rocksdb::{DBWithThreadMode, MultiThreaded, Options, WriteBatch};
use tokio::runtime::Runtime;

type Db = DBWithThreadMode<MultiThreaded>;

/// Rows of each of the two column families.
const ROWS: u64 = 200;

/// Amount of each row in the beginning.
const AMOUNT: u64 = 1000;

fn open(path: &Path) -> Arc<Db> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = Arc::new(Db::open_cf(&options, path, ["a", "b"]).unwrap());
    for name in ["a", "b"] {
        let family = db.cf_handle(name).unwrap();
        for row in 0..ROWS {
            db.put_cf(&family, row.to_be_bytes(), AMOUNT.to_be_bytes())
                .unwrap();
        }
    }
    db
}

fn session(db: &Arc<Db>) -> SessionContext {
    let engine = ScanEngine::new(ScanSettings::default()).unwrap();
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let database = Arc::new(LiveDatabase::new(Arc::clone(db)));
    Scans::new(engine, database).register(&session).unwrap();
    session
}

/// Moves amounts from rows of one column family to rows of the other, each time in one batch, until `stop` is set.
fn moves(db: &Db, stop: &AtomicBool) -> u64 {
    let amount = |family: &str, row: u64| {
        let family = db.cf_handle(family).unwrap();
        let bytes = db.get_cf(&family, row.to_be_bytes()).unwrap().unwrap();
        u64::from_be_bytes(bytes.try_into().unwrap())
    };
    let (a, b) = (db.cf_handle("a").unwrap(), db.cf_handle("b").unwrap());
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let (from, to) = (done * 7 % ROWS, done * 13 % ROWS);
        let moved = amount("a", from).min(done % 5);
        let mut batch = WriteBatch::default();
        batch.put_cf(
            &a,
            from.to_be_bytes(),
            (amount("a", from) - moved).to_be_bytes(),
        );
        batch.put_cf(
            &b,
            to.to_be_bytes(),
            (amount("b", to) + moved).to_be_bytes(),
        );
        db.write(&batch).unwrap();
        done += 1;
        if done % 5000 == 0 {
            db.flush_cf(&a).unwrap();
        }
    }
    done
}

async fn number(session: &SessionContext, query: &str) -> ScalarValue {
    let batches = session.sql(query).await.unwrap().collect().await.unwrap();
    ScalarValue::try_from_array(batches[0].column(0), 0).unwrap()
}

#[test]
fn all_tables_of_a_statement_are_of_one_version() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let session = session(&db);
    let stop = AtomicBool::new(false);
    let runtime = Runtime::new().unwrap();
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| moves(&db, &stop));
        let total = "select sum(amount) from (select u64be(value, 0) as amount from a
                     union all select u64be(value, 0) from b)";
        let found: Vec<_> = (0..60)
            .map(|_| runtime.block_on(number(&session, total)))
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
        assert_eq!(
            found,
            vec![ScalarValue::UInt64(Some(2 * ROWS * AMOUNT)); 60]
        );
    });
}

#[test]
fn a_statement_sees_what_was_written_before_it_and_nothing_later() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let session = session(&db);
    let a = db.cf_handle("a").unwrap();
    Runtime::new().unwrap().block_on(async {
        db.put_cf(&a, b"new", b"").unwrap();
        let count = "select count(*) from a where octet_length(key) = 3";
        let plan = session
            .sql(count)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
        db.delete_cf(&a, b"new").unwrap();
        db.flush_cf(&a).unwrap();
        db.compact_range_cf(&a, None::<&[u8]>, None::<&[u8]>);
        let context = session.task_ctx();
        let batches = datafusion::physical_plan::collect(plan, context)
            .await
            .unwrap();
        let found = ScalarValue::try_from_array(batches[0].column(0), 0).unwrap();
        assert_eq!(found, ScalarValue::Int64(Some(1)));
        assert_eq!(number(&session, count).await, ScalarValue::Int64(Some(0)));
    });
}

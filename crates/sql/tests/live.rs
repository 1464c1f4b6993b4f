//! Statements over a database that is open and written to.

use rockmill_testkit::busy;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use datafusion::common::ScalarValue;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill::Service;
use rockmill_live::LiveDatabase;
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_sql::Scans;
use rockmill_testkit::busy::mode::Mode;
use rockmill_testkit::busy::{Busy, FAMILIES, Reader, Rows};
use rust_rocksdb::{DB, DBWithThreadMode, MultiThreaded, Options, WriteBatch};
use tokio::runtime::Runtime;

type Db = DBWithThreadMode<MultiThreaded>;

/// Number of rows of each of the two column families.
const ROWS: u64 = 200;

/// Initial amount of each row.
const AMOUNT: u64 = 1000;

fn open(path: &Path) -> Arc<Db> {
    open_with(&mut Options::default(), path)
}

fn open_with(options: &mut Options, path: &Path) -> Arc<Db> {
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = Arc::new(Db::open_cf(options, path, ["a", "b"]).unwrap());
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
    session_of(ScanEngine::new(ScanSettings::default()).unwrap(), db)
}

fn session_of(engine: Arc<ScanEngine>, db: &Arc<Db>) -> SessionContext {
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

/// The sum of all amounts, which moves do not change.
const TOTAL: &str = "select sum(amount) from (select u64be(value, 0) as amount from a
                     union all select u64be(value, 0) from b)";

/// Its value.
const ALL: ScalarValue = ScalarValue::UInt64(Some(2 * ROWS * AMOUNT));

#[test]
fn all_tables_of_a_statement_are_of_one_version() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let session = session(&db);
    let stop = AtomicBool::new(false);
    let runtime = Runtime::new().unwrap();
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| moves(&db, &stop));
        let found: Vec<_> = (0..60)
            .map(|_| runtime.block_on(number(&session, TOTAL)))
            .collect();
        stop.store(true, Ordering::Relaxed);
        assert!(writer.join().unwrap() > 0);
        assert_eq!(found, vec![ALL; 60]);
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
        let plan = session
            .sql(COUNT)
            .await
            .unwrap()
            .create_physical_plan()
            .await
            .unwrap();
        db.delete_cf(&a, b"new").unwrap();
        db.flush_cf(&a).unwrap();
        db.compact_range_cf(&a, None::<&[u8]>, None::<&[u8]>);
        assert_eq!(counted(plan).await, ScalarValue::Int64(Some(1)));
        assert_eq!(number(&session, COUNT).await, ScalarValue::Int64(Some(0)));
    });
}

/// The number of rows of a column family with keys of three bytes.
const COUNT: &str = "select count(*) from a where octet_length(key) = 3";

async fn plan(state: &SessionState) -> Arc<dyn ExecutionPlan> {
    let plan = state.create_logical_plan(COUNT).await.unwrap();
    state.create_physical_plan(&plan).await.unwrap()
}

async fn counted(plan: Arc<dyn ExecutionPlan>) -> ScalarValue {
    let batches = collect(plan, Arc::default()).await.unwrap();
    ScalarValue::try_from_array(batches[0].column(0), 0).unwrap()
}

#[test]
fn a_statement_without_a_time_sees_what_was_written_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let session = session(&db);
    let a = db.cf_handle("a").unwrap();
    let state = SessionStateBuilder::new_from_existing(session.state());
    let state = state.with_execution_props(ExecutionProps::new()).build();
    Runtime::new().unwrap().block_on(async {
        let before = plan(&state).await;
        db.put_cf(&a, b"new", b"").unwrap();
        let after = plan(&state).await;
        assert_eq!(counted(after).await, ScalarValue::Int64(Some(1)));
        assert_eq!(counted(before).await, ScalarValue::Int64(Some(0)));
    });
}

#[test]
fn a_statement_sees_what_was_written_since_another_of_its_time_began_to_run() {
    let folder = tempfile::tempdir().unwrap();
    let db = open(folder.path());
    let session = session(&db);
    let a = db.cf_handle("a").unwrap();
    let state = session.state();
    Runtime::new().unwrap().block_on(async {
        let before = plan(&state).await;
        assert_eq!(
            counted(Arc::clone(&before)).await,
            ScalarValue::Int64(Some(0))
        );
        db.put_cf(&a, b"new", b"").unwrap();
        let after = plan(&state).await;
        assert_eq!(counted(after).await, ScalarValue::Int64(Some(1)));
        assert_eq!(counted(before).await, ScalarValue::Int64(Some(0)));
    });
}

const BUDGET: u64 = 64 << 20;

/// Maximum error of the estimates of such small tables' indexes.
const INDEXES: u64 = 1 << 20;

/// A service, a database that it compacts, and an engine that shares its executor.
fn shared(path: &Path) -> (Service, Arc<Db>, Arc<ScanEngine>) {
    let service = Service::builder()
        .threads(2)
        .memory_budget_bytes(BUDGET)
        .min_job_bytes(0)
        .build()
        .unwrap();
    let mut options = Options::default();
    options.set_compaction_service(service.clone());
    let engine = ScanEngine::sharing(service.executor());
    (service, open_with(&mut options, path), engine)
}

/// Flushes and compacts all of the database.
fn compact(db: &Db) {
    for name in ["a", "b"] {
        let family = db.cf_handle(name).unwrap();
        db.flush_cf(&family).unwrap();
        db.compact_range_cf(&family, None::<&[u8]>, None::<&[u8]>);
    }
}

#[test]
fn scans_and_compactions_share_one_executor() {
    const STATEMENTS: usize = 60;
    const JOBS: u64 = 10;
    let folder = tempfile::tempdir().unwrap();
    let (service, db, engine) = shared(folder.path());
    let session = session_of(Arc::clone(&engine), &db);
    let budget = Arc::clone(service.executor().budget());
    let stop = AtomicBool::new(false);
    let runtime = Runtime::new().unwrap();
    std::thread::scope(|threads| {
        threads.spawn(|| moves(&db, &stop));
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                compact(&db);
            }
        });
        let most = threads.spawn(|| {
            let mut most = 0;
            while !stop.load(Ordering::Relaxed) {
                most = budget.taken_bytes().max(most);
                std::thread::yield_now();
            }
            most
        });
        let mut found = Vec::new();
        while found.len() < STATEMENTS || service.stats().jobs_done < JOBS {
            found.push(runtime.block_on(number(&session, TOTAL)));
            if found.len() == STATEMENTS / 2 {
                let one = service.change_settings(|settings| settings.threads = 1);
                one.expect("it makes sense");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(found, vec![ALL; found.len()]);
        let most = most.join().unwrap();
        assert!(most > 0 && most <= BUDGET + INDEXES, "{most}");
    });
    assert_eq!((budget.slots(), service.stats().jobs_failed), (1, 0));
    // Kept tables count in the service's budget, and are given back.
    assert!(budget.taken_bytes() > 0);
    drop((session, engine));
    assert_eq!(budget.taken_bytes(), 0);
    let before = service.stats().jobs_done;
    let a = db.cf_handle("a").unwrap();
    db.delete_cf(&a, 0u64.to_be_bytes()).unwrap();
    compact(&db);
    assert!(service.stats().jobs_done > before);
}

#[test]
fn an_engine_outlives_the_service_whose_executor_it_shares() {
    let folder = tempfile::tempdir().unwrap();
    let (service, db, engine) = shared(folder.path());
    let runtime = Runtime::new().unwrap();
    let session = session_of(Arc::clone(&engine), &db);
    assert_eq!(runtime.block_on(number(&session, TOTAL)), ALL);
    compact(&db);
    drop((session, db, service));
    let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let directory = Arc::new(Directory::open(folder.path()).unwrap());
    Scans::new(engine, directory).register(&session).unwrap();
    assert_eq!(runtime.block_on(number(&session, TOTAL)), ALL);
}

/// The rows of all column families.
const EVERYTHING: &str = "select 0 as family, key, value from \"default\"
                          union all select 1, key, value from a
                          union all select 2, key, value from b";

/// Runs a statement over all column families, and compares its rows.
fn state(session: &SessionContext, runtime: &Runtime, reader: &mut Reader<'_>) {
    let written = reader.written();
    let all = async { session.sql(EVERYTHING).await?.collect().await };
    let all = || runtime.block_on(all).unwrap();
    let batches = match reader.busy.mode == Mode::Unordered {
        true => reader.while_writers_wait(all),
        false => all(),
    };
    let mut found: Vec<_> = (0..FAMILIES.len()).map(|at| (at, Rows::new())).collect();
    for batch in &batches {
        let family = batch.column(0).as_primitive::<Int64Type>();
        let (keys, values) = (batch.column(1), batch.column(2));
        let (keys, values) = (keys.as_binary::<i32>(), values.as_binary::<i32>());
        for row in 0..batch.num_rows() {
            let (_, rows) = &mut found[family.value(row) as usize];
            let before = rows.insert(keys.value(row).to_vec(), values.value(row).to_vec());
            assert_eq!(before, None, "a key is there once");
        }
    }
    reader.check(written, &found);
}

#[test]
fn a_statement_has_each_key_that_was_written_before_whatever_others_do() {
    let mut all = 0;
    busy::for_each_mode(5, |mode, besides, seed, time| {
        let busy = Busy::new(mode, besides, seed);
        let engine = ScanEngine::new(ScanSettings::default()).unwrap();
        let session = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
        let database: LiveDatabase<DB> = LiveDatabase::new(Arc::clone(&busy.db));
        Scans::new(engine, Arc::new(database))
            .register(&session)
            .unwrap();
        let runtime = Runtime::new().unwrap();
        let statements = AtomicU64::new(0);
        let read = |reader: &mut Reader<'_>| {
            state(&session, &runtime, reader);
            statements.fetch_add(1, Ordering::Relaxed);
        };
        busy.run(time, vec![&read, &read]);
        let statements = statements.into_inner();
        println!("{mode:?}, besides {besides:?}: {statements} statements");
        assert!(statements > 0);
        all += statements;
    });
    println!("{all} statements");
}

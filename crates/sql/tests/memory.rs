//! Queries that get less memory than they need.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, collect};
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_sql::{Scans, Shares};
use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

/// 60 MB, more than queries get.
const ROWS: u64 = 200_000;
const VALUE_BYTES: usize = 300;
const MEMORY_BYTES: u64 = 64 << 20;
/// Memory in which none of these queries needs to spill.
const LARGE_BYTES: u64 = 4 << 30;

const PARTITIONS: usize = 3;

/// Keys are numbers in order, and values begin with the same numbers in another order.
fn database() -> TempDir {
    /// Coprime to the number of rows.
    const STEP: u64 = 70_001;
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_disable_auto_compactions(true);
    let db = DB::open(&options, dir.path()).unwrap();
    for row in 0..ROWS {
        let digits = format!("{:012}", row * STEP % ROWS);
        let value = digits.repeat(VALUE_BYTES / digits.len());
        db.put(format!("{row:06}"), value).unwrap();
    }
    db.flush().unwrap();
    dir
}

/// A session over a database. Without a folder, its queries do not spill.
fn session(database: &Path, memory_bytes: u64, spill_dir: Option<&Path>) -> SessionContext {
    let shares = Shares::of(memory_bytes);
    let settings = ScanSettings {
        memory_bytes: Some(shares.scan_bytes),
        ..ScanSettings::default()
    };
    let engine = ScanEngine::new(settings).unwrap();
    let config = SessionConfig::new().with_target_partitions(PARTITIONS);
    let config = rockmill_sql::configured(config, shares.query_bytes);
    let runtime = rockmill_sql::runtime(shares.query_bytes, spill_dir).unwrap();
    let session = rockmill_sql::session_in(runtime, config, &engine).unwrap();
    let directory = Directory::open(database).unwrap();
    Scans::new(engine, Arc::new(directory))
        .register(&session)
        .unwrap();
    session
}

async fn run(
    session: &SessionContext,
    query: &str,
) -> Result<(Arc<dyn ExecutionPlan>, Vec<RecordBatch>)> {
    let plan = rockmill_sql::plan_query(session.sql(query).await?).await?;
    let rows = collect(Arc::clone(&plan), session.task_ctx()).await?;
    Ok((plan, rows))
}

fn spilled_bytes(plan: &Arc<dyn ExecutionPlan>) -> usize {
    let own = plan
        .metrics()
        .and_then(|metrics| metrics.spilled_bytes())
        .unwrap_or(0);
    own + plan
        .children()
        .into_iter()
        .map(spilled_bytes)
        .sum::<usize>()
}

const AGGREGATES: &str = "select count(distinct value), min(value) from \"default\"";
const GROUPS: &str = "select count(*), max(n), min(value) from (select value, count(*) as n from \"default\" group by value)";
const SORTED: &str = "select count(*) from (select value, lag(value) over (order by value rows between unbounded preceding and current row) as before from \"default\") where before < value";
const ORDERED_GROUPS: &str = "select key, count(*), max(octet_length(value)) + count(distinct octet_length(value)) from \
     \"default\" group by key order by key";
const JOIN: &str =
    "select count(*), max(a.key) from \"default\" a join \"default\" b on a.value = b.value";

#[tokio::test(flavor = "multi_thread")]
async fn queries_with_too_little_memory_return_the_same_rows() {
    let database = database();
    let spill = tempfile::tempdir().unwrap();
    let large = session(database.path(), LARGE_BYTES, None);
    let small = session(database.path(), MEMORY_BYTES, Some(spill.path()));
    for (query, spills) in [
        (AGGREGATES, true),
        (GROUPS, true),
        (SORTED, true),
        (ORDERED_GROUPS, false),
        (JOIN, false),
    ] {
        let (_, expected) = run(&large, query).await.expect(query);
        let (plan, rows) = run(&small, query).await.expect(query);
        let [expected, rows] =
            [expected, rows].map(|rows| pretty_format_batches(&rows).unwrap().to_string());
        assert!(rows == expected, "{query}");
        assert!(!spills || spilled_bytes(&plan) > 0, "{query}");
        assert_eq!(fs::read_dir(spill.path()).unwrap().count(), 0, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_folder_nothing_is_spilled() {
    let database = database();
    let session = session(database.path(), MEMORY_BYTES, None);
    for query in [AGGREGATES, GROUPS, SORTED, JOIN] {
        let error = run(&session, query).await.expect_err(query);
        let root = error.find_root();
        assert!(
            matches!(root, DataFusionError::ResourcesExhausted(_)),
            "{query}: {error}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_takes_no_files_is_an_error_that_names_it() {
    let database = database();
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let session = session(database.path(), MEMORY_BYTES, Some(&missing));
    let error = run(&session, GROUPS).await.expect_err("there is no folder");
    assert!(
        error.to_string().contains(missing.to_str().unwrap()),
        "{error}"
    );
}

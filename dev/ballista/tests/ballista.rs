//! Ballista runs plans over RocksDB with Rockmill's codec: a scheduler and two executors return the rows of one process.

use std::path::Path;
use std::sync::Arc;

use ballista_core::config::BallistaConfig;
use ballista_core::execution_plans::execute_physical_plan;
use ballista_core::extension::SessionConfigExt;
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_executor::new_standalone_executor_from_state;
use ballista_scheduler::standalone::new_standalone_scheduler_from_state;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, collect, common, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_proto::physical_plan::ComposedPhysicalExtensionCodec;
use datafusion_proto::protobuf::PhysicalPlanNode;
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_sql::{Codec, ReadOnly, Scans};
use rust_rocksdb::{DB, Options};

const STATEMENTS: [&str; 6] = [
    "select key, value from \"default\" where starts_with(key, 'key00') order by key limit 5",
    "select u8(key, 5) as digit, count(*), min(f64le(value, 0)), max(octet_length(value)) from \"default\" group by 1 order by 1",
    "select count(*) from \"default\" a join \"default\" b on a.key = b.key where b.key > 'key0500'",
    "select count(distinct value), sum(u8(value, 0)) from \"default\"",
    "select json_get_int(cast(value as varchar), 'a') as a, count(*) from \"default\" group by 1 order by 2, 1",
    "select key, x from \"default\" cross join (values (1), (2)) as v(x) order by key desc, x limit 4",
];

/// Rows in a file, and later versions in the log alone.
fn made(folder: &Path) -> DB {
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, folder).expect("a database");
    let put = |key: u32, a: u32| {
        db.put(format!("key{key:04}"), format!("{{\"a\": {a}}}"))
            .expect("put");
    };
    (0..1000).for_each(|key| put(key, key % 7));
    db.flush().expect("flushed");
    (0..1000).step_by(9).for_each(|key| put(key, 77));
    db
}

/// A session whose configuration has Rockmill's codec, and Ballista's own.
fn session() -> (SessionContext, Arc<ScanEngine>) {
    let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
    let codec = ComposedPhysicalExtensionCodec::new(vec![
        Arc::new(Codec::new(&engine)),
        Arc::new(BallistaPhysicalExtensionCodec::default()),
    ]);
    let config = SessionConfig::new_with_ballista()
        .with_target_partitions(3)
        .with_ballista_physical_extension_codec(Arc::new(codec));
    let session = rockmill_sql::session(config, &engine).expect("a session");
    (session, engine)
}

/// The URL of a scheduler with two executors.
async fn cluster() -> String {
    let (session, _) = session();
    let address = new_standalone_scheduler_from_state(&session.state())
        .await
        .expect("a scheduler");
    let url = format!("http://localhost:{}", address.port());
    for _ in 0..2 {
        // Executors have engines of their own.
        let (session, _) = self::session();
        let scheduler = SchedulerGrpcClient::connect(url.clone());
        let scheduler = scheduler.await.expect("a connection");
        new_standalone_executor_from_state(scheduler, 2, &session.state())
            .await
            .expect("an executor");
    }
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn ballista_returns_the_rows_of_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let _db = made(folder.path());
    let (session, engine) = session();
    let database = Directory::open(folder.path()).expect("a database");
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let scans = Scans::new(engine, Arc::new(database));
    scans.register(&session).expect("registered");
    let url = cluster().await;
    for (i, statement) in STATEMENTS.into_iter().enumerate() {
        let plan = plan(&session, statement).await;
        let expected = collect(plan, session.task_ctx()).await.expect(statement);
        let expected = pretty_format_batches(&expected).expect("text").to_string();
        assert!(expected.lines().count() > 4, "{expected}");

        let plan = self::plan(&session, statement).await;
        let shown = displayable(plan.as_ref()).indent(false).to_string();
        let config = session.copied_config();
        let codec = config.ballista_physical_extension_codec();
        let rows = execute_physical_plan::<PhysicalPlanNode>(
            url.clone(),
            &BallistaConfig::default(),
            plan,
            codec.as_ref(),
            format!("session {i}"),
            config,
        )
        .await;
        let rows = rows.unwrap_or_else(|e| panic!("{e}\n{shown}"));
        let rows = common::collect(rows).await;
        let rows = rows.unwrap_or_else(|e| panic!("{statement}: {e}\n{shown}"));
        let rows = pretty_format_batches(&rows).expect("text").to_string();
        assert_eq!(rows, expected, "{statement}\n{shown}");
    }
}

async fn plan(session: &SessionContext, statement: &str) -> Arc<dyn ExecutionPlan> {
    let frame = session.sql(statement).await.expect(statement);
    frame.create_physical_plan().await.expect(statement)
}

//! Whole plans as bytes: what a worker runs, and what it refuses before it opens anything.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{CsvReadOptions, SessionConfig, SessionContext};
use rand::prelude::*;
use rockmill_scan::{Directory, ScanEngine, ScanSettings};
use rockmill_side_by_side::dataset::{self, Dataset};
use rockmill_side_by_side::workload::Compression;
use rockmill_sql::protobuf::{Fields, Value};
use rockmill_sql::{Codec, ReadOnly, Scans};
use rockmill_storage::Rooted;
use rockmill_testkit::machine::{cases, seed};
use rust_rocksdb::{DB, Options};
use tempfile::TempDir;

const STATEMENTS: [&str; 7] = [
    "select key, value from \"default\" where starts_with(key, 'key00') order by key limit 5",
    "select u8(key, 5) as digit, count(*), min(f64le(value, 0)), max(octet_length(value)) from \"default\" group by 1 order by 1",
    "select count(*) from \"default\" a join \"default\" b on a.key = b.key where b.key > 'key0500'",
    "select count(distinct value), sum(u8(value, 0)) from \"default\"",
    "select count(*), count(distinct value) from \"default\"",
    "select json_get_int(cast(value as varchar), 'a'), count(*) from \"default\" group by 1 order by 2, 1",
    "select key, x from \"default\" cross join (values (1), (2)) as v(x) order by key desc, x limit 4",
];

/// A root with the database `db`, and its file beside the root that no plan may open.
fn made() -> (TempDir, DB) {
    let all = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(all.path().join("root")).expect("made");
    std::fs::write(all.path().join("secret.csv"), "a\n1\n").expect("written");
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, all.path().join("root/db")).expect("a database");
    for key in 0..1000_u32 {
        db.put(format!("key{key:04}"), format!("{{\"a\": {}}}", key % 7))
            .expect("put");
    }
    db.flush().expect("flushed");
    db.put("key0999", "{\"a\": 77}").expect("put");
    (all, db)
}

fn session(db: &Path) -> (SessionContext, Arc<ScanEngine>) {
    let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
    let config = SessionConfig::new().with_target_partitions(3);
    let session = rockmill_sql::session(config, &engine).expect("a session");
    let database = Directory::open(db).expect("a database");
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let scans = Scans::new(Arc::clone(&engine), Arc::new(database));
    scans.register(&session).expect("registered");
    (session, engine)
}

fn worker(root: &Path) -> Codec {
    let root = Arc::new(Rooted::new(root).expect("a root"));
    let engine = ScanEngine::with_storage(ScanSettings::default(), Arc::clone(&root) as _);
    Codec::of_worker(&engine.expect("an engine"), root)
}

async fn plan(session: &SessionContext, statement: &str) -> Arc<dyn ExecutionPlan> {
    let frame = session.sql(statement).await.expect(statement);
    frame.create_physical_plan().await.expect(statement)
}

async fn rows(plan: Arc<dyn ExecutionPlan>, session: &SessionContext) -> String {
    let batches = collect(plan, session.task_ctx()).await.expect("rows");
    pretty_format_batches(&batches).expect("text").to_string()
}

/// Files of a folder that this process has open.
fn opened(beneath: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").expect("descriptors");
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| target.starts_with(beneath)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_returns_the_rows_of_the_plan() {
    let (all, _db) = made();
    let root = all.path().join("root");
    let (session, engine) = session(&root.join("db"));
    let (here, there) = (Codec::new(&engine), worker(&root));
    let (other, _) = self::session(&root.join("db"));
    for statement in STATEMENTS {
        let plan = plan(&session, statement).await;
        let expected = rows(Arc::clone(&plan), &session).await;
        let bytes = here.encode(plan).expect(statement);
        for codec in [&here, &there] {
            let decoded = codec.decode(&bytes, &other.task_ctx()).expect(statement);
            assert_eq!(rows(decoded, &other).await, expected, "{statement}");
        }
        // A session without Rockmill's functions has those that the bytes name.
        let plain = SessionContext::new();
        if !statement.contains("json") {
            let decoded = here.decode(&bytes, &plain.task_ctx()).expect(statement);
            assert_eq!(rows(decoded, &plain).await, expected, "{statement}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_may_have_any_number_of_quotes_in_names_and_texts() {
    const TIMES: usize = 600;
    let (all, _db) = made();
    let root = all.path().join("root");
    let (session, engine) = session(&root.join("db"));
    let (here, there) = (Codec::new(&engine), worker(&root));
    let columns = (0..TIMES).map(|column| format!("key as \"\"\"{column}\"\"\""));
    let columns = columns.collect::<Vec<_>>().join(", ");
    let mut statements = vec![format!("select {columns} from \"default\" limit 1")];
    for text in ["\"", "\"\n", "{\"a \"\" b\": \"\"}, "] {
        let text = text.repeat(36 * TIMES);
        statements.push(format!(
            "select count(*), '{text}' as text from \"default\" where cast(value as varchar) <> '{text}'"
        ));
    }
    for statement in statements {
        let plan = plan(&session, &statement).await;
        let expected = rows(Arc::clone(&plan), &session).await;
        let bytes = here.encode(plan).expect(&statement);
        let decoded = there.decode(&bytes, &session.task_ctx()).expect(&statement);
        assert_eq!(rows(decoded, &session).await, expected, "{statement}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_that_read_or_write_other_things_are_refused_before_anything_is_opened() {
    let (all, _db) = made();
    let root = all.path().join("root");
    let (session, engine) = session(&root.join("db"));
    let csv = all.path().join("secret.csv");
    let csv = csv.to_str().expect("a path");
    session
        .register_csv("secret", csv, CsvReadOptions::new())
        .await
        .expect("registered");
    let there = worker(&root);
    for (statement, names) in [
        ("select a from secret".to_owned(), "csv"),
        (
            "select count(*) from \"default\" join secret on u8(key, 0) = a".to_owned(),
            "csv",
        ),
        (
            format!("copy (select 1) to '{csv}.out' stored as csv"),
            "DataSinkExec",
        ),
    ] {
        let plan = plan(&session, &statement).await;
        let bytes = Codec::new(&engine).encode(plan).expect("bytes");
        let before_decoding = opened(all.path());
        let refused = there.decode(&bytes, &session.task_ctx());
        let said = refused.expect_err(&statement).to_string();
        assert!(
            said.contains("a worker does not run") && said.contains(names),
            "{said}"
        );
        assert_eq!(opened(all.path()), before_decoding, "{statement}");
    }
    // Another root.
    std::fs::create_dir(all.path().join("other")).expect("made");
    let plan = plan(&session, STATEMENTS[0]).await;
    let bytes = Codec::new(&engine).encode(plan).expect("bytes");
    let refused = worker(&all.path().join("other")).decode(&bytes, &session.task_ctx());
    let said = refused.expect_err("another root").to_string();
    assert!(
        said.contains("does not lie beneath the worker's root"),
        "{said}"
    );
    // Sixteen million children of a node would take gigabytes.
    let many = [0x0a, 0].repeat(16 << 20);
    for (large, says) in [(vec![0; (64 << 20) + 1], "at most"), (many, "values")] {
        let refused = there.decode(&large, &session.task_ctx());
        let said = refused.expect_err("too large").to_string();
        assert!(said.contains(says), "{said}");
    }
}

/// An integer as protobuf writes it.
fn integer(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A message with another value of a field, at any depth. The lengths around it fit.
fn with_another_field(message: &[u8], random: &mut StdRng) -> Vec<u8> {
    let mut fields = Fields(message);
    let mut all = Vec::new();
    loop {
        let begin = message.len() - fields.0.len();
        let Some((number, value)) = fields.next() else {
            break;
        };
        all.push((begin..message.len() - fields.0.len(), number, value));
    }
    let Some((place, number, value)) = all.choose(random) else {
        return message.to_vec();
    };
    let field = &message[place.clone()];
    let other = match value {
        Value::Integer(_) => {
            let values = [
                0,
                1,
                7,
                1 << 16,
                1 << 32,
                1 << 62,
                u64::MAX,
                random.random(),
            ];
            let value = values.choose(random).expect("some");
            [integer(number << 3), integer(*value)].concat()
        }
        Value::Bytes(bytes) if random.random_ratio(9, 10) => {
            let bytes = with_another_field(bytes, random);
            let length = integer(bytes.len() as u64);
            [integer(number << 3 | 2), length, bytes].concat()
        }
        _ => {
            const MAX_BYTES: usize = 100_000;
            let times = *[0, 0, 2, 1000].choose(random).expect("some");
            field.repeat(times.min(MAX_BYTES / field.len()))
        }
    };
    [&message[..place.start], &other, &message[place.end..]].concat()
}

/// The most memory that this process has had.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
    kib.expect("a size").parse::<u64>().expect("a number") << 10
}

/// On a thread with the stack that a worker's threads have.
#[test]
fn plans_of_tpch_with_other_fields_are_errors_or_plans_and_take_little_memory() {
    const STACK_BYTES: usize = 256 << 20;
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
    let thread = thread.spawn(move || {
        let threads = threads.enable_all().build().expect("threads");
        threads.block_on(decode_altered_plans_of_tpch());
    });
    let done = thread.expect("a thread").join();
    done.expect("no panic");
}

async fn decode_altered_plans_of_tpch() {
    const QUERIES: i32 = 22;
    const SCALE: f64 = 0.01;
    const MAX_BYTES: u64 = 1 << 30;
    let mut random = StdRng::seed_from_u64(seed());
    let all = tempfile::tempdir().expect("a folder");
    let db = all.path().join("db");
    dataset::load(&db, Dataset::Tpch, SCALE, Compression::Lz4).expect("a database");
    let engine = ScanEngine::new(ScanSettings::default()).expect("an engine");
    let config = SessionConfig::new().with_target_partitions(3);
    let session = rockmill_sql::session(config, &engine).expect("a session");
    let directory = Directory::open(&db).expect("a database");
    let scans = Scans::new(Arc::clone(&engine), Arc::new(directory));
    scans.register(&session).expect("registered");
    let tables = std::fs::read_to_string(db.join(dataset::TABLES)).expect("definitions");
    scans.define(&session, &tables).await.expect("defined");
    let (here, there) = (Codec::new(&engine), worker(all.path()));
    let mut plans = Vec::new();
    for query in 1..=QUERIES {
        let statements = dataset::tpch_statements(query, SCALE).into_iter();
        let is_query = |statement: &String| {
            let statement = statement.trim_start().to_lowercase();
            statement.starts_with("select") || statement.starts_with("with")
        };
        for statement in statements.filter(is_query) {
            // One query reads a view, which is not made.
            let Ok(frame) = session.sql(&statement).await else {
                continue;
            };
            let plan = frame.create_physical_plan().await.expect(&statement);
            plans.push(here.encode(plan).expect(&statement));
        }
    }
    assert!(plans.len() >= 20, "{}", plans.len());
    let before = peak_bytes();
    let (mut decoded, mut refused) = (0, 0);
    for _ in 0..cases(300).max(100) {
        let mut bytes = plans.choose(&mut random).expect("a plan").clone();
        for _ in 0..random.random_range(0..4) {
            bytes = with_another_field(&bytes, &mut random);
        }
        match there.decode(&bytes, &session.task_ctx()) {
            Ok(_) => decoded += 1,
            Err(_) => refused += 1,
        }
    }
    assert!(decoded > 0 && refused > 0, "{decoded} {refused}");
    let grown = peak_bytes() - before;
    assert!(grown < MAX_BYTES, "{grown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_plans_are_errors_or_plans_beneath_the_root() {
    let mut random = StdRng::seed_from_u64(seed());
    let (all, _db) = made();
    let root = all.path().join("root");
    let (session, engine) = session(&root.join("db"));
    let outside = all.path().join("othr");
    std::fs::create_dir_all(outside.join("db")).expect("made");
    for entry in std::fs::read_dir(root.join("db")).expect("listed") {
        let entry = entry.expect("listed").path();
        let copy = outside.join("db").join(entry.file_name().expect("a name"));
        std::fs::copy(&entry, copy).expect("copied");
    }
    let there = worker(&root);
    let mut plans = Vec::new();
    for statement in STATEMENTS {
        let plan = plan(&session, statement).await;
        plans.push(Codec::new(&engine).encode(plan).expect(statement));
    }
    let mut decoded = 0;
    for _ in 0..cases(300).max(100) {
        let mut bytes = plans.choose(&mut random).expect("a plan").clone();
        // Paths of the same length, one of which has a database that lies outside of the root.
        if random.random_ratio(1, 4) {
            let inside = b"/root/db";
            let outside = [b"/othr/db", b"/root/.."].choose(&mut random).expect("two");
            while let Some(at) = bytes.windows(inside.len()).position(|part| part == inside) {
                bytes[at..at + inside.len()].copy_from_slice(*outside);
            }
        }
        for _ in 0..random.random_range(0..6) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..4) {
                0 => bytes[at] = random.random(),
                1 => bytes[at] ^= 1 << random.random_range(0..8),
                2 => bytes.truncate(at.max(1)),
                _ => {
                    let other = plans.choose(&mut random).expect("a plan");
                    let from = random.random_range(0..other.len());
                    let end = (from + random.random_range(1..64)).min(other.len());
                    bytes.splice(at..at, other[from..end].iter().copied());
                }
            }
        }
        let Ok(plan) = there.decode(&bytes, &session.task_ctx()) else {
            continue;
        };
        decoded += 1;
        assert_eq!(
            opened(&outside),
            0,
            "{}",
            displayable(plan.as_ref()).indent(true)
        );
    }
    // Those that are not altered, at least.
    assert!(decoded > 0);
}

//! Filters that DataFusion moves through a plan: statements over column families and over the same rows in memory.

mod claims;
mod logical;
mod nested;
mod random;
mod subqueries;

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{ExecutionPlan, collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::Directory;
use rockmill_sql::Scans;
use rust_rocksdb::{DB, DBCompressionType, Options};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::common;

/// Column families of keys and values. Those of one letter are for random statements.
const RAW: [(&str, &[(&str, &str)]); 12] = [
    ("one", &[("k1", "v")]),
    ("two", &[("k2", "v")]),
    ("to_two", &[("z", "k2")]),
    ("of_one", &[("k1", "x")]),
    ("inner_one", &[("x1", "y")]),
    ("to_inner", &[("w1", "x1")]),
    ("to_inner_too", &[("q", "x1")]),
    ("also_to_two", &[("r", "k2")]),
    ("hops", &[("h1", "h2"), ("h2", "h3"), ("h3", "h4")]),
    (
        "a",
        &[
            ("0", "3"),
            ("1", "4"),
            ("3", "1"),
            ("4", "4"),
            ("5", "8"),
            ("7", "0"),
            ("9", "1"),
        ],
    ),
    (
        "b",
        &[
            ("1", "0"),
            ("2", "3"),
            ("3", "3"),
            ("4", "9"),
            ("6", "1"),
            ("8", "4"),
        ],
    ),
    (
        "c",
        &[
            ("0", "1"),
            ("2", "2"),
            ("3", "7"),
            ("4", "3"),
            ("5", "4"),
            ("9", "6"),
        ],
    ),
];

/// Rows of `t` and `u`, each so long that few fit into a piece of a scan.
const ROWS: u32 = 64;
const PADDING: usize = 128 << 10;
const HOUR_NANOS: i64 = 3_600_000_000_000;
const COLUMNS: &str = "id int unsigned not null, v double not null, n bigint, name varchar";
const LAYOUT: &str =
    "'key' 'u32be id', 'value' 'nulls(1), f64le v, i64le n, varint name, skip(131072)'";

/// The first rows of `t` have no `n`.
fn row(family: &str, id: u32) -> (f64, Option<i64>, Option<String>) {
    let number = i64::from(id);
    match family {
        "t" => (
            f64::from(id),
            (id >= 48).then_some(100 - number),
            Some(format!("N{id:02}")),
        ),
        _ => (
            f64::from(id * 7 % ROWS),
            (id % 5 != 2).then_some(number % 5),
            (!id.is_multiple_of(3)).then(|| format!("n{}", id * 11 % ROWS)),
        ),
    }
}

fn encoded(family: &str, id: u32) -> Vec<u8> {
    let (v, n, name) = row(family, id);
    let mut value = vec![u8::from(n.is_none()) | u8::from(name.is_none()) << 1];
    value.extend(v.to_le_bytes());
    value.extend(n.unwrap_or(0).to_le_bytes());
    let name = name.unwrap_or_default();
    value.push(name.len() as u8);
    value.extend(name.as_bytes());
    value.resize(value.len() + PADDING, 0);
    value
}

fn database() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_compression_type(DBCompressionType::None);
    let raw = RAW.map(|(name, _)| name);
    let all = raw.iter().chain(&TABLES);
    let db = DB::open_cf_with_opts(
        &options,
        dir.path(),
        all.map(|name| (*name, options.clone())),
    )
    .unwrap();
    let family = |name| db.cf_handle(name).unwrap();
    for (name, rows) in RAW {
        for (key, value) in rows {
            db.put_cf(family(name), key, value).unwrap();
        }
    }
    for name in ["t", "u"] {
        for id in 0..ROWS {
            let value = encoded(name, id);
            db.put_cf(family(name), id.to_be_bytes(), value).unwrap();
        }
    }
    for id in 1..=5u32 {
        let value = (2 * id).to_le_bytes();
        db.put_cf(family("five"), id.to_be_bytes(), value).unwrap();
    }
    db.put_cf(family("ten"), 10u32.to_be_bytes(), "").unwrap();
    let ordered = |number: i64| (number ^ i64::MIN).to_be_bytes();
    for hours in 0..40_i64 {
        let value = (hours % 5).to_le_bytes();
        db.put_cf(family("moments"), ordered(hours * HOUR_NANOS * 7), value)
            .unwrap();
    }
    for number in [i64::MIN, -1000, -7, -1, 0, 1, 9, i64::MAX] {
        let value = (number % 3).to_le_bytes();
        db.put_cf(family("signed"), ordered(number), value).unwrap();
    }
    // So that DataFusion knows how many rows a table has.
    for name in raw.iter().chain(&TABLES) {
        db.flush_cf(family(*name)).unwrap();
    }
    dir
}

const TABLES: [&str; 6] = ["t", "u", "five", "ten", "moments", "signed"];

/// A session whose tables are in the database.
async fn ours(folder: &Path, partitions: usize, batch_rows: usize) -> SessionContext {
    let (_, engine) = common::engine();
    let config = SessionConfig::new();
    let config = config
        .with_target_partitions(partitions)
        .with_batch_size(batch_rows);
    let context = rockmill_sql::session(config, &engine).unwrap();
    let scans = Scans::new(engine, Arc::new(Directory::open(folder).unwrap()));
    scans.register(&context).unwrap();
    for table in TABLES {
        let (columns, layout) = match table {
            "five" => (
                "id int unsigned not null, v int unsigned not null",
                "'key' 'u32be id', 'value' 'u32le v'",
            ),
            "moments" => (
                "at timestamp not null, n bigint not null",
                "'key' 'ordered(i64) at', 'value' 'i64le n'",
            ),
            "signed" => (
                "n bigint not null, v bigint not null",
                "'key' 'ordered(i64) n', 'value' 'i64le v'",
            ),
            "ten" => (
                "x int unsigned not null",
                "'key' 'u32be x', 'value' 'skip(0)'",
            ),
            _ => (COLUMNS, LAYOUT),
        };
        let create = format!(
            "create external table {table} ({columns}) stored as rocksdb location '{}' options ('family' \
             '{table}', {layout})",
            folder.display()
        );
        context.sql(&create).await.unwrap();
    }
    context
}

/// A session with copies of the same tables in memory, and without rules that move filters.
async fn theirs(ours: &SessionContext) -> SessionContext {
    let (_, engine) = common::engine();
    let config = SessionConfig::new().with_target_partitions(3);
    let state = rockmill_sql::session(config, &engine).unwrap().state();
    let rules = state.physical_optimizers().iter();
    let moves = ["rockmill_", "FilterPushdown"];
    let rules = rules.filter(|rule| !moves.iter().any(|name| rule.name().starts_with(name)));
    let rules = rules.cloned().collect();
    let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules);
    let context = SessionContext::new_with_state(state.build());
    for table in RAW.map(|(name, _)| name).iter().chain(&TABLES) {
        let frame = ours.table(*table).await.unwrap();
        let schema = Arc::new(frame.schema().as_arrow().clone());
        let rows = frame.collect().await.unwrap();
        let memory = MemTable::try_new(schema, vec![rows]).unwrap();
        context.register_table(*table, Arc::new(memory)).unwrap();
    }
    context
}

/// The rows, in any order.
fn sorted(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("-");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap());
        let columns: Vec<_> = columns.collect();
        rows.extend((0..batch.num_rows()).map(|row| {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            cells.collect::<Vec<_>>().join(" ")
        }));
    }
    rows.sort_unstable();
    rows
}

async fn answer(context: &SessionContext, query: &str) -> Result<Vec<String>, String> {
    let frame = context.sql(query).await.map_err(|e| e.to_string())?;
    let batches = frame.collect().await.map_err(|e| e.to_string())?;
    Ok(sorted(&batches))
}

/// The plan as EXPLAIN shows it.
async fn plan(context: &SessionContext, query: &str) -> String {
    let plan = context
        .sql(query)
        .await
        .unwrap()
        .create_physical_plan()
        .await
        .unwrap();
    displayable(plan.as_ref()).indent(false).to_string()
}

/// Statements for which DataFusion makes a filter that drops needed rows, or moves it to a wrong place.
const STATEMENTS: [&str; 27] = [
    // An aggregate of which one part is in no filter.
    "select min(id), max(v * 1.5) from t",
    "select min(id), max(lower(name)) from t",
    "select min(id), max(n) from t where id % 3 <> 1",
    // Two columns of one name.
    "select s.key, g.k, g.m from to_two s join (select two.key k, max(one.key) m from one join two on one.value = two.value \
     group by two.key) g on s.value = g.k",
    "select one.key, two.key, d.value from to_two s join (of_one d join (one join two on one.value = two.value) on \
     d.key = one.key) on s.value = two.key",
    "select * from (select one.key k, two.key m, count(*) n from one join two on one.value = two.value group by \
     grouping sets ((one.key, two.key), (one.key))) where m = x'6b32'",
    "select a.value, b.value from (a right join b on a.key = b.key) join c on b.key = c.key where octet_length(a.value) = 1",
    "select a.value, o.value from (a right join (select * from b where octet_length(value) % 2 = 1) o on a.key = o.key) \
     join c on o.key = c.key where octet_length(a.value) = 1",
    "select a.key, b.key, b.value from a right join b on a.key = b.key where a.value is null",
    "select a.key, b.key, a.value from a left join b on a.key = b.key where b.value is null",
    "select a.key, b.key, c.value from a full join b on a.key = b.key left join c on b.key = c.key where c.value is null \
     and a.value is not null",
    // The other input has another column of the name.
    "select q.key from to_inner_too q join (select * from inner_one i where exists (select 1 from to_inner w where \
     w.value = i.key and w.key <> i.value)) s on q.value = s.key",
    "select s.key, g.key, g.value from to_two s join (select key, value from two union all select value, key from \
     also_to_two) g on s.value = g.key",
    "select q.key from to_inner_too q join (select * from inner_one i where exists (select 1 from (select key, value, \
     string_agg(encode(value, 'hex'), ',' order by key) t from to_inner group by 1, 2) w where w.value = i.key and \
     length(w.t) > 0 and w.key <> i.value)) s on q.value = s.key",
    // Rows that a limit counts.
    "select g.k, c.key from c join (select key k, string_agg(encode(value, 'hex'), ',' order by value) t from a group by key \
     having length(string_agg(encode(value, 'hex'), ',' order by value)) > 0 order by 1 limit 3) g on g.k = c.value",
    "select l.id from ten join (select id, v from five where v % 2 = 0 order by id limit 2) l on l.v = ten.x",
    "select id from (select id, v from u where id > 0 and id % 64 <> 0 order by id limit 20) order by v limit 1",
    "select x.id from ten join (select l.id from five r join t l on l.id = r.id order by l.id limit 2) x on \
     x.id * 2 = ten.x",
    "select x.id from ten join (select l.id from five r join t l on l.id = r.id order by l.id limit 5) x on \
     x.id * 2 = ten.x",
    "select g.key from c join (select distinct key from a order by key limit 3) g on g.key = c.value",
    "select g.key from c join (select key from a group by key limit 99) g on g.key = c.value",
    // A plan that runs again.
    "with recursive r as (select key k from hops where key = x'6831' union all select hops.value from r join hops on \
     r.k = hops.key) select k from r",
    "with recursive r as (select arrow_cast(0, 'UInt32') k union all select g.id from r join (select id, v from u where \
     id % 3 <> 1 order by v, id limit 9) g on g.id = r.k + 7) select k from r",
    // Filters that arrive unchanged.
    "select u.id, five.v from u join five on u.id = five.id",
    "select id, v from u order by v desc limit 5",
    "select id, name from t order by n desc nulls last, id limit 5",
    "select x.id from five join (select id from t union all select id from u) x on x.id = five.id",
];

#[test]
fn a_statement_returns_the_same_rows_with_moved_filters() {
    let folder = database();
    let work = async {
        let mut wrong = Vec::new();
        let memory = theirs(&ours(folder.path(), 1, 8192).await).await;
        for (partitions, batch_rows) in [(1, 8192), (1, 3), (2, 8192), (2, 3), (4, 3)] {
            let context = ours(folder.path(), partitions, batch_rows).await;
            for query in STATEMENTS {
                let expected = answer(&memory, query).await.expect(query);
                let found = answer(&context, query).await;
                if found.as_ref() != Ok(&expected) {
                    let plan = plan(&context, query).await;
                    wrong.push(format!(
                        "{partitions}: {query}\n{found:?}\n{expected:?}\n{plan}"
                    ));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    };
    Runtime::new().unwrap().block_on(work);
}

#[test]
fn a_filter_for_another_table_skips_no_rows_of_a_file() {
    let folder = database();
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("to_inner.parquet");
    let work = async {
        let context = ours(folder.path(), 1, 8192).await;
        let copy = format!(
            "copy (select key, value from to_inner) to '{}'",
            file.display()
        );
        context.sql(&copy).await.unwrap().collect().await.unwrap();
        let create = format!(
            "create external table w stored as parquet location '{}'",
            file.display()
        );
        context.sql(&create).await.unwrap();
        let query = "select q.key from to_inner_too q join (select * from inner_one i where exists (select 1 from w \
                     where w.value = i.key and w.key <> i.value)) s on q.value = s.key";
        assert_eq!(answer(&context, query).await, Ok(vec!["71".to_owned()]));
    };
    Runtime::new().unwrap().block_on(work);
}

#[test]
fn other_sessions_have_tables_that_apply_no_moved_filters() {
    let folder = database();
    let work = async {
        let context = ours(folder.path(), 2, 8192).await;
        let config = SessionConfig::new().with_target_partitions(2);
        let plain = SessionContext::new_with_config(config);
        for table in ["t", "one", "two", "to_two"] {
            let provider = context.table_provider(table).await.unwrap();
            plain.register_table(table, provider).unwrap();
        }
        let memory = theirs(&context).await;
        for query in [STATEMENTS[0], STATEMENTS[5]] {
            let expected = answer(&memory, query).await;
            assert_eq!(answer(&plain, query).await, expected, "{query}");
        }
    };
    Runtime::new().unwrap().block_on(work);
}

#[test]
fn scans_apply_the_filters_of_joins_and_sorts() {
    let folder = database();
    let work = async {
        let context = ours(folder.path(), 2, 8192).await;
        for query in [
            "select u.id, five.v from u join five on u.id = five.id",
            "select id from u order by v limit 3",
            "select l.id, r.id, five.v from five join (t l join u r on l.id = r.n) on five.id = r.v",
            "select g.id, five.v from five join (select id, count(*) from u group by id) g on g.id = five.id",
            "select x.id, five.v from five join (select id from t union all select id from u) x on x.id = \
             five.id limit 3",
        ] {
            let plan = plan(&context, query).await;
            assert!(
                plan.contains("family=u") && plan.contains("dynamic filter="),
                "{query}: {plan}"
            );
        }
        // The second session has a join of several partitions, whose filter is a CASE over DataFusion's hash.
        let partitioned = ours(folder.path(), 3, 8192).await;
        let set = "set datafusion.optimizer.hash_join_single_partition_threshold";
        for set in [format!("{set} = 0"), format!("{set}_rows = 0")] {
            partitioned.sql(&set).await.unwrap();
        }
        for (session, filter) in [
            (&context, "DynamicFilter [ id@"),
            (&partitioned, "CASE hash"),
        ] {
            let query = "select u.id from u join five on u.id = five.id";
            let planned = session.sql(query).await.unwrap();
            let planned = planned.create_physical_plan().await.unwrap();
            let rows = collect(Arc::clone(&planned), session.task_ctx()).await;
            assert_eq!(sorted(&rows.unwrap()), ["1", "2", "3", "4", "5"]);
            let rows = rows_of_scan(&planned, "u");
            let shown = displayable(planned.as_ref()).indent(false).to_string();
            assert!(rows == Some(5) && shown.contains(filter), "{shown}");
        }
    };
    Runtime::new().unwrap().block_on(work);
}

/// Rows that the scan of a column family returns.
fn rows_of_scan(plan: &Arc<dyn ExecutionPlan>, family: &str) -> Option<usize> {
    let shown = displayable(plan.as_ref()).one_line().to_string();
    let is_it = shown.contains(&format!("RockmillScan: family={family},"));
    let own = plan.metrics().and_then(|metrics| metrics.output_rows());
    let own = own.filter(|_| is_it);
    own.or_else(|| {
        plan.children()
            .into_iter()
            .find_map(|child| rows_of_scan(child, family))
    })
}

#[test]
fn a_plan_that_is_reset_returns_the_same_rows_again() {
    let folder = database();
    let work = async {
        let context = ours(folder.path(), 1, 8192).await;
        let planned = context
            .sql("select id from u order by v limit 3")
            .await
            .unwrap();
        let mut planned = planned.create_physical_plan().await.unwrap();
        for _ in 0..2 {
            let rows = collect(Arc::clone(&planned), context.task_ctx()).await;
            assert_eq!(sorted(&rows.unwrap()), ["0", "46", "55"]);
            planned = reset_plan_states(planned).unwrap();
        }
    };
    Runtime::new().unwrap().block_on(work);
}

#[test]
fn small_batches_may_have_no_columns() {
    let folder = database();
    let work = async {
        let context = ours(folder.path(), 2, 3).await;
        for (query, rows) in [
            ("select 1 from t", 64),
            ("select count(*) from t cross join u", 1),
        ] {
            let found = answer(&context, query).await.expect(query);
            assert_eq!(found.len(), rows, "{query}");
        }
        let found = answer(&context, "select count(*) from t cross join u").await;
        assert_eq!(found.unwrap(), ["4096"]);
    };
    Runtime::new().unwrap().block_on(work);
}

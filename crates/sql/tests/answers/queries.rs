//! Random queries over a table in RocksDB and over the same rows in memory, where DataFusion computes everything.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray, BinaryArray, Date32Array, Decimal128Array, Float64Array, Int32Array,
    Int64Array, RecordBatch, StringArray, UInt32Array,
};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, SchemaRef, UInt32Type};
use datafusion::arrow::util::display::array_value_to_string;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ToDFSchema;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::TableProviderFilterPushDown;
use datafusion::physical_plan::{collect, displayable};
use datafusion::prelude::{SessionConfig, SessionContext, col, lit};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rockmill_core::scan::StringGroups;
use rockmill_scan::{Directory, ScanEngine};
use rockmill_sql::{ReadOnly, Reads, Scans};
use rust_rocksdb::{DB, Options};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::common;

const ROWS: u32 = 3000;

/// A row's columns.
#[derive(Debug, Clone)]
struct Row {
    id: u32,
    small: i32,
    wide: Option<i64>,
    price: Option<i128>,
    day: i32,
    ratio: f64,
    /// The weight is neither NaN nor -0.0.
    weight: f64,
    name: Option<String>,
    blob: Vec<u8>,
}

const COLUMNS: &str = "id int unsigned not null, small int not null, wide bigint, price decimal(15, 2), \
    day date not null, ratio double not null, weight double not null, name varchar, blob bytea not null";
const KEY: &str = "u32be id, ordered(i32) small";
const VALUE: &str = "x'07', nulls(1), i64le wide, i64be price, i32le day, f64be ratio, f64le weight, varint name, ordered(bytes) blob";

/// Rows that depend only on their position, with every kind of edge case.
fn row(id: u32) -> Row {
    let mixed = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let pick = |shift: u32, of: u64| (mixed >> shift) % of;
    let wide = match pick(3, 8) {
        0 => None,
        1 => Some(i64::MAX),
        2 => Some(i64::MIN),
        _ => Some(pick(7, 40) as i64 - 20),
    };
    let names = ["", "a", "ab", "abc", "b%", "ä_ö", "BRASS", "SMALL BRASS"];
    let ratios = [0.0, -0.0, 1.5, f64::NAN, f64::INFINITY, -2.25, 1e300];
    Row {
        id,
        small: pick(11, 9) as i32 - 4,
        wide,
        price: (pick(13, 7) != 0).then(|| i128::from(pick(17, 2000)) - 1000),
        day: 8000 + pick(19, 700) as i32,
        ratio: ratios[pick(23, ratios.len() as u64) as usize],
        weight: pick(41, 50) as f64 / 8.0 - 3.0,
        name: (pick(29, 6) != 0).then(|| names[pick(31, names.len() as u64) as usize].to_owned()),
        blob: (0..pick(37, 20))
            .map(|at| (mixed >> (at % 8 * 8)) as u8)
            .collect(),
    }
}

fn encoded(row: &Row) -> (Vec<u8>, Vec<u8>) {
    let mut key = row.id.to_be_bytes().to_vec();
    key.extend((row.small ^ i32::MIN).to_be_bytes());
    let nulls = [row.wide.is_none(), row.price.is_none(), row.name.is_none()];
    let nulls = nulls
        .iter()
        .enumerate()
        .map(|(bit, &is_null)| u8::from(is_null) << bit);
    let mut value = vec![7, nulls.sum()];
    value.extend(row.wide.unwrap_or(0).to_le_bytes());
    value.extend((row.price.unwrap_or(0) as i64).to_be_bytes());
    value.extend(row.day.to_le_bytes());
    value.extend(row.ratio.to_be_bytes());
    value.extend(row.weight.to_le_bytes());
    let name = row.name.as_deref().unwrap_or_default();
    value.push(name.len() as u8);
    value.extend(name.as_bytes());
    value.extend(StringGroups::encode_counted(&row.blob));
    (key, value)
}

fn in_memory(schema: SchemaRef, rows: &[Row]) -> RecordBatch {
    let price = rows
        .iter()
        .map(|row| row.price)
        .collect::<Decimal128Array>();
    let price = price.with_precision_and_scale(15, 2).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| Some(row.id)).collect::<UInt32Array>()),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.small))
                .collect::<Int32Array>(),
        ),
        Arc::new(rows.iter().map(|row| row.wide).collect::<Int64Array>()),
        Arc::new(price),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.day))
                .collect::<Date32Array>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.ratio))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| Some(row.weight))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| row.name.as_deref())
                .collect::<StringArray>(),
        ),
        Arc::new(
            rows.iter()
                .map(|row| Some(&row.blob[..]))
                .collect::<BinaryArray>(),
        ),
    ];
    RecordBatch::try_new(schema, columns).unwrap()
}

/// A session with the table `ours` in RocksDB, the same read through RocksDB's iterators, and the table `theirs` in memory.
async fn session(folder: &TempDir) -> SessionContext {
    let rows: Vec<_> = (0..ROWS).map(row).collect();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, folder.path()).unwrap();
    for (position, row) in rows.iter().enumerate() {
        let (key, value) = encoded(row);
        // Older versions, deleted rows, and rows that are only in the log.
        db.put(&key, b"an older version").unwrap();
        db.put([&key[..], b"deleted"].concat(), b"").unwrap();
        if position == rows.len() / 2 {
            db.flush().unwrap();
        }
        db.delete([&key[..], b"deleted"].concat()).unwrap();
        db.put(&key, value).unwrap();
        if position == rows.len() * 2 / 3 {
            db.flush().unwrap();
        }
    }
    drop(db);
    let (_, engine) = common::engine();
    let database = Directory::open(folder.path()).unwrap();
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let config = SessionConfig::new().with_target_partitions(3);
    let context = rockmill_sql::session(config, &engine).unwrap();
    let scans = Scans::new(engine, Arc::new(database));
    scans.register(&context).unwrap();
    let location = folder.path().display();
    let create = format!(
        "create external table ours ({COLUMNS}) stored as rocksdb location '{location}' \
         options ('key' '{KEY}', 'value' '{}')",
        VALUE.replace('\'', "''")
    );
    context.sql(&create).await.unwrap();
    let schema = context.table_provider("ours").await.unwrap().schema();
    let through = scans.reading(Reads::IteratorsAndPrograms);
    let through = through.table_with_layout("default", Arc::clone(&schema), KEY, VALUE);
    context
        .register_table("through_iterators", through.unwrap())
        .unwrap();
    let memory = MemTable::try_new(Arc::clone(&schema), vec![vec![in_memory(schema, &rows)]]);
    context
        .register_table("theirs", Arc::new(memory.unwrap()))
        .unwrap();
    context
}

fn integer() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("id".to_owned()),
        Just("small".to_owned()),
        Just("wide".to_owned()),
        (-30i64..30).prop_map(|value| format!("({value})")),
        Just("octet_length(blob)".to_owned()),
        Just("u16be(blob, 1)".to_owned()),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        (inner.clone(), "[-+*]", inner).prop_map(|(a, op, b)| format!("({a} {op} {b})"))
    })
}

fn decimal() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("price".to_owned()),
        Just("(price * (1 - price))".to_owned()),
        Just("(price + 0.5)".to_owned()),
        (-900i32..900).prop_map(|value| format!("({}.{:02})", value / 100, value.abs() % 100)),
    ]
}

fn text() -> impl Strategy<Value = String> {
    let texts = ["", "a", "ab", "b%", "BRASS", "zz"];
    prop_oneof![
        Just("name".to_owned()),
        prop::sample::select(texts.to_vec()).prop_map(|t| format!("'{t}'"))
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let comparison = || prop::sample::select(&["=", "<>", "<", "<=", ">", ">="][..]);
    let two = |a: (String, &str, String)| format!("({} {} {})", a.0, a.1, a.2);
    let patterns = ["a%", "%b", "%a%", "_b", "%\\%", "", "a", "ä__", "%SM%_R%"];
    let leaf = prop_oneof![
        (integer(), comparison(), integer()).prop_map(two),
        (decimal(), comparison(), decimal()).prop_map(two),
        (text(), comparison(), text()).prop_map(two),
        (
            comparison(),
            prop::sample::select(&["0.0", "-0.0", "1.5", "'NaN'", "1e300"][..])
        )
            .prop_map(|(op, value)| format!("(ratio {op} cast({value} as double))")),
        (comparison(), -24i32..30).prop_map(|(op, eighths)| {
            format!("(weight {op} cast({} as double))", f64::from(eighths) / 8.0)
        }),
        (comparison(), 8000i32..8700)
            .prop_map(|(op, day)| format!("(day {op} cast({day} as date))")),
        prop::sample::select(patterns.to_vec())
            .prop_map(|pattern| format!("(name like '{pattern}')")),
        prop::sample::select(&["wide", "price", "name", "id"][..])
            .prop_map(|column| format!("({column} is null)")),
        prop::collection::vec(-4i32..5, 1..4).prop_map(|list| {
            format!(
                "(small in ({}))",
                list.iter()
                    .map(i32::to_string)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }),
        Just("(name in ('a', null, 'BRASS'))".to_owned()),
        Just("starts_with(blob, x'00')".to_owned()),
        Just("(id between 1000 and 1200)".to_owned()),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        prop_oneof![
            (inner.clone(), "and|or", inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            inner.prop_map(|a| format!("(not {a})")),
        ]
    })
}

/// A query over the table `{}`. Each row of the result is unique, or the order is given.
fn query() -> impl Strategy<Value = String> {
    let columns = prop::sample::subsequence(
        vec![
            "small", "wide", "price", "day", "ratio", "weight", "name", "blob",
        ],
        0..5,
    );
    let columns = columns.prop_map(|columns| {
        columns
            .iter()
            .fold("id".to_owned(), |all, column| format!("{all}, {column}"))
    });
    let rows = (columns, condition()).prop_map(|(columns, filter)| {
        format!("select {columns} from {{}} where {filter} order by id")
    });
    // DataFusion's min and max of floats depend on the order of the rows if some are NaN or negative zeros.
    let aggregates = [
        "count(*)",
        "count(wide)",
        "sum(small)",
        "sum(wide)",
        "sum(cast(wide as decimal(28, 0)))",
        "sum(id)",
        "sum(price)",
        "avg(price)",
        "min(wide)",
        "max(wide)",
        "min(name)",
        "max(name)",
        "min(blob)",
        "max(day)",
        "max(price)",
        "min(weight)",
        "max(weight)",
        "min(ratio)",
        "max(ratio)",
        "sum(price * (1 - price))",
        "avg(small)",
    ];
    let aggregates = prop::sample::subsequence(aggregates.to_vec(), 1..5);
    let groups = prop::sample::select(
        &[
            "",
            "small",
            "name",
            "small, name",
            "wide",
            "day",
            "price",
            "ratio",
            "id",
        ][..],
    );
    let grouped = (aggregates, groups, condition()).prop_map(|(aggregates, groups, filter)| {
        let aggregates = aggregates.join(", ");
        match groups {
            "" => format!("select {aggregates} from {{}} where {filter}"),
            groups => format!(
                "select {groups}, {aggregates} from {{}} where {filter} group by {groups} order by {groups}"
            ),
        }
    });
    let limited = condition().prop_map(|filter| {
        format!("select count(*) from (select * from {{}} where {filter} limit 10)")
    });
    prop_oneof![4 => rows, 6 => grouped, 1 => limited]
}

/// Expressions that fail for some rows, each with a condition that protects it.
const FALLIBLE: [(&str, &str); 12] = [
    // Scans compute no remainders, so these conditions are left to DataFusion.
    ("(wide + id) / small", "small % 9 <> 0"),
    ("(wide + id) % small", "small % 9 <> 0"),
    ("(price + id) / small", "small % 9 <> 0"),
    ("wide / small", "small <> 0"),
    ("wide % small", "abs(small) >= 1"),
    ("price / small", "small > 0"),
    ("7.00 / price", "price <> 0.00"),
    ("price / (price - 1.25)", "(price < 1.25 or price > 1.25)"),
    ("cast(wide as int)", "wide between -100 and 100"),
    (
        "cast(wide as decimal(38, 0)) * cast(wide as decimal(38, 0)) * wide",
        "(wide < 50 and wide > -50)",
    ),
    ("substr(name, 1, small)", "small >= 0"),
    ("cast(name as int)", "(name is null and id < 2000)"),
];

/// A query that computes an expression that may fail, over a filter that protects it.
fn protected_query() -> impl Strategy<Value = String> {
    let fallible = prop::sample::select(FALLIBLE.to_vec());
    let columns = prop::sample::subsequence(vec!["small", "wide", "price", "name", "weight"], 0..5);
    let more = prop_oneof![
        condition(),
        Just("day > cast(8100 as date)".to_owned()),
        Just("upper(name) <> 'A'".to_owned())
    ];
    let asked = prop::sample::select(vec![false, false, true]);
    let order = Just((0..3).collect::<Vec<_>>()).prop_shuffle();
    let parts = (fallible, columns, more, asked, order, 0..8);
    parts.prop_map(|((fallible, guard), columns, more, asked, order, shape)| {
        let columns: String = columns.iter().map(|column| format!(", {column}")).collect();
        let asked = if asked {
            format!("({fallible}) is not null")
        } else {
            "id >= 0".to_owned()
        };
        let conditions = [guard.to_owned(), more, asked];
        let conditions: Vec<_> = order.iter().map(|at| conditions[*at].as_str()).collect();
        let filter = conditions.join(" and ");
        match shape {
            0 => format!("select count({fallible}), min({fallible}) from {{}} where {filter}"),
            1 => format!(
                "select * from (select id{columns}, {fallible} as q from {{}} where {filter}) \
                 where q is not null order by id"
            ),
            2 => format!(
                "select small, max({fallible}) from {{}} where {filter} group by small order by small"
            ),
            3 => format!("select id, {fallible} as q{columns} from {{}} where {filter} order by id"),
            // Fewer columns than the expression needs. Equal rows may come in any order.
            _ => format!("select small, {fallible} as q from {{}} where {filter} order by 1, 2"),
        }
    })
}

/// A session with the same tables and functions, without Rockmill's rules whose names begin with `prefix`.
fn without_rules(context: &SessionContext, prefix: &str) -> SessionContext {
    let state = context.state();
    let rules = state.physical_optimizers().iter();
    let rules = rules
        .filter(|rule| !rule.name().starts_with(prefix))
        .cloned();
    let rules = rules.collect();
    let state = SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules);
    SessionContext::new_with_state(state.build())
}

async fn answer(context: &SessionContext, query: &str, table: &str) -> Result<RecordBatch, String> {
    let query = query.replace("{}", table);
    let frame = context.sql(&query).await.map_err(|e| e.to_string())?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await.map_err(|e| e.to_string())?;
    concat_batches(&schema, &batches).map_err(|e| e.to_string())
}

/// The same, where another engine runs the scans, which it gets as bytes.
async fn answer_of_sent(
    context: &SessionContext,
    query: &str,
    engine: &Arc<ScanEngine>,
) -> Result<RecordBatch, String> {
    let frame = context.sql(&query.replace("{}", "ours")).await;
    let plan = frame.map_err(|e| e.to_string())?;
    let plan = plan.create_physical_plan().await;
    let sent = plan.and_then(|plan| common::sent(plan, engine));
    let sent = sent.map_err(|e| e.to_string())?;
    let schema = sent.schema();
    let batches = collect(sent, context.task_ctx()).await;
    concat_batches(&schema, &batches.map_err(|e| e.to_string())?).map_err(|e| e.to_string())
}

#[test]
fn queries_are_answered_as_datafusion_answers_them() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = runtime.block_on(session(&folder));
    let (_, other_engine) = common::engine();
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases()));
    let outcome = runner.run(&query(), |query| {
        let theirs = runtime.block_on(answer(&context, &query, "theirs"));
        for table in ["ours", "through_iterators", "sent"] {
            let found = match table {
                "sent" => runtime.block_on(answer_of_sent(&context, &query, &other_engine)),
                table => runtime.block_on(answer(&context, &query, table)),
            };
            match (&found, &theirs) {
                (Ok(found), Ok(theirs)) if found.columns() == theirs.columns() => {}
                // For example a product that exceeds a decimal.
                (Err(_), Err(_)) => {}
                _ => return Err(differ(table, &query, &found, &theirs)),
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

/// The sums that a query returns in its last column; `None` if it fails because one exceeds its type.
fn sums(
    runtime: &Runtime,
    context: &SessionContext,
    other_engine: &Arc<ScanEngine>,
    query: &str,
    table: &str,
) -> Option<Vec<Option<i128>>> {
    let answer = match table {
        "sent" => runtime.block_on(answer_of_sent(context, query, other_engine)),
        table => runtime.block_on(answer(context, query, table)),
    };
    let batch = match answer {
        Ok(batch) => batch,
        Err(said) => {
            let is_named = said.contains("sum(") && said.contains("exceeds the range of its type");
            assert!(is_named, "{table}: {query}: {said}");
            return None;
        }
    };
    let sums = batch.columns().last().unwrap();
    let wide = DataType::Decimal128(38, 0);
    let sums = cast(sums, &wide).unwrap();
    Some(sums.as_primitive::<Decimal128Type>().iter().collect())
}

/// The sum of the values that are not null; `None` without any.
fn exact(rows: impl Iterator<Item = Option<i64>>) -> Option<i128> {
    rows.flatten()
        .map(i128::from)
        .reduce(|sum, value| sum + value)
}

#[test]
fn a_sum_is_exact_or_an_error_that_names_it() {
    const TABLES: [&str; 4] = ["ours", "theirs", "through_iterators", "sent"];
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = runtime.block_on(session(&folder));
    let (_, other_engine) = common::engine();
    let (mut answered, mut failed) = (0, 0);
    for rows in (1..40).chain((40..ROWS).step_by(331)) {
        let all: Vec<_> = (0..rows).map(row).collect();
        let wide = || all.iter().map(|row| row.wide);
        let smalls: BTreeSet<_> = all.iter().map(|row| row.small).collect();
        let of_small = |small: &i32| {
            let rows = all.iter().filter(|row| row.small == *small);
            exact(rows.map(|row| row.wide))
        };
        let window = |at: usize| exact(wide().take(at + 1).skip(at.saturating_sub(3)));
        let distinct: BTreeSet<_> = wide().collect();
        let from = format!("from {{}} where id < {rows}");
        for (query, expected) in [
            (format!("select sum(wide) {from}"), vec![exact(wide())]),
            (
                format!("select small, sum(wide) {from} group by small order by small"),
                smalls.iter().map(of_small).collect(),
            ),
            (
                format!("select sum(distinct small), sum(distinct wide) {from}"),
                vec![exact(distinct.into_iter())],
            ),
            (
                format!(
                    "select id, sum(wide) over (order by id rows between 3 preceding and current row) {from} order by id"
                ),
                (0..all.len()).map(window).collect(),
            ),
        ] {
            let fits = |sum: &Option<i128>| sum.is_none_or(|sum| i64::try_from(sum).is_ok());
            let expected = Some(expected).filter(|sums| sums.iter().all(fits));
            for table in TABLES {
                let found = sums(&runtime, &context, &other_engine, &query, table);
                assert_eq!(found, expected, "{table}: {query}");
            }
            match expected {
                Some(_) => answered += 1,
                None => failed += 1,
            }
        }
        // Two of the largest values exceed 128 bits, also where others make up for that.
        let times = 10i128.pow(19);
        let query = format!("select sum(cast(wide as decimal(38, 0)) * {times}) {from}");
        let expected = exact(wide());
        let fits = expected.is_none_or(|sum| sum.unsigned_abs() < 10u128.pow(19));
        for table in TABLES {
            let found = sums(&runtime, &context, &other_engine, &query, table);
            let is_right = match &found {
                Some(found) => fits && *found == [expected.map(|sum| sum * times)],
                None => true,
            };
            assert!(is_right, "{table}: {query}: {found:?}");
        }
    }
    println!("{answered} answered, {failed} failed");
    assert!(answered > 20 && failed > 20);
}

#[test]
fn sums_of_every_type_are_errors_beyond_it() {
    let runtime = Runtime::new().unwrap();
    let engine = common::engine().1;
    let context = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
    let nines = |digits| format!("'{}'", "9".repeat(digits));
    for (most, arrow, sql) in [
        (i64::MAX.to_string(), "Int64", "bigint"),
        (u64::MAX.to_string(), "UInt64", "bigint unsigned"),
        (nines(9), "Decimal32(9, 0)", "decimal(9, 0)"),
        (nines(18), "Decimal64(18, 0)", "decimal(18, 0)"),
        (nines(38), "Decimal128(38, 0)", "decimal(38, 0)"),
        (nines(76), "Decimal256(76, 0)", "decimal(76, 0)"),
    ] {
        let of = |more: u8| {
            format!(
                "(select 1 as g, arrow_cast({most}, '{arrow}') as x union all \
                 select 1, arrow_cast({more}, '{arrow}'))"
            )
        };
        for query in [
            "select sum(x) from {}",
            "select sum(x) from {} group by g",
            "select sum(distinct x), sum(distinct g) from {}",
            "select max(s) from (select sum(x) over (order by x rows between 1 preceding and current row) as s from {})",
        ] {
            let sum = |more| runtime.block_on(answer(&context, query, &of(more)));
            let found = sum(0).unwrap_or_else(|said| panic!("{query}: {said}"));
            let found = array_value_to_string(found.column(0), 0);
            assert_eq!(found.unwrap(), most.trim_matches('\''), "{arrow}: {query}");
            let said = sum(1).expect_err(query);
            let is_named = said.contains("sum(") && said.contains(&format!("of its type {sql}"));
            assert!(is_named, "{query}: {said}");
        }
    }
}

/// One query in 25 would fail without its filter, and some have to.
const CASES: u32 = 400;

fn cases() -> u32 {
    rockmill_testkit::machine::few_cases(CASES)
}

fn differ(
    table: &str,
    query: &str,
    found: &Result<RecordBatch, String>,
    theirs: &Result<RecordBatch, String>,
) -> TestCaseError {
    let text = |answer: &Result<RecordBatch, String>| match answer {
        Ok(batch) => pretty_format_batches(std::slice::from_ref(batch))
            .unwrap()
            .to_string(),
        Err(error) => error.clone(),
    };
    let (found, theirs) = (text(found), text(theirs));
    TestCaseError::fail(format!("{table}: {query}\n{found}\n{theirs}"))
}

#[test]
fn a_filter_protects_what_may_fail_wherever_datafusion_has_it_protected() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let context = runtime.block_on(session(&folder));
    let alone = without_rules(&context, "rockmill_");
    let unguarded = without_rules(&context, "rockmill_guarded_by_filters");
    let mut runner = TestRunner::new(ProptestConfig::with_cases(cases()));
    let (answered, failed, unprotected) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let outcome = runner.run(&protected_query(), |query| {
        let theirs = runtime.block_on(answer(&alone, &query, "theirs"));
        let found = runtime.block_on(answer(&context, &query, "ours"));
        match (&found, &theirs) {
            (Ok(found), Ok(theirs)) if found.columns() == theirs.columns() => {
                answered.set(answered.get() + 1);
                let unguarded = runtime.block_on(answer(&unguarded, &query, "ours"));
                unprotected.set(unprotected.get() + u32::from(unguarded.is_err()));
            }
            // Plain DataFusion may compute an expression before its filter. So its answer comes from the same rules
            // here.
            (Ok(found), Err(_)) => {
                failed.set(failed.get() + 1);
                let theirs = runtime.block_on(answer(&context, &query, "theirs"));
                if theirs
                    .as_ref()
                    .is_ok_and(|theirs| theirs.columns() != found.columns())
                {
                    return Err(differ("ours", &query, &Ok(found.clone()), &theirs));
                }
            }
            (Err(_), Err(_)) => {}
            _ => return Err(differ("ours", &query, &found, &theirs)),
        }
        Ok(())
    });
    outcome.unwrap();
    let (answered, unprotected) = (answered.get(), unprotected.get());
    println!(
        "{answered} answered by both, {} by scans alone",
        failed.get()
    );
    println!("{unprotected} would fail if filters were not put back");
    assert!(answered >= cases() / 3 && (unprotected > 0 || cases() < CASES));
}

#[test]
fn scans_compute_what_they_can() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let context = session(&folder).await;
        let plan = async |query: &str| {
            let plan = context.sql(query).await.unwrap().create_physical_plan().await.unwrap();
            (displayable(plan.as_ref()).indent(false).to_string(), rockmill_sql::left_out(&plan))
        };
        let query = "select name, sum(price * (1 - price)), count(*) from ours where wide < 5 and name like 'a%' \
                     group by name";
        let (text, left) = plan(query).await;
        assert!(!text.contains("FilterExec") && !text.contains("mode=Partial"), "{text}");
        assert!(text.contains("partial aggregates=2, group keys=1"), "{text}");
        assert_eq!(left, []);
        let (text, left) = plan("select id from ours where id < 7 and upper(name) = 'A'").await;
        assert!(text.contains("FilterExec") && text.contains("id@0 < 7"), "{text}");
        assert_eq!(left.len(), 1, "{text}");
        assert!(left[0].1.contains("scans do not compute upper"), "{left:?}");
        let (text, _) = plan("select key from \"default\" where key > 'a' and key < 'b' order by key").await;
        assert!(text.contains("key ranges=1") && !text.contains("SortExec"), "{text}");
    });
}

/// DataFusion itself asks which filters a table takes. Other programs may call `scan` without this question.
#[test]
fn a_table_applies_filters_that_its_scans_do_not_compute() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let context = session(&folder).await;
        let ours = context.table_provider("ours").await.unwrap();
        let columns = ours.schema().to_dfschema().unwrap();
        let not_computed = context.parse_sql_expr("upper(name) = 'A'", &columns);
        let filters = [col("id").lt(lit(2000_u32)), not_computed.unwrap()];
        let is_taken = ours.supports_filters_pushdown(&[&filters[1]]).unwrap();
        assert_eq!(is_taken, [TableProviderFilterPushDown::Unsupported]);
        let ids = async |limit: Option<usize>| {
            let id_and_wide = vec![0, 2];
            let plan = ours
                .scan(&context.state(), Some(&id_and_wide), &filters, limit)
                .await
                .unwrap();
            let text = displayable(plan.as_ref()).indent(false).to_string();
            assert!(
                text.contains("FilterExec") && text.contains("id@0 < 2000"),
                "{text}"
            );
            let schema = plan.schema();
            let names: Vec<_> = schema
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            assert_eq!(names, ["id", "wide"]);
            let rows = collect(plan, context.task_ctx()).await.unwrap();
            let ids = rows.iter().flat_map(|rows| {
                rows.column(0)
                    .as_primitive::<UInt32Type>()
                    .values()
                    .to_vec()
            });
            ids.collect::<BTreeSet<_>>()
        };
        let matches = |row: &Row| row.id < 2000 && row.name.as_deref() == Some("a");
        let expected: BTreeSet<_> = (0..ROWS)
            .map(row)
            .filter(matches)
            .map(|row| row.id)
            .collect();
        assert!(expected.len() > 10, "{expected:?}");
        assert_eq!(ids(None).await, expected);
        let first = ids(Some(2)).await;
        assert!(
            first.len() >= 2 && first.len() < expected.len(),
            "{first:?}"
        );
        assert!(first.is_subset(&expected), "{first:?}");
    });
}

#[test]
fn least_and_greatest_floats_do_not_depend_on_the_order_of_rows() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let context = session(&folder).await;
        let mut groups: BTreeMap<i32, (f64, f64)> = BTreeMap::new();
        for row in (0..ROWS).map(row) {
            let ratio = row.ratio;
            let (least, greatest) = groups.entry(row.small).or_insert((ratio, ratio));
            if ratio.total_cmp(least).is_lt() {
                *least = ratio;
            }
            if ratio.total_cmp(greatest).is_gt() {
                *greatest = ratio;
            }
        }
        let bits = |column: &ArrayRef| -> Vec<u64> {
            let floats: &Float64Array = column.as_primitive();
            floats
                .values()
                .iter()
                .map(|float| float.to_bits())
                .collect()
        };
        let query = "select small, min(ratio), max(ratio) from {} group by small order by small";
        for table in ["ours", "through_iterators", "theirs"] {
            let found = answer(&context, query, table).await.unwrap();
            let least: Vec<_> = groups.values().map(|(least, _)| least.to_bits()).collect();
            let greatest: Vec<_> = groups
                .values()
                .map(|(_, greatest)| greatest.to_bits())
                .collect();
            assert_eq!(bits(found.column(1)), least, "{table}");
            assert_eq!(bits(found.column(2)), greatest, "{table}");
        }
        let plan = context.sql(&query.replace("{}", "ours")).await.unwrap();
        let plan = plan.create_physical_plan().await.unwrap();
        let text = displayable(plan.as_ref()).indent(false).to_string();
        assert!(
            text.contains("partial aggregates=2") && !text.contains("mode=Partial"),
            "{text}"
        );
        for (floats, least, greatest) in [
            ("('nan'), ('1'), ('-1')", -1.0, f64::NAN),
            ("('1'), ('nan'), ('-1')", -1.0, f64::NAN),
            ("('1'), ('-1'), ('nan')", -1.0, f64::NAN),
            ("('-inf'), ('-inf')", f64::NEG_INFINITY, f64::NEG_INFINITY),
            ("('0'), ('-0'), ('0')", -0.0, 0.0),
            ("('-0'), ('0'), ('-0')", -0.0, 0.0),
        ] {
            for float in ["real", "double"] {
                let query = format!(
                    "select 1 as one, cast(min(f) as double), cast(max(f) as double) from \
                     (select cast(column1 as {float}) as f from (values {floats})) group by one"
                );
                let found = answer(&context, &query, "").await.unwrap();
                assert_eq!(bits(found.column(1)), [f64::to_bits(least)], "{query}");
                assert_eq!(bits(found.column(2)), [f64::to_bits(greatest)], "{query}");
            }
        }
    });
}

#[test]
fn a_wide_table_and_many_conditions_are_scanned() {
    /// Texts of a row, each behind its length.
    const TEXTS: usize = 600;
    const CONDITIONS: usize = 400;
    /// Each takes three steps of a program.
    const TERMS: usize = 15;
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.create_if_missing(true);
    let db = DB::open(&options, folder.path()).unwrap();
    for row in 0..20u32 {
        let mut value = vec![0; TEXTS.div_ceil(8)];
        for at in 0..TEXTS {
            let text = (row as usize * at).to_string();
            value.push(text.len() as u8);
            value.extend(text.as_bytes());
        }
        db.put(row.to_be_bytes(), value).unwrap();
    }
    drop(db);
    let (_, engine) = common::engine();
    let columns: String = (0..TEXTS).map(|at| format!(", t{at} varchar")).collect();
    let parts: String = (0..TEXTS).map(|at| format!(", varint t{at}")).collect();
    let create = format!(
        "create external table wide (id int unsigned not null{columns}) stored as rocksdb location '{}' \
         options ('key' 'u32be id', 'value' 'nulls({}){parts}')",
        folder.path().display(),
        TEXTS.div_ceil(8)
    );
    let work = async {
        let context = rockmill_sql::session(SessionConfig::new(), &engine).unwrap();
        context.sql(&create).await.unwrap();
        let rows = answer(&context, "select * from {} order by id", "wide")
            .await
            .unwrap();
        assert_eq!((rows.num_rows(), rows.num_columns()), (20, 1 + TEXTS));
        let last = rows.column(TEXTS).as_string::<i32>();
        assert!((0..20).all(|row| last.value(row) == (row * (TEXTS - 1)).to_string()));
        // More conditions than fit into a program: some are left to DataFusion.
        let condition = |first: usize| {
            let terms = (first..first + TERMS).map(|factor| format!(" - id * {factor}"));
            format!("id{} <> -1", terms.collect::<String>())
        };
        let conditions = (0..CONDITIONS).map(|at| condition(3 + at * TERMS));
        let conditions = conditions.collect::<Vec<_>>().join(" and ");
        let query = format!("select t9 from wide where {conditions} and id <> 7");
        let frame = context.sql(&query).await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        let rows = collect(Arc::clone(&plan), context.task_ctx())
            .await
            .unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 19);
        let left = rockmill_sql::left_out(&plan);
        assert!(!left.is_empty() && left.len() < CONDITIONS / 2, "{left:?}");
        assert!(
            left.iter().all(|(_, why)| why.contains("steps")),
            "{left:?}"
        );
    };
    Runtime::new().unwrap().block_on(work);
}

#[test]
fn groups_and_limits_keep_the_order_of_the_keys() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let context = session(&folder).await;
        for query in [
            "select id, count(*) as n from {} group by id order by id limit 20",
            "select id from (select id, small from {} limit 50) where small > 0 order by id",
            "select a.id, b.small from {} a join (select * from {} where small = 2) b on a.id = b.id \
             where a.small >= 0 order by a.id limit 30",
            "select id, wide from {} where wide > 3 order by wide, id limit 7",
        ] {
            let ours = answer(&context, query, "ours").await.unwrap();
            let theirs = answer(&context, query, "theirs").await.unwrap();
            assert!(ours.num_rows() > 0, "{query}");
            assert_eq!(ours.columns(), theirs.columns(), "{query}");
        }
    });
}

#[test]
fn rows_that_do_not_fit_their_layout_are_errors() {
    let runtime = Runtime::new().unwrap();
    let folder = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        let context = session(&folder).await;
        let location = folder.path().display();
        for (name, value, says) in [
            ("short", "skip(1)", "leaves bytes over"),
            ("long", "skip(5000)", "runs past"),
            ("other", "'nobody', skip(99)", "lacks a literal"),
        ] {
            let create = format!(
                "create external table {name} (k bytea not null) stored as rocksdb location '{location}' \
                 options ('key' 'rest k', 'value' '{}')",
                value.replace('\'', "''")
            );
            context.sql(&create).await.unwrap();
            let counted = context.sql(&format!("select count(*) from {name}")).await.unwrap();
            let error = counted.collect().await.unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("key 0x00000000"), "{error}");
        }
    });
}

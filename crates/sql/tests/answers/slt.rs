//! SQL logic tests: the statements of `slt/*.slt` over databases in RocksDB, with their answers.
//!
//! Scans run on the CPU and by the GPU's kernels on the host, or on the device that `ROCKMILL_TEST_DEVICE` names (`cuda:N`).

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_core::scan::StringGroups;
use rockmill_scan::{Directory, ScanEngine};
use rockmill_side_by_side::dataset::{self, Dataset};
use rockmill_side_by_side::workload::Compression;
use rockmill_sql::Scans;
use rust_rocksdb::{DB, Options};
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType, Runner, strict_column_validator};

use crate::common;

/// A session; each connection is a clone of it.
#[derive(Clone)]
struct Connection(SessionContext);

#[async_trait]
impl AsyncDB for Connection {
    type Error = DataFusionError;
    type ColumnType = DefaultColumnType;

    async fn run(
        &mut self,
        statement: &str,
    ) -> Result<DBOutput<DefaultColumnType>, DataFusionError> {
        let frame = self.0.sql(statement).await?;
        let types = frame.schema().fields().iter();
        let types = types
            .map(|field| match field.data_type() {
                integer if integer.is_integer() => DefaultColumnType::Integer,
                number if number.is_numeric() => DefaultColumnType::FloatingPoint,
                DataType::Utf8 | DataType::Utf8View => DefaultColumnType::Text,
                _ => DefaultColumnType::Any,
            })
            .collect::<Vec<_>>();
        let options = FormatOptions::default().with_null("NULL");
        let mut rows = Vec::new();
        for batch in frame.collect().await? {
            let columns = batch.columns().iter();
            let columns = columns.map(|column| ArrayFormatter::try_new(column, &options));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            rows.extend((0..batch.num_rows()).map(|row| {
                let fields = columns.iter().map(|column| column.value(row).to_string());
                let shown = fields.map(|field| match field.is_empty() {
                    true => "(empty)".to_owned(),
                    false => field,
                });
                shown.collect::<Vec<_>>()
            }));
        }
        Ok(match types.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        })
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "rockmill"
    }
}

/// Name and text of a file of `slt/`.
macro_rules! slt {
    ($name:literal) => {
        (
            concat!($name, ".slt"),
            include_str!(concat!("../slt/", $name, ".slt")),
        )
    };
}

/// A session with the tables of the database in `folder`. In statements, `$DB` is that folder.
///
/// Returns the bytes of columns that repeated statements have found in the cache.
async fn run(folder: &Path, file: (&str, &str)) -> u64 {
    let mut hit_bytes = 0;
    let named = std::env::var("ROCKMILL_TEST_DEVICE");
    let named = named
        .as_ref()
        .map_or(vec!["cpu", common::KERNELS], |name| vec![name]);
    for device in named {
        let engine = common::engine_on(device);
        run_on(device, &engine, folder, file).await;
        if device == "cpu" {
            // The same statements find columns that were parsed.
            run_on(device, &engine, folder, file).await;
            hit_bytes += engine.columns().accounts().hit_bytes;
        }
    }
    hit_bytes
}

/// Asserts that statements found columns, unless a GPU ran them.
fn assert_hits(hit_bytes: u64) {
    let on_gpu = std::env::var("ROCKMILL_TEST_DEVICE").is_ok_and(|name| name != "cpu");
    assert!(hit_bytes > 0 || on_gpu);
}

async fn run_on(device: &str, engine: &Arc<ScanEngine>, folder: &Path, (name, text): (&str, &str)) {
    let engine = Arc::clone(engine);
    let config = SessionConfig::new().with_target_partitions(3);
    let session = rockmill_sql::session(config, &engine).unwrap();
    let scans = Scans::new(engine, Arc::new(Directory::open(folder).unwrap()));
    scans.register(&session).unwrap();
    if let Ok(tables) = std::fs::read_to_string(folder.join(dataset::TABLES)) {
        scans.define(&session, &tables).await.unwrap();
    }
    let connection = Connection(session);
    let mut runner = Runner::new(|| async { Ok(connection.clone()) });
    runner.with_column_validator(strict_column_validator);
    runner.set_var("DB".to_owned(), folder.display().to_string());
    // The text is compiled into the program, which may run on another machine.
    let done = runner.run_script_with_name_async(text, name).await;
    if let Err(error) = done {
        panic!("on {device}: {error}");
    }
}

/// Quantity, price in cents, day since 1970-01-01, and name.
type Item = (Option<i32>, Option<i64>, i32, Option<&'static str>);

const ITEMS: [Item; 8] = [
    (Some(10), Some(150), 19_723, Some("apple")),
    (None, Some(225), 19_737, Some("banana")),
    (Some(0), None, 19_782, Some("cherry")),
    (Some(-5), Some(-75), 19_722, None),
    (Some(10), Some(10_000), 19_754, Some("apricot")),
    (Some(7), Some(0), -1, Some("")),
    (None, Some(9_999_999_999), 19_783, Some("100%")),
    (Some(i32::MAX), Some(1), 0, Some("a_b")),
];

/// Items, cents.
const SALES: [(u32, i64); 6] = [(1, 300), (1, 450), (2, 225), (5, 10_000), (5, -1), (9, 7)];

fn item(item: &Item) -> Vec<u8> {
    let (quantity, price, day, name) = item;
    let nulls = [quantity.is_none(), price.is_none(), name.is_none()];
    let nulls = (0..).zip(nulls).map(|(bit, null)| u8::from(null) << bit);
    let mut value = vec![nulls.sum()];
    value.extend(quantity.unwrap_or(0).to_le_bytes());
    value.extend(price.unwrap_or(0).to_be_bytes());
    value.extend(day.to_le_bytes());
    let name = name.unwrap_or_default();
    value.push(name.len() as u8);
    value.extend(name.as_bytes());
    value
}

/// Values of rows: the first is the guide's, and not all fit.
fn packed() -> [Vec<u8>; 6] {
    let head = |nulls: u8, quantity: i32, price: i128| {
        let parts = [
            &[1, nulls][..],
            &quantity.to_le_bytes(),
            &price.to_le_bytes(),
        ];
        parts.concat()
    };
    let ends = |note: u32, name: u32| [note.to_le_bytes(), name.to_le_bytes()].concat();
    let guide = [
        &[0x01, 0x02, 0x07, 0, 0, 0, 0x96][..],
        &[0; 15],
        &[2, 0, 0, 0, 2, 0, 0, 0, 0x00, 0xff],
    ]
    .concat();
    let mut later = guide.clone();
    later[0] = 2;
    [
        guide,
        [head(1, 0x0102_0304, -1), ends(0, 2), "é".into()].concat(),
        later,
        [head(0, 7, 150), ends(2, 3), b"ab".to_vec()].concat(),
        [head(0, 7, 150), ends(5, 2), b"ab".to_vec()].concat(),
        Vec::new(),
    ]
}

const DOCS: [&str; 7] = [
    r#"{"size": 7, "price": 1.5, "ratio": 0.1, "short": 0.1, "ok": true, "name": "ann", "tiny": 1, "other": null}"#,
    r#" {"tiny":2,"size":null} "#,
    r#"{"size":9223372036854775807,"price":"-12.3","ratio":-1e3,"short":-1000,"ok":false,"name":"a\"b\u007b\u00e9",
        "tiny":-128}"#,
    r#"{"size":"7","price":100,"ok":1,"name":[1, {"a": "]"}],"tiny":2,"tiny":3}"#,
    "[1]",
    r#"{"tiny":1"#,
    r#"{"size":2}"#,
];

/// Keys, and values of an amount and a name, not all of which fit.
fn damaged() -> [(Vec<u8>, Vec<u8>); 6] {
    let value =
        |amount: i64, name: &[u8]| [&amount.to_be_bytes()[..], &[name.len() as u8], name].concat();
    let key = |id: u32| id.to_be_bytes().to_vec();
    [
        (key(1), value(100, b"ann")),
        (key(2), vec![1, 2, 3]),
        (key(3), [value(300, b"bob"), vec![0]].concat()),
        (key(4), value(400, &[0xff, 0xfe])),
        (key(5), Vec::new()),
        (vec![9], value(600, b"sid")),
    ]
}

/// Strings in keys, some of which fill groups, and the number of occurrences.
const WORDS: [(&str, u32); 7] = [
    ("", 1),
    ("a", 2),
    ("eight by", 3),
    ("eight by nine", 4),
    ("eight byte", 5),
    ("sixteen by 8 or 4", 6),
    ("é", 7),
];

/// Makes a database with overwritten and deleted rows, and with rows that are only in the log.
fn write(folder: &Path) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, folder, ["items", "sales", "words"]).unwrap();
    let [items, sales, words] = ["items", "sales", "words"].map(|name| db.cf_handle(name).unwrap());
    for (word, times) in WORDS {
        let mut key = StringGroups::encode_counted(word.as_bytes());
        key.extend(times.to_be_bytes());
        db.put_cf(words, key, "").unwrap();
    }
    for (id, row) in (1u32..).zip(&ITEMS) {
        db.put_cf(items, id.to_be_bytes(), b"an older version")
            .unwrap();
        if id == 5 {
            db.flush_cf(items).unwrap();
        }
        db.put_cf(items, id.to_be_bytes(), item(row)).unwrap();
    }
    for (at, (id, cents)) in (0u32..).zip(SALES) {
        let key = [id.to_be_bytes(), at.to_be_bytes()].concat();
        db.put_cf(sales, key, cents.to_be_bytes()).unwrap();
    }
    for (key, value) in [("user:1", "old"), ("user:3", "cid"), ("user:2", "bob")] {
        db.put(key, value).unwrap();
    }
    db.put("log:1", [0, 0, 1, 2, 0xff]).unwrap();
    db.put("log:2", [9]).unwrap();
    db.flush().unwrap();
    db.delete("user:3").unwrap();
    db.put("user:1", "ann").unwrap();
}

/// Makes a database with the rows of [`packed`], [`DOCS`] and [`damaged`].
fn write_presets(folder: &Path) {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    let db = DB::open_cf(&options, folder, ["packed", "docs", "damaged"]).unwrap();
    let put = |family, key: &[u8], value: &[u8]| {
        let family = db.cf_handle(family).unwrap();
        db.put_cf(family, key, value).unwrap();
    };
    for (id, value) in (1u32..).zip(packed()) {
        put("packed", &id.to_be_bytes(), &value);
    }
    for (id, value) in (1..).zip(DOCS) {
        put("docs", format!("d:{id}").as_bytes(), value.as_bytes());
    }
    for (key, value) in damaged() {
        put("damaged", &key, &value);
    }
    // Columns of files are cached, and not those of rows that are only in the log.
    for family in ["packed", "docs", "damaged"] {
        db.flush_cf(db.cf_handle(family).unwrap()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn presets() {
    let folder = tempfile::tempdir().unwrap();
    write_presets(folder.path());
    assert_hits(run(folder.path(), slt!("presets")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let mut hit_bytes = 0;
    for file in [slt!("raw"), slt!("layout"), slt!("errors")] {
        hit_bytes += run(folder.path(), file).await;
    }
    assert_hits(hit_bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    dataset::load(&path, Dataset::Tpch, 0.01, Compression::Lz4).unwrap();
    assert_hits(run(&path, slt!("tpch")).await);
}

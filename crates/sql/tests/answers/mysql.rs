//! A directory that MariaDB has written with MyRocks (`data/mysql/make.sh`), and MariaDB's answers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::error::DataFusionError;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::Directory;
use rockmill_sql::{ReadOnly, Scans};

use crate::common;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/mysql")
        .join(name)
}

fn text(name: &str) -> String {
    fs::read_to_string(data(name)).unwrap()
}

fn scans() -> (SessionContext, Scans) {
    scans_on("cpu")
}

fn scans_on(device: &str) -> (SessionContext, Scans) {
    scans_of(&data("db"), device)
}

fn scans_of(folder: &Path, device: &str) -> (SessionContext, Scans) {
    let engine = common::engine_on(device);
    let database = Directory::open(folder).unwrap();
    let database = database.with_iterators(Arc::new(ReadOnly::default()));
    let config = SessionConfig::new().with_target_partitions(2);
    let session = rockmill_sql::session(config, &engine).unwrap();
    (session, Scans::new(engine, Arc::new(database)))
}

/// Rows as MariaDB's client prints them.
fn printed(batches: &[RecordBatch]) -> Vec<String> {
    let format = FormatOptions::new().with_null("NULL");
    let format = format.with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let format = format.with_timestamp_tz_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let mut lines = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter();
        let columns = columns.map(|column| ArrayFormatter::try_new(column, &format).unwrap());
        let columns: Vec<_> = columns.collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            lines.push(cells.collect::<Vec<_>>().join("\t"));
        }
    }
    lines
}

#[tokio::test]
async fn rows_are_those_that_mariadb_returns() {
    for device in ["cpu", common::KERNELS] {
        returns_rows_of_mariadb(device).await;
    }
}

/// The tables of the database `shop`. Another database has tables with some of these names.
fn schema() -> String {
    let schema = text("schema.sql").replace("TABLE `ints`", "TABLE `shop`.`ints`");
    schema.replace("TABLE `täble`", "TABLE `shop`.`täble`")
}

/// A session with all tables.
async fn session_on(device: &str) -> SessionContext {
    let (session, scans) = scans_on(device);
    let registered = scans
        .register_mysql(&session, &schema(), "schema.sql")
        .await;
    assert_eq!(registered.unwrap(), None);
    session
}

async fn answer(session: &SessionContext, query: &str) -> Result<Vec<String>, DataFusionError> {
    let frame = session.sql(query).await?;
    Ok(printed(&frame.collect().await?))
}

async fn returns_rows_of_mariadb(device: &str) {
    let session = session_on(device).await;
    let answers = text("answers.txt");
    let mut lines = answers.lines().peekable();
    let (mut queries, mut left_to_cpu) = (0, 0);
    while let Some(query) = lines.next() {
        let mut meant = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            meant.push(line[2..].to_owned());
        }
        let found = answer(&session, query).await;
        let found = found.unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(found, meant, "{query}");
        queries += 1;
        let plan = answer(&session, &format!("explain analyze {query}")).await;
        let text = plan.unwrap().join("\n");
        let is_left = text.contains("no GPU=the CPU decodes latin1");
        left_to_cpu += usize::from(is_left);
        let by = if is_left { "cpu" } else { device };
        let is_done = !text.contains("rows_visible") || text.contains(&format!("pieces_by_{by}"));
        let is_moved = text.contains("moved_to_cpu");
        assert!(is_done && is_moved == (by != device), "{query}: {text}");
    }
    assert_eq!(queries, text("queries.sql").lines().count());
    assert!((1..queries / 2).contains(&left_to_cpu), "{left_to_cpu}");
}

#[tokio::test]
async fn keys_limit_what_is_read() {
    let session = session_on("cpu").await;
    for (query, rows) in [
        ("select b from ints where id = 50", 1),
        ("select b from ints where id between -40 and 120", 21),
        ("select e from bytes where f = x'017800' and k >= x'fe'", 1),
        ("select a from hidden where b = 'row 2'", 272),
        ("select b from uniq where a >= 7", 1),
    ] {
        let plan = answer(&session, &format!("explain analyze {query}")).await;
        let text = plan.unwrap().join("\n");
        let visible = format!("rows_visible={rows}");
        assert!(text.contains(&visible), "{query}: {text}");
    }
}

#[tokio::test]
async fn latin1_is_text_that_sorts_as_utf_8() {
    let session = session_on("cpu").await;
    let sorted = answer(&session, "select e from lat where e is not null order by e").await;
    let sorted = sorted.unwrap();
    assert_eq!(sorted.len(), 7);
    assert!(
        sorted.is_sorted() && sorted.contains(&"für".to_owned()),
        "{sorted:?}"
    );
    let extremes = answer(
        &session,
        "select min(c), max(c), min(t), max(e) from lat where c >= 'é'",
    )
    .await;
    assert_eq!(extremes.unwrap(), ["ü\tŽžŒœŸ\tnaïve – “façade”\tÜ"]);
    // The bytes of ü in latin1 are not UTF-8, and the text has two.
    let lengths = answer(&session, "select octet_length(e) from lat where id = 1").await;
    assert_eq!(lengths.unwrap(), ["4"]);
}

/// The error of a query, with these descriptions of tables.
async fn refused(schema: &str, query: &str) -> String {
    let (session, scans) = scans();
    let registered = scans.register_mysql(&session, schema, "schema.sql").await;
    let outcome = match registered {
        Ok(_) => answer(&session, query).await,
        Err(error) => Err(error),
    };
    outcome.unwrap_err().strip_backtrace()
}

#[tokio::test]
async fn what_is_not_supported_is_named() {
    for (schema, query, says) in [
        (
            "create table nobody (id int primary key)",
            "select * from nobody",
            "table nobody of schema.sql: the directory has no such table",
        ),
        ("select 1", "", "schema.sql has no CREATE TABLE"),
        (
            "create table hidden (a int comment 'x)",
            "",
            "schema.sql: sql parser error",
        ),
        (
            "create table hidden (a int, b varchar(20)",
            "select 1 from hidden",
            "table hidden of schema.sql: sql parser error",
        ),
        (
            "create table hidden (a int, b varchar(20)) charset=utf16",
            "select b from hidden",
            "table hidden of schema.sql: column b has the type VARCHAR(20), with the character set utf16",
        ),
        (
            "create table hidden (a int, b varchar(20))",
            "select * from hidden",
            "names a character set: leave it out, as in SELECT * EXCEPT (b)",
        ),
        (
            "create table hidden (a geometry, b varchar(20) character set utf8mb4 not null)",
            "select b from hidden",
            "column b has the type VARCHAR(20), and is behind column a, whose size is not known",
        ),
        (
            "create table bytes (k double primary key)",
            "select count(*) from bytes",
            "column k has the type DOUBLE, which is not supported in a primary key",
        ),
        (
            "create table words (w varchar(40) character set latin1 primary key)",
            "select n from words",
            "column w has the type VARCHAR(40), which is not supported in a primary key",
        ),
        (
            "create table words (w decimal(39, 1) primary key)",
            "select w from words",
            "column w has the type DECIMAL(39,1)",
        ),
        (
            "create table hidden (a int primary key)",
            "select a from hidden",
            "the directory has it without a primary key",
        ),
        (
            "create table words (n int not null, unique (m), m int unique)",
            "select n from words",
            "the directory has it with a primary key",
        ),
    ] {
        let error = refused(schema, query).await;
        assert!(error.contains(says), "{schema}: {error}");
    }
    let both = "create table ints (id int primary key); create table `täble` (id int primary key)";
    for (query, database, name) in [
        ("select id from ints", "other and shop", "other.ints"),
        ("select id from täble", "shop and täst", "shop.täble"),
    ] {
        let error = refused(both, query).await;
        let says = format!("the databases {database} both have it: write CREATE TABLE {name}");
        assert!(error.contains(&says), "{error}");
    }
}

#[tokio::test]
async fn names_may_have_letters_beyond_ascii() {
    let (session, scans) = scans();
    let schema = "create table `täst`.`täble` (id int primary key, v int)";
    let registered = scans.register_mysql(&session, schema, "schema.sql").await;
    registered.unwrap();
    let rows = answer(&session, "select id, v from täble").await;
    assert_eq!(rows.unwrap(), ["3\t7"]);
}

#[tokio::test]
async fn a_table_that_is_not_supported_costs_itself_alone() {
    let session = session_on("cpu").await;
    let error = answer(&session, "select a from part").await.unwrap_err();
    let error = error.strip_backtrace();
    assert!(
        error.contains("table part of schema.sql: it has partitions, which is not supported"),
        "{error}"
    );
    let schema = session
        .catalog("datafusion")
        .unwrap()
        .schema("public")
        .unwrap();
    let names = schema.table_names();
    assert!(
        names.contains(&"en".to_owned()) && !names.contains(&"part".to_owned()),
        "{names:?}"
    );
    // A table of the session replaces it.
    let own = session.sql("select 1 as a").await.unwrap().into_view();
    session.register_table("part", own).unwrap();
    assert_eq!(answer(&session, "select a from part").await.unwrap(), ["1"]);
}

#[tokio::test]
async fn a_column_that_is_not_supported_costs_itself_alone() {
    for device in ["cpu", common::KERNELS] {
        let session = session_on(device).await;
        for (query, says) in [
            (
                "select * from en",
                "column e has the type ENUM('a', 'b'), which is not supported",
            ),
            (
                "select id from en where e = 'a'",
                "table en of schema.sql: column e has the type",
            ),
            ("select count(s) from en", "column s has the type SET("),
            (
                "select t from en",
                "leave it out, as in SELECT * EXCEPT (t)",
            ),
            (
                "select max(b) from comp",
                "column b has the type BLOB, with the attribute COMPRESSED, which is not supported",
            ),
        ] {
            let error = answer(&session, query).await.unwrap_err().strip_backtrace();
            assert!(error.contains(says), "{query}: {error}");
        }
        let others = answer(
            &session,
            "select * except (e, s, t, y, d, b, u) from en order by id",
        )
        .await;
        assert_eq!(others.unwrap(), ["1\t5\t6", "2\tNULL\t7", "3\t-1\tNULL"]);
    }
}

/// A checksum of the log's records.
fn masked_crc32c(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let bit = |crc: u32| crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
    let byte = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc));
    let crc = !bytes.iter().fold(u32::MAX, byte);
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

#[tokio::test]
async fn transactions_that_only_the_binary_log_decides_on_are_told() {
    // A row of `other.alone` that is prepared and not committed, as a server with a binary log leaves it.
    let index = 0x102u32;
    let key = [index.to_be_bytes(), (1u32 << 31 | 7).to_be_bytes()].concat();
    let (sequence, count) = (1u64 << 40, 1u32);
    let begin: &[u8] = &[0x09, 0x01, key.len() as u8];
    let end = b"\0\x0a\x03one";
    let batch = [
        &sequence.to_le_bytes()[..],
        &count.to_le_bytes(),
        begin,
        &key,
        end,
    ]
    .concat();
    let record = [&[1], &batch[..]].concat();
    let header = masked_crc32c(&record).to_le_bytes();
    let length = (batch.len() as u16).to_le_bytes();
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(data("db")).unwrap() {
        let file = file.unwrap();
        let mut bytes = fs::read(file.path()).unwrap();
        if file.file_name().to_str().unwrap().ends_with(".log") {
            bytes.extend([&header[..], &length, &record].concat());
        }
        fs::write(folder.path().join(file.file_name()), bytes).unwrap();
    }
    let (session, scans) = scans_of(folder.path(), "cpu");
    let schema = "create table other.alone (id int primary key)";
    let warning = scans.register_mysql(&session, schema, "schema.sql").await;
    let warning = warning.unwrap().unwrap();
    assert!(
        warning.contains("not committed there (1)") && warning.contains("binary log"),
        "{warning}"
    );
    let rows = answer(&session, "select id from alone").await;
    assert_eq!(rows.unwrap(), [""; 0]);
}

#[tokio::test]
async fn a_schema_that_disagrees_with_the_data_is_an_error() {
    let (session, scans) = scans();
    let schema = "create table shop.hidden (a int, b int not null); create table other.alone (id bigint primary key)";
    scans
        .register_mysql(&session, schema, "schema.sql")
        .await
        .unwrap();
    let run = session
        .sql("select count(b) from hidden")
        .await
        .unwrap()
        .collect()
        .await;
    let error = run.unwrap_err().strip_backtrace();
    assert!(
        error.contains("table hidden of schema.sql: the layout does not end with the value")
            && error.contains("(key 0x"),
        "{error}"
    );
    // Other tables have rows in the same column family.
    let run = session
        .sql("select id from alone")
        .await
        .unwrap()
        .collect()
        .await;
    assert_eq!(printed(&run.unwrap()), [""; 0]);
}

#[tokio::test]
async fn tables_of_the_database_are_not_dropped() {
    let (session, scans) = scans();
    scans.register(&session).unwrap();
    let described = format!("{}\nCREATE TABLE `nowhere` (`a` int);", schema());
    let registered = scans.register_mysql(&session, &described, "schema.sql");
    registered.await.unwrap();
    let drops = async |table: &str| {
        let (state, drop) = (session.state(), format!("drop table {table}"));
        let plan = state.create_logical_plan(&drop).await.unwrap();
        rockmill_sql::refuse_writes(&session, &plan).await
    };
    for table in ["ints", "nowhere", "__system__"] {
        let refused = drops(table).await.unwrap_err().to_string();
        assert!(refused.contains("are only read here"), "{table}: {refused}");
    }
    let made = session
        .sql("create or replace table ints as select 1")
        .await;
    made.unwrap().collect().await.unwrap();
    drops("ints").await.unwrap();
}

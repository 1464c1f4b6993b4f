//! A directory that MariaDB has written with MyRocks (`data/mysql/make.sh`), and what MariaDB answers.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::Directory;
use rockmill_sql::{ReadOnly, Scans};

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
    let engine = common::engine_on(device);
    let database = Directory::open(data("db")).unwrap();
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

async fn returns_rows_of_mariadb(device: &str) {
    let (session, scans) = scans_on(device);
    // Two databases have a table of this name.
    let schema = text("schema.sql").replace("TABLE `ints`", "TABLE `shop`.`ints`");
    scans
        .register_mysql(&session, &schema, "schema.sql")
        .await
        .unwrap();
    let answers = text("answers.txt");
    let mut lines = answers.lines().peekable();
    let mut queries = 0;
    while let Some(query) = lines.next() {
        let mut meant = Vec::new();
        while let Some(line) = lines.next_if(|line| line.starts_with("  ")) {
            meant.push(line[2..].to_owned());
        }
        let found = session.sql(query).await.unwrap().collect().await;
        let found = printed(&found.unwrap_or_else(|error| panic!("{query}: {error}")));
        assert_eq!(found, meant, "{query}");
        queries += 1;
        let plan = session.sql(&format!("explain analyze {query}")).await;
        let plan = plan.unwrap().collect().await.unwrap();
        let text = printed(&plan).join("\n");
        let is_done =
            !text.contains("rows_visible") || text.contains(&format!("pieces_by_{device}"));
        assert!(is_done && !text.contains("moved_to_cpu"), "{query}: {text}");
    }
    assert_eq!(queries, text("queries.sql").lines().count());
}

#[tokio::test]
async fn keys_limit_what_is_read() {
    let (session, scans) = scans();
    let schema = text("schema.sql").replace("TABLE `ints`", "TABLE `shop`.`ints`");
    scans
        .register_mysql(&session, &schema, "schema.sql")
        .await
        .unwrap();
    for (query, rows) in [
        ("select b from ints where id = 50", 1),
        ("select b from ints where id between -40 and 120", 21),
        ("select e from bytes where f = x'017800' and k >= x'fe'", 1),
        ("select a from hidden where b = 'row 2'", 272),
    ] {
        let plan = format!("explain analyze {query}");
        let found = session.sql(&plan).await.unwrap().collect().await.unwrap();
        let text = printed(&found).join("\n");
        let visible = format!("rows_visible={rows}");
        assert!(text.contains(&visible), "{query}: {text}");
    }
}

/// What is said of a table that is described so.
async fn refused(schema: &str) -> String {
    let (session, scans) = scans();
    let refused = scans.register_mysql(&session, schema, "schema.sql").await;
    refused.unwrap_err().strip_backtrace()
}

#[tokio::test]
async fn what_is_not_supported_is_named() {
    for (schema, says) in [
        (
            "create table nobody (id int primary key)",
            "table nobody of schema.sql: the directory has no such table",
        ),
        ("select 1", "schema.sql has no CREATE TABLE"),
        ("create table ints (id int", "schema.sql: sql parser error"),
        (
            "create table hidden (a int, b varchar(20)) charset=utf16",
            "column b has the type VARCHAR(20), with the character set utf16",
        ),
        (
            "create table hidden (a int, b varchar(20))",
            "names a character set",
        ),
        (
            "create table hidden (a geometry)",
            "column a has the type geometry, which is not supported",
        ),
        (
            "create table bytes (k double primary key)",
            "column k has the type DOUBLE, which is not supported in a primary key",
        ),
        (
            "create table words (w varchar(40) character set latin1 primary key)",
            "column w has the type VARCHAR(40), which is not supported in a primary key",
        ),
        (
            "create table words (w decimal(39, 1))",
            "column w has the type DECIMAL(39,1)",
        ),
    ] {
        let error = refused(schema).await;
        assert!(error.contains(says), "{schema}: {error}");
    }
    let both = refused("create table ints (id int primary key)").await;
    assert!(
        both.contains("the databases other and shop both have it: write CREATE TABLE other.ints"),
        "{both}"
    );
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

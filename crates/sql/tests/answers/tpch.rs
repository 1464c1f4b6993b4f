//! The queries of TPC-H over RocksDB, compared with DataFusion over Parquet files, and with the published answers.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatchReader;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::datasource::MemTable;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use rockmill_scan::Directory;
use rockmill_side_by_side::dataset::{self, Dataset};
use rockmill_side_by_side::workload::Compression;
use rockmill_sql::Scans;
use tpchgen::generators as rows;
use tpchgen::q_and_a::answers_sf1;

use crate::common;

/// The scale factor. With 1, the answers are also compared with the published ones.
const SCALE: &str = "ROCKMILL_TPCH_SCALE";
const QUERIES: i32 = 22;
/// Their published answers have only the first rows.
const SHORTENED: [i32; 5] = [2, 3, 10, 18, 21];

/// The fields of the rows that a query returns.
async fn answer(context: &SessionContext, query: i32, scale: f64) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for statement in dataset::tpch_statements(query, scale) {
        let frame = context.sql(&statement).await.unwrap();
        for batch in frame.collect().await.unwrap() {
            rows.extend(fields(&batch));
        }
    }
    rows
}

fn fields(batch: &RecordBatch) -> Vec<Vec<String>> {
    let options = FormatOptions::default();
    let columns = batch.columns().iter();
    let columns = columns.map(|column| ArrayFormatter::try_new(column, &options).unwrap());
    let columns: Vec<_> = columns.collect();
    let row = |row| {
        columns
            .iter()
            .map(|column| column.value(row).to_string())
            .collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

/// The tables in RocksDB.
async fn ours(folder: &Path, config: SessionConfig) -> SessionContext {
    let (_, engine) = common::engine();
    let context = rockmill_sql::session(config, &engine).unwrap();
    let scans = Scans::new(engine, Arc::new(Directory::open(folder).unwrap()));
    scans.register(&context).unwrap();
    let tables = std::fs::read_to_string(folder.join(dataset::TABLES)).unwrap();
    scans.define(&context, &tables).await.unwrap();
    context
}

/// The tables in Parquet files, made by the generator and not from RocksDB.
async fn theirs(folder: &Path, scale: f64, config: SessionConfig) -> SessionContext {
    let memory = SessionContext::new_with_config(config.clone());
    let add = |name: &str, rows: &mut dyn RecordBatchReader| {
        let schema = rows.schema();
        let batches = rows.collect::<Result<Vec<_>, ArrowError>>().unwrap();
        let table = MemTable::try_new(schema, vec![batches]).unwrap();
        memory.register_table(name, Arc::new(table)).unwrap();
    };
    macro_rules! tables {
        ($($name:literal $generator:ident $arrow:ident),+) => {{
            $( add($name, &mut tpchgen_arrow::$arrow::new(rows::$generator::new(scale, 1, 1))); )+
            [$($name),+]
        }};
    }
    let names = tables!(
        "lineitem" LineItemGenerator LineItemArrow,
        "orders" OrderGenerator OrderArrow,
        "partsupp" PartSuppGenerator PartSuppArrow,
        "customer" CustomerGenerator CustomerArrow,
        "part" PartGenerator PartArrow,
        "supplier" SupplierGenerator SupplierArrow,
        "nation" NationGenerator NationArrow,
        "region" RegionGenerator RegionArrow
    );
    let context = SessionContext::new_with_config(config);
    for name in names {
        let files = folder.join(name);
        let files = files.to_str().unwrap();
        let table = memory.table(name).await.unwrap();
        let options = DataFrameWriteOptions::new();
        table.write_parquet(files, options, None).await.unwrap();
        let options = ParquetReadOptions::default();
        let registered = context.register_parquet(name, files, options).await;
        registered.unwrap();
    }
    context
}

/// Compares rows with a published answer, whose numbers are rounded to hundredths. Those of query 17 differ by 3 hundredths
/// from what exact decimals give.
fn compare_with_published(query: i32, found: &[Vec<String>]) {
    let published = answers_sf1::answer(query).unwrap();
    let lines = published.lines().filter(|line| !line.trim().is_empty());
    let rows: Vec<Vec<_>> = lines
        .skip(1)
        .map(|line| line.split('|').collect())
        .collect();
    match SHORTENED.contains(&query) {
        true => assert!(found.len() >= rows.len(), "query {query}"),
        false => assert_eq!(found.len(), rows.len(), "query {query}"),
    }
    for (row, (expected, found)) in rows.iter().zip(found).enumerate() {
        assert_eq!(expected.len(), found.len(), "query {query}");
        for (expected, found) in expected.iter().zip(found) {
            let (expected, found) = (expected.trim(), found.trim());
            // The text of this answer lacks the last digits of the parts' numbers.
            if query == 11 && found.starts_with(expected) {
                continue;
            }
            let is_same = match (expected.parse::<f64>(), found.parse::<f64>()) {
                (Ok(expected), Ok(found)) if query == 17 => (expected - found).abs() < 0.05,
                (Ok(expected), Ok(found)) => (expected - found).abs() < 0.0051,
                _ => expected == found,
            };
            assert!(
                is_same,
                "query {query}, row {row}: {found} is not {expected}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_queries_answer_as_over_parquet() {
    let scale = std::env::var(SCALE).map_or(0.01, |scale| scale.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    dataset::load(&path, Dataset::Tpch, scale, Compression::Lz4).unwrap();
    let config = SessionConfig::new().with_target_partitions(3);
    let ours = ours(&path, config.clone()).await;
    let theirs = theirs(&folder.path().join("parquet"), scale, config).await;
    let mut returned = 0;
    for query in 1..=QUERIES {
        let found = answer(&ours, query, scale).await;
        let sorted = |mut rows: Vec<_>| {
            rows.sort();
            rows
        };
        // Rows that are equal in ORDER BY come in any order.
        let expected = sorted(answer(&theirs, query, scale).await);
        assert_eq!(sorted(found.clone()), expected, "query {query}");
        let again = answer(&ours, query, scale).await;
        assert_eq!(sorted(again), expected, "query {query} over cached columns");
        returned += usize::from(!found.is_empty());
        if scale == 1.0 {
            compare_with_published(query, &found);
        }
    }
    // A few queries find nothing in this number of rows.
    assert!(returned > 15, "{returned} queries returned rows");
}

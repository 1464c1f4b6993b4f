//! The tables `rocksdb_files` and `rocksdb_families`: the files and column families of a database.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, RecordBatch, StringBuilder, UInt32Builder, UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use rockmill_core::{Error, ErrorKind};
use rockmill_scan::Snapshot;

use crate::scan::external_in;
use crate::table::{Scans, blocking};

/// One of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// A row of each SST file.
    Files,
    /// A row of each column family.
    Families,
}

/// One of the two tables.
#[derive(Debug)]
pub struct ContentsTable {
    scans: Scans,
    contents: Contents,
    schema: SchemaRef,
}

impl ContentsTable {
    /// The table of a database.
    pub fn new(scans: &Scans, contents: Contents) -> Self {
        // The number of entries of files of other formats is unknown.
        let is_nullable = |name: &str| ["entries", "compression"].contains(&name);
        let column = |(name, data_type)| Field::new(name, data_type, is_nullable(name));
        let columns: Vec<_> = match contents {
            Contents::Files => vec![
                ("family", DataType::Utf8),
                ("file", DataType::UInt64),
                ("level", DataType::UInt32),
                ("smallest_key", DataType::Binary),
                ("largest_key", DataType::Binary),
                ("entries", DataType::UInt64),
                ("bytes", DataType::UInt64),
                ("compression", DataType::Utf8),
            ],
            Contents::Families => vec![
                ("family", DataType::Utf8),
                ("files", DataType::UInt64),
                ("entries", DataType::UInt64),
                ("bytes", DataType::UInt64),
            ],
        };
        Self {
            scans: scans.clone(),
            contents,
            schema: Arc::new(Schema::new(
                columns.into_iter().map(column).collect::<Vec<_>>(),
            )),
        }
    }

    fn columns(contents: Contents, scans: &Scans, snapshot: &Snapshot) -> Result<Vec<ArrayRef>> {
        let mut names = StringBuilder::new();
        let (mut numbers, mut levels) = (UInt64Builder::new(), UInt32Builder::new());
        let (mut smallest, mut largest) = (BinaryBuilder::new(), BinaryBuilder::new());
        let (mut entries, mut bytes) = (UInt64Builder::new(), UInt64Builder::new());
        let mut compressions = StringBuilder::new();
        let failed = |error| external_in(scans.database().path(), error);
        for name in scans.database().families().map_err(failed)? {
            // A file that cannot be read is listed with what the MANIFEST says.
            let (files, in_family) = match snapshot.family(&name) {
                Ok(family) => (family.files().to_vec(), family.entries()),
                Err(error) if costs_itself_alone(&error) => {
                    (snapshot.listed_files(&name).map_err(failed)?, None)
                }
                Err(error) => return Err(failed(error)),
            };
            if contents == Contents::Families {
                names.append_value(&name);
                numbers.append_value(files.len() as u64);
                entries.append_option(in_family);
                bytes.append_value(files.iter().map(|file| file.bytes).sum());
                continue;
            }
            for file in &files {
                names.append_value(&name);
                numbers.append_value(file.number);
                levels.append_value(file.level);
                smallest.append_value(&file.smallest);
                largest.append_value(&file.largest);
                entries.append_option(file.entries);
                bytes.append_value(file.bytes);
                let is_known = file.entries.is_some();
                compressions.append_option(is_known.then_some(&file.compression));
            }
        }
        let (names, numbers) = (Arc::new(names.finish()), Arc::new(numbers.finish()));
        let (entries, bytes) = (Arc::new(entries.finish()), Arc::new(bytes.finish()));
        Ok(match contents {
            Contents::Families => vec![names, numbers, entries, bytes],
            Contents::Files => vec![
                names,
                numbers,
                Arc::new(levels.finish()),
                Arc::new(smallest.finish()),
                Arc::new(largest.finish()),
                entries,
                bytes,
                Arc::new(compressions.finish()),
            ],
        })
    }
}

/// Whether the error concerns a single column family, so that others can be read.
fn costs_itself_alone(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Declined(_) => !error.kind.is_out_of_memory(),
        kind => matches!(kind, ErrorKind::Corruption | ErrorKind::Storage),
    }
}

#[async_trait]
impl TableProvider for ContentsTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _: &[Expr],
        _: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let snapshot = self.scans.snapshot(session).await?;
        let (contents, scans) = (self.contents, self.scans.clone());
        let schema = self.schema();
        let batch = blocking(move || {
            let columns = Self::columns(contents, &scans, &snapshot.snapshot)?;
            Ok(RecordBatch::try_new(schema, columns)?)
        });
        let batch = batch.await?;
        let plan =
            MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema(), projection.cloned())?;
        Ok(plan)
    }
}

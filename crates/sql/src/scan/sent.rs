//! Scans as bytes: another process that has the directory reads the same rows.
//!
//! They name files, keys and a sequence number, and have the compiled program. The process that decodes them opens the
//! files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use rockmill_core::scan::ScanPlan;
use rockmill_layout::column_type;
use rockmill_scan::{Directory, FamilyView, Piece, ScanEngine, Version};
use serde::{Deserialize, Serialize};

use super::{ScanExec, Source, external, properties};
use crate::read_only::ReadOnly;
use crate::table::StatementView;

/// Version of these bytes.
const FORMAT: u32 = 2;

/// Header that the bytes of every format have.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sent {
    format: u32,
    path: PathBuf,
    /// Folder of the write-ahead logs, if it is not the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log_folder: Option<PathBuf>,
    version: Version,
    plan: ScanPlan,
    columns: Vec<SentColumn>,
    /// Position of the column by which the rows are ordered.
    ordered_by: Option<usize>,
    partitions: Vec<Vec<Piece>>,
    limit: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct SentColumn {
    name: String,
    /// As Arrow prints it.
    data_type: String,
    is_nullable: bool,
}

/// A scan as bytes, for [`decode_scan`] in another process that has the same directory; `None` if the node is not a
/// scan.
///
/// The bytes do not keep files open: see [`decode_scan`]. Filters whose constants are known late, such as those of
/// joins, are left out; DataFusion computes them in any case.
///
/// # Errors
/// Plan if the path of the directory is not UTF-8; External if RocksDB's iterators of this process read the column family.
pub fn encode_scan(node: &dyn ExecutionPlan) -> Result<Option<Vec<u8>>> {
    let Some(scan) = node.downcast_ref::<ScanExec>() else {
        return Ok(None);
    };
    let schema = scan.schema();
    let column = |field: &Arc<Field>| SentColumn {
        name: field.name().clone(),
        data_type: field.data_type().to_string(),
        is_nullable: field.is_nullable(),
    };
    let sent = Sent {
        format: FORMAT,
        path: scan.source.family.path().to_owned(),
        log_folder: log_folder(&scan.source.family),
        version: scan.source.family.version().map_err(external)?,
        plan: scan.plan.as_ref().clone(),
        columns: schema.fields().iter().map(column).collect(),
        ordered_by: scan.ordered_by,
        partitions: scan.partitions.as_ref().clone(),
        limit: scan.limit,
    };
    let bytes = serde_json::to_vec(&sent);
    let bytes =
        bytes.map_err(|e| DataFusionError::Plan(format!("a scan cannot be encoded: {e}")))?;
    Ok(Some(bytes))
}

/// The scan of [`encode_scan`] over the same files, with the devices of `engine`. It reads files of the directory that the
/// bytes name, so take them only from processes that may read it. Ranges of keys that RocksDB's iterators have to read are
/// an error when the scan runs, if the database was written to since.
///
/// # Errors
/// Plan if the bytes are not a scan of this version of Rockmill; External if the directory does not have the files or
/// the unflushed entries any more. Files are there until they are compacted, unflushed entries until they are flushed.
pub fn decode_scan(bytes: &[u8], engine: &Arc<ScanEngine>) -> Result<Arc<dyn ExecutionPlan>> {
    let no_scan = |e| DataFusionError::Plan(format!("the bytes are not a scan: {e}"));
    let Format { format } = serde_json::from_slice(bytes).map_err(no_scan)?;
    if format != FORMAT {
        return plan_err!(
            "the scan has format {format}, and this version of Rockmill reads {FORMAT}: use the same version for both"
        );
    }
    let mut sent: Sent = serde_json::from_slice(bytes).map_err(no_scan)?;
    let schema = Arc::new(sent.check()?);
    let directory = Directory::open(&sent.path).map_err(external)?;
    let mut directory = directory.with_iterators(Arc::new(ReadOnly::default()));
    if let Some(log_folder) = sent.log_folder.take() {
        directory = directory.with_log_folder(log_folder);
    }
    let view = directory.at(engine, &sent.version).map_err(external)?;
    let family = view.family(&sent.version.family).map_err(external)?;
    Ok(Arc::new(ScanExec {
        source: Source {
            engine: Arc::clone(engine),
            statement: Arc::new(StatementView::new(view, None)),
            family,
        },
        planned: None,
        limit: sent.limit,
        has_limited_batches: false,
        plan: Arc::new(sent.plan),
        ordered_by: sent.ordered_by,
        properties: properties(schema, sent.ordered_by, sent.partitions.len()),
        partitions: Arc::new(sent.partitions),
        done: Arc::default(),
        metrics: ExecutionPlanMetricsSet::new(),
    }))
}

/// The folder of the logs, if it is not the directory. It is absolute: another process may have another working
/// directory.
fn log_folder(family: &FamilyView) -> Option<PathBuf> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    let folder = real(family.log_folder())?;
    (real(family.path()) != Some(folder.clone())).then_some(folder)
}

impl Sent {
    /// The columns that the scan returns.
    fn check(&self) -> Result<Schema> {
        self.plan.kinds().map_err(external)?;
        let stored = self.plan.output.columns();
        let fields = self.columns.iter().map(SentColumn::field);
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let types = fields.iter().map(|field| column_type(field.data_type()));
        let is_ordered = |position: usize| position < fields.len();
        let is_range = |piece: &Piece| match (&piece.range.begin, &piece.range.end) {
            (Some(begin), Some(end)) => begin < end,
            _ => true,
        };
        let is_sound = types.eq(stored.into_iter().map(Some))
            && self.ordered_by.is_none_or(is_ordered)
            && !self.partitions.is_empty()
            && self.partitions.iter().flatten().all(is_range);
        match is_sound {
            true => Ok(Schema::new(fields)),
            false => plan_err!("the columns or the keys of a scan do not match its program"),
        }
    }
}

impl SentColumn {
    fn field(&self) -> Result<Field> {
        /// Types of scans are not nested and have short names.
        const MAX_BYTES: usize = 100;
        let parsed = Some(&self.data_type).filter(|text| text.len() <= MAX_BYTES);
        match parsed.and_then(|text| text.parse::<DataType>().ok()) {
            Some(data_type) => Ok(Field::new(&self.name, data_type, self.is_nullable)),
            None => plan_err!("a column of a scan has no type {:?}", self.data_type),
        }
    }
}

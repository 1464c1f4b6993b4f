//! Scans as bytes: another process that has the directory reads the same rows.
//!
//! They name files, keys and a sequence number, and have the compiled program. The process that decodes them opens the
//! files.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{internal_err, plan_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, PlanProperties};
use rockmill_core::scan::ScanPlan;
use rockmill_layout::column_type;
use rockmill_scan::{FamilySnapshot, Piece, ScanEngine, Version};
use rockmill_storage::Rooted;
use serde::{Deserialize, Serialize};

use super::pinned::{DatabaseLocation, PinnedSnapshots};
use super::{ScanExec, Source, external, piece_bytes, properties, spread};
use crate::table::StatementSnapshot;

/// Version of these bytes.
const FORMAT: u32 = 5;

/// Maximum bytes of a scan: a file takes some 100, and a piece some times the bytes of two keys.
const MAX_BYTES: usize = 64 << 20;

/// Maximum number of partitions. Each costs memory also without pieces.
const MAX_PARTITIONS: usize = 4096;

/// Header that the bytes of every format have.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Whether the process that has the files cuts the pieces.
    #[serde(default)]
    is_cut_there: bool,
    limit: Option<usize>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
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
    let family = &scan.source.family;
    let remote = scan.remote.map(|at| &family.remotes()[at]);
    let (DatabaseLocation { path, log_folder }, version) = match (remote, location_of(family)) {
        (Some(remote), _) => (
            DatabaseLocation::of(remote),
            remote.described.version.clone(),
        ),
        (None, Some(location)) => (location, family.version().map_err(external)?),
        (None, None) => return internal_err!("a scan of shards is not split"),
    };
    let column = |field: &Arc<Field>| SentColumn {
        name: field.name().clone(),
        data_type: field.data_type().to_string(),
        is_nullable: field.is_nullable(),
    };
    let sent = Sent {
        format: FORMAT,
        path,
        log_folder,
        version,
        plan: scan.plan.as_ref().clone(),
        columns: schema.fields().iter().map(column).collect(),
        ordered_by: scan.ordered_by,
        partitions: scan.partitions.as_ref().clone(),
        is_cut_there: scan.remote.is_some(),
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
    let sent = Sent::parse(bytes)?;
    sent.open(engine, &PinnedSnapshots::default())
}

/// A scan of [`encode_scan`] whose files are not opened yet.
#[derive(Debug)]
pub(crate) struct SentExec {
    sent: Sent,
    properties: Arc<PlanProperties>,
}

impl SentExec {
    /// # Errors
    /// Those of [`decode_scan`] for bytes that are not a scan.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let sent = Sent::parse(bytes)?;
        let schema = Arc::new(sent.check()?);
        Ok(Self {
            properties: properties(schema, sent.ordered_by, sent.partitions.len()),
            sent,
        })
    }

    /// The scan, whose database lies beneath `root`.
    ///
    /// # Errors
    /// Those of [`decode_scan`]; Plan if the database or its logs do not lie beneath the root.
    pub fn open(
        &self,
        engine: &Arc<ScanEngine>,
        root: &Rooted,
        pinned: &PinnedSnapshots,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let sent = Sent {
            path: beneath(root, &self.sent.path)?,
            log_folder: (self.sent.log_folder.as_deref())
                .map(|folder| beneath(root, folder))
                .transpose()?,
            ..self.sent.clone()
        };
        sent.open(engine, pinned)
    }
}

/// The path of a database beneath the root.
pub(crate) fn beneath(root: &Rooted, path: &Path) -> Result<PathBuf> {
    root.absolute(path).map_err(|_| {
        let (path, root) = (path.display(), root.path().display());
        DataFusionError::Plan(format!(
            "{path} does not lie beneath the worker's root {root}"
        ))
    })
}

impl DisplayAs for SentExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RockmillSentScan")
    }
}

impl ExecutionPlan for SentExec {
    fn name(&self) -> &'static str {
        "RockmillSentScan"
    }

    leaf!(without expressions);

    fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        internal_err!("a scan is not opened")
    }
}

/// Where a column family's database lies, if this process has it.
pub(crate) fn location_of(family: &FamilySnapshot) -> Option<DatabaseLocation> {
    family.remotes().is_empty().then(|| DatabaseLocation {
        path: real(family.path()),
        log_folder: log_folder(family),
    })
}

/// The folder of the logs, if it is not the directory. It is absolute: another process may have another working
/// directory.
fn log_folder(family: &FamilySnapshot) -> Option<PathBuf> {
    let folder = std::fs::canonicalize(family.log_folder()).ok()?;
    (real(family.path()) != folder).then_some(folder)
}

/// The path without links. Another process may open nothing behind a link.
fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

impl Sent {
    /// # Errors
    /// Plan if the bytes are not a scan of this version of Rockmill.
    fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_BYTES {
            return plan_err!(
                "a scan has {} bytes, and at most {MAX_BYTES} are read",
                bytes.len()
            );
        }
        let no_scan = |e| DataFusionError::Plan(format!("the bytes are not a scan: {e}"));
        let Format { format } = serde_json::from_slice(bytes).map_err(no_scan)?;
        if format != FORMAT {
            return plan_err!(
                "the scan has format {format}, and this version of Rockmill reads {FORMAT}: use the same version for both"
            );
        }
        let sent: Self = serde_json::from_slice(bytes).map_err(no_scan)?;
        sent.check()?;
        Ok(sent)
    }

    fn open(
        self,
        engine: &Arc<ScanEngine>,
        pinned: &PinnedSnapshots,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let schema = Arc::new(self.check()?);
        let location = DatabaseLocation {
            path: self.path,
            log_folder: self.log_folder,
        };
        let snapshot = match pinned.get(&location, &self.version) {
            Some(snapshot) => snapshot,
            None => {
                let directory = location.directory(engine).map_err(external)?;
                directory.at(engine, &self.version).map_err(external)?
            }
        };
        let family = snapshot.family(&self.version.family).map_err(external)?;
        let partitions = match self.is_cut_there {
            true => cut(&family, engine, &self.partitions),
            false => self.partitions,
        };
        Ok(Arc::new(ScanExec {
            source: Source {
                engine: Arc::clone(engine),
                statement: Arc::new(StatementSnapshot::new(snapshot, None)),
                family,
            },
            planned: None,
            limit: self.limit,
            has_limited_batches: false,
            plan: Arc::new(self.plan),
            ordered_by: self.ordered_by,
            properties: properties(schema, self.ordered_by, partitions.len()),
            partitions: Arc::new(partitions),
            remote: None,
            done: Arc::default(),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }

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
            && (1..=MAX_PARTITIONS).contains(&self.partitions.len())
            && self.partitions.iter().flatten().all(is_range);
        match is_sound {
            true => Ok(Schema::new(fields)),
            false => plan_err!("the columns or the keys of a scan do not match its program"),
        }
    }
}

/// The same keys in pieces that suit the files, over as many partitions.
fn cut(family: &FamilySnapshot, engine: &ScanEngine, partitions: &[Vec<Piece>]) -> Vec<Vec<Piece>> {
    let ranges = partitions.iter().flatten();
    let ranges: Vec<_> = ranges.map(|piece| piece.range.clone()).collect();
    let bytes = piece_bytes(family, engine, partitions.len() as u64);
    spread(family.pieces(&ranges, bytes), partitions.len())
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

//! Snapshots that a process pins for the scans of others.
//!
//! A file that is open lives, although the owner of the database deletes it. So the process that plans a statement first
//! asks each process that will run a part of it to open the files.

use std::any::Any;
use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::error::Result;
use rockmill_core::{Lock, StatedOperator};
use rockmill_scan::{Directory, Remote, ScanEngine, Snapshot, Version};
use serde::{Deserialize, Serialize};

use crate::read_only::ReadOnly;

/// Where a database lies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseLocation {
    /// Its folder.
    pub path: PathBuf,
    /// Folder of the write-ahead logs, if it is not the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_folder: Option<PathBuf>,
}

impl DatabaseLocation {
    /// The place of a part, for the process that has it.
    pub(crate) fn of(remote: &Remote) -> Self {
        Self {
            path: remote.path.clone(),
            log_folder: remote.log_folder.clone(),
        }
    }

    pub(crate) fn directory(&self, engine: &ScanEngine) -> rockmill_core::Result<Directory> {
        let directory = Directory::open_for(engine, &self.path)?;
        let directory = directory.with_iterators(Arc::new(ReadOnly::default()));
        Ok(match &self.log_folder {
            Some(folder) => directory.with_log_folder(folder),
            None => directory,
        })
    }
}

/// A request to pin versions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum PinRequest {
    /// These versions of column families, which the client has planned with.
    Versions {
        /// The database.
        location: DatabaseLocation,
        /// The versions.
        versions: Vec<Version>,
    },
    /// The newest version of a column family, which the process describes.
    Newest {
        /// The database.
        location: DatabaseLocation,
        /// The column family.
        family: String,
        /// Its merge operator, if one is stated.
        merge_operator: Option<StatedOperator>,
    },
}

/// Keeps what other processes pin for a snapshot. Dropping it lets them close the files.
pub type PinGuard = Arc<dyn Any + Send + Sync>;

/// Asks other processes to pin snapshots.
#[async_trait]
pub trait PinSnapshots: Debug + Send + Sync {
    /// Returns when all of them pin these versions, or `None` if one of them does not find all files any more.
    ///
    /// # Errors
    /// If a process cannot be asked, or refuses.
    async fn pin(&self, versions: PinRequest) -> Result<Option<PinGuard>>;
}

/// Snapshots that are pinned.
#[derive(Debug, Default)]
pub(crate) struct PinnedSnapshots(Lock<Vec<PinnedSnapshot>>);

#[derive(Debug)]
struct PinnedSnapshot {
    location: DatabaseLocation,
    version: Version,
    snapshot: Weak<Snapshot>,
}

impl PinnedSnapshots {
    /// The snapshot that has a version, if it is open.
    pub(crate) fn get(
        &self,
        location: &DatabaseLocation,
        version: &Version,
    ) -> Option<Arc<Snapshot>> {
        let pinned = self.0.lock();
        let mut pinned = pinned.iter();
        pinned.find_map(|pinned| {
            let is_same = pinned.location == *location && pinned.version == *version;
            pinned.snapshot.upgrade().filter(|_| is_same)
        })
    }

    fn add(&self, location: &DatabaseLocation, version: Version, snapshot: &Arc<Snapshot>) {
        let mut pinned = self.0.lock();
        pinned.retain(|pinned| pinned.snapshot.strong_count() > 0);
        pinned.push(PinnedSnapshot {
            location: location.clone(),
            version,
            snapshot: Arc::downgrade(snapshot),
        });
    }
}

pub(crate) use exec::PinExec;
pub use exec::{PinReply, pin_plan};

mod exec {
    use std::fmt;

    use datafusion::arrow::array::{Array, BinaryArray, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use datafusion::common::internal_err;
    use datafusion::common::tree_node::TreeNodeRecursion;
    use datafusion::error::DataFusionError;
    use datafusion::execution::{SendableRecordBatchStream, TaskContext};
    use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
    use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
    use datafusion::physical_plan::memory::MemoryStream;
    use datafusion::physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    };
    use rockmill_core::{DeclineReason, Error, ErrorKind, MergeOperators};
    use rockmill_scan::{Database, Described, LogSource};
    use rockmill_storage::Rooted;

    use super::*;
    use crate::scan::external;
    use crate::scan::sent::beneath;

    /// Reply of a process that is asked to pin snapshots.
    #[derive(Debug, Clone, Serialize, Deserialize)]
    pub enum PinReply {
        /// All versions are open.
        Pinned,
        /// The column family is open.
        Described(Box<Described>),
        /// Files or unflushed entries of a version are gone.
        Gone,
    }

    /// The plan with which a process is asked. It returns one row with an [`PinReply`], and pins the files until it is dropped.
    pub fn pin_plan(pin: PinRequest) -> Arc<dyn ExecutionPlan> {
        Arc::new(PinExec::new(pin, None))
    }

    impl PinReply {
        /// The answer in the rows of [`pin_plan`].
        ///
        /// # Errors
        /// Internal if they have none.
        pub fn of(batches: &[RecordBatch]) -> Result<Self> {
            let column = batches.first().map(|batch| batch.column(0));
            let column = column.and_then(|c| c.as_any().downcast_ref::<BinaryArray>());
            let bytes = column
                .filter(|column| !column.is_empty())
                .map(|column| column.value(0));
            match bytes.and_then(|bytes| serde_json::from_slice(bytes).ok()) {
                Some(answer) => Ok(answer),
                None => internal_err!("a worker gives no answer"),
            }
        }
    }

    /// See [`pin_plan`].
    #[derive(Debug)]
    pub(crate) struct PinExec {
        pub pin: PinRequest,
        /// What is open, with the answer.
        opened: Option<(Vec<Arc<Snapshot>>, PinReply)>,
        properties: Arc<PlanProperties>,
    }

    impl PinExec {
        pub fn new(pin: PinRequest, opened: Option<(Vec<Arc<Snapshot>>, PinReply)>) -> Self {
            let schema = Schema::new(vec![Field::new("answer", DataType::Binary, false)]);
            let properties = PlanProperties::new(
                EquivalenceProperties::new(Arc::new(schema)),
                Partitioning::UnknownPartitioning(1),
                EmissionType::Incremental,
                Boundedness::Bounded,
            );
            Self {
                pin,
                opened,
                properties: Arc::new(properties),
            }
        }

        /// The same with the files open.
        ///
        /// # Errors
        /// Plan if a database does not lie beneath the root; External if its files cannot be read.
        pub fn open(
            &self,
            engine: &Arc<ScanEngine>,
            root: &Rooted,
            pinned: &PinnedSnapshots,
        ) -> Result<Self> {
            let opened = match &self.pin {
                PinRequest::Versions { location, versions } => {
                    open_versions(&beneath_root(root, location)?, versions, engine, pinned)
                }
                PinRequest::Newest {
                    location,
                    family,
                    merge_operator,
                } => {
                    let location = beneath_root(root, location)?;
                    open_newest(&location, family, merge_operator.as_ref(), engine, pinned)
                }
            };
            let opened = match opened {
                Err(error) if error.kind == ErrorKind::Declined(DeclineReason::InputMissing) => {
                    (Vec::new(), PinReply::Gone)
                }
                opened => opened.map_err(external)?,
            };
            Ok(Self::new(self.pin.clone(), Some(opened)))
        }
    }

    fn beneath_root(root: &Rooted, location: &DatabaseLocation) -> Result<DatabaseLocation> {
        let log_folder = location.log_folder.as_deref();
        Ok(DatabaseLocation {
            path: beneath(root, &location.path)?,
            log_folder: log_folder.map(|folder| beneath(root, folder)).transpose()?,
        })
    }

    type Opened = (Vec<Arc<Snapshot>>, PinReply);

    /// Maximum number of column families of a statement. Each is opened.
    const MAX_VERSIONS: usize = 1000;

    fn open_versions(
        location: &DatabaseLocation,
        versions: &[Version],
        engine: &Arc<ScanEngine>,
        pinned: &PinnedSnapshots,
    ) -> rockmill_core::Result<Opened> {
        if versions.len() > MAX_VERSIONS {
            let what =
                format!("a statement reads at most {MAX_VERSIONS} column families over workers");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let mut snapshots = Vec::new();
        for version in versions {
            let snapshot = match pinned.get(location, version) {
                Some(snapshot) => snapshot,
                None => {
                    let snapshot = location.directory(engine)?.at(engine, version)?;
                    // Reads the indexes, which the scans need anyway.
                    snapshot.family(&version.family)?;
                    pinned.add(location, version.clone(), &snapshot);
                    snapshot
                }
            };
            snapshots.push(snapshot);
        }
        Ok((snapshots, PinReply::Pinned))
    }

    fn open_newest(
        location: &DatabaseLocation,
        family: &str,
        merge_operator: Option<&StatedOperator>,
        engine: &Arc<ScanEngine>,
        pinned: &PinnedSnapshots,
    ) -> rockmill_core::Result<Opened> {
        let mut operators = MergeOperators::default();
        if let Some(operator) = merge_operator {
            operators.add(operator)?;
        }
        let directory = location.directory(engine)?.with_merge_operators(operators);
        let logs = directory.log_folder()?;
        // Where the command reads the files itself, it prints this sentence and continues. A worker has no user to read it.
        if matches!(logs.source, LogSource::Stated { has_log: false }) {
            let sentence = logs.sentence().unwrap_or_default();
            let what = format!("{sentence}; name the folder with wal_dir in the list of shards");
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let snapshot = directory.snapshot_of(engine, &[family])?;
        let described = snapshot.family(family)?.describe()?;
        pinned.add(location, described.version.clone(), &snapshot);
        Ok((vec![snapshot], PinReply::Described(Box::new(described))))
    }

    impl DisplayAs for PinExec {
        fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("RockmillPin")
        }
    }

    impl ExecutionPlan for PinExec {
        fn name(&self) -> &'static str {
            "RockmillPin"
        }

        leaf!(without expressions);

        fn execute(&self, _: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
            let Some((_, answer)) = &self.opened else {
                return internal_err!("nothing is pinned");
            };
            let bytes = serde_json::to_vec(answer);
            let bytes = bytes.map_err(|e| DataFusionError::Internal(e.to_string()))?;
            let column = BinaryArray::from_vec(vec![bytes.as_slice()]);
            let batch = RecordBatch::try_new(self.schema(), vec![Arc::new(column)])?;
            Ok(Box::pin(MemoryStream::try_new(
                vec![batch],
                self.schema(),
                None,
            )?))
        }
    }
}

//! The interface between reading and the use of rows: all that the engine knows of a device.
//!
//! ```text
//!   Request --supports, footprint-->  before anything is read
//!   ReadTask --read--> Rows --apply--> TaskReport
//!                             Operator
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::io::SstSink;
use crate::report::TaskReport;
use crate::request::{Footprint, ReadTask, Request, Support};
use crate::row::RowSink;
use crate::scan::BatchSink;

/// A device that reads tables and applies operators to the rows.
///
/// The result of a task is a pure function of its request: every backend finds the same rows and writes the same bytes.
/// `Rows` are the rows of a task in a form of the backend's choice, computed lazily or resident on the device. Only the
/// backend reads them.
pub trait Backend: Debug + Send + Sync {
    /// The rows that a task reads.
    type Rows<'a>
    where
        Self: 'a;

    /// Name for statistics: `cpu`, `cuda:0`.
    fn name(&self) -> &str;

    /// Whether the backend supports `request`; call it before anything is read. No backend supports a request that
    /// [`Request::support`] refuses.
    fn supports(&self, request: &Request<'_>) -> Support {
        request.support()
    }

    /// Maximum memory of a task of `request`, or of a part of its range, with the operator's memory.
    fn footprint(&self, request: &Request<'_>) -> Footprint;

    /// Reads, decodes, merges, and decides which rows are visible. All memory for reading and for the request's purpose
    /// is reserved before anything is read.
    ///
    /// # Errors
    /// Any error of [`crate::ErrorKind`]; a lazy backend may report those of reading later.
    fn read<'a>(&'a self, task: ReadTask<'a>) -> Result<Self::Rows<'a>>;

    /// Applies to the rows the operator that the request's purpose has announced.
    ///
    /// # Errors
    /// Any error of [`crate::ErrorKind`], Internal if another operator was announced. After an error, discard what the
    /// operator's sink has received.
    fn apply<'a>(&'a self, rows: Self::Rows<'a>, operator: Operator<'_>) -> Result<TaskReport>;
}

/// What is done with rows, as the [`Purpose`](crate::Purpose) of the same name has announced.
pub enum Operator<'a> {
    /// Writes them as SST files.
    WriteSst {
        /// Takes the files.
        sink: &'a mut dyn SstSink,
    },
    /// Passes them on one by one.
    Inspect {
        /// Takes the rows.
        rows: &'a mut dyn RowSink,
    },
    /// Runs a program over them and passes on its results.
    Scan {
        /// Takes the batches.
        batches: &'a mut dyn BatchSink,
    },
    /// Puts the rows into a table. If a task fails, the table may contain some of its rows.
    Resident {
        /// The table that receives the rows, of the same backend.
        table: &'a dyn ResidentTable,
    },
}

/// A table of keys and values in the memory of a backend. It outlives the tasks whose rows it takes. Several tasks may
/// put rows into it at a time if their keys are different.
pub trait ResidentTable: Any + Debug + Send + Sync {}

impl Operator<'_> {
    /// The error if this operator is not the announced one.
    pub fn unannounced(&self) -> Error {
        Error::internal(format!("{self:?} was not announced"))
    }
}

impl Debug for Operator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::WriteSst { .. } => "WriteSst",
            Self::Inspect { .. } => "Inspect",
            Self::Scan { .. } => "Scan",
            Self::Resident { .. } => "Resident",
        })
    }
}

/// [`Backend`] without its associated type, for tasks that run on several kinds of backends.
pub trait DynBackend: Debug + Send + Sync {
    /// Like [`Backend::name`].
    fn name(&self) -> &str;

    /// Like [`Backend::supports`].
    fn supports(&self, request: &Request<'_>) -> Support;

    /// Like [`Backend::footprint`].
    fn footprint(&self, request: &Request<'_>) -> Footprint;

    /// Reads and applies the operator.
    ///
    /// # Errors
    /// The errors of [`Backend::read`] and [`Backend::apply`].
    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport>;

    /// Whether the device writes its files to storage at the device, so that they do not pass through the host.
    fn is_near_data(&self) -> bool {
        false
    }

    /// Number of injected faults of each kind.
    fn faults(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}

impl<B: Backend> DynBackend for B {
    fn name(&self) -> &str {
        Backend::name(self)
    }

    fn supports(&self, request: &Request<'_>) -> Support {
        Backend::supports(self, request)
    }

    fn footprint(&self, request: &Request<'_>) -> Footprint {
        Backend::footprint(self, request)
    }

    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport> {
        let rows = self.read(task)?;
        self.apply(rows, operator)
    }
}

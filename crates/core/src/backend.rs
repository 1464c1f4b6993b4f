//! The wall between what reads and what is done with the rows, and what the engine sees of a device.
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
/// `Rows` are the rows of a task in whatever form the backend likes, lazily computed or resident on the device; nothing
/// but the backend looks into them.
pub trait Backend: Debug + Send + Sync {
    /// The rows that a task reads.
    type Rows<'a>
    where
        Self: 'a;

    /// Name for statistics: `cpu`, `cuda:0`.
    fn name(&self) -> &str;

    /// Whether the backend does what `request` asks for, to be asked before anything is read. What
    /// [`Request::support`] refuses no backend does.
    fn supports(&self, request: &Request<'_>) -> Support {
        request.support()
    }

    /// Memory that a task of `request`, or of a part of its range, holds at most, the operator's included.
    fn footprint(&self, request: &Request<'_>) -> Footprint;

    /// Reads, decodes, merges, and decides which rows are visible. All memory of reading and of what the request's
    /// purpose asks for is reserved before anything is read.
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

/// What is done with rows. The [`Purpose`](crate::Purpose) of the same name has said how.
pub enum Operator<'a> {
    /// Writes them as SST files.
    WriteSst {
        /// Takes the files.
        sink: &'a mut dyn SstSink,
    },
    /// Hands them over one by one.
    Inspect {
        /// Takes the rows.
        rows: &'a mut dyn RowSink,
    },
    /// Hands over what a program makes of them.
    Scan {
        /// Takes the batches.
        batches: &'a mut dyn BatchSink,
    },
    /// Puts the rows into a table. If a task fails, the table may contain some of its rows.
    Resident {
        /// Takes the rows. It is one of the same backend.
        table: &'a dyn ResidentTable,
    },
}

/// A table of keys and values in the memory of a backend. It outlives the tasks whose rows it takes, and several tasks may
/// put rows into it at a time. Their keys are to be different.
pub trait ResidentTable: Any + Debug + Send + Sync {}

impl Operator<'_> {
    /// The error where another operator was announced than this one.
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

/// [`Backend`] without its types: what a task runs on may be of several kinds.
pub trait DynBackend: Debug + Send + Sync {
    /// As [`Backend::name`].
    fn name(&self) -> &str;

    /// As [`Backend::supports`].
    fn supports(&self, request: &Request<'_>) -> Support;

    /// As [`Backend::footprint`].
    fn footprint(&self, request: &Request<'_>) -> Footprint;

    /// Reads and applies the operator.
    ///
    /// # Errors
    /// As those of [`Backend::read`] and [`Backend::apply`].
    fn run(&self, task: ReadTask<'_>, operator: Operator<'_>) -> Result<TaskReport>;

    /// Whether it writes its files where it lies itself, so that they do not pass through the host.
    fn is_near_data(&self) -> bool {
        false
    }

    /// How often which fault was made on purpose.
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

//! The interface between reading and the use of rows: all that the engine knows of a device.
//!
//! ```text
//!   Request = Reading + Purpose   --supports, footprint-->  before anything is read
//!   ReadTask = Reading + cancel   --run(Operator)-->        TaskReport
//! ```
//!
//! An operator has its purpose inside, so a task cannot be run with another operator than the one that its memory is for.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::error::{Error, ErrorKind, Result};
use crate::io::SstSink;
use crate::plan::OutputPlan;
use crate::report::TaskReport;
use crate::request::{Footprint, Purpose, ReadTask, Request, Support, Unsupported};
use crate::row::RowSink;
use crate::scan::{BatchSink, ScanPlan};

/// A device that reads tables and applies operators to the rows.
///
/// The result of a task is a pure function of its request: every backend finds the same rows and writes the same bytes.
/// On a device, rows stay where they were made until the operator takes them.
pub trait Backend: Debug + Send + Sync {
    /// Name for statistics: `cpu`, `cuda:0`.
    fn name(&self) -> &str;

    /// Whether the backend supports `request`; call it before anything is read. No backend supports a request that
    /// [`Request::support`] refuses.
    fn supports(&self, request: &Request<'_>) -> Support {
        request.support()
    }

    /// Maximum memory of a task of `request`, or of a part of its range, with the operator's memory.
    fn footprint(&self, request: &Request<'_>) -> Footprint;

    /// Reads, decodes, merges, decides which rows are visible, and applies the operator to them. All memory for reading
    /// and for the operator is reserved before anything is read.
    ///
    /// # Errors
    /// Any error of [`crate::ErrorKind`]. After an error, discard what the operator's sink has received.
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

/// The work on the rows, and the target of its results.
pub enum Operator<'a> {
    /// Writes them as SST files.
    WriteSst {
        /// How they are written.
        plan: &'a OutputPlan,
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
        /// The program.
        plan: &'a ScanPlan,
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

impl<'a> Operator<'a> {
    /// Its purpose.
    pub fn purpose(&self) -> Purpose<'a> {
        match self {
            Self::WriteSst { plan, .. } => Purpose::WriteSst(plan),
            Self::Inspect { .. } => Purpose::Inspect,
            Self::Scan { plan, .. } => Purpose::Scan(plan),
            Self::Resident { .. } => Purpose::Resident,
        }
    }

    /// The error of a backend that does not support the operator.
    pub fn unsupported(&self) -> Error {
        Error::new(ErrorKind::Unsupported, Unsupported::Purpose.to_string())
    }
}

//! Rows that a statement returns.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::arrow::array::{Array, RecordBatch, StructArray};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ffi::FFI_ArrowArray;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::StreamExt;
use pyo3::exceptions::{PyImportError, PyKeyboardInterrupt, PyStopIteration};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rockmill_cli::sql::grid::Grid;
use rockmill_cli::sql::session::{Session, Stop, physical_plan};
use rockmill_core::Lock;
use rockmill_sql::pinned;
use rockmill_sql::statements::Tokens;
use rockmill_terminal::outcome::Failure;
use tokio::sync::{Notify, Semaphore};

use crate::arrow_c::{self, Batches};
use crate::database::failure_of;
use crate::errors::{exception, renamed, usage};
use crate::runtime::{Threads, called_back, panicked, receive, run, threads};

/// Batches that wait to be read.
const WAITING: usize = 2;

/// Rows that a text of a result shows.
const SHOWN_ROWS: usize = 10;

/// Characters of a line of such a text.
const SHOWN_COLUMNS: usize = 100;

/// The source of rows.
pub enum Query {
    /// A query that sees the same each time.
    Plan {
        plan: LogicalPlan,
        /// How it is run the first time.
        first: Lock<Option<Arc<dyn ExecutionPlan>>>,
        schema: SchemaRef,
    },
    /// The rows of what was done once.
    Rows {
        rows: Vec<RecordBatch>,
        schema: SchemaRef,
    },
}

impl Query {
    /// A query that sees the database as it is now.
    pub async fn planned(session: &Session, plan: LogicalPlan) -> Result<Self, Stop> {
        let plan = pinned(plan)?;
        let first = physical_plan(&session.context, plan.clone(), false).await?;
        Ok(Self::Plan {
            plan,
            schema: first.schema(),
            first: Lock::new(Some(first)),
        })
    }

    fn schema(&self) -> &SchemaRef {
        let (Self::Plan { schema, .. } | Self::Rows { schema, .. }) = self;
        schema
    }
}

/// Runs a plan to its end.
pub async fn collect(session: &Session, plan: Arc<dyn ExecutionPlan>) -> Result<Query, Stop> {
    let schema = plan.schema();
    let rows = datafusion::physical_plan::collect(plan, session.context.task_ctx()).await?;
    Ok(Query::Rows { rows, schema })
}

/// The error of rows in a child process.
const FORKED: &str =
    "the result belongs to the process that was forked: run the statement again in this one";

/// Batches of a statement that runs.
pub struct Reader {
    batches: Receiver<Result<RecordBatch, Failure>>,
    /// Batches that the statement may still make.
    room: Arc<Semaphore>,
    /// Ends the statement.
    unwanted: Arc<Notify>,
    /// They run the statement, until its end.
    threads: Option<Arc<Threads>>,
    /// The process that runs the statement. Others have none of its threads.
    process: u32,
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.unwanted.notify_one();
    }
}

impl Reader {
    /// The next rows; `None` at the end.
    pub fn next(&mut self, py: Python<'_>) -> PyResult<Option<RecordBatch>> {
        if self.process != std::process::id() {
            return Err(usage(FORKED));
        }
        loop {
            let received = receive(py, &mut self.batches)?;
            self.room.add_permits(1);
            let end = match received {
                Some(Ok(batch)) if batch.num_rows() == 0 => continue,
                Some(Ok(batch)) => return Ok(Some(batch)),
                Some(Err(failure)) => Err(exception(&failure)),
                None => Ok(None),
            };
            self.end(py);
            return end;
        }
    }

    /// Ends the statement, and waits for the end of its threads if nothing else needs them. Other threads of Python run
    /// meanwhile.
    fn end(&mut self, py: Python<'_>) {
        self.unwanted.notify_one();
        let threads = self.threads.take();
        py.detach(|| drop(threads));
    }
}

/// Holds the exception that a stream has met, for a method that waits for another library.
type Raised = Arc<Lock<Option<PyErr>>>;

/// A reader whose errors other libraries report as theirs.
struct Exported {
    reader: Reader,
    /// `None` if another library has asked for the stream.
    raised: Option<Raised>,
}

impl Batches for Exported {
    fn next(&mut self) -> Result<Option<RecordBatch>, String> {
        called_back(|py| {
            self.reader.next(py).map_err(|error| {
                let is_signal = error.is_instance_of::<PyKeyboardInterrupt>(py);
                let said = match is_signal {
                    true => "interrupted".to_owned(),
                    false => error.value(py).to_string(),
                };
                match &self.raised {
                    Some(raised) => *raised.lock() = Some(error),
                    // The library makes an exception of its own of this error. The signal's own follows.
                    None if is_signal => {
                        let thread = py.import("_thread");
                        let _ = thread.and_then(|thread| thread.call_method0("interrupt_main"));
                    }
                    None => {}
                }
                said
            })
        })
    }
}

/// Rows of a statement: a query, which runs each time its rows are read, and always sees the same view of the database.
///
/// Other libraries read it by Arrow's PyCapsule protocol: ``polars.DataFrame(result)``, ``pyarrow.table(result)``,
/// ``duckdb.sql("select * from result")``.
#[pyclass(frozen, module = "rockmill", name = "Result")]
pub struct QueryResult {
    statement: Arc<Statement>,
    /// Its process. Others have none of its threads.
    process: u32,
}

struct Statement {
    session: Session,
    query: Query,
}

impl Drop for QueryResult {
    fn drop(&mut self) {
        // In a child process, dropping the session would wait for threads that are not there.
        if self.process != std::process::id() {
            std::mem::forget(Arc::clone(&self.statement));
        }
    }
}

impl QueryResult {
    pub fn new(session: Session, query: Query) -> Self {
        Self {
            statement: Arc::new(Statement { session, query }),
            process: std::process::id(),
        }
    }

    /// Begins to run it.
    pub fn reader(&self, py: Python<'_>) -> PyResult<Reader> {
        if self.process != std::process::id() {
            return Err(usage(FORKED));
        }
        let (sender, batches) = channel();
        let room = Arc::new(Semaphore::new(WAITING));
        let unwanted = Arc::new(Notify::new());
        let mut reader = Reader {
            batches,
            room: Arc::clone(&room),
            unwanted: Arc::clone(&unwanted),
            threads: None,
            process: self.process,
        };
        let session = self.statement.session.clone();
        let (plan, first) = match &self.statement.query {
            Query::Plan { plan, first, .. } => (plan.clone(), first.lock().take()),
            Query::Rows { rows, .. } => {
                // The reader is there to receive them.
                let _ = rows
                    .iter()
                    .try_for_each(|batch| sender.send(Ok(batch.clone())));
                return Ok(reader);
            }
        };
        let plan = match first {
            Some(first) => first,
            None => {
                let session = session.clone();
                run(py, move || async move {
                    let planned = physical_plan(&session.context, plan, false).await;
                    planned.map_err(|stop| failure_of("", stop, &Tokens::default(), &session))
                })?
            }
        };
        let threads = py.detach(threads).map_err(|failure| exception(&failure))?;
        reader.threads = Some(Arc::clone(&threads));
        threads.spawn(async move {
            let failed = |e| {
                let e = match rockmill_sql::is_too_long(&e) {
                    true => rockmill_sql::too_long(Some(&plan)),
                    false => e,
                };
                failure_of("", Stop::Statement(e), &Tokens::default(), &session)
            };
            let pump = async {
                let mut rows = match execute_stream(Arc::clone(&plan), session.context.task_ctx()) {
                    Ok(rows) => rows,
                    Err(error) => return drop(sender.send(Err(failed(error)))),
                };
                while let Some(batch) = rows.next().await {
                    let batch = batch.map_err(failed);
                    let is_last = batch.is_err();
                    // A reader that does not read holds no thread.
                    match room.acquire().await {
                        Ok(one) => one.forget(),
                        Err(_) => return,
                    }
                    if sender.send(batch).is_err() || is_last {
                        return;
                    }
                }
            };
            let pump = std::panic::AssertUnwindSafe(pump);
            tokio::select! {
                biased;
                () = unwanted.notified() => {}
                done = futures::FutureExt::catch_unwind(pump) => {
                    if done.is_err() {
                        let _ = sender.send(Err(panicked()));
                    }
                }
            }
        });
        Ok(reader)
    }

    pub fn schema(&self) -> &SchemaRef {
        self.statement.query.schema()
    }

    fn exported<'py>(
        &self,
        py: Python<'py>,
        raised: Option<Raised>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let reader = self.reader(py)?;
        let batches = Box::new(Exported { reader, raised });
        let stream = arrow_c::stream(Arc::clone(self.schema()), batches).map_err(usage)?;
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// Lets a function of a library read the rows. An exception of this package comes as it is.
    fn read_by<'py>(
        &self,
        py: Python<'py>,
        library: &str,
        method: &str,
        function: &str,
    ) -> PyResult<Bound<'py, PyAny>> {
        let module = import(py, library, method)?;
        let raised = Raised::default();
        let stream = Stream(Lock::new(Some(
            self.exported(py, Some(Arc::clone(&raised)))?.unbind(),
        )));
        let read = module.call_method1(function, (Py::new(py, stream)?,));
        read.map_err(|error| raised.lock().take().unwrap_or(error))
    }
}

/// A module that a method needs.
pub fn import<'py>(py: Python<'py>, library: &str, method: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(library)
        .map_err(|error| match error.is_instance_of::<PyImportError>(py) {
            true => {
                PyImportError::new_err(format!("{method} needs {library}: pip install {library}"))
            }
            false => error,
        })
}

/// The columns as a capsule.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &SchemaRef) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = arrow_c::columns(schema).map_err(usage)?;
    PyCapsule::new_with_value(py, schema, c"arrow_schema")
}

/// A stream that is read once.
#[pyclass(frozen)]
struct Stream(Lock<Option<Py<PyCapsule>>>);

#[pymethods]
impl Stream {
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__(
        &self,
        requested_schema: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyCapsule>> {
        let _ = requested_schema;
        let stream = self.0.lock().take();
        stream.ok_or_else(|| usage("the stream was read already"))
    }
}

#[pymethods]
impl QueryResult {
    /// Arrow's stream of the rows. Columns come as they are, whatever schema is requested.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        self.exported(py, None)
    }

    /// Arrow's schema of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.schema())
    }

    /// The rows as a ``pyarrow.Table``.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.read_by(py, "pyarrow", "to_arrow", "table")
    }

    /// The rows as a ``pandas.DataFrame``, by way of pyarrow.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        import(py, "pandas", "to_pandas")?;
        let table = self.read_by(py, "pyarrow", "to_pandas", "table")?;
        table.call_method0("to_pandas")
    }

    /// The rows as a ``polars.DataFrame``.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.read_by(py, "polars", "to_polars", "DataFrame")
    }

    /// Iterates over the rows batch by batch. The rows need not fit into memory together.
    fn batches(&self, py: Python<'_>) -> PyResult<BatchReader> {
        Ok(BatchReader(Mutex::new(self.reader(py)?)))
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        let fields = self.schema().fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    /// The first rows as a table of text.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut reader = self.reader(py)?;
        let mut text = Vec::new();
        let mut grid = Grid::new(&mut text, self.schema(), Some(SHOWN_COLUMNS));
        let mut rows = 0;
        let mut has_more = false;
        while let Some(batch) = reader.next(py)? {
            let shown = batch.slice(0, batch.num_rows().min(SHOWN_ROWS - rows));
            has_more = shown.num_rows() < batch.num_rows();
            rows += shown.num_rows();
            if shown.num_rows() > 0 {
                let no_text = |e| {
                    exception(&failure_of(
                        "",
                        Stop::Statement(e),
                        &Tokens::default(),
                        &self.statement.session,
                    ))
                };
                grid.add(&shown).map_err(no_text)?;
            }
            if has_more {
                break;
            }
        }
        reader.end(py);
        grid.finish()
            .map_err(|e| exception(&Failure::Environment(renamed(&e.to_string()))))?;
        let mut text = String::from_utf8_lossy(&text).trim_end().to_owned();
        text.push_str(&match (rows, has_more) {
            (1, false) => "\n1 row".to_owned(),
            (rows, false) => format!("\n{rows} rows"),
            (rows, true) => format!("\nthe first {rows} rows; there are more"),
        });
        Ok(text)
    }
}

/// Iterates over batches.
#[pyclass(frozen, module = "rockmill")]
pub struct BatchReader(Mutex<Reader>);

impl Drop for BatchReader {
    fn drop(&mut self) {
        let reader = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Once Python is gone, nothing else runs meanwhile.
        let _ = Python::try_attach(|py| reader.end(py));
    }
}

#[pymethods]
impl BatchReader {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Batch> {
        let mut reader = self
            .0
            .try_lock()
            .map_err(|_| usage("another thread reads the batches"))?;
        match reader.next(py)? {
            Some(batch) => Ok(Batch(batch)),
            None => Err(PyStopIteration::new_err(())),
        }
    }
}

/// Some rows of a result. Other libraries read it by Arrow's PyCapsule protocol, as in ``pyarrow.record_batch(batch)``.
#[pyclass(frozen, module = "rockmill")]
pub struct Batch(RecordBatch);

#[pymethods]
impl Batch {
    /// Arrow's schema and array of the rows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let array = FFI_ArrowArray::new(&StructArray::from(self.0.clone()).to_data());
        Ok((
            schema_capsule(py, self.0.schema_ref())?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    /// Arrow's schema of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, self.0.schema_ref())
    }

    /// The rows as a ``pyarrow.RecordBatch``.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        import(slf.py(), "pyarrow", "to_arrow")?.call_method1("record_batch", (slf,))
    }

    /// Number of rows.
    fn __len__(&self) -> usize {
        self.0.num_rows()
    }

    fn __repr__(&self) -> String {
        format!("<rockmill.Batch of {} rows>", self.0.num_rows())
    }
}

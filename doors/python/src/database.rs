//! A database that is open for statements.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::logical_expr::LogicalPlan;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use rockmill_cli::merge_args::MergeArgs;
use rockmill_cli::sql::error::{Source, of_statement, of_tokenizer};
use rockmill_cli::sql::session::{LimitArgs, OpenArgs, Session, Stop, logical_plan, physical_plan};
use rockmill_cli::wal_dir::WalDirArgs;
use rockmill_core::Lock;
use rockmill_sql::statements::{Split, Tokens};
use rockmill_terminal::outcome::Failure;

use crate::errors::{exception, renamed};
use crate::result::{Query, QueryResult, collect};
use crate::runtime::{run, run_blocking, threads};
use crate::table::Table;

/// A database in a directory, which is only read. Another process may have it open.
///
/// Each statement sees what was written before it began. Methods may be called from several threads. After a fork, or after
/// unpickling, the database is opened again at its first use.
#[pyclass(frozen, module = "rockmill")]
#[derive(Debug)]
pub struct Database {
    args: OpenArgs,
    merge_operators: Vec<String>,
    /// The process that has opened it.
    opened: Lock<Option<(u32, Session)>>,
}

/// A statement's failure as a sentence with its place.
pub fn failure_of(text: &str, stop: Stop, tokens: &Tokens, session: &Session) -> Failure {
    match stop {
        Stop::Failed(failure) => failure,
        Stop::Statement(error) => {
            let source = Source { file: None, text };
            source.placed(of_statement(error, tokens, &session.context), "")
        }
    }
}

impl Database {
    /// The session of this process. Opens the database if it has none.
    pub fn session(&self, py: Python<'_>) -> PyResult<Session> {
        let process = std::process::id();
        // No thread waits for Python while it holds this.
        let known = || self.opened.lock();
        match &*known() {
            Some((owner, session)) if *owner == process => return Ok(session.clone()),
            _ => {}
        }
        let args = self.args.clone();
        let (session, told) = run_blocking(py, move || {
            rockmill_cli::raise_open_files();
            let threads = threads()?;
            let (session, told) = Session::open(&args, &Arc::default(), threads.handle())?;
            session.define_tables(threads.handle())?;
            Ok((session, told))
        })?;
        forget_of_other_process(known().replace((process, session.clone())));
        let warning = py.import("rockmill._errors")?.getattr("RockmillWarning")?;
        for sentence in told {
            let sentence = std::ffi::CString::new(renamed(&sentence)).unwrap_or_default();
            PyErr::warn(py, &warning, &sentence, 2)?;
        }
        Ok(session)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        forget_of_other_process(self.opened.get_mut().take());
    }
}

/// Drops a session, unless its threads are in the process that was forked: it would wait for them.
fn forget_of_other_process(opened: Option<(u32, Session)>) {
    if let Some((owner, session)) = opened
        && owner != std::process::id()
    {
        std::mem::forget(session);
    }
}

#[pymethods]
impl Database {
    #[new]
    #[allow(clippy::too_many_arguments, reason = "rockmill.open has them by name")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        device: String,
        memory_mib: Option<u64>,
        threads: Option<usize>,
        spill_dir: Option<PathBuf>,
        mysql: Option<PathBuf>,
        wal_dir: Option<PathBuf>,
        merge_operators: Vec<String>,
    ) -> PyResult<Self> {
        let merge = MergeArgs::of(&merge_operators).map_err(|failure| exception(&failure))?;
        let limits = LimitArgs {
            device,
            threads,
            memory_mib,
            cache: None,
            spill_dir,
        };
        let database = Self {
            args: OpenArgs::of(path, mysql, WalDirArgs::of(wal_dir), merge, limits),
            merge_operators,
            opened: Lock::default(),
        };
        database.session(py)?;
        Ok(database)
    }

    /// Runs SQL statements, and returns the rows of the last one.
    ///
    /// A query is planned here, and sees the database as it is now. It runs when its rows are read, each time anew and with
    /// the same view of the database. Other statements run here.
    ///
    /// :param statements: statements, separated by semicolons. The guide to SQL has the tables and functions.
    /// :param force: lets ``COPY`` replace files.
    /// :raises UsageError: for a wrong statement, with its line and column.
    /// :raises DataError: for damaged files, and rows that do not fit their layout.
    /// :raises RefusedError: if there is too little memory, or the system refuses.
    #[pyo3(signature = (statements, *, force = false))]
    fn sql(&self, py: Python<'_>, statements: String, force: bool) -> PyResult<QueryResult> {
        let session = self.session(py)?;
        run(py, move || async move {
            let split = Split::of(&statements);
            let source = Source {
                file: None,
                text: &statements,
            };
            if let Some(trouble) = &split.trouble {
                return Err(source.placed(of_tokenizer(trouble), ""));
            }
            let failed = |stop, tokens| failure_of(&statements, stop, tokens, &session);
            let mut parsed = Vec::new();
            for tokens in split.ended.iter().chain([&split.rest]) {
                let statement = tokens.parse().map_err(|e| failed(e.into(), tokens))?;
                parsed.extend(statement.map(|statement| (statement, tokens)));
            }
            let mut last = Err(Failure::Usage("there is no statement".to_owned()));
            let count = parsed.len();
            for (at, (statement, tokens)) in parsed.into_iter().enumerate() {
                let plan = logical_plan(&session.context, statement).await;
                let plan = plan.map_err(|e| failed(e.into(), tokens))?;
                let reads = !matches!(
                    plan,
                    LogicalPlan::Ddl(_)
                        | LogicalPlan::Dml(_)
                        | LogicalPlan::Copy(_)
                        | LogicalPlan::Analyze(_)
                        | LogicalPlan::Statement(_)
                );
                let query = if reads && at + 1 == count {
                    Query::planned(&session, plan).await
                } else {
                    let plan = physical_plan(&session.context, plan, force).await;
                    collect(&session, plan.map_err(|stop| failed(stop, tokens))?).await
                };
                last = Ok(query.map_err(|stop| failed(stop, tokens))?);
            }
            Ok(QueryResult::new(session.clone(), last?))
        })
    }

    /// A column family as a table.
    ///
    /// Without a layout, its columns are ``key`` and ``value``, both binary. With one, ``key`` and ``value`` say where the
    /// columns of ``schema`` lie, such as ``key="u32be id"`` and ``value="row"``; the guide to SQL has the forms.
    ///
    /// :param schema: an object with ``__arrow_c_schema__``, such as a schema of pyarrow.
    /// :raises UsageError: if there is no such column family, or the layout does not fit the columns.
    #[pyo3(signature = (family = "default".to_owned(), *, key = None, value = None, schema = None))]
    fn table(
        slf: &Bound<'_, Self>,
        family: String,
        key: Option<String>,
        value: Option<String>,
        schema: Option<Py<PyAny>>,
    ) -> PyResult<Table> {
        Table::new(slf, family, key, value, schema)
    }

    /// Keys and values of a column family as ``bytes``, in the order of the keys' bytes.
    ///
    /// :param prefix: only keys that begin with it.
    /// :param start: only keys from it on.
    /// :param end: only keys before it.
    #[pyo3(signature = (family = "default".to_owned(), *, prefix = None, start = None, end = None))]
    fn items(
        slf: &Bound<'_, Self>,
        family: String,
        prefix: Option<Vec<u8>>,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
    ) -> PyResult<crate::table::Items> {
        Table::new(slf, family, None, None, None)?.items(slf.py(), prefix, start, end)
    }

    /// Names of the column families.
    #[getter]
    fn families(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let session = self.session(py)?;
        run_blocking(py, move || Ok(session.scans.database().families()?))
    }

    /// Sequence number of the last write that a statement would see now.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> PyResult<u64> {
        let session = self.session(py)?;
        run_blocking(py, move || {
            let view = session.scans.database().snapshot_of(&session.engine, &[])?;
            Ok(view.sequence())
        })
    }

    /// Folder of the database, as it was named.
    #[getter]
    fn path(&self) -> PathBuf {
        self.args.db.clone()
    }

    fn __repr__(&self) -> String {
        format!("rockmill.open({:?})", self.args.db.display().to_string())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), slf.get());
        let args = &this.args;
        let arguments = (
            &args.db,
            &args.limits.device,
            args.limits.memory_mib,
            args.limits.threads,
            &args.limits.spill_dir,
            &args.mysql,
            args.wal.stated().map(std::path::Path::to_path_buf),
            this.merge_operators.clone(),
        );
        (slf.get_type(), arguments).into_pyobject(py)
    }
}

//! A column family as a table, and its items.

use std::sync::{Arc, Mutex};

use datafusion::arrow::array::{Array, BinaryArray, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::datasource::TableProvider;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{Expr, SessionContext, col, lit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyTuple};
use rockmill_cli::sql::session::{Session, Stop};
use rockmill_sql::statements::Tokens;
use rockmill_terminal::outcome::Failure;

use crate::arrow_c;
use crate::database::{Database, failure_of};
use crate::errors::{exception, usage};
use crate::result::{Query, QueryResult, Reader, schema_capsule};
use crate::runtime::{run, run_blocking};

/// Where columns lie.
#[derive(Debug, Clone)]
struct Layout {
    schema: SchemaRef,
    key: String,
    value: String,
}

/// A column family as a table. Other libraries read it by Arrow's PyCapsule protocol.
///
/// Each scan sees the database as it is when the scan begins.
#[pyclass(frozen, module = "rockmill")]
pub struct Table {
    database: Py<Database>,
    family: String,
    layout: Option<Layout>,
    /// The caller's schema, for copies in other processes.
    given: Option<Py<PyAny>>,
    schema: SchemaRef,
}

impl Table {
    pub fn new(
        database: &Bound<'_, Database>,
        family: String,
        key: Option<String>,
        value: Option<String>,
        schema: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let py = database.py();
        let layout = match (&schema, key, value) {
            (None, None, None) => None,
            (Some(schema), Some(key), Some(value)) => Some(Layout {
                schema: nullable(read_schema(schema.bind(py))?, &key, &value),
                key,
                value,
            }),
            (None, ..) => {
                return Err(usage(
                    "a layout needs columns: give schema=, such as a schema of pyarrow",
                ));
            }
            (Some(_), ..) => {
                return Err(usage(
                    "columns need a layout: give key=\"u32be id\" and value=\"rest body\", or leave schema= out, for a table \
                     of key and value",
                ));
            }
        };
        let session = database.get().session(py)?;
        let (name, columns) = (family.clone(), layout.clone());
        let schema_of_table = run_blocking(py, move || {
            let known = session.scans.database().families()?;
            if !known.contains(&name) {
                let what = format!(
                    "there is no column family {name:?}, but {}",
                    known.join(", ")
                );
                return Err(Failure::Usage(what));
            }
            let provider = provider(&session, &name, columns.as_ref());
            Ok(provider.map_err(|e| failed(e, &session))?.schema())
        })?;
        Ok(Self {
            database: database.clone().unbind(),
            family,
            layout,
            given: schema,
            schema: schema_of_table,
        })
    }

    /// The rows that satisfy filters, with some of the columns.
    fn query(
        &self,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        filter: Filter,
        limit: Option<usize>,
        is_ordered: bool,
    ) -> PyResult<QueryResult> {
        let mut session = self.database.get().session(py)?;
        if is_ordered {
            session = in_one_partition(&session);
        }
        let (family, layout) = (self.family.clone(), self.layout.clone());
        run(py, move || async move {
            let text = match &filter {
                Filter::Text(text) => text.as_str(),
                _ => "",
            };
            let planned = async {
                let provider = provider(&session, &family, layout.as_ref())?;
                let mut frame = session.context.read_table(provider)?;
                frame = match &filter {
                    Filter::None => frame,
                    Filter::Text(text) => {
                        let filter = session.context.parse_sql_expr(text, frame.schema())?;
                        frame.filter(filter)?
                    }
                    Filter::Expression(filter) => frame.filter((**filter).clone())?,
                };
                if is_ordered {
                    frame = frame.sort(vec![col("key").sort(true, false)])?;
                }
                if let Some(columns) = columns {
                    let columns: Vec<_> = columns.iter().map(String::as_str).collect();
                    frame = frame.select_columns(&columns)?;
                }
                if limit.is_some() {
                    frame = frame.limit(0, limit)?;
                }
                let (_, plan) = frame.into_parts();
                Query::planned(&session, plan).await
            };
            let query = planned.await;
            let query =
                query.map_err(|stop| failure_of(text, stop, &Tokens::default(), &session))?;
            Ok(QueryResult::new(session.clone(), query))
        })
    }

    pub fn items(
        &self,
        py: Python<'_>,
        prefix: Option<Vec<u8>>,
        start: Option<Vec<u8>>,
        end: Option<Vec<u8>>,
    ) -> PyResult<Items> {
        let key = |bytes: Vec<u8>| lit(ScalarValue::Binary(Some(bytes)));
        let behind = prefix.as_deref().and_then(behind);
        let from = [prefix, start]
            .into_iter()
            .flatten()
            .map(|bytes| col("key").gt_eq(key(bytes)));
        let to = [behind, end]
            .into_iter()
            .flatten()
            .map(|bytes| col("key").lt(key(bytes)));
        let filter = from.chain(to).reduce(Expr::and);
        let filter = filter.map_or(Filter::None, |filter| Filter::Expression(Box::new(filter)));
        let result = self.query(py, None, filter, None, true)?;
        Ok(Items(Mutex::new(State {
            reader: result.reader(py)?,
            batch: None,
        })))
    }
}

/// The same session, whose scans return rows in the order of keys without a merge of partitions.
fn in_one_partition(session: &Session) -> Session {
    let state = session.context.state();
    // The new session shares the catalog, in which a default one would take the place of that with the tables.
    let config = state.config().clone().with_target_partitions(1);
    let config = config.with_create_default_catalog_and_schema(false);
    let state = SessionStateBuilder::new_from_existing(state).with_config(config);
    Session {
        context: SessionContext::new_with_state(state.build()),
        ..session.clone()
    }
}

/// Libraries call each column nullable that is not said to be otherwise. Without a part for bits of nulls, none is.
fn nullable(schema: SchemaRef, key: &str, value: &str) -> SchemaRef {
    let is_preset = matches!(value.split_whitespace().next(), Some("row" | "json"));
    if is_preset || [key, value].iter().any(|text| text.contains("nulls(")) {
        return schema;
    }
    let fields = schema.fields().iter();
    let fields = fields.map(|field| field.as_ref().clone().with_nullable(false));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Which rows are wanted.
enum Filter {
    None,
    /// SQL.
    Text(String),
    Expression(Box<Expr>),
}

/// The first key behind all that begin with `prefix`; `None` if there is none.
fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut behind = prefix[..=last].to_vec();
    behind[last] += 1;
    Some(behind)
}

fn provider(
    session: &Session,
    family: &str,
    layout: Option<&Layout>,
) -> Result<Arc<dyn TableProvider>, DataFusionError> {
    Ok(match layout {
        None => session.scans.table(family),
        Some(layout) => {
            let schema = Arc::clone(&layout.schema);
            session
                .scans
                .table_with_layout(family, schema, &layout.key, &layout.value)?
        }
    })
}

fn failed(error: DataFusionError, session: &Session) -> Failure {
    failure_of("", Stop::Statement(error), &Tokens::default(), session)
}

/// The columns of an object with Arrow's schema.
fn read_schema(schema: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = schema.call_method0("__arrow_c_schema__").map_err(|_| {
        usage("schema= is an object with __arrow_c_schema__, such as a schema of pyarrow or Polars")
    })?;
    let capsule = capsule
        .cast_into::<PyCapsule>()
        .map_err(|_| usage("__arrow_c_schema__ has returned no capsule"))?;
    let schema = capsule.pointer_checked(Some(c"arrow_schema"))?;
    // SAFETY: a capsule of this name has a schema, which lives as long as it.
    unsafe { arrow_c::read(schema.as_ptr().cast()) }.map_err(usage)
}

#[pymethods]
impl Table {
    /// Rows of the table, as a :class:`Result`.
    ///
    /// :param columns: names of the wanted columns; all by default.
    /// :param where: a condition in SQL, such as ``"id > 7"``. Scans compute what they can of it.
    /// :param limit: most rows.
    #[pyo3(signature = (columns = None, r#where = None, *, limit = None))]
    fn scan(
        &self,
        py: Python<'_>,
        columns: Option<Vec<String>>,
        r#where: Option<String>,
        limit: Option<usize>,
    ) -> PyResult<QueryResult> {
        let filter = r#where.map_or(Filter::None, Filter::Text);
        self.query(py, columns, filter, limit, false)
    }

    /// Arrow's stream of all rows.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let result = Bound::new(py, self.query(py, None, Filter::None, None, false)?)?;
        result.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Arrow's schema of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.schema)
    }

    /// DataFusion's table, which ``context.register_table("name", table)`` of datafusion asks for.
    ///
    /// Columns, conditions and limits reach the scans; aggregates do not, which :meth:`Database.sql` computes in them. Each scan
    /// sees the newest version: a statement that names two tables, or one twice, may see two versions.
    ///
    /// :raises UsageError: if datafusion has another major version.
    #[pyo3(signature = (session = None))]
    fn __datafusion_table_provider__<'py>(
        &self,
        py: Python<'py>,
        session: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let own = self.database.get().session(py)?;
        let table = provider(&own, &self.family, self.layout.as_ref());
        let table = table.map_err(|error| exception(&failed(error, &own)))?;
        crate::foreign::capsule(py, table, own, session.as_ref())
    }

    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    }

    /// Name of the column family.
    #[getter]
    fn family(&self) -> String {
        self.family.clone()
    }

    fn __repr__(&self) -> String {
        let fields = self.schema.fields().iter();
        let columns: Vec<_> = fields
            .map(|field| format!("{} {}", field.name(), field.data_type()))
            .collect();
        format!("<rockmill.Table {:?}: {}>", self.family, columns.join(", "))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let (py, this) = (slf.py(), slf.get());
        let layout = this.layout.as_ref();
        let arguments = (
            &this.database,
            &this.family,
            layout.map(|layout| layout.key.clone()),
            layout.map(|layout| layout.value.clone()),
            &this.given,
        );
        let restore = py.import("rockmill._restore")?.getattr("table")?;
        (restore, arguments).into_pyobject(py)
    }
}

struct State {
    reader: Reader,
    batch: Option<Pairs>,
}

/// Pairs that are left of a batch.
struct Pairs {
    keys: BinaryArray,
    values: BinaryArray,
    next: usize,
}

impl Pairs {
    fn of(batch: &RecordBatch) -> Option<Self> {
        let column = |at: usize| {
            batch
                .columns()
                .get(at)?
                .as_any()
                .downcast_ref::<BinaryArray>()
                .cloned()
        };
        Some(Self {
            keys: column(0)?,
            values: column(1)?,
            next: 0,
        })
    }
}

/// Iterates over keys and values.
#[pyclass(frozen, module = "rockmill")]
pub struct Items(Mutex<State>);

#[pymethods]
impl Items {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let mut state = self
            .0
            .try_lock()
            .map_err(|_| usage("another thread reads the items"))?;
        loop {
            if let Some(pairs) = &mut state.batch
                && pairs.next < pairs.keys.len()
            {
                let at = pairs.next;
                pairs.next += 1;
                let key = PyBytes::new(py, pairs.keys.value(at));
                let value = PyBytes::new(py, pairs.values.value(at));
                return PyTuple::new(py, [key, value]).map(Some);
            }
            let Some(batch) = state.reader.next(py)? else {
                state.batch = None;
                return Ok(None);
            };
            let no_bytes = || {
                Failure::Environment(
                    "internal error, please report it: items are no bytes".to_owned(),
                )
            };
            state.batch = Some(Pairs::of(&batch).ok_or_else(|| exception(&no_bytes()))?);
        }
    }
}

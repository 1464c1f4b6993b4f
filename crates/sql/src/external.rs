//! `CREATE EXTERNAL TABLE .. STORED AS ROCKSDB`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider, TableProviderFactory};
use datafusion::common::plan_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{CreateExternalTable, DdlStatement, LogicalPlan};
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement;
use rockmill_core::Lock;
use rockmill_layout::{Layout, column_type};
use rockmill_scan::{Directory, ScanEngine, StatedOperator};

use crate::read_only::ReadOnly;
use crate::scan::external;
use crate::session::keep;
use crate::statements::statements;
use crate::table::{Scans, blocking};

/// The format's name in statements.
pub const FORMAT: &str = "ROCKSDB";

/// Option that names the folder of a database's write-ahead logs.
const WAL_DIR: &str = "wal_dir";

/// The real path of a database, and the folder of logs that a statement names.
type Location = (PathBuf, Option<String>);

/// The databases of a session.
#[derive(Debug, Default)]
pub struct Databases(Lock<HashMap<Location, Scans>>);

/// The database that is known at a location. Its path may have a link that leads elsewhere by now.
fn at(known: &HashMap<Location, Scans>, location: &Location) -> Option<Scans> {
    let scans = known.get(location)?;
    (real(scans.database().path()) == location.0).then(|| scans.clone())
}

fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A table factory for folders. All tables of a folder belong to one database, so a statement sees one snapshot of it.
#[derive(Debug)]
pub struct RocksTables {
    engine: Arc<ScanEngine>,
    databases: Arc<Databases>,
}

impl RocksTables {
    /// A factory whose tables are scanned by `engine`.
    pub fn new(engine: Arc<ScanEngine>, databases: Arc<Databases>) -> Self {
        Self { engine, databases }
    }

    async fn database(&self, location: &str, wal_dir: Option<String>) -> Result<Scans> {
        let path = Path::new(location).to_owned();
        let engine = Arc::clone(&self.engine);
        let databases = Arc::clone(&self.databases);
        blocking(move || {
            let location = (real(&path), wal_dir);
            if let Some(scans) = at(&databases.0.lock(), &location) {
                return Ok(scans);
            }
            let mut database = Directory::open(&path).map_err(external)?;
            if let Some(wal_dir) = &location.1 {
                database = database.with_log_folder(wal_dir);
            }
            let database = database.with_iterators(Arc::new(ReadOnly::default()));
            // Another statement may have opened it meanwhile.
            let mut known = databases.0.lock();
            let scans = at(&known, &location);
            let scans = scans.unwrap_or_else(|| Scans::new(engine, Arc::new(database)));
            known.insert(location, scans.clone());
            Ok(scans)
        })
        .await
    }
}

#[async_trait]
impl TableProviderFactory for RocksTables {
    async fn create(
        &self,
        _: &dyn Session,
        statement: &CreateExternalTable,
    ) -> Result<Arc<dyn TableProvider>> {
        let [location] = &statement.locations[..] else {
            return plan_err!("a ROCKSDB table has one location: the folder of a database");
        };
        let wal_dir = Options::read(&statement.options)?.take(WAL_DIR);
        table(&self.database(location, wal_dir).await?, statement)
    }
}

/// Makes the database known again that a definition has replaced, also if the definition is abandoned: the session's own
/// database of a folder may be another one, as one that the process has open.
struct Restored<'a> {
    before: Option<Scans>,
    session: &'a SessionContext,
}

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            before.make_known(self.session);
        }
    }
}

impl Scans {
    /// Lets statements of the session that make tables of this database's folder use this one: its logs, its merge
    /// operators and its snapshots. Returns the one that they have used.
    pub(crate) fn make_known(&self, session: &SessionContext) -> Option<Self> {
        let databases = session.state().config().get_extension::<Databases>()?;
        let path = std::fs::canonicalize(self.database().path()).ok()?;
        databases.0.lock().insert((path, None), self.clone())
    }

    /// Runs the statements of a file that belongs to the database: a relative LOCATION begins at the database's folder. The
    /// session is one of [`session`](crate::session()) or of the functions beside it.
    ///
    /// # Errors
    /// The errors of the statements.
    pub async fn define(&self, session: &SessionContext, text: &str) -> Result<()> {
        for statement in statements(text)? {
            self.define_one(session, statement).await?;
        }
        Ok(())
    }

    /// Runs one of these statements. [`refuse_writes`](crate::refuse_writes) keeps what it defines.
    ///
    /// # Errors
    /// The errors of the statement.
    pub async fn define_one(
        &self,
        session: &SessionContext,
        mut statement: Statement,
    ) -> Result<()> {
        if let Statement::CreateExternalTable(create) = &mut statement {
            for location in &mut create.locations {
                let path = self.database().path().join(&location);
                *location = path.display().to_string();
            }
        }
        let before = self.make_known(session);
        let _restored = Restored { before, session };
        self.run_definition(session, statement).await
    }

    async fn run_definition(&self, session: &SessionContext, statement: Statement) -> Result<()> {
        let plan = session.state().statement_to_plan(statement).await?;
        let defined = match &plan {
            LogicalPlan::Ddl(DdlStatement::CreateExternalTable(create)) => Some(&create.name),
            LogicalPlan::Ddl(DdlStatement::CreateMemoryTable(create)) => Some(&create.name),
            LogicalPlan::Ddl(DdlStatement::CreateView(create)) => Some(&create.name),
            _ => None,
        };
        let defined = defined.cloned();
        session.execute_logical_plan(plan).await?.collect().await?;
        match defined {
            Some(defined) => keep(session, defined).await,
            None => Ok(()),
        }
    }
}

/// The table that a statement makes of a database.
fn table(scans: &Scans, statement: &CreateExternalTable) -> Result<Arc<dyn TableProvider>> {
    let mut options = Options::read(&statement.options)?;
    let family = options
        .take("family")
        .unwrap_or_else(|| "default".to_owned());
    let (key, value) = (options.take("key"), options.take("value"));
    let on_error = options.take("on_error");
    options.take(WAL_DIR);
    let operator = options.take("merge_operator");
    options.none_left()?;
    if let Some(operator) = operator {
        let stated = StatedOperator {
            operator: operator.parse().map_err(DataFusionError::Plan)?,
            family: Some(family.clone()),
        };
        let state = scans.database().state_merge_operator(&stated);
        state.map_err(external)?;
    }
    let gives_nulls = match on_error.as_deref() {
        None | Some("error") => false,
        Some("null") => true,
        Some(other) => return plan_err!("on_error is error or null, and not {other}"),
    };
    let schema: SchemaRef = Arc::new(statement.schema.as_arrow().clone());
    match (schema.fields().is_empty(), key, value) {
        (true, None, None) => Ok(scans.table(&family)),
        (false, None, None) if are_key_and_value(stored_schema(&schema)?.as_ref()) => {
            Ok(scans.table(&family))
        }
        (false, Some(key), Some(value)) => {
            let schema = stored_schema(&schema)?;
            let layout = Layout::parse(schema, &key, &value).map_err(DataFusionError::Plan)?;
            let layout = layout.named(format!("table {}", statement.name));
            let layout = match gives_nulls {
                true => layout.nulls_what_is_malformed(),
                false => layout,
            };
            Ok(Arc::new(scans.table_of(&family, layout)))
        }
        (true, ..) => {
            plan_err!("a layout needs columns: CREATE EXTERNAL TABLE name (column type, ..)")
        }
        (false, ..) => plan_err!(
            "columns need a layout: OPTIONS ('key' 'u32be id', 'value' 'rest body') behind (id int unsigned not null, \
             body varchar not null); or leave the columns out, for a table of key and value"
        ),
    }
}

/// Whether these are the columns of a table without a layout.
fn are_key_and_value(schema: &Schema) -> bool {
    let columns = schema.fields().iter();
    columns
        .map(|column| (column.name().as_str(), column.data_type()))
        .eq([("key", &DataType::Binary), ("value", &DataType::Binary)])
}

/// The options of a statement. DataFusion puts the format's name before some of them.
struct Options(HashMap<String, String>);

impl Options {
    fn read(options: &HashMap<String, String>) -> Result<Self> {
        let named = options.iter().map(|(name, value)| {
            let name = name.to_lowercase();
            let name = name.strip_prefix("format.").unwrap_or(&name);
            (name.to_owned(), value.clone())
        });
        Ok(Self(named.collect()))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn none_left(&self) -> Result<()> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => plan_err!(
                "{name} is no option of a ROCKSDB table; options are family, key, value, on_error, merge_operator and wal_dir"
            ),
        }
    }
}

/// The columns as scans store them: text without views.
pub(crate) fn stored_schema(schema: &Schema) -> Result<SchemaRef> {
    use datafusion::arrow::datatypes::Field;
    let mut fields = Vec::new();
    for field in schema.fields() {
        let data_type = match field.data_type() {
            DataType::Utf8View | DataType::LargeUtf8 => DataType::Utf8,
            DataType::BinaryView | DataType::LargeBinary => DataType::Binary,
            other => other.clone(),
        };
        if column_type(&data_type).is_none() {
            return plan_err!(
                "column {} has type {data_type}, which layouts do not have",
                field.name()
            );
        }
        fields.push(Field::new(field.name(), data_type, field.is_nullable()));
    }
    Ok(Arc::new(Schema::new(fields)))
}

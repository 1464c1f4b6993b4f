//! A column family as a table, and statements that see one snapshot.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, exec_err, plan_err};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Expr, LogicalPlan, TableProviderFilterPushDown, TableType};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::{collect_columns, conjunction, reassign_expr_columns};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExecBuilder;
use rockmill_core::Lock;
use rockmill_layout::Layout;
use rockmill_scan::{Database, ScanEngine, Snapshot};

use crate::external::stored_schema;
use crate::planner;
use crate::program::Program;
use crate::scan::{
    PinGuard, PinRequest, PinSnapshots, Planned, ScanExec, Source, all_columns, external_in,
    location_of,
};

/// The column families of a database as tables. A clone is the same database.
#[derive(Debug, Clone)]
pub struct Scans {
    engine: Arc<ScanEngine>,
    database: Arc<dyn Database>,
    reads: Reads,
    /// Snapshots of statements that are planned or running.
    snapshots: Arc<Lock<Snapshots>>,
    /// Asks the processes that run parts of statements to pin snapshots.
    pins: Option<Arc<dyn PinSnapshots>>,
}

/// The path on which rows are read.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reads {
    /// From the files, on the engine's devices.
    #[default]
    Files,
    /// Through RocksDB's iterators, and DataFusion computes everything else.
    Iterators,
    /// Through RocksDB's iterators, and programs filter and aggregate the bytes.
    IteratorsAndPrograms,
}

type Snapshots = Vec<(Statement, Weak<StatementSnapshot>)>;

/// A session, and the time at which it began the statement.
type Statement = (String, String);

/// The snapshot that the tables of one statement share.
#[derive(Debug)]
pub(crate) struct StatementSnapshot {
    pub snapshot: Arc<Snapshot>,
    /// The column families of the snapshot; `None` for all.
    families: Option<BTreeSet<String>>,
    /// Whether one of its scans has begun. All of them are planned by then.
    runs: AtomicBool,
    /// Lets other processes pin it.
    pin: OnceLock<PinGuard>,
}

impl StatementSnapshot {
    /// The snapshot of a statement that has not begun.
    pub fn new(snapshot: Arc<Snapshot>, families: Option<BTreeSet<String>>) -> Self {
        let runs = AtomicBool::new(false);
        Self {
            snapshot,
            families,
            runs,
            pin: OnceLock::new(),
        }
    }

    /// Whether the snapshot has these column families.
    fn has(&self, families: Option<&BTreeSet<String>>) -> bool {
        match (&self.families, families) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(has), Some(families)) => families.is_subset(has),
        }
    }

    /// The versions that other processes have to pin; `None` if they need no files.
    async fn pin(self: &Arc<Self>) -> Result<Option<PinRequest>> {
        let this = Arc::clone(self);
        blocking(move || {
            let names: Vec<_> = match &this.families {
                Some(families) => families.iter().cloned().collect(),
                None => this.snapshot.families().map(str::to_owned).collect(),
            };
            let mut versions = Vec::new();
            let mut location = None;
            for name in names {
                // A scan of a column family that cannot be read elsewhere says so itself.
                let Ok(family) = this.snapshot.family(&name) else {
                    continue;
                };
                if let (Some(known), Ok(version)) = (location_of(&family), family.version()) {
                    location = Some(known);
                    versions.push(version);
                }
            }
            Ok(location.map(|location| PinRequest::Versions { location, versions }))
        })
        .await
    }

    /// Records that a scan begins.
    pub fn runs(&self) {
        self.runs.store(true, Ordering::Relaxed);
    }
}

impl Scans {
    /// The tables of `database`, scanned by `engine`.
    pub fn new(engine: Arc<ScanEngine>, database: Arc<dyn Database>) -> Self {
        Self {
            engine,
            database,
            reads: Reads::Files,
            snapshots: Arc::default(),
            pins: None,
        }
    }

    /// The same tables, whose snapshots other processes pin while statements read them.
    #[must_use]
    pub fn pinned_by(self, pins: Arc<dyn PinSnapshots>) -> Self {
        Self {
            pins: Some(pins),
            ..self
        }
    }

    /// The same tables on another path, for comparisons.
    #[doc(hidden)]
    #[must_use]
    pub fn reading(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }

    /// The engine that scans the tables.
    pub(crate) fn engine(&self) -> &Arc<ScanEngine> {
        &self.engine
    }

    /// The database.
    pub fn database(&self) -> &Arc<dyn Database> {
        &self.database
    }

    /// A column family as a table of `key` and `value`.
    pub fn table(&self, family: &str) -> Arc<RocksTable> {
        Arc::new(self.table_of(family, Layout::raw()))
    }

    /// A column family as a table of these columns. The texts describe the keys and the values in the forms of
    /// `docs/guide/sql.md`. Columns of large or viewed texts and bytes become those with offsets of 4 bytes.
    ///
    /// # Errors
    /// Plan if a text is malformed or does not fit the columns.
    pub fn table_with_layout(
        &self,
        family: &str,
        schema: SchemaRef,
        key: &str,
        value: &str,
    ) -> Result<Arc<RocksTable>> {
        let schema = stored_schema(&schema)?;
        let layout = Layout::parse(schema, key, value).map_err(DataFusionError::Plan)?;
        Ok(Arc::new(self.table_of(family, layout)))
    }

    pub(crate) fn table_of(&self, family: &str, layout: Layout) -> RocksTable {
        RocksTable {
            scans: self.clone(),
            family: Arc::from(family),
            layout: Arc::new(layout),
            pin: None,
        }
    }

    /// The snapshot of the statement that is being planned: the same for all of its tables.
    ///
    /// A session may plan several statements with the same start time, and each must see earlier writes. So a statement
    /// that runs already does not share its snapshot. If the session has no time, each table has a snapshot of its own.
    ///
    /// A snapshot has the column families that the statement reads, or all if these are not known.
    pub(crate) async fn snapshot(&self, session: &dyn Session) -> Result<Arc<StatementSnapshot>> {
        /// Attempts to let other processes open a version before its files are deleted. Beside a writer that flushes 40
        /// times a second, one attempt in eight succeeds if 20 ms pass before they open it.
        const ATTEMPTS: usize = 100;
        let Some(pins) = &self.pins else {
            return self.snapshot_here(session).await;
        };
        for _ in 0..ATTEMPTS {
            let snapshot = self.snapshot_here(session).await?;
            if snapshot.pin.get().is_some() {
                return Ok(snapshot);
            }
            let Some(pin) = snapshot.pin().await? else {
                return Ok(snapshot);
            };
            if let Some(pin) = pins.pin(pin).await? {
                let _ = snapshot.pin.set(pin);
                return Ok(snapshot);
            }
            // The next attempt takes a newer one.
            let mut snapshots = self.snapshots.lock();
            snapshots.retain(|(_, known)| !std::ptr::eq(known.as_ptr(), Arc::as_ptr(&snapshot)));
        }
        exec_err!(
            "the database is compacted faster than workers open its files; {ATTEMPTS} attempts have failed: run the statement again"
        )
    }

    async fn snapshot_here(&self, session: &dyn Session) -> Result<Arc<StatementSnapshot>> {
        let began = session.execution_props().query_execution_start_time;
        let statement = began.map(|began| (session.session_id().to_owned(), began.to_rfc3339()));
        let this = self.clone();
        let families = planner::families(|table| {
            let is_here = Arc::ptr_eq(&table.scans.snapshots, &self.snapshots);
            is_here.then(|| table.family.to_string())
        });
        blocking(move || {
            let mut snapshots = this.snapshots.lock();
            snapshots.retain(|(_, snapshot)| snapshot.strong_count() > 0);
            let known = snapshots
                .iter()
                .filter(|(known, _)| Some(known) == statement.as_ref())
                .filter_map(|(_, snapshot)| snapshot.upgrade())
                .find(|snapshot| {
                    !snapshot.runs.load(Ordering::Relaxed) && snapshot.has(families.as_ref())
                });
            if let Some(snapshot) = known {
                return Ok(snapshot);
            }
            let snapshot = match &families {
                Some(families) => {
                    let families: Vec<_> = families.iter().map(String::as_str).collect();
                    this.database.snapshot_of(&this.engine, &families)
                }
                None => this.database.snapshot(&this.engine),
            };
            let snapshot = snapshot.map_err(|e| external_in(this.database.path(), e))?;
            let snapshot = Arc::new(StatementSnapshot::new(snapshot, families));
            snapshots.extend(statement.map(|statement| (statement, Arc::downgrade(&snapshot))));
            Ok(snapshot)
        })
        .await
    }
}

/// Runs file access on a thread for blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
}

/// A column family as a table.
#[derive(Debug)]
pub struct RocksTable {
    scans: Scans,
    family: Arc<str>,
    layout: Arc<Layout>,
    /// The snapshot that all plans of one [`pinned`] share.
    pin: Option<Pin>,
}

/// Known once the first statement is planned.
type Pin = Arc<OnceLock<Arc<StatementSnapshot>>>;

/// A plan that may be run several times, and sees the same each time: what its first statement sees. It holds that open.
///
/// # Errors
/// None now.
pub fn pinned(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut pins: Vec<(Arc<Lock<Snapshots>>, Pin)> = Vec::new();
    let plan = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        let source = source_as_provider(&scan.source).ok();
        let table = source.as_ref().and_then(|t| t.downcast_ref::<RocksTable>());
        let Some(table) = table else {
            return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
        };
        let snapshots = &table.scans.snapshots;
        let known = pins.iter().find(|(known, _)| Arc::ptr_eq(known, snapshots));
        let pin = match known {
            Some((_, pin)) => Arc::clone(pin),
            None => {
                let pin = Pin::default();
                pins.push((Arc::clone(snapshots), Arc::clone(&pin)));
                pin
            }
        };
        let table = RocksTable {
            scans: table.scans.clone(),
            family: Arc::clone(&table.family),
            layout: Arc::clone(&table.layout),
            pin: Some(pin),
        };
        scan.source = provider_as_source(Arc::new(table));
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

impl RocksTable {
    /// The snapshot of the statement that is being planned.
    async fn snapshot(&self, session: &dyn Session) -> Result<Arc<StatementSnapshot>> {
        let Some(pin) = &self.pin else {
            return self.scans.snapshot(session).await;
        };
        match pin.get() {
            Some(snapshot) => Ok(Arc::clone(snapshot)),
            None => {
                let snapshot = self.scans.snapshot(session).await?;
                Ok(Arc::clone(pin.get_or_init(|| snapshot)))
            }
        }
    }

    /// A filter over all columns of the table; `None` if it is left to DataFusion.
    fn filter(&self, filter: &Expr) -> Result<Option<Arc<dyn PhysicalExpr>>> {
        if self.scans.reads == Reads::Iterators {
            return Ok(None);
        }
        let schema = self.layout.schema();
        let columns = DFSchema::try_from(Arc::clone(schema))?;
        // A filter may name its table.
        let filter = datafusion::logical_expr::expr_rewriter::unnormalize_col(filter.clone());
        let filter = create_physical_expr(
            &filter,
            &columns,
            &ExecutionProps::new(),
            &PhysicalPlanningContext::default(),
        );
        Ok(filter.ok())
    }

    /// Whether scans compute a filter.
    fn computes(&self, filter: &Expr) -> Result<bool> {
        let mut program = Program::new(Arc::clone(&self.layout));
        let filter = self.filter(filter)?;
        Ok(filter.is_some_and(|filter| program.filter(&filter).is_ok()))
    }
}

/// A scan with these filters. Each fits into its program alone. Filters that do not fit together come behind the scan.
fn scan_and_filter(
    source: Source,
    mut planned: Planned,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    limit: Option<usize>,
    partitions: usize,
) -> Result<Arc<dyn ExecutionPlan>> {
    let mut others = filters;
    others.retain(|filter| planned.add_filter(filter).is_err());
    if others.is_empty() {
        let scan = ScanExec::new(source, planned, limit, partitions)?;
        return Ok(Arc::new(scan));
    }
    let filter = conjunction(others);
    let wanted = planned.projection.len();
    let mut used: Vec<_> = (collect_columns(&filter).iter().map(Column::index))
        .filter(|position| !planned.projection.contains(position))
        .collect();
    used.sort_unstable();
    let planned = planned.with_more_columns(&used);
    let scan = Arc::new(ScanExec::new(source, planned, None, partitions)?);
    let filter = reassign_expr_columns(filter, &scan.schema())?;
    let filter = FilterExecBuilder::new(filter, scan)
        .apply_projection(Some((0..wanted).collect()))?
        .with_fetch(limit)
        .build()?;
    Ok(Arc::new(filter))
}

#[async_trait]
impl TableProvider for RocksTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.layout.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        let filters = filters.iter().map(|filter| {
            Ok(match self.computes(filter)? {
                true => TableProviderFilterPushDown::Exact,
                false => TableProviderFilterPushDown::Unsupported,
            })
        });
        filters.collect()
    }

    async fn scan(
        &self,
        session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let statement = self.snapshot(session).await?;
        let projection = match projection {
            Some(projection) => projection.clone(),
            None => all_columns(self.layout.schema()),
        };
        let mut why = projection.iter();
        let why = why.find_map(|&column| Some((column, self.layout.unsupported(column)?)));
        if let Some((column, why)) = why {
            let name = self.layout.schema().field(column).name();
            return plan_err!("{why}: leave it out, as in SELECT * EXCEPT ({name})");
        }
        let filters = filters.iter().map(|filter| self.filter(filter));
        let filters = filters.collect::<Result<Vec<_>>>()?;
        let filters = filters.into_iter().flatten().collect();
        let (engine, name) = (Arc::clone(&self.scans.engine), Arc::clone(&self.family));
        let (layout, reads) = (Arc::clone(&self.layout), self.scans.reads);
        let partitions = session.config().target_partitions();
        let database = Arc::clone(&self.scans.database);
        blocking(move || {
            let family = statement.snapshot.family(&name);
            let family = family.map_err(|e| external_in(database.path(), e))?;
            let source = Source {
                engine,
                statement,
                family,
            };
            let planned = Planned::new(layout, reads, projection);
            scan_and_filter(source, planned, filters, limit, partitions)
        })
        .await
    }
}

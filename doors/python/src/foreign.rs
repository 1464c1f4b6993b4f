//! Tables for DataFusion of another library of the process, through DataFusion's C interface.

use std::sync::Arc;
use std::thread;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::provider_as_source;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use futures::channel::oneshot;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rockmill_cli::sql::session::Session;
use rockmill_sql::{answered, with_caught_panics};

use crate::errors::{exception, usage};
use crate::runtime::{Threads, planning_thread, threads};

/// A table that the other library scans. Its session is not this one's, and neither are its threads, through whose functions
/// no panic can pass.
#[derive(Debug)]
struct Foreign {
    table: Arc<dyn TableProvider>,
    session: Session,
    /// Statements of the other library run on them.
    threads: Arc<Threads>,
    /// The process that has the session's threads.
    process: u32,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // In a child process, dropping the session would wait for threads that are not there.
        if self.process != std::process::id() {
            std::mem::forget((Arc::clone(&self.table), self.session.clone()));
        }
    }
}

/// Whether a filter calls a function. Functions come over by name, and the other library's may be another one of that name.
fn calls_function(filter: &Expr) -> Result<bool> {
    filter.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))))
}

impl Foreign {
    fn supported(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        let mut supported = self.table.supports_filters_pushdown(filters)?;
        for (filter, supported) in filters.iter().zip(&mut supported) {
            if calls_function(filter)? {
                *supported = TableProviderFilterPushDown::Unsupported;
            }
        }
        Ok(supported)
    }
}

/// Plans a scan as a statement of its own, which opens this table's column family alone.
async fn planned(
    table: Arc<dyn TableProvider>,
    session: Session,
    projection: Option<Vec<usize>>,
    filters: Vec<Expr>,
    limit: Option<usize>,
    threads: Arc<Threads>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let source = provider_as_source(table);
    let scan =
        LogicalPlanBuilder::scan_with_filters_fetch("t", source, projection, filters, limit)?;
    // The time of a new state tells this scan from earlier ones, whose version of the database it must not get.
    let state = session.context.state();
    let planner = state.query_planner();
    let plan = planner.create_physical_plan(&scan.build()?, &state).await?;
    // The plan may outlive the table.
    with_caught_panics(plan, Some(threads))
}

#[async_trait]
impl TableProvider for Foreign {
    fn schema(&self) -> SchemaRef {
        self.table.schema()
    }

    fn table_type(&self) -> TableType {
        self.table.table_type()
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        thread::scope(|scope| {
            let asked = planning_thread().spawn_scoped(scope, || self.supported(filters));
            // After a panic, the other library computes the filters.
            let answer = asked.ok().and_then(|thread| thread.join().ok());
            answer.unwrap_or_else(|| {
                Ok(vec![
                    TableProviderFilterPushDown::Unsupported;
                    filters.len()
                ])
            })
        })
    }

    async fn scan(
        &self,
        _: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let failed = |what: String| DataFusionError::Execution(what);
        if self.process != std::process::id() {
            return Err(failed(
                "the table belongs to the process that was forked: start processes by spawn or forkserver"
                    .to_owned(),
            ));
        }
        let (table, session) = (Arc::clone(&self.table), self.session.clone());
        let (projection, filters) = (projection.cloned(), filters.to_vec());
        let threads = Arc::clone(&self.threads);
        let (done, planning) = oneshot::channel();
        let work = move || {
            let kept = Arc::clone(&threads);
            let plan = planned(table, session, projection, filters, limit, kept);
            // Nothing waits for it if the other library has dropped the statement.
            let _ = done.send(threads.block_on(answered(plan)));
        };
        let thread = planning_thread().spawn(work);
        thread.map_err(|e| failed(format!("no thread: {e}")))?;
        let plan = planning.await.ok().flatten();
        let panicked = || failed("internal error, please report it: the scan panicked".to_owned());
        plan.ok_or_else(panicked)?
    }
}

/// A capsule with the table, for the session of a DataFusion that has the same major version.
///
/// # Errors
/// Usage for another version, or something else than a session.
pub fn capsule<'py>(
    py: Python<'py>,
    table: Arc<dyn TableProvider>,
    session: Session,
    theirs: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyCapsule>> {
    const CODEC: &std::ffi::CStr = c"datafusion_logical_extension_codec";
    let ours = datafusion_ffi::version();
    let no_session = || usage("the argument is no session of datafusion");
    // Structs of other versions are laid out in other ways, so the version is not asked through one.
    let modules = py.import("sys")?.getattr("modules")?;
    let module = modules.call_method1("get", ("datafusion",))?;
    let version = module.getattr("__version__").ok();
    let version: Option<String> = version.and_then(|version| version.extract().ok());
    let version = version.as_deref().unwrap_or("unknown");
    if version.split('.').next() != Some(&ours.to_string()) {
        return Err(usage(format!(
            "tables are for datafusion {ours}, and datafusion is {version}: install datafusion {ours}, or pass a stream by \
             context.from_arrow(table.scan(), name=..)"
        )));
    }
    let theirs = theirs.ok_or_else(no_session)?;
    let codec = match theirs.cast::<PyCapsule>() {
        Ok(capsule) => capsule.clone(),
        Err(_) => theirs
            .call_method1("__datafusion_logical_extension_codec__", ())
            .and_then(|made| Ok(made.cast_into::<PyCapsule>()?))
            .map_err(|_| no_session())?,
    };
    let codec = codec.pointer_checked(Some(CODEC))?;
    // SAFETY: a capsule of this name has a codec of DataFusion's C interface, of this major version, and lives as long as
    // the call.
    let codec = unsafe { codec.cast::<FFI_LogicalExtensionCodec>().as_ref() }.clone();
    let threads = py.detach(threads).map_err(|failure| exception(&failure))?;
    let handle = Some(threads.handle().clone());
    let process = std::process::id();
    let foreign = Arc::new(Foreign {
        table,
        session,
        threads,
        process,
    });
    let provider = FFI_TableProvider::new_with_ffi_codec(foreign, true, handle, codec);
    PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
}

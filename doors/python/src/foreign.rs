//! Tables for DataFusion of another library of the process, through DataFusion's C interface.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::common::tree_node::TreeNode;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rockmill_cli::sql::session::Session;

use crate::errors::{exception, usage};
use crate::runtime::runtime;

/// A table that the other library scans. Its session is not this one's, and neither are its threads.
#[derive(Debug)]
struct Foreign {
    table: Arc<dyn TableProvider>,
    session: Session,
}

/// Whether a filter calls a function. Functions come over by name, and the other library's may be another one of that name.
fn calls_function(filter: &Expr) -> Result<bool> {
    filter.exists(|part| Ok(matches!(part, Expr::ScalarFunction(_))))
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
        let mut supported = self.table.supports_filters_pushdown(filters)?;
        for (filter, supported) in filters.iter().zip(&mut supported) {
            if calls_function(filter)? {
                *supported = TableProviderFilterPushDown::Unsupported;
            }
        }
        Ok(supported)
    }

    async fn scan(
        &self,
        _: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let (table, session) = (Arc::clone(&self.table), self.session.clone());
        let (projection, filters) = (projection.cloned(), filters.to_vec());
        let runtime =
            runtime().map_err(|failure| DataFusionError::Execution(failure.to_string()))?;
        // The threads that plan in the other library are not known to Tokio here.
        let planned = runtime.spawn(async move {
            // The time of a new state tells this scan from earlier ones, whose version of the database it must not get.
            let state = session.context.state();
            table
                .scan(&state, projection.as_ref(), &filters, limit)
                .await
        });
        planned
            .await
            .map_err(|e| DataFusionError::ExecutionJoin(Box::new(e)))?
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
    // Structs of other versions are laid out in other ways, so the version is not asked through one.
    let modules = py.import("sys")?.getattr("modules")?;
    let version: Option<String> = match modules.call_method1("get", ("datafusion",))? {
        module if module.is_none() => None,
        module => Some(module.getattr("__version__")?.extract()?),
    };
    let major = version
        .as_deref()
        .and_then(|version| version.split('.').next());
    let is_same = major.is_some_and(|major| major == ours.to_string());
    let theirs = theirs.filter(|_| is_same).ok_or_else(|| {
        let version = version.as_deref().unwrap_or("unknown");
        usage(format!(
            "tables are for datafusion {ours}, and datafusion is {version}: install datafusion {ours}, or pass a stream by \
             context.from_arrow(table.scan(), name=..)"
        ))
    })?;
    let codec = match theirs.cast::<PyCapsule>() {
        Ok(capsule) => capsule.clone(),
        Err(_) => theirs
            .call_method1("__datafusion_logical_extension_codec__", ())
            .and_then(|made| Ok(made.cast_into::<PyCapsule>()?))
            .map_err(|_| usage("the argument is no session of datafusion"))?,
    };
    let codec = codec.pointer_checked(Some(CODEC))?;
    // SAFETY: a capsule of this name has a codec of DataFusion's C interface, of this major version, and lives as long as
    // the call.
    let codec = unsafe { codec.cast::<FFI_LogicalExtensionCodec>().as_ref() }.clone();
    let runtime = runtime().map_err(|failure| exception(&failure))?;
    let foreign = Arc::new(Foreign { table, session });
    let handle = Some(runtime.handle().clone());
    let provider = FFI_TableProvider::new_with_ffi_codec(foreign, true, handle, codec);
    PyCapsule::new_with_value(py, provider, c"datafusion_table_provider")
}

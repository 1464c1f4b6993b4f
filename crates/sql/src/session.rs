//! Sessions with everything that scans need.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_format::names;
use rockmill_scan::ScanEngine;

use crate::aggregate::AggregateInScan;
use crate::external::{FORMAT, RocksTables};
use crate::extremes;
use crate::files::{Contents, ContentsTable};
use crate::functions;
use crate::guard::GuardedByFilters;
use crate::table::Scans;

/// Adds Rockmill's functions, its `min` and `max`, the rule that has filters run before what they protect, and the rule that
/// lets scans compute aggregates. Call it last: the rules have to come after all others.
#[must_use]
pub fn with_rockmill(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(functions::all().into_iter().map(Arc::new));
    let aggregates = builder.aggregate_functions().get_or_insert_default();
    aggregates.extend(extremes::all().map(Arc::new));
    builder
        .with_physical_optimizer_rule(Arc::new(GuardedByFilters))
        .with_physical_optimizer_rule(Arc::new(AggregateInScan))
}

/// A session with DataFusion's own functions, those for JSON, and Rockmill's, in which `STORED AS ROCKSDB` makes tables that
/// `engine` scans. Its queries do not spill, and may take any amount of memory besides that of the engine:
/// [`session_in`] limits it.
///
/// # Errors
/// If a function cannot be registered.
pub fn session(config: SessionConfig, engine: &Arc<ScanEngine>) -> Result<SessionContext> {
    let never_spills = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_disk_manager_builder(never_spills);
    session_in(runtime.build_arc()?, config, engine)
}

/// The session of [`session`] in an environment such as that of [`crate::runtime`].
///
/// # Errors
/// If a function cannot be registered.
pub fn session_in(
    runtime: Arc<RuntimeEnv>,
    config: SessionConfig,
    engine: &Arc<ScanEngine>,
) -> Result<SessionContext> {
    let builder = SessionStateBuilder::new_with_default_features().with_config(config);
    let builder = builder.with_runtime_env(runtime);
    let tables = Arc::new(RocksTables::new(Arc::clone(engine)));
    let builder = builder.with_table_factory(FORMAT.to_owned(), tables);
    let mut state = with_rockmill(builder).build();
    datafusion_functions_json::register_all(&mut state)?;
    Ok(SessionContext::new_with_state(state))
}

impl Scans {
    /// Adds every column family as a table, and `rocksdb_files` and `rocksdb_families`. A column family of one of these
    /// names takes the place of that table. A table that the session defines later may have the name of a column family,
    /// and then takes its place.
    ///
    /// # Errors
    /// If the column families cannot be listed, or the session has a table of such a name.
    pub fn register(&self, session: &SessionContext) -> Result<()> {
        let families = self.database().families().map_err(crate::scan::external)?;
        let families = families
            .iter()
            .map(|family| (family.clone(), self.table(family) as Arc<dyn TableProvider>));
        let contents = [
            ("rocksdb_files", Contents::Files),
            ("rocksdb_families", Contents::Families),
        ];
        let contents = contents.map(|(name, contents)| {
            let table: Arc<dyn TableProvider> = Arc::new(ContentsTable::new(self, contents));
            (name.to_owned(), table)
        });
        let state = session.state();
        let names = &state.config_options().catalog;
        let catalog = session.catalog(&names.default_catalog);
        let schema = catalog
            .as_ref()
            .and_then(|c| c.schema(&names.default_schema));
        let (Some(catalog), Some(of_session)) = (catalog, schema) else {
            return plan_err!("the session has no default schema for the column families");
        };
        let tables: BTreeMap<_, _> = contents.into_iter().chain(families).collect();
        if let Some(name) = of_session
            .table_names()
            .iter()
            .find(|name| tables.contains_key(*name))
        {
            return plan_err!("the session has a table {name} already");
        }
        let schema = Arc::new(FamilySchema { of_session, tables });
        catalog.register_schema(&names.default_schema, schema)?;
        Ok(())
    }
}

/// A session's schema with the tables of a database behind its own.
#[derive(Debug)]
struct FamilySchema {
    of_session: Arc<dyn SchemaProvider>,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
}

#[async_trait]
impl SchemaProvider for FamilySchema {
    fn owner_name(&self) -> Option<&str> {
        self.of_session.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        let mut names = self.of_session.table_names();
        names.extend(self.tables.keys().cloned());
        names.sort_unstable();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let defined = self.of_session.table(name).await?;
        // A text with backslashes that escape nothing names a column family as well.
        let family = |name: &str| self.tables.get(name).cloned();
        let as_escaped = || family(&names::escape(&names::unescape(name)));
        Ok(defined.or_else(|| family(name).or_else(as_escaped)))
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.of_session.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.of_session.deregister_table(name)
    }

    /// CREATE asks this, and may replace a column family's own table.
    fn table_exist(&self, name: &str) -> bool {
        self.of_session.table_exist(name)
    }
}

//! Sessions with everything that scans need.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{TableReference, plan_err};
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::SessionState;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::{DdlStatement, LogicalPlan, TableSource};
use datafusion::optimizer::OptimizerRule;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_core::Lock;
use rockmill_format::names;
use rockmill_scan::ScanEngine;

use crate::aggregate::{self, aggregate_in_scan};
use crate::alternatives::ShallowAlternatives;
use crate::claims::add_true_claims;
use crate::computed_keys::computed_keys;
use crate::cooperative::cooperative_joins;
use crate::dependencies::add_true_dependencies;
use crate::distinct::CountsAsSums;
use crate::external::{Databases, FORMAT, RocksTables};
use crate::files::{Contents, ContentsTable};
use crate::filters::replace_push_down;
use crate::functions;
use crate::guard::guarded_by_filters;
use crate::in_list::constant_lists;
use crate::in_subquery::{exact_in, named_sets};
use crate::intervals::compared_by_length;
use crate::joins::filters_with_columns;
use crate::left_using::left_columns;
use crate::mysql::RefusedTables;
use crate::null_equality::replace_extract_keys;
use crate::outer_types::OuterTypes;
use crate::planner::StatementPlanner;
use crate::prepared::keep_prepared;
use crate::pushdown::{dynamic_filters, replace_pushdown};
use crate::rule::{LogicalRule, Rule};
use crate::set_operations::exact_set_operations;
use crate::subqueries::{exact_subqueries, nullable_scalars};
use crate::table::{RocksTable, Scans};
use crate::windows::groups_of_bytes;

/// Adds Rockmill's functions, its `min`, `max` and `sum`, and its rules: many alternatives are planned quickly, `count` beside
/// `count(distinct ..)` spills, filters run before the expressions that they protect, scans compute aggregates, and joins
/// can be stopped. Filters keep their meaning where DataFusion moves them, joins of sorted rows apply all of theirs, and no
/// sort or column of GROUP BY is left out that rows need.
///
/// The query planner of `builder` stays, and statements open the column families that they read. Call it last: the rules for
/// physical plans must come after all others.
#[must_use]
pub fn with_rockmill(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    send_keys_of_joins(&mut builder);
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(functions::all().into_iter().map(Arc::new));
    let aggregates = builder.aggregate_functions().get_or_insert_default();
    aggregates.extend(aggregate::own().map(Arc::new));
    let analyzer = builder.analyzer().get_or_insert_default();
    analyzer.rules.insert(0, Arc::new(ShallowAlternatives));
    let windows = LogicalRule::new("rockmill_groups_of_bytes", groups_of_bytes);
    analyzer.rules.insert(0, windows);
    let keys = LogicalRule::new("rockmill_computed_keys", computed_keys);
    analyzer.rules.insert(0, keys);
    let intervals = LogicalRule::new("rockmill_lengths_of_intervals", compared_by_length);
    analyzer.rules.insert(0, intervals);
    let left = LogicalRule::new("rockmill_left_columns", left_columns);
    analyzer.rules.insert(0, left);
    analyzer.rules.push(Arc::new(OuterTypes));
    let (scalars, sets) = ("rockmill_nullable_scalars", "rockmill_exact_set_operations");
    analyzer
        .rules
        .push(LogicalRule::new(scalars, nullable_scalars));
    analyzer
        .rules
        .push(LogicalRule::new(sets, exact_set_operations));
    analyzer.rules.push(Arc::new(CountsAsSums));
    add_exact_conditions(&mut builder);
    replace_push_down(&mut builder);
    replace_extract_keys(&mut builder);
    add_true_dependencies(&mut builder);
    keep_prepared(&mut builder);
    let optimizer = builder.physical_optimizers().get_or_insert_default();
    replace_pushdown(optimizer);
    add_true_claims(optimizer);
    let planner = StatementPlanner(builder.query_planner().take());
    builder
        .with_query_planner(Arc::new(planner))
        .with_physical_optimizer_rule(Rule::new("rockmill_dynamic_filters", dynamic_filters))
        .with_physical_optimizer_rule(Rule::new("rockmill_guarded_by_filters", guarded_by_filters))
        .with_physical_optimizer_rule(Rule::new("rockmill_aggregate_in_scan", aggregate_in_scan))
        .with_physical_optimizer_rule(Rule::new("rockmill_join_filters", filters_with_columns))
        .with_physical_optimizer_rule(Rule::new("rockmill_cooperative_joins", cooperative_joins))
}

/// Lets joins tell scans the keys of larger build sides, which scans find faster than joins do.
fn send_keys_of_joins(builder: &mut SessionStateBuilder) {
    /// DataFusion takes 3 ms to make the list of a partition with as many keys.
    const MOST_KEYS: usize = 4 << 10;
    let usual = ConfigOptions::default().optimizer;
    let config = builder.config().get_or_insert_default();
    let optimizer = &mut config.options_mut().optimizer;
    let most = &mut optimizer.hash_join_inlist_pushdown_max_distinct_values;
    if *most == usual.hash_join_inlist_pushdown_max_distinct_values {
        *most = MOST_KEYS;
    }
}

/// Adds the rules for subqueries and lists behind the one that writes ANY and ALL as EXISTS.
fn add_exact_conditions(builder: &mut SessionStateBuilder) {
    let rules = &mut builder.optimizer().get_or_insert_default().rules;
    let writes_sets = |name: &str| name == "rewrite_set_comparison";
    let at = rules.iter().position(|rule| writes_sets(rule.name()));
    let at = at.unwrap_or(rules.len());
    rules.insert(at, LogicalRule::new("rockmill_named_sets", named_sets));
    let at = rules.len().min(at + 2);
    let own: [Arc<dyn OptimizerRule + Send + Sync>; 3] = [
        LogicalRule::new("rockmill_constant_lists", constant_lists),
        LogicalRule::new("rockmill_exact_in", exact_in),
        LogicalRule::new("rockmill_exact_subqueries", exact_subqueries),
    ];
    rules.splice(at..at, own);
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
    session_by(runtime, config, engine, |builder| builder)
}

/// The session of [`session_in`], with what `finish` adds to it.
///
/// # Errors
/// If a function cannot be registered.
pub fn session_by(
    runtime: Arc<RuntimeEnv>,
    config: SessionConfig,
    engine: &Arc<ScanEngine>,
    finish: impl FnOnce(SessionStateBuilder) -> SessionStateBuilder,
) -> Result<SessionContext> {
    let databases = Arc::new(Databases::default());
    let config = config.with_extension(Arc::clone(&databases));
    let builder = SessionStateBuilder::new_with_default_features().with_config(config);
    let builder = builder.with_runtime_env(runtime);
    let tables = Arc::new(RocksTables::new(Arc::clone(engine), databases));
    let builder = builder.with_table_factory(FORMAT.to_owned(), tables);
    let state = built(finish(with_rockmill(builder)))?;
    Ok(SessionContext::new_with_state(state))
}

/// The state with DataFusion's functions for JSON, and everything that [`with_rockmill`] adds.
///
/// # Errors
/// If a function cannot be registered.
pub fn state(builder: SessionStateBuilder) -> Result<SessionState> {
    built(with_rockmill(builder))
}

fn built(builder: SessionStateBuilder) -> Result<SessionState> {
    let mut state = builder.build();
    datafusion_functions_json::register_all(&mut state)?;
    Ok(state)
}

impl Scans {
    /// Adds every column family as a table, and `rocksdb_files` and `rocksdb_families`. A column family of one of these
    /// names replaces that table. A table that the session defines later replaces a column family of the same name.
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
        let contents = contents.into_iter().filter(|_| self.database().has_files());
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
        let tables: BTreeMap<_, _> = contents.chain(families).collect();
        if let Some(name) = of_session
            .table_names()
            .iter()
            .find(|name| tables.contains_key(*name))
        {
            return plan_err!("the session has a table {name} already");
        }
        let schema = Arc::new(FamilySchema {
            of_session,
            tables,
            kept: Lock::default(),
        });
        catalog.register_schema(&names.default_schema, schema)?;
        self.make_known(session);
        Ok(())
    }
}

/// Refuses a plan that would write to a table of a database, or drop one. DataFusion itself would drop nothing and
/// report nothing.
///
/// # Errors
/// Plan, with a sentence that names the table.
pub async fn refuse_writes(session: &SessionContext, plan: &LogicalPlan) -> Result<()> {
    let (verb, name) = match plan {
        LogicalPlan::Ddl(DdlStatement::DropTable(drop)) => ("dropped", &drop.name),
        LogicalPlan::Ddl(DdlStatement::DropView(drop)) => ("dropped", &drop.name),
        LogicalPlan::Dml(write) if is_rocks_table(&write.target) => {
            return read_only("written", &write.table_name);
        }
        LogicalPlan::Dml(write) => ("written", &write.table_name),
        _ => return Ok(()),
    };
    let (schema, table) = place_of(session, name);
    let refused = schema
        .as_deref()
        .and_then(|s| s.downcast_ref::<RefusedTables>());
    let is_read_only = match schema.as_deref().and_then(families_of) {
        _ if refused.is_some_and(|refused| refused.has(&table)) => true,
        Some(schema) => schema.is_of_database(&table).await,
        None => false,
    };
    match is_read_only {
        true => read_only(verb, name),
        false => Ok(()),
    }
}

/// Records that a table that the session has belongs to the database, so that [`refuse_writes`] keeps it until the session
/// replaces it.
///
/// # Errors
/// If the session cannot return the table.
pub(crate) async fn keep(session: &SessionContext, name: impl Into<TableReference>) -> Result<()> {
    let (schema, table) = place_of(session, &name.into());
    if let Some(schema) = schema.as_deref().and_then(families_of)
        && let Some(provider) = schema.of_session.table(&table).await?
    {
        schema.kept.lock().insert(table, provider);
    }
    Ok(())
}

/// The schema that has or would have a table, and the table's name in it.
fn place_of(
    session: &SessionContext,
    name: &TableReference,
) -> (Option<Arc<dyn SchemaProvider>>, String) {
    let state = session.state();
    let names = &state.config_options().catalog;
    let resolved = name
        .clone()
        .resolve(&names.default_catalog, &names.default_schema);
    let catalog = session.catalog(&resolved.catalog);
    let schema = catalog.and_then(|catalog| catalog.schema(&resolved.schema));
    (schema, resolved.table.to_string())
}

/// The schema with the tables of a database, which tables that are not supported may hide.
fn families_of(schema: &dyn SchemaProvider) -> Option<&FamilySchema> {
    match schema.downcast_ref::<RefusedTables>() {
        Some(schema) => families_of(schema.of_session()),
        None => schema.downcast_ref::<FamilySchema>(),
    }
}

fn read_only(verb: &str, name: &TableReference) -> Result<()> {
    plan_err!("table {name} cannot be {verb}: a database's tables are only read here")
}

fn is_rocks_table(table: &Arc<dyn TableSource>) -> bool {
    source_as_provider(table).is_ok_and(|table| table.is::<RocksTable>())
}

/// A session's schema, with the tables of a database after its own.
#[derive(Debug)]
struct FamilySchema {
    of_session: Arc<dyn SchemaProvider>,
    tables: BTreeMap<String, Arc<dyn TableProvider>>,
    /// Tables of the session that files of the database have defined.
    kept: Lock<BTreeMap<String, Arc<dyn TableProvider>>>,
}

impl FamilySchema {
    /// The table of the database with this name. A text with backslashes that escape nothing names a column family as well.
    fn of_database(&self, name: &str) -> Option<&Arc<dyn TableProvider>> {
        let as_escaped = || self.tables.get(&names::escape(&names::unescape(name)));
        self.tables.get(name).or_else(as_escaped)
    }

    /// Whether the name is a table of the database, which the session has not replaced.
    async fn is_of_database(&self, name: &str) -> bool {
        match self.of_session.table(name).await {
            Ok(Some(table)) => self
                .kept
                .lock()
                .get(name)
                .is_some_and(|kept| Arc::ptr_eq(kept, &table)),
            _ => self.of_database(name).is_some(),
        }
    }
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
        Ok(defined.or_else(|| self.of_database(name).cloned()))
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

    /// CREATE calls this, and may replace a column family's own table.
    fn table_exist(&self, name: &str) -> bool {
        self.of_session.table_exist(name)
    }
}

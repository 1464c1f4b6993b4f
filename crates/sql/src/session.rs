//! Sessions with everything that scans need.

use std::sync::Arc;

use datafusion::common::TableReference;
use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use rockmill_scan::ScanEngine;

use crate::aggregate::AggregateInScan;
use crate::external::{FORMAT, RocksTables};
use crate::files::{Contents, ContentsTable};
use crate::functions;
use crate::table::Scans;

/// Adds Rockmill's functions, and the rule that lets scans compute aggregates. Call it last: the rule has to come after all
/// others.
#[must_use]
pub fn with_rockmill(mut builder: SessionStateBuilder) -> SessionStateBuilder {
    let functions = builder.scalar_functions().get_or_insert_default();
    functions.extend(functions::all().into_iter().map(Arc::new));
    builder.with_physical_optimizer_rule(Arc::new(AggregateInScan))
}

/// A session with DataFusion's own functions, those for JSON, and Rockmill's, in which `STORED AS ROCKSDB` makes tables that
/// `engine` scans.
///
/// # Errors
/// If a function cannot be registered.
pub fn session(config: SessionConfig, engine: &Arc<ScanEngine>) -> Result<SessionContext> {
    let builder = SessionStateBuilder::new_with_default_features().with_config(config);
    let tables = Arc::new(RocksTables::new(Arc::clone(engine)));
    let builder = builder.with_table_factory(FORMAT.to_owned(), tables);
    let mut state = with_rockmill(builder).build();
    datafusion_functions_json::register_all(&mut state)?;
    Ok(SessionContext::new_with_state(state))
}

impl Scans {
    /// Adds every column family as a table, and `rocksdb_files` and `rocksdb_families`.
    ///
    /// # Errors
    /// If the column families cannot be listed, or a table of such a name exists.
    pub fn register(&self, session: &SessionContext) -> Result<()> {
        let families = self.database().families().map_err(crate::scan::external)?;
        for family in families {
            session.register_table(name(&family), self.table(&family))?;
        }
        let contents = [
            ("rocksdb_files", Contents::Files),
            ("rocksdb_families", Contents::Families),
        ];
        for (name, contents) in contents {
            session.register_table(name, Arc::new(ContentsTable::new(self, contents)))?;
        }
        Ok(())
    }
}

/// The name of a column family as that of a table, whatever it contains.
fn name(family: &str) -> TableReference {
    TableReference::bare(family)
}

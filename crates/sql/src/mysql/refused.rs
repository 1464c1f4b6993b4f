//! Tables that have a description but cannot be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::prelude::SessionContext;
use rockmill_core::Lock;

/// Makes statements that name one of these tables fail with the reason why it cannot be read.
pub fn register(session: &SessionContext, reasons: BTreeMap<String, String>) -> Result<()> {
    if reasons.is_empty() {
        return Ok(());
    }
    let state = session.state();
    let names = &state.config_options().catalog;
    let catalog = session.catalog(&names.default_catalog);
    let schema = catalog
        .as_ref()
        .and_then(|of| of.schema(&names.default_schema));
    let (Some(catalog), Some(of_session)) = (catalog, schema) else {
        return plan_err!("the session has no default schema for the tables of MyRocks");
    };
    let reasons = Lock::new(reasons);
    let schema = Arc::new(RefusedTables {
        of_session,
        reasons,
    });
    catalog.register_schema(&names.default_schema, schema)?;
    Ok(())
}

/// A session's schema with tables that cannot be read in front of its own.
#[derive(Debug)]
pub struct RefusedTables {
    of_session: Arc<dyn SchemaProvider>,
    /// The reasons, by the tables' names.
    reasons: Lock<BTreeMap<String, String>>,
}

impl RefusedTables {
    /// Whether statements that name this table fail.
    pub fn has(&self, table: &str) -> bool {
        self.reasons.lock().contains_key(table)
    }

    /// The session's own schema.
    pub fn of_session(&self) -> &dyn SchemaProvider {
        &*self.of_session
    }
}

#[async_trait]
impl SchemaProvider for RefusedTables {
    fn owner_name(&self) -> Option<&str> {
        self.of_session.owner_name()
    }

    fn table_names(&self) -> Vec<String> {
        let reasons = self.reasons.lock();
        let mut names = self.of_session.table_names();
        names.retain(|name| !reasons.contains_key(name));
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some(why) = self.reasons.lock().get(name) {
            return plan_err!("{why}");
        }
        self.of_session.table(name).await
    }

    fn register_table(
        &self,
        name: String,
        table: Arc<dyn TableProvider>,
    ) -> Result<Option<Arc<dyn TableProvider>>> {
        self.reasons.lock().remove(&name);
        self.of_session.register_table(name, table)
    }

    fn deregister_table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        self.of_session.deregister_table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        self.of_session.table_exist(name)
    }
}

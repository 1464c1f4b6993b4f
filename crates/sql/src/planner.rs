//! Finds the column families that a statement reads.
//!
//! DataFusion plans the scans of a statement's tables one after another, and all of them use one snapshot. So the first
//! scan needs the column families of all others: the snapshot opens only their files.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::error::Result;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, PhysicalPlanner};

use crate::null_equality::null_equal_keys;
use crate::table::RocksTable;

tokio::task_local! {
    /// Tables of the statement that is being planned; `None` if one of its tables may read other tables.
    static PLANNED: Option<Vec<Arc<dyn TableProvider>>>;
}

/// Plans statements, and gives each table the list of the others.
#[derive(Debug)]
pub struct StatementPlanner(pub Option<Arc<dyn QueryPlanner + Send + Sync>>);

#[async_trait]
impl QueryPlanner for StatementPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = &null_equal_keys(plan.clone())?;
        let planned = async {
            match &self.0 {
                Some(planner) => planner.create_physical_plan(plan, session).await,
                None => {
                    let planner = DefaultPhysicalPlanner::default();
                    planner.create_physical_plan(plan, session).await
                }
            }
        };
        // A table that plans a statement of its own shares the snapshot of the outer one.
        let is_inner = PLANNED.try_with(|_| ()).is_ok();
        let tables = if is_inner { None } else { tables(plan)? };
        PLANNED.scope(tables, planned).await
    }
}

/// The tables of a plan; `None` if a part of it may read others, such as a table that is made of tables.
fn tables(plan: &LogicalPlan) -> Result<Option<Vec<Arc<dyn TableProvider>>>> {
    let mut tables = Some(Vec::new());
    plan.apply_with_subqueries(|node| {
        let table = match node {
            LogicalPlan::TableScan(scan) => source_as_provider(&scan.source).ok(),
            LogicalPlan::Extension(_) => None,
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        match (table, &mut tables) {
            (Some(table), Some(tables)) if table.downcast_ref::<RocksTable>().is_some() => {
                tables.push(table);
            }
            _ => tables = None,
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(tables)
}

/// The column families that the statement in planning reads, of those that `family` returns; `None` if it may read all.
pub fn families(family: impl Fn(&RocksTable) -> Option<String>) -> Option<BTreeSet<String>> {
    let of_tables = |tables: &Option<Vec<Arc<dyn TableProvider>>>| {
        let tables = tables.as_ref()?.iter();
        let tables = tables.filter_map(|table| table.downcast_ref::<RocksTable>());
        Some(tables.filter_map(&family).collect())
    };
    PLANNED.try_with(of_tables).ok().flatten()
}

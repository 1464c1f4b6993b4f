//! Joins that can be stopped.
//!
//! DataFusion stops a task where it returns to its thread, which tables do after some batches. A join may make any number of
//! batches out of one batch of a table, and an aggregate above it takes them all without a return.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::SchedulingType;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec,
};
use datafusion::physical_plan::unnest::UnnestExec;

/// Lets a task return to its thread after some batches of a join.
///
/// # Errors
/// Those of DataFusion if a node does not accept its inputs.
pub fn cooperative_joins(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let cooperative = plan.transform_up(|node| {
        let is_cooperative = node.properties().scheduling_type == SchedulingType::Cooperative;
        Ok(match multiplies_rows(&node) && !is_cooperative {
            true => Transformed::yes(Arc::new(CooperativeExec::new(node)) as _),
            false => Transformed::no(node),
        })
    })?;
    Ok(cooperative.data)
}

fn multiplies_rows(node: &Arc<dyn ExecutionPlan>) -> bool {
    node.is::<CrossJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>()
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateBuilder;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use futures::poll;

    #[test]
    fn a_task_returns_to_its_thread_while_a_join_makes_rows() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let config = SessionConfig::new().with_target_partitions(1);
        let builder = SessionStateBuilder::new_with_default_features().with_config(config);
        let context = SessionContext::new_with_state(crate::state(builder).unwrap());
        // Some 3,000 batches are made of three.
        let series = "generate_series(1, 5000)";
        runtime.unwrap().block_on(async {
            for on in ["true", "a.value + b.value > 0", "a.value % 1 = b.value % 1"] {
                let text = format!("select count(*) from {series} a join {series} b on {on}");
                let rows = context.sql(&text).await.unwrap();
                let mut rows = Box::pin(rows.collect());
                assert!(poll!(&mut rows).is_pending(), "{on}");
                rows.await.unwrap();
            }
        });
    }
}

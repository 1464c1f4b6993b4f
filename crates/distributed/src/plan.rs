//! Plans over several processes.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::context::QueryPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::analyze::AnalyzeExec;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, replace_children_if_necessary,
};
use datafusion_distributed::{
    DesiredTaskCountEvent, DesiredTaskCountEventResponse, DistributedExt, DistributedLeafExec,
    NetworkBoundaryExt, NetworkCoalesceExec, RouteTasksEvent, RouteTasksEventResponse,
    ScaleUpLeafNodeEvent, ScaleUpLeafNodeEventResponse, SessionStateBuilderExt, WorkerResolver,
    display_plan_ascii,
};
use rockmill_scan::ScanEngine;
use rockmill_sql::{Codec, Rule, Tasks, is_forgetting, scan_tasks, shard_of, split_scan};
use url::Url;

use crate::analyzed::ByWorker;
use crate::channels::Channels;
use crate::pin::Workers;

/// Minimum number of processes on one side of an exchange. One with a single process on either side is left out.
const MIN_TASKS: usize = 2;

/// Lets workers that have the files of this session's database run parts of its statements. Call it after
/// [`rockmill_sql::with_rockmill`].
#[must_use]
pub fn over_workers(
    mut builder: SessionStateBuilder,
    engine: &Arc<ScanEngine>,
    workers: &Workers,
) -> SessionStateBuilder {
    let urls = Arc::clone(&workers.urls);
    let most = urls.len();
    let own = builder.query_planner().clone();
    let mut builder = distributed(builder, engine, &workers.client.channels, urls);
    if let (Some(own), Some(distributed)) = (own, builder.query_planner().clone()) {
        builder = builder.with_query_planner(Arc::new(RecursiveHere { own, distributed }));
    }
    builder.with_distributed_desired_task_count_handler(move |event: DesiredTaskCountEvent<'_>| {
        match scan_tasks(event.plan.as_ref())? {
            // The nodes above it are in the same stage, which no other scan may run in several processes.
            Tasks::One => Some(Ok(DesiredTaskCountEventResponse::maximum(1))),
            Tasks::Upto(pieces) => {
                let tasks = pieces.clamp(1, most);
                Some(Ok(DesiredTaskCountEventResponse::desired(tasks)))
            }
            Tasks::Shards(_) => None,
        }
    })
}

/// Lets the processes that have shards scan them. Call it after [`rockmill_sql::with_rockmill`].
#[must_use]
pub fn over_shards(
    builder: SessionStateBuilder,
    engine: &Arc<ScanEngine>,
    channels: &Channels,
    urls: Vec<Url>,
) -> SessionStateBuilder {
    let builder =
        builder.with_physical_optimizer_rule(Rule::new("rockmill_at_shards", scans_at_shards));
    distributed(builder, engine, channels, urls.into())
}

/// Plans recursive statements for this process alone. Their recursive term runs several times, and a plan on a worker keeps
/// the state of its first run.
#[derive(Debug)]
struct RecursiveHere {
    own: Arc<dyn QueryPlanner + Send + Sync>,
    distributed: Arc<dyn QueryPlanner + Send + Sync>,
}

#[async_trait]
impl QueryPlanner for RecursiveHere {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut is_recursive = false;
        plan.apply_with_subqueries(|node| {
            is_recursive |= matches!(node, LogicalPlan::RecursiveQuery(_));
            Ok(TreeNodeRecursion::Continue)
        })?;
        let planner = match is_recursive {
            true => &self.own,
            false => &self.distributed,
        };
        planner.create_physical_plan(plan, session).await
    }
}

fn distributed(
    builder: SessionStateBuilder,
    engine: &Arc<ScanEngine>,
    channels: &Channels,
    urls: Arc<[Url]>,
) -> SessionStateBuilder {
    let resolved = Resolved(Arc::clone(&urls));
    let mut builder = builder.with_distributed_planner();
    let planner = builder.query_planner().take();
    let planner = ByWorker {
        planner: planner.expect("the distributed one"),
        urls: Arc::clone(&urls),
    };
    let config = builder.config().get_or_insert_default();
    config.set_extension(Arc::new(channels.clone()));
    builder
        .with_query_planner(Arc::new(planner))
        .with_distributed_worker_resolver(resolved)
        .with_distributed_channel_resolver(channels.clone())
        .with_distributed_user_codec(Codec::new(engine))
        .with_distributed_scale_up_leaf_node_handler(scale_up)
        .with_distributed_route_tasks_handler(move |event: RouteTasksEvent<'_>| {
            let urls = routed(event.plan, event.task_count, &urls);
            Some(urls.map(RouteTasksEventResponse::new))
        })
}

struct Resolved(Arc<[Url]>);

impl WorkerResolver for Resolved {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.to_vec())
    }
}

fn scale_up(event: ScaleUpLeafNodeEvent<'_>) -> Option<Result<ScaleUpLeafNodeEventResponse>> {
    let parts = split_scan(event.plan.as_ref(), event.task_count).transpose()?;
    let leaf = parts.and_then(|parts| DistributedLeafExec::try_new(Arc::clone(event.plan), parts));
    Some(leaf.map(|leaf| ScaleUpLeafNodeEventResponse::new(Arc::new(leaf))))
}

/// The workers that run the parts of a stage. Worker i runs part i of a scan, so that it reads the same files each time. The
/// part of a shard runs on the worker that has the shard.
pub(crate) fn routed(
    stage: &Arc<dyn ExecutionPlan>,
    parts: usize,
    urls: &[Url],
) -> Result<Vec<Url>> {
    let mut routed: Vec<_> = urls.iter().cycle().take(parts).cloned().collect();
    stage.apply(|node| {
        if let Some(leaf) = node.downcast_ref::<DistributedLeafExec>() {
            for (url, part) in routed.iter_mut().zip(leaf.variants()) {
                if let Some(shard) = shard_of(part.as_ref()) {
                    let parsed = Url::parse(shard);
                    *url = parsed.map_err(|e| DataFusionError::External(Box::new(e)))?;
                }
            }
        }
        Ok(match node.is_network_boundary() {
            true => TreeNodeRecursion::Jump,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(routed)
}

/// Runs scans of shards, and what can be done with the rows of one shard alone, where the shards are.
fn scans_at_shards(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    at_shards(plan, false)
}

/// Moves parts of a plan to the shards. If it `repeats`, nodes with a state stay here: workers do not reset them.
fn at_shards(plan: Arc<dyn ExecutionPlan>, repeats: bool) -> Result<Arc<dyn ExecutionPlan>> {
    let placed = plan.transform_down(|node| {
        let is_recursive = node.is::<RecursiveQueryExec>();
        if is_recursive || node.is::<AnalyzeExec>() {
            let children = node.children().into_iter();
            let children =
                children.map(|child| at_shards(Arc::clone(child), repeats || is_recursive));
            let children = children.collect::<Result<_>>()?;
            let node = replace_children_if_necessary(node, children)?;
            return Ok(Transformed::new(node, true, TreeNodeRecursion::Jump));
        }
        let Some(shards) = shards_below(&node, repeats) else {
            return Ok(Transformed::no(node));
        };
        let tasks = shards.max(MIN_TASKS);
        let exchange = NetworkCoalesceExec::try_new(node, tasks, 1)?;
        Ok(Transformed::new(
            Arc::new(exchange) as _,
            true,
            TreeNodeRecursion::Jump,
        ))
    })?;
    let placed = placed.transform_data(|plan| plan.transform_up(separate_limits))?;
    let is_split = placed.data.output_partitioning().partition_count() > 1;
    Ok(match placed.transformed && is_split {
        true => Arc::new(CoalescePartitionsExec::new(placed.data)),
        false => placed.data,
    })
}

/// Puts a node between an exchange and a join, a sort or a filter with a limit. Otherwise datafusion-distributed limits the
/// rows of each shard by it (`push_fetch_into_network_coalesce`).
fn separate_limits(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let counts_rows_read = node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<GlobalLimitExec>()
        || node.is::<LocalLimitExec>();
    let mut children = node.children().into_iter();
    let is_above_exchange = children.any(|child| child.is::<NetworkCoalesceExec>());
    if node.fetch().is_none() || counts_rows_read || !is_above_exchange {
        return Ok(Transformed::no(node));
    }
    let children = node.children().into_iter();
    let children = children.map(|child| match child.is::<NetworkCoalesceExec>() {
        true => Arc::new(CooperativeExec::new(Arc::clone(child))) as _,
        false => Arc::clone(child),
    });
    let children = children.collect();
    replace_children_if_necessary(node, children).map(Transformed::yes)
}

/// Number of shards that a plan reads, if it is a scan of shards with nodes above it that need the rows of one partition
/// alone.
fn shards_below(plan: &Arc<dyn ExecutionPlan>, repeats: bool) -> Option<usize> {
    if let Some(Tasks::Shards(shards)) = scan_tasks(plan.as_ref()) {
        return Some(shards);
    }
    let aggregate = plan.downcast_ref::<AggregateExec>();
    let sort = plan.downcast_ref::<SortExec>();
    let is_of_partition = (plan.is::<FilterExec>() && !repeats)
        || is_forgetting(plan.as_ref())
        || plan.is::<ProjectionExec>()
        || plan.is::<LocalLimitExec>()
        || aggregate.is_some_and(|aggregate| *aggregate.mode() == AggregateMode::Partial)
        || sort.is_some_and(|sort| sort.preserve_partitioning() && !repeats);
    match plan.children()[..] {
        [below] if is_of_partition => shards_below(below, repeats),
        _ => None,
    }
}

/// The plan as text, with the stages of the workers; `None` if it runs in this process.
pub fn show(plan: &Arc<dyn ExecutionPlan>) -> Option<String> {
    let mut is_distributed = false;
    let _ = plan.apply(|node| {
        is_distributed |= node.is_network_boundary();
        Ok(TreeNodeRecursion::Continue)
    });
    is_distributed.then(|| display_plan_ascii(plan.as_ref(), false))
}

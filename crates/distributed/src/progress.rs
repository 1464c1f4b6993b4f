//! Progress of a statement over all workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_distributed::NetworkBoundaryExt;
use futures::future::join_all;
use rockmill_core::Lock;
use tokio::task::JoinHandle;
use url::Url;
use uuid::Uuid;

use crate::channels::{Channels, threads};

/// Time between two requests to a worker, and the time in which it answers.
const INTERVAL: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_secs(2);

/// Stored bytes that scans have read, and that they read in total.
pub(crate) type Read = (u64, u64);

/// The sums over parts of a statement.
pub(crate) fn total(parts: impl IntoIterator<Item = Read>) -> Read {
    let parts = parts.into_iter();
    parts.fold((0, 0), |sums: Read, part| {
        (sums.0.saturating_add(part.0), sums.1.saturating_add(part.1))
    })
}

/// Asks workers how many bytes they have read, while a statement runs.
#[derive(Debug)]
pub struct Progress {
    plan: Arc<dyn ExecutionPlan>,
    workers: Arc<Lock<HashMap<Url, Read>>>,
    asking: JoinHandle<()>,
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

impl Progress {
    /// The progress of a plan that runs in this context; `None` if no part of it runs on workers.
    pub fn of(plan: &Arc<dyn ExecutionPlan>, context: &TaskContext) -> Option<Self> {
        let statement = statement(plan)?;
        let channels = context.session_config().get_extension::<Channels>()?;
        let workers = Arc::default();
        let asked = Arc::clone(&workers);
        let asking = threads().ok()?.spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                ask(&channels, statement, &asked).await;
            }
        });
        Some(Self {
            plan: Arc::clone(plan),
            workers,
            asking,
        })
    }

    /// Bytes of all workers and of this process.
    pub fn read(&self) -> Read {
        let workers = self.workers.lock();
        total(workers.values().copied().chain([here(&self.plan)]))
    }
}

async fn ask(channels: &Channels, statement: Uuid, workers: &Lock<HashMap<Url, Read>>) {
    let asked = channels.opened().into_iter().map(|(url, channel)| async {
        let read = tokio::time::timeout(TIMEOUT, channel.progress(statement)).await;
        Some((url, read.ok()??))
    });
    let answers = join_all(asked).await;
    let mut workers = workers.lock();
    for (url, (read, total)) in answers.into_iter().flatten() {
        // A worker forgets parts that have ended.
        let known = workers.entry(url).or_default();
        *known = (known.0.max(read), known.1.max(total));
    }
}

/// The number that stages of a plan have in common, if there are any.
fn statement(plan: &Arc<dyn ExecutionPlan>) -> Option<Uuid> {
    let mut statement = None;
    let _ = plan.apply(|node| {
        let Some(boundary) = node.as_network_boundary() else {
            return Ok(TreeNodeRecursion::Continue);
        };
        statement = Some(boundary.input_stage().query_id());
        Ok(TreeNodeRecursion::Stop)
    });
    statement
}

/// Bytes of the scans that run in this process.
fn here(plan: &Arc<dyn ExecutionPlan>) -> Read {
    let mut scans = Vec::new();
    let _ = plan.apply(|node| {
        if node.is_network_boundary() {
            return Ok(TreeNodeRecursion::Jump);
        }
        if node.children().is_empty() {
            scans.push(rockmill_sql::progress(node));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    total(scans)
}

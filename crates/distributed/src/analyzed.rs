//! `EXPLAIN ANALYZE` by worker.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::context::QueryPlanner;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use datafusion_distributed::{
    DISTRIBUTED_DATAFUSION_TASK_ID_LABEL, DistributedExec, DistributedMetricsFormat,
    NetworkBoundaryExt, Stage, rewrite_distributed_plan_with_metrics,
};
use futures::StreamExt;
use rockmill_sql::{SCAN_BYTES, SCAN_ROWS, SCAN_TIME};
use url::Url;

use crate::address::Address;
use crate::plan::routed;

/// Name of the node that runs a distributed plan and returns its metrics.
const ANALYZE: &str = "DistributedAnalyzeExec";

/// Name of the time that nodes above scans have taken.
const ELAPSED: &str = "elapsed_compute";

/// Plans statements, and adds what each worker did to `EXPLAIN ANALYZE`.
#[derive(Debug)]
pub struct ByWorker {
    pub planner: Arc<dyn QueryPlanner + Send + Sync>,
    pub urls: Arc<[Url]>,
}

#[async_trait]
impl QueryPlanner for ByWorker {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planned = self.planner.create_physical_plan(plan, session).await?;
        Ok(match planned.name() {
            ANALYZE => Arc::new(AnalyzedExec {
                analyze: planned,
                urls: Arc::clone(&self.urls),
            }),
            _ => planned,
        })
    }
}

/// The rows of `EXPLAIN ANALYZE`, and one with the workers.
#[derive(Debug)]
struct AnalyzedExec {
    analyze: Arc<dyn ExecutionPlan>,
    urls: Arc<[Url]>,
}

impl DisplayAs for AnalyzedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RockmillAnalyzedByWorker")
    }
}

impl ExecutionPlan for AnalyzedExec {
    fn name(&self) -> &'static str {
        "RockmillAnalyzedByWorker"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.analyze.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.analyze]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let analyze = children.pop().unwrap_or_else(|| Arc::clone(&self.analyze));
        let urls = Arc::clone(&self.urls);
        Ok(Arc::new(Self { analyze, urls }))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let rows = self.analyze.execute(partition, context)?;
        let (analyze, urls) = (Arc::clone(&self.analyze), Arc::clone(&self.urls));
        let schema = self.schema();
        // Workers have sent their metrics by the end of the other rows.
        let by_worker = futures::stream::once(async move {
            let text = by_worker(&analyze, &urls).await?;
            let columns = [
                Arc::new(StringArray::from(vec!["Workers"])) as _,
                Arc::new(StringArray::from(vec![text])) as _,
            ];
            Ok::<_, DataFusionError>(RecordBatch::try_new(schema, columns.to_vec())?)
        });
        let rows = rows.chain(by_worker);
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), rows)))
    }
}

/// The work of a process for a statement.
#[derive(Debug, Default)]
struct Done {
    parts: usize,
    bytes: usize,
    rows: usize,
    scans: Duration,
    others: Duration,
}

/// All processes of a statement.
#[derive(Debug, Default)]
struct Processes {
    here: Done,
    workers: BTreeMap<String, Done>,
    /// Workers of the parts of each stage.
    stages: BTreeMap<usize, Vec<String>>,
}

/// A line for each process, and one for each stage.
async fn by_worker(analyze: &Arc<dyn ExecutionPlan>, urls: &[Url]) -> Result<String> {
    let plan = analyze.children().into_iter();
    let mut plan = plan.filter(|child| child.is::<DistributedExec>()).cloned();
    let Some(plan) = plan.next() else {
        return Ok(String::new());
    };
    let format = DistributedMetricsFormat::PerTask;
    let plan = rewrite_distributed_plan_with_metrics(plan, format).await?;
    let mut processes = Processes::default();
    for url in urls {
        processes.workers.entry(name(url)).or_default();
    }
    processes.add(&plan, None, urls)?;
    let mut text = String::new();
    let here = ("this process".to_owned(), processes.here);
    for (name, done) in processes.workers.into_iter().chain([here]) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}: {done}");
    }
    for (stage, workers) in processes.stages {
        let parts = workers.iter().enumerate();
        let parts: Vec<_> = parts
            .map(|(part, name)| format!("t{part} at {name}"))
            .collect();
        let _ = writeln!(text, "stage {stage}: {}", parts.join(", "));
    }
    Ok(text)
}

/// A worker's name in the text.
fn name(url: &Url) -> String {
    Address::of(url).map_or_else(|| url.to_string(), |address| address.to_string())
}

impl Processes {
    /// Adds a plan, whose parts run on these workers. They run in this process if there are none.
    fn add(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        parts: Option<&[String]>,
        urls: &[Url],
    ) -> Result<()> {
        self.add_metrics(&plan.metrics().unwrap_or_default(), parts);
        let Some(boundary) = plan.as_network_boundary() else {
            let mut children = plan.children().into_iter();
            return children.try_for_each(|child| self.add(child, parts, urls));
        };
        let Stage::Local(stage) = boundary.input_stage() else {
            return Ok(());
        };
        let routed = routed(&stage.plan, stage.tasks, urls)?;
        let names: Vec<_> = routed.iter().map(name).collect();
        for name in &names {
            self.workers.entry(name.clone()).or_default().parts += 1;
        }
        self.add(&stage.plan, Some(&names), urls)?;
        self.stages.insert(stage.num, names);
        Ok(())
    }

    fn add_metrics(&mut self, metrics: &MetricsSet, parts: Option<&[String]>) {
        for metric in metrics.iter() {
            let mut labels = metric.labels().iter();
            let label = labels.find(|label| label.name() == DISTRIBUTED_DATAFUSION_TASK_ID_LABEL);
            let part = label.and_then(|label| label.value().parse::<usize>().ok());
            let name = parts.and_then(|parts| parts.get(part?));
            let done = match (parts, name) {
                (None, _) => &mut self.here,
                (Some(_), Some(name)) => self.workers.entry(name.clone()).or_default(),
                (Some(_), None) => continue,
            };
            let value = metric.value();
            let time = Duration::from_nanos(value.as_usize() as u64);
            match value.name() {
                SCAN_BYTES => done.bytes += value.as_usize(),
                SCAN_ROWS => done.rows += value.as_usize(),
                SCAN_TIME => done.scans += time,
                ELAPSED => done.others += time,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parts > 0 {
            write!(f, "parts={}, ", self.parts)?;
        }
        let (scans, others) = (self.scans.as_secs_f64(), self.others.as_secs_f64());
        write!(
            f,
            "{SCAN_BYTES}={}, {SCAN_ROWS}={}, {SCAN_TIME}={scans:.3}s, {ELAPSED}={others:.3}s",
            self.bytes, self.rows
        )
    }
}

//! Panics of a statement as its errors.
//!
//! The engine of workers never joins the task of a partition. If such a task panicked, its stream would end as if it had
//! sent all rows. A plan that another library runs is called through C, where a panic ends the process. So no panic leaves
//! a node of these plans.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::metrics::MetricsSet;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::StreamExt;
use rockmill_core::panic_message;

use crate::size::{is_panic_of_size, too_long};

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would become the error of a statement, or of a request.
#[must_use]
pub fn is_panic_caught() -> bool {
    IS_CAUGHT.get()
}

/// The same plan, whose nodes have errors in place of panics. They and their streams keep `kept`.
///
/// # Errors
/// Those of DataFusion if a node does not accept its inputs.
pub fn with_caught_panics(
    plan: Arc<dyn ExecutionPlan>,
    kept: Option<Arc<dyn Any + Send + Sync>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let caught = plan.transform_up(|node| {
        let kept = kept.clone();
        Ok(Transformed::yes(Arc::new(CaughtExec { node, kept }) as _))
    })?;
    Ok(caught.data)
}

/// The result of a request, or `None` if it panics before there is one.
pub async fn answered<T>(request: impl Future<Output = T>) -> Option<T> {
    let mut request = pin!(request);
    let polled = poll_fn(|context| match catch(|| request.as_mut().poll(context)) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    });
    polled.await
}

/// Does a part of a node's work.
///
/// # Errors
/// If it panics.
fn caught<T>(node: &Arc<dyn ExecutionPlan>, work: impl FnOnce() -> T) -> Result<T> {
    catch(work).map_err(|panic| error_of(&*panic, node))
}

/// Does `work`, and returns its panic.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let was_caught = IS_CAUGHT.replace(true);
    let done = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(was_caught);
    done
}

fn error_of(panic: &(dyn Any + Send), node: &Arc<dyn ExecutionPlan>) -> DataFusionError {
    if is_panic_of_size(panic) {
        return too_long(Some(node));
    }
    let said = panic_message(panic).unwrap_or("it does not say why");
    let what = format!(
        "internal error, please report it: {} panicked: {said}",
        node.name()
    );
    DataFusionError::IoError(io::Error::other(what))
}

/// A node whose panics are errors. It stands in the node's place, so the plan keeps its form.
#[derive(Debug)]
struct CaughtExec {
    node: Arc<dyn ExecutionPlan>,
    kept: Option<Arc<dyn Any + Send + Sync>>,
}

/// The rows of a node. Rows and node are dropped before `_kept`, which they need.
struct Running {
    /// `None` after a panic.
    rows: Option<SendableRecordBatchStream>,
    node: Arc<dyn ExecutionPlan>,
    _kept: Option<Arc<dyn Any + Send + Sync>>,
}

impl Running {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        let Some(rows) = &mut self.rows else {
            return Poll::Ready(None);
        };
        let next = caught(&self.node, || rows.poll_next_unpin(context));
        next.unwrap_or_else(|error| {
            let broken = self.rows.take();
            // Its state may be anything.
            let _ = caught(&self.node, move || drop(broken));
            Poll::Ready(Some(Err(error)))
        })
    }
}

impl DisplayAs for CaughtExec {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt_as(kind, f)
    }
}

impl ExecutionPlan for CaughtExec {
    fn name(&self) -> &str {
        self.node.name()
    }

    fn downcast_delegate(&self) -> Option<&dyn ExecutionPlan> {
        Some(self.node.as_ref())
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.node.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.node.children()
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = Arc::clone(&self.node).replace_children(children, options)?;
        let kept = self.kept.clone();
        Ok(Arc::new(Self { node, kept }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.node.apply_expressions(f)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let node = Arc::clone(&self.node);
        let rows = caught(&node, || node.execute(partition, context))??;
        let schema = rows.schema();
        let mut running = Running {
            rows: Some(rows),
            node,
            _kept: self.kept.clone(),
        };
        let rows = futures::stream::poll_fn(move |context| running.poll(context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        self.node.metrics()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
    use datafusion::logical_expr::{ColumnarValue, Volatility, create_udf};
    use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    /// Names of what has ended.
    type Ended = Arc<Mutex<Vec<&'static str>>>;

    struct Ends(&'static str, Ended);

    impl Drop for Ends {
        fn drop(&mut self) {
            self.1.lock().unwrap().push(self.0);
        }
    }

    /// No rows. Their stream tells its end.
    #[derive(Debug)]
    struct NoRows(SchemaRef, Ended);

    impl PartitionStream for NoRows {
        fn schema(&self) -> &SchemaRef {
            &self.0
        }

        fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
            let ends = Ends("rows", Arc::clone(&self.1));
            let rows = futures::stream::poll_fn(move |_| {
                let _ = &ends;
                Poll::Ready(None)
            });
            Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.0), rows))
        }
    }

    #[test]
    fn what_a_plan_keeps_outlives_its_rows() {
        let (ended, schema) = (Ended::default(), Arc::new(Schema::empty()));
        let rows = Arc::new(NoRows(Arc::clone(&schema), Arc::clone(&ended)));
        let scan = StreamingTableExec::try_new(schema, vec![rows], None, [], false, None);
        let kept = Arc::new(Ends("kept", Arc::clone(&ended)));
        let plan = with_caught_panics(Arc::new(scan.unwrap()), Some(kept)).unwrap();
        let stream = plan.execute(0, Arc::default()).unwrap();
        drop(plan);
        assert_eq!(*ended.lock().unwrap(), [""; 0]);
        drop(stream);
        assert_eq!(*ended.lock().unwrap(), ["rows", "kept"]);
    }

    /// A session with a function that panics with a text.
    fn session(says: &'static str) -> SessionContext {
        let config = SessionConfig::new().with_target_partitions(4);
        let session = SessionContext::new_with_config(config);
        let panics = move |values: &[ColumnarValue]| {
            assert!(is_panic_caught(), "the process would end");
            if values.len() == 1 {
                panic!("{says}");
            }
            Ok(values[0].clone())
        };
        let int = || DataType::Int64;
        session.register_udf(create_udf(
            "panics",
            vec![int()],
            int(),
            Volatility::Volatile,
            Arc::new(panics),
        ));
        session
    }

    #[tokio::test]
    async fn a_panic_in_any_task_of_a_plan_is_its_error_and_the_plan_keeps_its_form() {
        for (says, means) in [
            ("by intention", "panicked: by intention"),
            ("byte array offset overflow", "more than 2 GiB"),
        ] {
            let session = session(says);
            for statement in [
                "select panics(value) from generate_series(1, 9)",
                "select value % 3, sum(panics(value)) from generate_series(1, 99999) group by 1",
                "select a.value from generate_series(1, 99) a join (select panics(value) as v from \
                 generate_series(1, 99)) b on a.value = b.v order by 1",
            ] {
                let plan = session.sql(statement).await.unwrap();
                let plan = plan.create_physical_plan().await.unwrap();
                let shown = |plan: &Arc<dyn ExecutionPlan>| {
                    displayable(plan.as_ref()).indent(false).to_string()
                };
                let before = shown(&plan);
                let plan = with_caught_panics(plan, None).unwrap();
                assert_eq!(shown(&plan), before);
                let error = collect(plan, session.task_ctx()).await;
                let said = error.expect_err(statement).to_string();
                assert!(said.contains(means), "{statement}: {said}");
            }
        }
        assert!(!is_panic_caught());
    }

    #[tokio::test]
    async fn a_request_that_panics_has_no_answer() {
        let panics = async {
            tokio::task::yield_now().await;
            assert!(is_panic_caught(), "the process would end");
            panic!("by intention")
        };
        let panicked: Option<()> = answered(panics).await;
        assert_eq!(panicked, None);
        assert_eq!(answered(async { 1 }).await, Some(1));
        assert!(!is_panic_caught());
    }
}

//! Files that a statement writes. They get their names when it has ended: DataFusion ends a file as if it had all rows when a
//! query fails.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::common::internal_err;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::stream::BoxStream;
use futures::{TryStreamExt, stream};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use rockmill_core::Lock;
use tokio::runtime::Handle;
use url::Url;

use crate::rule::one_input;

type Upload = Box<dyn MultipartUpload>;

/// What stores return.
type Stored<T> = object_store::Result<T>;

/// Nothing is known of a file without a name.
const UNKNOWN: PutResult = PutResult {
    e_tag: None,
    version: None,
};

/// The same plan. If it writes files, its rows come when these have their names.
pub fn with_named_files(plan: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan> {
    match writes(&plan) {
        true => Arc::new(WritesExec(plan)),
        false => plan,
    }
}

/// A plan that writes files, with few rows. The files get their names when it has ended without an error, and are removed else.
#[derive(Debug)]
struct WritesExec(Arc<dyn ExecutionPlan>);

impl DisplayAs for WritesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RockmillWrites")
    }
}

impl ExecutionPlan for WritesExec {
    fn name(&self) -> &'static str {
        "RockmillWrites"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.0.properties()
    }

    one_input!(0, |_this, plan| Self(plan));

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let writes = Writes::default();
        let context = writes.context(&context);
        let rows = self.0.execute(partition, context)?;
        let rows = stream::once(async move {
            match rows.try_collect::<Vec<_>>().await {
                Ok(rows) => {
                    writes.commit().await?;
                    Ok(stream::iter(rows.into_iter().map(Ok)))
                }
                Err(error) => {
                    writes.abort().await;
                    Err(error)
                }
            }
        });
        let schema = self.0.schema();
        let rows = rows.try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Files of a statement that have no names yet.
#[derive(Debug, Clone, Default)]
struct Writes(Arc<Lock<Files>>);

#[derive(Debug, Default)]
struct Files {
    whole: Vec<Upload>,
    /// Those that the plan has dropped.
    cut: Vec<Upload>,
    /// Number of files that were written at once.
    small: u64,
}

impl Writes {
    /// The context in which a plan runs. Files that it writes do not get their names.
    fn context(&self, context: &TaskContext) -> Arc<TaskContext> {
        let runtime = context.runtime_env();
        let stores = Stores {
            registry: Arc::clone(&runtime.object_store_registry),
            writes: self.clone(),
        };
        let runtime = RuntimeEnv {
            object_store_registry: Arc::new(stores),
            ..runtime.as_ref().clone()
        };
        Arc::new(TaskContext::new(
            context.task_id(),
            context.session_id(),
            context.session_config().clone(),
            context.scalar_functions().clone(),
            context.higher_order_functions().clone(),
            context.aggregate_functions().clone(),
            context.window_functions().clone(),
            Arc::new(runtime),
        ))
    }

    /// Gives the files their names.
    ///
    /// # Errors
    /// Those of the store. Files before have their names then, and the others are gone.
    async fn commit(self) -> Result<()> {
        let mut whole = std::mem::take(&mut self.0.lock().whole).into_iter();
        while let Some(mut file) = whole.next() {
            if let Err(error) = file.complete().await {
                self.0.lock().whole.extend(whole);
                self.abort().await;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Removes the files. A drop leaves that to another thread, and the process may end before.
    async fn abort(self) {
        let Files { whole, cut, .. } = std::mem::take(&mut *self.0.lock());
        for mut upload in whole.into_iter().chain(cut) {
            // There is nothing else to try.
            let _ = upload.abort().await;
        }
    }
}

/// Whether a part of the plan writes files.
fn writes(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<DataSinkExec>().is_some() || plan.children().into_iter().any(writes)
}

/// The stores of a session, for a statement.
#[derive(Debug)]
struct Stores {
    registry: Arc<dyn ObjectStoreRegistry>,
    writes: Writes,
}

impl ObjectStoreRegistry for Stores {
    fn register_store(
        &self,
        url: &Url,
        store: Arc<dyn ObjectStore>,
    ) -> Option<Arc<dyn ObjectStore>> {
        self.registry.register_store(url, store)
    }

    fn get_store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        Ok(Arc::new(Store {
            store: self.registry.get_store(url)?,
            writes: self.writes.clone(),
        }))
    }
}

/// A store in which files of a statement get no names.
#[derive(Debug)]
struct Store {
    store: Arc<dyn ObjectStore>,
    writes: Writes,
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Store {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Stored<PutResult> {
        let number = {
            let mut files = self.writes.0.lock();
            files.small += 1;
            files.small
        };
        let process = std::process::id();
        let from = Path::parse(format!("{location}.{process}-{number}.tmp"))?;
        let written = self.store.put_opts(&from, payload, options).await?;
        let file = Written {
            store: Arc::clone(&self.store),
            from: Some(from),
            to: location.clone(),
        };
        self.writes.0.lock().whole.push(Box::new(file));
        Ok(written)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Stored<Upload> {
        Ok(Box::new(Unnamed {
            upload: Some(self.store.put_multipart_opts(location, options).await?),
            writes: self.writes.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Stored<GetResult> {
        self.store.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Stored<Vec<Bytes>> {
        self.store.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Stored<Path>>,
    ) -> BoxStream<'static, Stored<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Stored<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Stored<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Stored<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// A small file that was written at once, under another name. A folder of thousands needs no open file for each.
#[derive(Debug)]
struct Written {
    store: Arc<dyn ObjectStore>,
    /// None if it has its name, or is gone.
    from: Option<Path>,
    to: Path,
}

impl Drop for Written {
    fn drop(&mut self) {
        let store = Arc::clone(&self.store);
        if let (Some(from), Ok(threads)) = (self.from.take(), Handle::try_current()) {
            threads.spawn(async move { store.delete(&from).await });
        }
    }
}

#[async_trait]
impl MultipartUpload for Written {
    fn put_part(&mut self, _: PutPayload) -> UploadPart {
        Box::pin(std::future::ready(Err(ended())))
    }

    async fn complete(&mut self) -> Stored<PutResult> {
        let from = self.from.as_ref().ok_or_else(ended)?;
        self.store.rename(from, &self.to).await?;
        self.from = None;
        Ok(UNKNOWN)
    }

    async fn abort(&mut self) -> Stored<()> {
        let from = self.from.take().ok_or_else(ended)?;
        self.store.delete(&from).await
    }
}

fn ended() -> object_store::Error {
    object_store::Error::Generic {
        store: "Rockmill",
        source: "the file has ended".into(),
    }
}

/// A file whose end gives it no name.
#[derive(Debug)]
struct Unnamed {
    /// None when it is whole.
    upload: Option<Upload>,
    writes: Writes,
}

impl Unnamed {
    fn upload(&mut self) -> Stored<&mut Upload> {
        self.upload.as_mut().ok_or_else(ended)
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        self.writes.0.lock().cut.extend(self.upload.take());
    }
}

#[async_trait]
impl MultipartUpload for Unnamed {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        match self.upload() {
            Ok(upload) => upload.put_part(data),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    async fn complete(&mut self) -> Stored<PutResult> {
        self.upload()?;
        self.writes.0.lock().whole.extend(self.upload.take());
        Ok(UNKNOWN)
    }

    async fn abort(&mut self) -> Stored<()> {
        self.upload()?.abort().await
    }
}

//! Files that a statement writes. They get their names when it has ended: DataFusion ends a file as if it had all rows when a
//! query fails.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use datafusion::datasource::sink::DataSinkExec;
use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreRegistry;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, UploadPart,
};
use url::Url;

type Upload = Box<dyn MultipartUpload>;

/// Nothing is known of a file without a name.
const UNKNOWN: PutResult = PutResult {
    e_tag: None,
    version: None,
};

/// What stores return.
type Stored<T> = object_store::Result<T>;

/// Files of a statement that have no names yet.
#[derive(Debug, Clone, Default)]
pub struct Writes(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    whole: Vec<Whole>,
    /// Those that the plan has dropped.
    cut: Vec<Upload>,
}

/// A whole file.
#[derive(Debug)]
enum Whole {
    /// DataFusion keeps files below 10 MB in memory until they end. A folder of thousands needs no open file for each.
    Small(Arc<dyn ObjectStore>, Path, PutPayload),
    Large(Upload),
}

impl Whole {
    async fn commit(self) -> Stored<PutResult> {
        match self {
            Self::Small(store, location, payload) => store.put(&location, payload).await,
            Self::Large(mut upload) => upload.complete().await,
        }
    }
}

impl Writes {
    /// The context in which a plan runs. Files that it writes do not get their names.
    pub fn context(
        &self,
        session: &SessionState,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Arc<TaskContext> {
        if !writes(plan) {
            return session.task_ctx();
        }
        let runtime = RuntimeEnv {
            object_store_registry: Arc::new(Stores {
                registry: Arc::clone(&session.runtime_env().object_store_registry),
                writes: self.clone(),
            }),
            ..session.runtime_env().as_ref().clone()
        };
        Arc::new(TaskContext::from(session).with_runtime(Arc::new(runtime)))
    }

    /// Gives the files their names. Call it when the plan has ended without an error.
    ///
    /// # Errors
    /// Those of the store. Files before have their names then, and the others are gone.
    pub async fn commit(self) -> Result<()> {
        let mut whole = std::mem::take(&mut self.files().whole).into_iter();
        while let Some(file) = whole.next() {
            if let Err(error) = file.commit().await {
                self.files().whole.extend(whole);
                self.abort().await;
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Removes the files, when the plan has failed. A drop leaves that to another thread, and the process may end before.
    pub async fn abort(self) {
        let Files { whole, cut } = std::mem::take(&mut *self.files());
        let large = whole.into_iter().filter_map(|file| match file {
            Whole::Large(upload) => Some(upload),
            Whole::Small(..) => None,
        });
        for mut upload in large.chain(cut) {
            // There is nothing else to try.
            let _ = upload.abort().await;
        }
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        _options: PutOptions,
    ) -> Stored<PutResult> {
        let file = Whole::Small(Arc::clone(&self.store), location.clone(), payload);
        self.writes.files().whole.push(file);
        Ok(UNKNOWN)
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

/// A file whose end gives it no name.
#[derive(Debug)]
struct Unnamed {
    /// None when it is whole.
    upload: Option<Upload>,
    writes: Writes,
}

impl Unnamed {
    fn upload(&mut self) -> Stored<&mut Upload> {
        self.upload
            .as_mut()
            .ok_or_else(|| object_store::Error::Generic {
                store: "Rockmill",
                source: "the file has ended".into(),
            })
    }
}

impl Drop for Unnamed {
    fn drop(&mut self) {
        self.writes.files().cut.extend(self.upload.take());
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
        let whole = self.upload.take().map(Whole::Large);
        self.writes.files().whole.extend(whole);
        Ok(UNKNOWN)
    }

    async fn abort(&mut self) -> Stored<()> {
        self.upload()?.abort().await
    }
}

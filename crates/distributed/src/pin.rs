//! Workers that pin the snapshots of statements.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion::prelude::SessionConfig;
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, DistributedExt, ExecuteTaskRequest, MaybeEncoded,
    ProducerHead, SetPlanRequest, TaskKey, WorkerToCoordinatorMsg,
};
use futures::future::try_join_all;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use http::HeaderMap;
use rockmill_scan::{Pinned, ScanEngine};
use rockmill_sql::{Codec, PinGuard, PinReply, PinRequest, PinSnapshots, pin_plan};
use tokio::sync::oneshot;
use url::Url;
use uuid::Uuid;

use crate::address::Address;
use crate::channels::Channels;

/// The workers of a session, which have the same files.
#[derive(Debug, Clone)]
pub struct Workers {
    pub(crate) urls: Arc<[Url]>,
    pub(crate) client: PinClient,
}

impl Workers {
    /// Workers at these addresses.
    pub fn new(addresses: &[Address], channels: Channels, engine: &Arc<ScanEngine>) -> Self {
        let is_secure = channels.are_secure();
        Self {
            urls: addresses
                .iter()
                .map(|address| address.url(is_secure))
                .collect(),
            client: PinClient::new(channels, engine),
        }
    }
}

#[async_trait]
impl PinSnapshots for Workers {
    async fn pin(&self, pin: PinRequest) -> Result<Option<PinGuard>> {
        let asked = self.urls.iter().map(|url| self.client.ask(url, &pin));
        let (mut pins, mut all) = (Vec::new(), true);
        for (answer, pin) in try_join_all(asked).await? {
            all &= matches!(answer, PinReply::Pinned);
            pins.push(pin);
        }
        Ok(all.then(|| Arc::new(pins) as Arc<dyn Any + Send + Sync>))
    }
}

/// Asks workers to pin files.
#[derive(Debug, Clone)]
pub(crate) struct PinClient {
    pub channels: Channels,
    context: Arc<TaskContext>,
}

/// An open request to a worker, which keeps the files open until it is dropped.
pub(crate) struct Connection {
    _ends: oneshot::Sender<()>,
    _answers: std::sync::Mutex<BoxStream<'static, Result<WorkerToCoordinatorMsg>>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

impl Pinned for Connection {}

impl PinClient {
    pub fn new(channels: Channels, engine: &Arc<ScanEngine>) -> Self {
        let config = SessionConfig::new()
            .with_distributed_user_codec(Codec::new(engine))
            .with_distributed_channel_resolver(channels.clone());
        let context = TaskContext::default().with_session_config(config);
        Self {
            channels,
            context: Arc::new(context),
        }
    }

    /// Asks a worker to pin files. The worker does so until the connection is dropped.
    pub async fn ask(&self, url: &Url, pin: &PinRequest) -> Result<(PinReply, Connection)> {
        let mut client = self.channels.get_worker_client_for_url(url).await?;
        if let Some(address) = Address::of(url) {
            self.channels.check(client.as_mut(), &address).await?;
        }
        let task_key = TaskKey {
            query_id: Uuid::new_v4(),
            stage_id: 1,
            task_number: 0,
        };
        let request = SetPlanRequest {
            task_key,
            task_count: 1,
            plan: MaybeEncoded::Decoded(pin_plan(pin.clone())),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: url.clone(),
            query_start_time_ns: 0,
        };
        let (ends, ended) = oneshot::channel::<()>();
        let messages = futures::stream::once(async move {
            let _ = ended.await;
            CoordinatorToWorkerMsg::WorkUnitEos
        });
        let metrics = ExecutionPlanMetricsSet::new;
        let (headers, context) = (HeaderMap::new(), &self.context);
        let answers =
            client.coordinator_channel(headers, request, messages.boxed(), metrics(), context);
        let answers = answers.await?;
        let request = ExecuteTaskRequest {
            task_key,
            target_partition_start: 0,
            target_partition_end: 1,
            producer_head: ProducerHead::None,
        };
        let streams = client
            .execute_task(HeaderMap::new(), request, metrics(), context)
            .await?;
        let mut batches = Vec::new();
        for stream in streams {
            batches.extend(stream.try_collect::<Vec<_>>().await?);
        }
        let connection = Connection {
            _ends: ends,
            _answers: std::sync::Mutex::new(answers),
        };
        Ok((PinReply::of(&batches)?, connection))
    }
}

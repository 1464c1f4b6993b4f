//! Connections to workers.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::io;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{
    ChannelResolver, CoordinatorToWorkerMsg, ExecuteTaskRequest, GetWorkerInfoRequest,
    GetWorkerInfoResponse, SetPlanRequest, WorkerChannel, WorkerToCoordinatorMsg,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderMap, HeaderName, HeaderValue};
use rockmill_core::Lock;
use tokio::runtime::{Builder, Handle, Runtime};
use tonic::codegen::Service;
use tonic::transport::Channel;
use url::Url;
use uuid::Uuid;

use crate::VERSION;
use crate::address::Address;
use crate::progress::Read;
use crate::shards::ShardList;
use crate::tls::Tls;

/// Options of the session that change what a statement returns. A worker's own session has their defaults.
pub(crate) const OPTIONS: [&str; 2] = [
    "datafusion.execution.time_zone",
    "datafusion.execution.enable_ansi_mode",
];

/// Header with these options, as `NAME=VALUE;` one after another. Values are hexadecimal digits.
pub(crate) const OPTIONS_HEADER: HeaderName = HeaderName::from_static("rockmill-options");

/// Header with the number of the statement that a plan belongs to.
pub(crate) const STATEMENT_HEADER: HeaderName = HeaderName::from_static("rockmill-statement");

/// Path at which a worker says how many bytes of a statement it has read. The statement's number follows.
pub(crate) const PROGRESS: &str = "/progress";

/// Maximum number of shards that an error names.
const MAX_SHOWN_SHARDS: usize = 3;

/// Time in which a worker accepts a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Time between two keepalive pings of a worker.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Time in which the answer to a ping must come.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum and maximum number of threads of all connections of a process.
const THREADS: [usize; 2] = [2, 8];

/// Threads of connections. No statement runs there: its operators may keep their threads for long, and the connections of
/// all other statements would wait.
static RUNTIME: LazyLock<io::Result<Runtime>> = LazyLock::new(|| {
    let [least, most] = THREADS;
    let threads = std::thread::available_parallelism().map_or(least, NonZero::get);
    let mut runtime = Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads.clamp(least, most));
    let runtime = runtime.thread_name("connection");
    runtime.enable_all().build()
});

/// The threads of connections.
pub(crate) fn threads() -> Result<&'static Handle> {
    let runtime = RUNTIME.as_ref();
    let runtime = runtime.map_err(|e| failed(format!("no threads for connections: {e}")))?;
    Ok(runtime.handle())
}

/// Connections to workers, which are kept.
#[derive(Debug, Clone, Default)]
pub struct Channels {
    tls: Option<Tls>,
    open: Arc<Lock<HashMap<Url, BoxCloneSyncChannel>>>,
    /// Shards of workers, for errors.
    shards: Arc<BTreeMap<Url, Vec<String>>>,
}

/// A connection to a worker.
pub(crate) struct Connection(BoxCloneSyncChannel);

impl Connection {
    /// Bytes that scans of a statement have read on the worker, and that they read in total.
    pub async fn progress(mut self, statement: Uuid) -> Option<Read> {
        const MAX_BYTES: usize = 100;
        let request = http::Request::get(format!("{PROGRESS}/{statement}"));
        let request = request.body(tonic::body::Body::empty()).ok()?;
        poll_fn(|context| self.0.poll_ready(context)).await.ok()?;
        let answer = self.0.call(request).await.ok()?;
        let body = axum::body::Body::new(answer.into_body());
        let body = axum::body::to_bytes(body, MAX_BYTES).await.ok()?;
        let (read, total) = std::str::from_utf8(&body).ok()?.split_once(' ')?;
        Some((read.parse().ok()?, total.parse().ok()?))
    }
}

impl Channels {
    /// Connections with these certificates. Without them, workers of this machine alone are reached.
    pub fn new(tls: Option<Tls>) -> Self {
        Self {
            tls,
            open: Arc::default(),
            shards: Arc::default(),
        }
    }

    /// The same connections, whose errors name the shards that a worker has.
    #[must_use]
    pub fn with_shards(&self, list: &ShardList) -> Self {
        Self {
            shards: Arc::new(list.by_worker(self)),
            ..self.clone()
        }
    }

    /// Connections that are open.
    pub(crate) fn opened(&self) -> Vec<(Url, Connection)> {
        let open = self.open.lock();
        let open = open.iter();
        open.map(|(url, channel)| (url.clone(), Connection(channel.clone())))
            .collect()
    }

    /// Whether connections are encrypted.
    pub fn are_secure(&self) -> bool {
        self.tls.is_some()
    }

    async fn channel(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        if let Some(open) = self.open.lock().get(url) {
            return Ok(open.clone());
        }
        let (channels, to) = (self.clone(), url.clone());
        let connected = threads()?.spawn(async move { channels.connect(&to).await });
        let channel = connected.await.map_err(|e| failed(e.to_string()))??;
        let mut open = self.open.lock();
        Ok(open.entry(url.clone()).or_insert(channel).clone())
    }

    async fn connect(&self, url: &Url) -> Result<BoxCloneSyncChannel> {
        let address = Address::of(url);
        let address = address.ok_or_else(|| failed(format!("{url} is no worker")))?;
        // A plan names the URLs of exchanges. None of them may be reached in plain text.
        if self.tls.is_some() != (url.scheme() == "https") {
            return Err(failed(format!(
                "{url} does not fit this connection: use --tls on the coordinator and on all workers, or on none"
            )));
        }
        if self.tls.is_none() && !address.is_loopback() {
            return Err(failed(format!(
                "worker {address} is on another machine, which needs certificates: name their folder with --tls"
            )));
        }
        let refused = |e: tonic::transport::Error| {
            failed(format!(
                "cannot connect to worker {address}: {}; check that rockmill worker runs there, and that both sides have \
                 --tls or neither has",
                cause(&e)
            ))
        };
        let endpoint = Channel::from_shared(url.to_string());
        let endpoint = endpoint.map_err(|e| failed(format!("{url}: {e}")))?;
        let mut endpoint = endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            let config = tls.client(&address.host());
            endpoint = endpoint.tls_config(config).map_err(refused)?;
        }
        // The endpoint's own limit does not include the handshake of TLS.
        let connected = tokio::time::timeout(CONNECT, endpoint.connect()).await;
        let connected = connected.map_err(|_| {
            failed(format!(
                "worker {address} has not answered for {} seconds: check that it runs, and run the statement again",
                CONNECT.as_secs()
            ))
        })?;
        let channel = BoxCloneSyncChannel::new(connected.map_err(refused)?);
        self.check(create_worker_client(channel.clone()).as_mut(), &address)
            .await?;
        Ok(channel)
    }

    /// Asks a worker for its version. A connection that was lost is made again by itself, perhaps to another version.
    pub(crate) async fn check(
        &self,
        client: &mut dyn WorkerChannel,
        address: &Address,
    ) -> Result<()> {
        let info = client.get_worker_info(GetWorkerInfoRequest {});
        let info = tokio::time::timeout(KEEPALIVE_TIMEOUT, info).await;
        let info = info.map_err(|_| failed(format!("worker {address} has not answered for 5 seconds: check that it runs, and run the statement again")))?;
        let version = info.map_err(|e| of_worker(address, &[], e))?.version;
        if version != VERSION {
            return Err(failed(format!(
                "worker {address} has version {version:?}, and this is {VERSION:?}: use the same version for both"
            )));
        }
        Ok(())
    }

    fn forget(&self, url: &Url) {
        self.open.lock().remove(url);
    }
}

#[async_trait]
impl ChannelResolver for Channels {
    async fn get_worker_client_for_url(&self, url: &Url) -> Result<Box<dyn WorkerChannel>> {
        let channel = self.channel(url).await?;
        let Some(address) = Address::of(url) else {
            return Err(failed(format!("{url} is no worker")));
        };
        Ok(Box::new(Client {
            inner: create_worker_client(channel),
            channels: self.clone(),
            url: url.clone(),
            address,
        }))
    }
}

/// A worker whose errors name it.
struct Client {
    inner: Box<dyn WorkerChannel>,
    channels: Channels,
    url: Url,
    address: Address,
}

impl Client {
    /// The error of a worker. A connection that is lost is not used again.
    fn failed(&self) -> impl Fn(DataFusionError) -> DataFusionError + Send + Sync + Clone + use<> {
        let (channels, url, address) = (
            self.channels.clone(),
            self.url.clone(),
            self.address.clone(),
        );
        move |error| {
            if lost(&error).is_some() {
                channels.forget(&url);
            }
            let shards = channels.shards.get(&url);
            of_worker(&address, shards.map_or(&[], Vec::as_slice), error)
        }
    }
}

#[async_trait]
impl WorkerChannel for Client {
    async fn coordinator_channel(
        &mut self,
        mut headers: HeaderMap,
        request: SetPlanRequest,
        messages: BoxStream<'static, CoordinatorToWorkerMsg>,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<BoxStream<'static, Result<WorkerToCoordinatorMsg>>> {
        if let Some(options) = options(context) {
            headers.insert(OPTIONS_HEADER, options);
        }
        let statement = request.task_key.query_id.to_string();
        if let Ok(statement) = HeaderValue::from_str(&statement) {
            headers.insert(STATEMENT_HEADER, statement);
        }
        let failed = self.failed();
        let opened = self
            .inner
            .coordinator_channel(headers, request, messages, metrics, context);
        let opened = opened.await.map_err(failed.clone())?;
        Ok(opened.map(move |message| message.map_err(&failed)).boxed())
    }

    async fn execute_task(
        &mut self,
        headers: HeaderMap,
        request: ExecuteTaskRequest,
        metrics: ExecutionPlanMetricsSet,
        context: &Arc<TaskContext>,
    ) -> Result<Vec<BoxStream<'static, Result<RecordBatch>>>> {
        let failed = self.failed();
        let streams = self.inner.execute_task(headers, request, metrics, context);
        let streams = streams.await.map_err(failed.clone())?.into_iter();
        let streams = streams.map(|stream| {
            let failed = failed.clone();
            stream.map(move |batch| batch.map_err(&failed)).boxed()
        });
        Ok(streams.collect())
    }

    async fn get_worker_info(
        &mut self,
        request: GetWorkerInfoRequest,
    ) -> Result<GetWorkerInfoResponse> {
        let failed = self.failed();
        self.inner.get_worker_info(request).await.map_err(failed)
    }
}

/// Options of the session that differ from those of a worker.
fn options(context: &TaskContext) -> Option<HeaderValue> {
    let entries = context.session_config().options().entries().into_iter();
    let set = entries.filter_map(|entry| {
        let value = entry
            .value
            .filter(|_| OPTIONS.contains(&entry.key.as_str()))?;
        let value: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("{}={value};", entry.key))
    });
    HeaderValue::from_str(&set.collect::<String>()).ok()
}

/// The status of the connection, if an error is not one of the statement but of the connection.
fn lost(error: &DataFusionError) -> Option<&tonic::Status> {
    match error.find_root() {
        DataFusionError::External(error) => error.downcast_ref::<tonic::Status>(),
        _ => None,
    }
}

/// An error that a worker has returned, or that the connection to it has.
fn of_worker(address: &Address, shards: &[String], error: DataFusionError) -> DataFusionError {
    let Some(status) = lost(&error) else {
        return error;
    };
    let said = match status.code() {
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted | tonic::Code::InvalidArgument => {
            format!(
                "worker {address} refuses the statement: {}",
                status.message()
            )
        }
        _ => {
            let shown = shards.chunks(MAX_SHOWN_SHARDS).next().unwrap_or_default();
            let more = match shards.len() - shown.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let has = match shown {
                [] => String::new(),
                shown => format!(", which has shard {}{more},", shown.join(", ")),
            };
            format!(
                "the connection to worker {address}{has} failed: {}; rows printed before are incomplete: run the statement \
                 again",
                cause(status)
            )
        }
    };
    failed(said)
}

/// An error of the environment. It stays one when another worker passes it on.
fn failed(said: String) -> DataFusionError {
    DataFusionError::IoError(io::Error::other(said))
}

/// The innermost cause of an error, which is the most specific one.
pub(crate) fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.downcast_ref::<tonic::Status>() {
        Some(status) if error.source().is_none() => status.message().to_owned(),
        _ => cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use datafusion_distributed::Worker;
    use tokio::net::TcpListener;
    use tonic::transport::Server;
    use tonic::transport::server::TcpIncoming;

    use super::*;

    /// A worker of this version, on the threads of the caller.
    async fn served(version: &'static str) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let service = Worker::default().with_version(version).into_worker_server();
        let served = Server::builder().add_service(service);
        tokio::spawn(served.serve_with_incoming(TcpIncoming::from(listener)));
        Url::parse(&format!("http://{address}")).expect("a URL")
    }

    #[test]
    fn connections_of_a_statement_that_keeps_its_threads_serve_later_statements() {
        let threads = || {
            let mut threads = Builder::new_multi_thread();
            threads
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a thread")
        };
        let (serving, statement, later) = (threads(), threads(), threads());
        let url = serving.block_on(served(VERSION));
        let channels = Channels::default();
        let opened = statement.block_on(channels.channel(&url));
        opened.map(|_| ()).expect("a connection");
        let (begins, begun) = channel();
        let (ends, ended) = channel::<()>();
        statement.spawn(async move {
            begins.send(()).expect("the test waits");
            ended.recv()
        });
        begun.recv().expect("it runs");
        let answered = later.block_on(async {
            let mut client = channels.get_worker_client_for_url(&url).await?;
            let address = Address::of(&url).expect("an address");
            channels.check(client.as_mut(), &address).await
        });
        drop(ends);
        answered.expect("an answer");
    }

    #[tokio::test]
    async fn a_worker_of_another_version_is_refused() {
        for (version, is_ours) in [("rockmill/0.0.1/1", false), ("", false), (VERSION, true)] {
            let url = served(version).await;
            let connected = Channels::default().channel(&url).await;
            let said = connected.map(|_| ()).map_err(|e| e.to_string());
            match is_ours {
                true => assert_eq!(said, Ok(())),
                false => {
                    let said = said.expect_err(version);
                    assert!(
                        said.contains("use the same version") && said.contains(url.authority()),
                        "{said}"
                    );
                }
            }
        }
    }

    #[tokio::test]
    async fn without_a_certificate_no_other_machine_is_asked() {
        for url in ["http://node1:7400", "http://192.0.2.1:7400"] {
            let url = Url::parse(url).expect("a URL");
            let said = Channels::default()
                .channel(&url)
                .await
                .map(|_| ())
                .expect_err("refused");
            assert!(said.to_string().contains("--tls"), "{said}");
        }
    }
}

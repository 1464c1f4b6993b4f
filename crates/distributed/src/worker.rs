//! A worker: scans of the databases beneath one folder, for coordinators.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use datafusion::common::{exec_datafusion_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion_distributed::{
    DistributedExt, MaybeEncoded, SetPlanRequest, TaskKey, Worker as Served,
    WorkerPlanRewriteEvent, WorkerPlanRewriteEventResponse, WorkerQueryContext,
};
use futures::StreamExt;
use futures::stream::try_unfold;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use rockmill_scan::{ScanEngine, ScanSettings};
use rockmill_sql::{Codec, answered, with_caught_panics};
use rockmill_storage::Rooted;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tonic::Status;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use url::Url;
use uuid::Uuid;

use crate::VERSION;
use crate::address::Address;
use crate::channels::{
    Channels, OPTIONS, OPTIONS_HEADER, PROGRESS, STATEMENT_HEADER, cause, threads,
};
use crate::messages::{EXECUTE, SET_PLAN, accept};
use crate::parts::{MAX_PARTS, Parts};
use crate::tls::Tls;

/// Maximum bytes of a message with a plan. Rows come in messages of their own.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Path of the metrics.
const METRICS: &str = "/metrics";

/// Header of a request without a plan.
const ACCESS_HEADER: HeaderName = HeaderName::from_static("rockmill-access");

/// Time between two keepalive pings of a coordinator.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Time in which the answer to a ping must come. Else the coordinator's statements end.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Settings of a worker.
#[derive(Debug)]
pub struct WorkerSettings {
    /// The folder beneath which databases are read.
    pub root: PathBuf,
    /// Its certificate. Without one, it serves processes of this machine alone.
    pub tls: Option<Tls>,
    /// Devices, threads and memory of scans.
    pub scans: ScanSettings,
    /// Memory and temporary files of everything else.
    pub runtime: Arc<RuntimeEnv>,
    /// Bytes of this memory.
    pub query_bytes: u64,
}

/// A worker that is ready to serve.
#[derive(Debug)]
pub struct Worker {
    session: Session,
    tls: Option<Tls>,
    runtime: Arc<RuntimeEnv>,
}

/// Parts of the session of each statement.
#[derive(Debug, Clone)]
struct Session {
    codec: Codec,
    channels: Channels,
    query_bytes: u64,
    threads: usize,
    parts: Arc<Parts>,
}

impl Worker {
    /// A worker with its engine.
    ///
    /// # Errors
    /// The operating system's error if the root cannot be opened.
    pub fn new(settings: WorkerSettings) -> io::Result<Self> {
        let root = Arc::new(Rooted::new(&settings.root)?);
        let threads = settings.scans.max_threads.unwrap_or(1);
        let engine = ScanEngine::with_storage(settings.scans, Arc::clone(&root) as _);
        let engine = engine.map_err(io::Error::other)?;
        Ok(Self {
            session: Session {
                codec: Codec::of_worker(&engine, root),
                channels: Channels::new(settings.tls.clone()),
                query_bytes: settings.query_bytes,
                threads,
                parts: Arc::new(Parts::new(engine, Arc::clone(&settings.runtime))),
            },
            tls: settings.tls,
            runtime: settings.runtime,
        })
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// The operating system's error; PermissionDenied if other machines reach the address and there is no certificate.
    pub async fn listen(&self, address: &Address) -> io::Result<TcpListener> {
        let found = tokio::net::lookup_host((address.host(), address.port())).await?;
        let found: Vec<SocketAddr> = found.collect();
        if self.tls.is_none() && !found.iter().all(|found| found.ip().is_loopback()) {
            let what = "other machines can reach this address, which needs certificates: name their folder with --tls, or listen at 127.0.0.1";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        TcpListener::bind(&found[..]).await
    }

    /// Serves until `stop` is ready. Statements that run then end with an error. They run on the threads of the caller, and
    /// connections have others.
    ///
    /// # Errors
    /// If the certificate cannot be used, or the listener fails.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let failed = |error: tonic::transport::Error| io::Error::other(cause(&error));
        let session = self.session;
        let parts = Arc::clone(&session.parts);
        let served = Served::from_session_builder(move |context: WorkerQueryContext| {
            let session = session.clone();
            async move { session.build(context) }
        });
        let served = served.with_runtime_env(self.runtime).with_version(VERSION);
        let kept = served.clone();
        let service = served.into_worker_server();
        let service = service.max_decoding_message_size(MAX_MESSAGE_BYTES);
        let mut routes = Routes::new(service);
        let told = Arc::clone(&parts);
        let metrics = get(move || async move {
            let kind = [(CONTENT_TYPE, "text/plain; version=0.0.4")];
            (kind, told.text())
        });
        let told = Arc::clone(&parts);
        let progress = get(move |Path(statement): Path<String>| async move {
            let statement = Uuid::try_parse(&statement);
            let statement = statement.map_err(|_| StatusCode::NOT_FOUND)?;
            let (read, total) = told.progress(statement);
            Ok::<_, StatusCode>(format!("{read} {total}"))
        });
        *routes.axum_router_mut() = routes
            .axum_router_mut()
            .clone()
            .route(METRICS, metrics)
            .route(&format!("{PROGRESS}/{{statement}}"), progress)
            .layer(from_fn_with_state(Handle::current(), checked));
        let mut server = Server::builder()
            .accept_http1(true)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
        if let Some(tls) = &self.tls {
            server = server.tls_config(tls.server()).map_err(failed)?;
        }
        // Tasks of statements keep their threads for long. On those, coordinators would wait for answers to pings.
        let connections = threads().map_err(io::Error::other)?;
        let listener = listener.into_std()?;
        let mut serving = JoinSet::new();
        let accepting = async move {
            let incoming = TcpIncoming::from(TcpListener::from_std(listener)?);
            let incoming = incoming.with_nodelay(Some(true));
            let server = server.add_routes(routes);
            server.serve_with_incoming(incoming).await.map_err(failed)
        };
        serving.spawn_on(accepting, connections);
        tokio::select! {
            Some(served) = serving.join_next() => served.map_err(io::Error::other)?,
            () = release(&kept, &parts) => Ok(()),
            () = stop => Ok(()),
        }
    }
}

/// Answers a request. HTTP/1 is for metrics alone: pages of a browser can send it to other ports of this machine. A panic
/// here happens before rows are sent, so other statements go on.
async fn checked(State(statements): State<Handle>, request: Request, next: Next) -> Response {
    if request.version() < Version::HTTP_2 && request.uri().path() != METRICS {
        return StatusCode::HTTP_VERSION_NOT_SUPPORTED.into_response();
    }
    let path = request.uri().path().to_owned();
    let is_of_statement = [SET_PLAN, EXECUTE].contains(&path.as_str());
    let request = request.map(|body| accepted(path, body));
    let answer = answered(next.run(request));
    let answer = match is_of_statement {
        true => {
            // It ends with the request.
            let mut running = JoinSet::new();
            running.spawn_on(answer, &statements);
            running.join_next().await.and_then(|ran| ran.ok().flatten())
        }
        false => answer.await,
    };
    answer.unwrap_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
}

/// The messages of a request, up to the first that is refused.
fn accepted(path: String, body: Body) -> Body {
    let begun = (body.into_data_stream(), Vec::new());
    let messages = try_unfold(begun, move |(mut body, mut buffer)| {
        let path = path.clone();
        async move {
            let message = next_message(&path, &mut body, &mut buffer).await?;
            Ok::<_, BoxError>(message.map(|message| (message, (body, buffer))))
        }
    });
    Body::from_stream(messages)
}

async fn next_message(
    path: &str,
    body: &mut BodyDataStream,
    buffer: &mut Vec<u8>,
) -> std::result::Result<Option<Vec<u8>>, BoxError> {
    /// A byte for compression, and the length.
    const HEADER: usize = 5;
    loop {
        if let Some([_, length @ ..]) = buffer.first_chunk::<HEADER>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > MAX_MESSAGE_BYTES {
                // The service refuses it as soon as it sees the length.
                return Ok(Some(std::mem::take(buffer)));
            }
            if buffer.len() >= HEADER + length {
                let rest = buffer.split_off(HEADER + length);
                let message = std::mem::replace(buffer, rest);
                accept(path, &message[HEADER..]).map_err(Status::invalid_argument)?;
                return Ok(Some(message));
            }
        }
        match body.next().await {
            Some(bytes) => buffer.extend_from_slice(&bytes?),
            None => return Ok(Some(std::mem::take(buffer)).filter(|rest| !rest.is_empty())),
        }
    }
}

/// Closes files that no statement needs. The cache of plans drops an ended plan at an access some 0.3 s later, and an idle
/// worker has no access.
async fn release(served: &Served, parts: &Parts) {
    const INTERVAL: Duration = Duration::from_millis(400);
    loop {
        tokio::time::sleep(INTERVAL).await;
        if parts.running() == 0 {
            continue;
        }
        let request = SetPlanRequest {
            task_key: TaskKey {
                query_id: Uuid::nil(),
                stage_id: 0,
                task_number: 0,
            },
            task_count: 1,
            plan: MaybeEncoded::Encoded(Vec::new()),
            work_unit_feed_declarations: Vec::new(),
            target_worker_url: Url::parse("http://localhost").expect("a URL"),
            query_start_time_ns: 0,
        };
        let headers = HeaderMap::from_iter([(ACCESS_HEADER, HeaderValue::from_static(""))]);
        let none = futures::stream::empty().boxed();
        // It is refused, but the cache was accessed.
        let _ = served.coordinator_channel(headers, request, none).await;
    }
}

impl Session {
    fn build(self, context: WorkerQueryContext) -> Result<SessionState> {
        if context.headers.contains_key(ACCESS_HEADER) {
            return plan_err!("there is no plan");
        }
        let part = self.parts.begin(statement(&context.headers)).ok_or_else(|| {
            exec_datafusion_err!(
                "a worker runs {MAX_PARTS} parts of statements already: run the statement again later"
            )
        })?;
        let part = Arc::new(part);
        let mut builder = context.builder;
        let config = builder.config().take().unwrap_or_default();
        let config = config.with_target_partitions(self.threads);
        let mut config = rockmill_sql::configured(config, self.query_bytes);
        // Lives as long as the part of the statement.
        config.set_extension(Arc::clone(&part));
        for (name, value) in options(&context.headers) {
            config.options_mut().set(&name, &value)?;
        }
        *builder.config() = Some(config);
        let codec = self.codec.clone();
        let open = move |event: WorkerPlanRewriteEvent<'_>| -> Result<_> {
            let opened = tokio::task::block_in_place(|| codec.open(event.plan))?;
            part.runs(&opened);
            let caught = with_caught_panics(opened, None)?;
            Ok(WorkerPlanRewriteEventResponse::new(caught))
        };
        let builder = builder
            .with_distributed_user_codec(self.codec)
            .with_distributed_channel_resolver(self.channels)
            .with_distributed_worker_plan_rewrite_handler(open);
        rockmill_sql::state(builder)
    }
}

/// The statement of a request.
fn statement(headers: &HeaderMap) -> Uuid {
    let text = headers.get(STATEMENT_HEADER);
    let parsed = text.and_then(|text| Uuid::try_parse_ascii(text.as_bytes()).ok());
    parsed.unwrap_or_default()
}

/// Options of the coordinator's session.
fn options(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = headers.get(OPTIONS_HEADER);
    let text = text.and_then(|text| text.to_str().ok()).unwrap_or_default();
    let options = text.split(';').filter_map(|option| {
        let (name, value) = option.split_once('=')?;
        let digits: Vec<_> = value.as_bytes().chunks(2).collect();
        let bytes = digits.into_iter().map(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 16).ok()
        });
        let value = String::from_utf8(bytes.collect::<Option<Vec<_>>>()?).ok()?;
        OPTIONS.contains(&name).then(|| (name.to_owned(), value))
    });
    options.collect()
}

//! Requests that no coordinator sends: a worker refuses them, and goes on.

#![cfg(feature = "distributed")]

use std::future::poll_fn;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use datafusion_distributed::GetWorkerInfoRequest;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use futures::StreamExt;
use rockmill_distributed::{Worker, WorkerSettings};
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

const SET_PLAN: &str = "/worker.WorkerService/CoordinatorChannel";
const EXECUTE: &str = "/worker.WorkerService/ExecuteTask";

/// Largest length of a message that a worker reads.
const MAX_BYTES: u32 = 64 << 20;

/// A worker of this process.
async fn worker() -> Channel {
    let settings = WorkerSettings {
        root: std::env::temp_dir(),
        tls: None,
        scans: Default::default(),
        runtime: Arc::default(),
        query_bytes: 64 << 20,
    };
    let worker = Worker::new(settings).expect("a worker");
    let address = "127.0.0.1:0".parse().expect("an address");
    let listener = worker.listen(&address).await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(worker.serve(listener, std::future::pending()));
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("a URL");
    endpoint.connect().await.expect("a connection")
}

/// A message behind a header with its length.
fn framed(length: u32, message: &[u8]) -> Vec<u8> {
    [&[0], &length.to_be_bytes()[..], message].concat()
}

fn whole(message: &[u8]) -> Vec<u8> {
    framed(message.len() as u32, message)
}

/// A body that the client does not end.
fn endless(begin: Vec<u8>) -> Body {
    let begin = futures::stream::once(async { Ok::<_, axum::Error>(Bytes::from(begin)) });
    Body::from_stream(begin.chain(futures::stream::pending()))
}

/// The error that a worker answers to a body.
async fn answer(channel: &Channel, path: &str, body: Body) -> Status {
    let request = http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .expect("a request");
    let mut channel = BoxCloneSyncChannel::new(channel.clone());
    let ready = poll_fn(|context| channel.poll_ready(context)).await;
    ready.expect("a connection");
    let answer = channel.call(request).await.expect("an answer");
    Status::from_header_map(answer.headers()).expect("an error")
}

async fn goes_on(channel: &Channel) {
    let channel = BoxCloneSyncChannel::new(channel.clone());
    let mut client = create_worker_client(channel);
    let info = client.get_worker_info(GetWorkerInfoRequest {}).await;
    let version = info.expect("an answer").version;
    assert!(version.starts_with("rockmill/"), "{version}");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_past_the_limits_are_refused_in_a_sentence_and_the_worker_goes_on() {
    const GIB: u32 = 1 << 30;
    let channel = worker().await;
    let many = [0x0a, 0].repeat(2 << 20);
    // The plan's bytes in a request.
    let length = [0x80, 0x80, 0x80, 0x02];
    let plan = [&[0x1a][..], &length, &many].concat();
    let length = [0x85, 0x80, 0x80, 0x02];
    let in_plan = [&[0x0a][..], &length, &plan].concat();
    for (path, body, code, says) in [
        (
            SET_PLAN,
            framed(GIB, b"begins"),
            Code::OutOfRange,
            "1073741824 bytes",
        ),
        (
            SET_PLAN,
            framed(MAX_BYTES + 1, b""),
            Code::OutOfRange,
            "67108865 bytes",
        ),
        (
            EXECUTE,
            framed(u32::MAX, b""),
            Code::OutOfRange,
            "4294967295 bytes",
        ),
        (
            SET_PLAN,
            whole(&many),
            Code::InvalidArgument,
            "more than 1048576 values",
        ),
        (
            SET_PLAN,
            whole(&in_plan),
            Code::InvalidArgument,
            "more than 1048576 values",
        ),
        (
            EXECUTE,
            whole(&[0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x04]),
            Code::InvalidArgument,
            "more than 65536 partitions",
        ),
        (
            EXECUTE,
            whole(&[0x10, 2, 0x18, 1]),
            Code::InvalidArgument,
            "end before they begin",
        ),
    ] {
        let status = answer(&channel, path, endless(body)).await;
        assert_eq!(status.code(), code, "{status:?}");
        let said = status.message();
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
        goes_on(&channel).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_no_messages_are_refused() {
    let channel = worker().await;
    for path in [SET_PLAN, EXECUTE] {
        for message in [&b""[..], &[0xff; 40], &[0x0a, 200], b"GET / HTTP/1.1"] {
            let status = answer(&channel, path, Body::from(whole(message))).await;
            assert_ne!(status.code(), Code::Ok, "{status:?}");
        }
        goes_on(&channel).await;
    }
}

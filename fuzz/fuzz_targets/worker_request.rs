//! A request to a worker, which is read without a schema before it is decoded: a decoder finds no more fields than were
//! counted, and no more partitions than are accepted.
//!
//! The first byte tells the kind of the request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;

#[path = "../../crates/distributed/src/messages.rs"]
mod messages;
#[path = "../../crates/sql/src/protobuf.rs"]
mod protobuf;

const MAX_PARTITIONS: u64 = 1 << 16;

/// A message of messages, such as a plan.
#[derive(Clone, PartialEq, Message)]
struct Node {
    #[prost(message, repeated, tag = "1")]
    nodes: Vec<Node>,
    #[prost(bytes = "vec", repeated, tag = "2")]
    texts: Vec<Vec<u8>>,
    #[prost(message, optional, boxed, tag = "3")]
    node: Option<Box<Node>>,
}

#[derive(Clone, PartialEq, Message)]
struct Execute {
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(oneof = "Head", tags = "7, 8")]
    head: Option<Head>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Head {
    #[prost(message, tag = "7")]
    Broadcast(Broadcast),
    #[prost(message, tag = "8")]
    Repartition(Repartition),
}

#[derive(Clone, PartialEq, Message)]
struct Broadcast {
    #[prost(uint64, tag = "1")]
    partitions: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Repartition {
    #[prost(bytes = "vec", tag = "1")]
    partitioning: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Partitioning {
    #[prost(oneof = "Method", tags = "1, 2, 3")]
    method: Option<Method>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Method {
    #[prost(uint64, tag = "1")]
    RoundRobin(u64),
    #[prost(message, tag = "2")]
    Hash(Hash),
    #[prost(uint64, tag = "3")]
    Unknown(u64),
}

#[derive(Clone, PartialEq, Message)]
struct Hash {
    #[prost(uint64, tag = "2")]
    partitions: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Begin {
    #[prost(message, optional, tag = "1")]
    plan: Option<Plan>,
}

#[derive(Clone, PartialEq, Message)]
struct Plan {
    #[prost(message, repeated, tag = "4")]
    feeds: Vec<Feed>,
}

#[derive(Clone, PartialEq, Message)]
struct Feed {
    #[prost(uint64, tag = "2")]
    partitions: u64,
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, message)) = input.split_first() else {
        return;
    };
    match kind % 3 {
        0 => {
            let counted = protobuf::count(message);
            if let (Ok(counted), Ok(node)) = (counted, Node::decode(message)) {
                assert!(values(&node) <= counted + 1);
            }
        }
        1 => {
            let is_accepted = messages::accept(messages::EXECUTE, message).is_ok();
            if let (true, Ok(request)) = (is_accepted, Execute::decode(message)) {
                assert!(request.start <= request.end && request.end <= MAX_PARTITIONS);
                assert!(head(request.head).is_none_or(|partitions| partitions <= MAX_PARTITIONS));
            }
        }
        _ => {
            let is_accepted = messages::accept(messages::SET_PLAN, message).is_ok();
            if let (true, Ok(request)) = (is_accepted, Begin::decode(message)) {
                let feeds = request.plan.unwrap_or_default().feeds;
                let all = feeds.iter().map(|feed| u128::from(feed.partitions));
                assert!(all.sum::<u128>() <= u128::from(MAX_PARTITIONS));
            }
        }
    }
});

/// Values that were made for a node and all in it.
fn values(node: &Node) -> usize {
    let nodes = node.nodes.iter().chain(node.node.as_deref());
    1 + node.texts.len() + nodes.map(values).sum::<usize>()
}

fn head(head: Option<Head>) -> Option<u64> {
    match head? {
        Head::Broadcast(broadcast) => Some(broadcast.partitions),
        Head::Repartition(repartition) => {
            let partitioning = Partitioning::decode(&repartition.partitioning[..]).ok()?;
            match partitioning.method? {
                Method::RoundRobin(partitions) | Method::Unknown(partitions) => Some(partitions),
                Method::Hash(hash) => Some(hash.partitions),
            }
        }
    }
}

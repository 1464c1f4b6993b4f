//! SQL over several processes and machines.
//!
//! ```text
//!   coordinator                                   worker, one of each node
//!     plans a statement over a snapshot
//!     sends the snapshot                           --> opens its files
//!     goes on once all are open                <--
//!     splits scans, and sends the parts        --> runs a part on its own devices
//!     merges rows, or states of aggregates     <--
//! ```
//!
//! datafusion-distributed has the exchanges between processes and the protocol. This crate tells it how scans are split
//! and where the parts run. It is empty without the feature `distributed`.

#![forbid(unsafe_code)]
#![cfg(feature = "distributed")]

mod address;
mod analyzed;
mod channels;
mod messages;
mod parts;
mod pin;
mod plan;
mod progress;
mod shards;
mod tls;
mod worker;

use rockmill_sql::protobuf;

pub use address::{Address, AddressError};
pub use channels::Channels;
pub use pin::Workers;
pub use plan::{over_shards, over_workers, show};
pub use progress::Progress;
pub use shards::{ShardList, Shards};
pub use tls::{Tls, TlsError};
pub use worker::{Worker, WorkerSettings};

/// The version that coordinator and workers must have in common: codecs and programs have no other.
const VERSION: &str = concat!("rockmill/", env!("CARGO_PKG_VERSION"), "/5");

//! The systems that are compared.

use rockmill::DeviceList;
use serde::{Deserialize, Serialize};

/// A system that compacts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// RocksDB itself, on the CPU.
    Rocksdb,
    /// Rockmill, as RocksDB's compaction service.
    Rockmill(#[serde(with = "crate::device::text")] DeviceList),
}

impl System {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Rockmill(_) => "rockmill",
        }
    }

    /// The devices that it computes on.
    pub fn device(self) -> DeviceList {
        match self {
            Self::Rocksdb => DeviceList::default(),
            Self::Rockmill(device) => device,
        }
    }

    /// Its name in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Rocksdb => "RocksDB",
            Self::Rockmill(_) => "Rockmill",
        }
    }

    /// Number of subcompactions with which RocksDB uses `threads` threads; Rockmill splits jobs itself.
    pub fn subcompactions(self, threads: u32) -> u32 {
        match self {
            Self::Rocksdb => threads,
            Self::Rockmill(_) => 1,
        }
    }
}

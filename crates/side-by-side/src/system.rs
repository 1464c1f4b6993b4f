//! Who compacts.

use rockmill::DeviceList;
use serde::{Deserialize, Serialize};

/// A data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum System {
    /// RocksDB itself, on the processor.
    Rocksdb,
    /// Rockmill, for RocksDB.
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

    /// What it computes on.
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

    /// Subcompactions that give RocksDB so many threads; Rockmill cuts jobs itself.
    pub fn subcompactions(self, threads: u32) -> u32 {
        match self {
            Self::Rocksdb => threads,
            Self::Rockmill(_) => 1,
        }
    }
}

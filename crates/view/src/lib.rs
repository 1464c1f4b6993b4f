//! Views of RocksDB databases in device memory.
//!
//! A view begins with a `FamilySnapshot`, one exact version of a column family (`scan`). Tasks of the executor read its
//! rows, and the operator `Resident` puts them into a `DeviceTable` (`cuda`).
//!
//! | call | what it does |
//! |---|---|
//! | `View::lookup` | finds keys; keys and values are in device memory |
//! | `View::lookup_slices` | does the same in memory of cudarc, with the feature `cudarc` |
//! | `View::get` | finds keys; they are in host memory, and RocksDB answers what the table does not tell |
//! | `View::hold` | keeps the version until the kernels on a stream are done |
//! | `View::refresh` | loads what was written since, and publishes the next version |
//!
//! Each key of the version has a slot in the table, except keys in ranges that only RocksDB reads. So a key that is
//! neither in the table nor in one of these ranges is not in the database.

#![forbid(unsafe_code)]

mod builder;
mod estimate;
mod load;
mod refresh;
mod ring;
#[cfg(feature = "cudarc")]
mod slices;
mod version;
mod view;

pub use builder::Builder;
pub use estimate::{Estimate, RocksDbRange};
pub use refresh::{Loaded, Refreshed};
pub use ring::RingCounts;
pub use rockmill_cuda::{
    CallerStream, IdForm, Integer, Keys, KvRecord, RingSettings, Rows, TableContents, Target,
    Unanswered,
};
#[cfg(feature = "cudarc")]
pub use rockmill_cudarc::{Number, SliceKeys, SliceRows};
pub use version::Hold;
pub use view::View;

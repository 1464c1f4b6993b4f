//! Views of RocksDB databases in device memory.
//!
//! ```text
//!   Database --view--> FamilySnapshot: one exact version          scan
//!   pieces of its keys --Operator::Resident--> DeviceTable    cuda
//!   View::lookup(Keys, Rows, stream)    keys and values in device memory
//!   View::lookup_slices(SliceKeys, SliceRows)    the same in memory of cudarc, with the feature "cudarc"
//!   View::hold(stream)                  the version stays until the stream's kernels are done
//!   View::refresh()                     the next version, of what was written since
//!   View::get(keys)                     keys and values in host memory; RocksDB answers what the table does not tell
//! ```
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
pub use estimate::{Asked, Estimate};
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

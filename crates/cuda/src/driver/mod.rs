//! The device: its memory, streams and events, over the table of functions that `kernels/` exports.

mod device;
pub mod faults;
pub mod ffi;
mod link;
mod memory;
mod probe;
mod shares;
mod stream;
mod timing;
mod trouble;

#[cfg(test)]
pub use device::test_target;
pub use device::{Device, DeviceProperties, Target, answer_kernels};
pub use link::LinkRates;
pub use memory::{DeviceMemory, PinnedBuffer};
pub use shares::{CANCEL_POLL, IdleMemory, MemoryShares, MemoryUser, Reservation};
pub use stream::{CopyKind, Download, Event, STAGING_BYTES, Stream};
pub use timing::{Marks, Stages};
pub use trouble::{altered, refused};

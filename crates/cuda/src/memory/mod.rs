//! Memory that tasks share: the device's within a budget, pinned memory in rings, and the buffers of stages.

mod buffer;
mod declare;
mod pool;
mod regions;
mod reserve;
mod ring;
mod shelf;
mod view;
mod workspace;

pub use buffer::{Arena, DeviceBuffer, space};
pub(crate) use declare::buffers;
pub use pool::Pool;
pub use ring::{CHUNKS, CopyRing, ring_bytes};
pub use view::{DeviceSlice, DeviceSliceMut};
pub use workspace::Workspace;

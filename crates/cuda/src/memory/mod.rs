//! Memory that tasks share: the device's within a budget, pinned memory in rings, and the buffers of stages.

mod buffer;
mod declare;
mod device_arena;
mod pool;
mod regions;
mod resource_pool;
mod ring;
mod view;
mod workspace;

pub use buffer::{DeviceBuffer, TaskArena, space};
pub(crate) use declare::buffers;
pub use device_arena::{Allocation, DeviceArena};
pub use pool::Pool;
pub use ring::{CHUNKS, CopyRing, ring_bytes};
pub use view::{DeviceSlice, DeviceSliceMut};
pub use workspace::Workspace;

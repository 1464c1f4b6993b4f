//! Resources of a running task on the device: a stream, scratch memory, and an arena for the buffers of its stages.

use std::sync::Arc;

use rockmill_core::Result;

use super::buffer::{DeviceBuffer, TaskArena, space};
use super::resource_pool::Pooled;
use crate::driver::ffi::Stages;
use crate::driver::{Device, Stream};

/// Bytes for stages beyond the estimate, for buffers with few values.
const SLACK_BYTES: u64 = 64 << 10;

/// The resources of all stages.
#[derive(Debug)]
pub struct Workspace {
    /// Returned to the pool, empty, before the memory is freed.
    pub stream: Pooled<Stream>,
    pub arena: Arc<TaskArena>,
    /// The first error, and the longest user key.
    pub errors: DeviceBuffer<[u64; 2]>,
    scratch: DeviceBuffer<u8>,
    scratch_bytes: u64,
}

impl Workspace {
    /// Only the stream, in `arena`.
    ///
    /// # Errors
    /// Device.
    pub fn new(stream: Pooled<Stream>, arena: Arc<TaskArena>) -> Result<Self> {
        let mut workspace = Self {
            stream,
            errors: DeviceBuffer::new(&arena),
            scratch: DeviceBuffer::new(&arena),
            scratch_bytes: 0,
            arena,
        };
        workspace.errors.room(1)?;
        Ok(workspace)
    }

    /// Device memory of a workspace except buffers, for stages over `blocks` blocks and `entries` entries.
    pub fn bytes(device: &Device, blocks: u64, entries: u64) -> u64 {
        let over = |n: u64| scratch_bytes(device, n.saturating_add(1));
        let scratch = over(blocks).saturating_add(over(entries));
        space::<[u64; 2]>(1)
            .saturating_add(space::<u8>(scratch))
            .saturating_add(SLACK_BYTES)
    }

    /// Allocates scratch memory for stages over `entries`.
    ///
    /// # Errors
    /// Device.
    pub fn make_scratch(&mut self, device: &Device, entries: usize) -> Result<()> {
        let bytes = scratch_bytes(device, entries as u64);
        self.scratch.room(bytes as usize)?;
        self.scratch_bytes = self.scratch_bytes.max(bytes);
        Ok(())
    }

    /// The stages, on the stream.
    pub fn stages(&self) -> Stages<'_> {
        self.stream
            .stages(self.scratch.as_ptr().cast(), self.scratch_bytes)
    }
}

/// Scratch memory in bytes for stages over `entries` entries.
fn scratch_bytes(device: &Device, entries: u64) -> u64 {
    // SAFETY: takes only a number.
    unsafe { (device.table().scratch_bytes)(entries) }
}

//! The resources that tasks borrow: device memory, streams, pinned chunks. All are created once and kept.

use std::sync::Arc;

use rockmill_core::{CancelToken, Result};

use super::buffer::TaskArena;
use super::device_arena::DeviceArena;
use super::resource_pool::{Pooled, ResourcePool};
use super::ring::{CopyRing, ring_bytes};
use super::workspace::Workspace;
use crate::cache::FileCache;
use crate::driver::{Device, MemoryUser, Stream};
use crate::settings::CudaSettings;

/// Device memory of a first task: that of a small job.
const FIRST_TASK_BYTES: u64 = 64 << 20;

/// Number of rings that keep all processors busy: a thread with a ring reads, checks or writes. More rings would only
/// evict each other's chunks from the caches.
fn usual_rings() -> u64 {
    const LEAST: usize = 4;
    let processors = std::thread::available_parallelism().map_or(LEAST, usize::from);
    (processors + processors / 4).max(LEAST) as u64
}

/// Workspaces and rings of a device.
#[derive(Debug)]
pub struct Pool {
    device: Device,
    device_arena: Arc<DeviceArena>,
    cache: Arc<FileCache>,
    streams: Arc<ResourcePool<Stream>>,
    rings: Arc<ResourcePool<CopyRing>>,
    chunk_bytes: usize,
}

impl Pool {
    /// A pool with the memory of the settings.
    ///
    /// # Errors
    /// Device.
    pub fn new(device: Device, settings: &CudaSettings) -> Result<Self> {
        let device_arena = DeviceArena::new(&device, settings.memory_bytes)?;
        let cache = FileCache::new(&device_arena, settings.cache_chunk_bytes);
        cache.set_limit(settings.cache_bytes.unwrap_or(0));
        let ring_bytes = ring_bytes(settings.chunk_bytes);
        let pinned = settings.pinned_bytes.map(|bytes| bytes / ring_bytes);
        let rings = pinned.unwrap_or_else(usual_rings);
        Ok(Self {
            device_arena,
            cache,
            streams: ResourcePool::new(usize::MAX),
            rings: ResourcePool::new(usize::try_from(rings).unwrap_or(usize::MAX)),
            chunk_bytes: settings.chunk_bytes,
            device,
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Frees memory that no task uses, without that of cached files.
    pub fn give_back_idle(&self) {
        self.device_arena.give_back_regions(u64::MAX);
    }

    /// Files that stay on the device.
    pub fn cache(&self) -> &Arc<FileCache> {
        &self.cache
    }

    /// Bytes of a ring's chunk.
    pub fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// Bytes allocated on the device, and the maximum.
    pub fn memory_bytes(&self) -> (u64, u64) {
        (self.device_arena.bytes(), self.device_arena.max_bytes())
    }

    /// Limits the device memory of tasks to `bytes`; `None`: to the usual share of the device's memory.
    pub fn limit_memory(&self, bytes: Option<u64>) {
        self.device_arena.limit(bytes);
    }

    /// Waits for a workspace whose buffers have `bytes` bytes of device memory together.
    ///
    /// # Errors
    /// Device, also if the device can never have that memory; Cancelled.
    pub fn workspace(
        &self,
        user: MemoryUser,
        bytes: u64,
        cancel: &CancelToken,
    ) -> Result<Workspace> {
        let allocation = self.device_arena.take_for(user, bytes, cancel)?;
        let make = || Stream::with_staging(&self.device);
        let stream = self.streams.take(cancel, make)?;
        Workspace::new(stream, TaskArena::new(&self.device_arena, user, allocation))
    }

    /// Creates the resources of one task with `rings` rings.
    ///
    /// # Errors
    /// Device.
    pub fn warm_up(&self, rings: usize) -> Result<()> {
        let cancel = CancelToken::new();
        let bytes = FIRST_TASK_BYTES.min(self.device_arena.max_bytes());
        let _memory = self.device_arena.take(bytes, &cancel)?;
        let make = || Stream::with_staging(&self.device);
        let _stream = self.streams.take(&cancel, make)?;
        let rings = (0..rings.min(self.rings.most())).map(|_| self.ring(&cancel));
        rings.collect::<Result<Vec<_>>>().map(drop)
    }

    /// Waits for a ring.
    ///
    /// # Errors
    /// Device, Cancelled.
    pub fn ring(&self, cancel: &CancelToken) -> Result<Pooled<CopyRing>> {
        self.rings
            .take(cancel, || CopyRing::new(&self.device, self.chunk_bytes))
    }
}

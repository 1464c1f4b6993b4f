//! What a slice in flight holds on the device and on the host, kept from slice to slice.

use std::sync::{Mutex, PoisonError};

use rockmill_core::Result;

use crate::device::Device;
use crate::ffi::{
    BlockRef, Exec, FileTotals, InputTotals, Key, KeySpan, OutBlock, RetainTotals, ValueRef,
};
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::stream::Stream;

/// Bytes that are copied at a time; a block that is larger gets a chunk of its own size.
pub const CHUNK_BYTES: usize = 8 << 20;

/// Buffers of the stages; see `kernels/table.hpp` for what each holds.
#[derive(Debug)]
pub struct Workspace {
    pub stream: Stream,
    pub scratch: DeviceBuffer<u8>,
    pub scratch_bytes: u64,
    /// The first error, and the longest user key.
    pub errors: DeviceBuffer<u64>,
    pub arena: DeviceBuffer<u8>,
    pub blocks: DeviceBuffer<BlockRef>,
    pub counts: DeviceBuffer<u32>,
    pub starts: DeviceBuffer<u32>,
    pub key_sums: DeviceBuffer<u64>,
    pub key_starts: DeviceBuffer<u64>,
    pub keys: DeviceBuffer<Key>,
    pub other_keys: DeviceBuffer<Key>,
    pub values: DeviceBuffer<ValueRef>,
    pub hashes: DeviceBuffer<u64>,
    pub key_bytes: DeviceBuffer<u8>,
    pub key_at: DeviceBuffer<u64>,
    pub bound_bytes: DeviceBuffer<u8>,
    pub run_starts: DeviceBuffer<u32>,
    pub trimmed: DeviceBuffer<u32>,
    pub snapshots: DeviceBuffer<u64>,
    pub beneath: DeviceBuffer<KeySpan>,
    pub beneath_bytes: DeviceBuffer<u8>,
    pub level_ends: DeviceBuffer<u32>,
    pub heads: DeviceBuffer<u32>,
    pub has_older: DeviceBuffer<u8>,
    pub keep: DeviceBuffer<u32>,
    pub places: DeviceBuffer<u32>,
    pub input_totals: DeviceBuffer<InputTotals>,
    pub totals: DeviceBuffer<RetainTotals>,
    pub shared: DeviceBuffer<u32>,
    pub sizes: DeviceBuffer<u32>,
    pub prefix: DeviceBuffer<u64>,
    pub survivor_key_sums: DeviceBuffer<u64>,
    pub last_with_prefix: DeviceBuffer<u32>,
    pub grandparents: DeviceBuffer<KeySpan>,
    pub grandparent_bytes: DeviceBuffer<u8>,
    pub grandparent_places: DeviceBuffer<u64>,
    pub block_starts: DeviceBuffer<u32>,
    pub prefix_lens: DeviceBuffer<u32>,
    pub block_sizes: DeviceBuffer<u32>,
    pub block_offsets: DeviceBuffer<u64>,
    pub edge_sizes: DeviceBuffer<u64>,
    pub edge_starts: DeviceBuffer<u64>,
    pub edges: DeviceBuffer<u8>,
    pub out_blocks: DeviceBuffer<OutBlock>,
    pub file_starts: DeviceBuffer<u32>,
    pub file_blocks: DeviceBuffer<u32>,
    pub file_offsets: DeviceBuffer<u64>,
    pub file_totals: DeviceBuffer<FileTotals>,
    pub image_starts: DeviceBuffer<u64>,
    pub images: DeviceBuffer<u8>,
    pub bases: DeviceBuffer<u32>,
    pub blocks_hash: DeviceBuffer<u64>,
    pub filter_lines: DeviceBuffer<u32>,
    pub filter_blocks: DeviceBuffer<OutBlock>,
}

impl Workspace {
    fn new(device: &Device) -> Result<Self> {
        let mut errors = DeviceBuffer::new(device);
        errors.room(2)?;
        Ok(Self {
            stream: Stream::new(device)?,
            scratch: DeviceBuffer::new(device),
            scratch_bytes: 0,
            errors,
            arena: DeviceBuffer::new(device),
            blocks: DeviceBuffer::new(device),
            counts: DeviceBuffer::new(device),
            starts: DeviceBuffer::new(device),
            key_sums: DeviceBuffer::new(device),
            key_starts: DeviceBuffer::new(device),
            keys: DeviceBuffer::new(device),
            other_keys: DeviceBuffer::new(device),
            values: DeviceBuffer::new(device),
            hashes: DeviceBuffer::new(device),
            key_bytes: DeviceBuffer::new(device),
            key_at: DeviceBuffer::new(device),
            bound_bytes: DeviceBuffer::new(device),
            run_starts: DeviceBuffer::new(device),
            trimmed: DeviceBuffer::new(device),
            snapshots: DeviceBuffer::new(device),
            beneath: DeviceBuffer::new(device),
            beneath_bytes: DeviceBuffer::new(device),
            level_ends: DeviceBuffer::new(device),
            heads: DeviceBuffer::new(device),
            has_older: DeviceBuffer::new(device),
            keep: DeviceBuffer::new(device),
            places: DeviceBuffer::new(device),
            input_totals: DeviceBuffer::new(device),
            totals: DeviceBuffer::new(device),
            shared: DeviceBuffer::new(device),
            sizes: DeviceBuffer::new(device),
            prefix: DeviceBuffer::new(device),
            survivor_key_sums: DeviceBuffer::new(device),
            last_with_prefix: DeviceBuffer::new(device),
            grandparents: DeviceBuffer::new(device),
            grandparent_bytes: DeviceBuffer::new(device),
            grandparent_places: DeviceBuffer::new(device),
            block_starts: DeviceBuffer::new(device),
            prefix_lens: DeviceBuffer::new(device),
            block_sizes: DeviceBuffer::new(device),
            block_offsets: DeviceBuffer::new(device),
            edge_sizes: DeviceBuffer::new(device),
            edge_starts: DeviceBuffer::new(device),
            edges: DeviceBuffer::new(device),
            out_blocks: DeviceBuffer::new(device),
            file_starts: DeviceBuffer::new(device),
            file_blocks: DeviceBuffer::new(device),
            file_offsets: DeviceBuffer::new(device),
            file_totals: DeviceBuffer::new(device),
            image_starts: DeviceBuffer::new(device),
            images: DeviceBuffer::new(device),
            bases: DeviceBuffer::new(device),
            blocks_hash: DeviceBuffer::new(device),
            filter_lines: DeviceBuffer::new(device),
            filter_blocks: DeviceBuffer::new(device),
        })
    }

    /// Makes scratch memory for stages over `entries`.
    pub fn make_scratch(&mut self, device: &Device, entries: usize) -> Result<()> {
        // SAFETY: takes a number alone.
        let bytes = unsafe { (device.table().scratch_bytes)(entries as u64) };
        self.scratch.room(bytes as usize)?;
        self.scratch_bytes = self.scratch_bytes.max(bytes);
        Ok(())
    }

    /// What stages are called with.
    pub fn exec(&self) -> Exec {
        self.stream
            .exec(self.scratch.as_ptr().cast(), self.scratch_bytes)
    }
}

/// One direction of copying: a stream and two pinned chunks, of which one is filled while the other is
/// on its way.
#[derive(Debug)]
pub struct Lane {
    pub stream: Stream,
    pub chunks: [PinnedBuffer; 2],
}

impl Lane {
    fn new(device: &Device) -> Result<Self> {
        Ok(Self {
            stream: Stream::new(device)?,
            chunks: [
                PinnedBuffer::new(device, CHUNK_BYTES)?,
                PinnedBuffer::new(device, CHUNK_BYTES)?,
            ],
        })
    }
}

/// Things that are made once and lent out.
#[derive(Debug)]
struct Shelf<T>(Mutex<Vec<T>>);

impl<T> Shelf<T> {
    fn take(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        known.map_or_else(make, Ok)
    }

    fn put(&self, thing: T) {
        let mut shelf = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shelf.push(thing);
    }
}

/// Workspaces and lanes of a device: as many as were ever in use at once.
#[derive(Debug)]
pub struct Pool {
    device: Device,
    workspaces: Shelf<Box<Workspace>>,
    lanes: Shelf<Lane>,
}

impl Pool {
    /// An empty pool.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            workspaces: Shelf(Mutex::default()),
            lanes: Shelf(Mutex::default()),
        }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A workspace, and the duty to bring it back. One that saw an error is dropped instead.
    pub fn workspace(&self) -> Result<Box<Workspace>> {
        self.workspaces
            .take(|| Workspace::new(&self.device).map(Box::new))
    }

    /// Takes a workspace back, with nothing on its way.
    pub fn put_workspace(&self, workspace: Box<Workspace>) {
        self.workspaces.put(workspace);
    }

    /// A lane.
    pub fn lane(&self) -> Result<Lane> {
        self.lanes.take(|| Lane::new(&self.device))
    }

    /// Takes a lane back, with nothing on its way.
    pub fn put_lane(&self, lane: Lane) {
        self.lanes.put(lane);
    }
}

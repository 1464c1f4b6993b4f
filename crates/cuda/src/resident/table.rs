//! A table: its slots, and the memory of its records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rockmill_core::{Error, ErrorKind, KeyRange, ResidentTable, Result};

use super::budget::{Budget, Part};
use crate::driver::ffi::{self, PlaceTotals};
use crate::driver::{CopyKind, Device, Stream};
use crate::read::share;

/// `slots.hpp`: bytes of a bucket.
const BUCKET_BYTES: u64 = 64;

/// So many keys have so many buckets of eight slots at least: a load of 0.8.
const KEYS_PER_BUCKETS: (u64, u64) = (32, 5);

/// Slots have room for addresses up to here (`slots.hpp:SLOT_ADDRESS_BITS`, in units of 16 bytes).
const MAX_ADDRESS: u64 = 1 << 48;

/// What a table is made for.
#[derive(Debug, Clone, Copy)]
pub struct TableSettings<'a> {
    /// Maximum number of keys.
    pub keys: u64,
    /// Maximum device memory in bytes: of this table, and of those that are made of it.
    pub memory_bytes: u64,
    /// Seed of the hash of keys.
    pub seed: u64,
    /// Bits of a hash that count. Tests keep few, so that many keys have equal hashes; all others keep all.
    pub hash_mask: u64,
    /// Ranges of keys that are not in the table, disjoint and ascending. A lookup there says that RocksDB has to be asked.
    pub outside: &'a [KeyRange],
}

/// What a table has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableContents {
    /// Keys with their values.
    pub keys: u64,
    /// Keys without a value, for which RocksDB has to be asked.
    pub ask: u64,
    /// Keys for which there was no room near the bucket of their hash. If there are some, the table is of no use: another
    /// seed or more slots help.
    pub left_over: u64,
    /// Device memory of slots and bounds in bytes.
    pub slot_bytes: u64,
    /// Device memory of records in bytes, dead ones included.
    pub record_bytes: u64,
    /// Device memory in bytes of records that were replaced or deleted, which no slot names any more.
    pub dead_bytes: u64,
}

/// A table on a device.
#[derive(Debug)]
pub struct DeviceTable {
    pub(super) device: Device,
    budget: Arc<Budget>,
    slots: Part,
    /// Ends of all bounds, and behind them their bytes.
    bounds: Arc<Part>,
    num_bounds: u64,
    buckets: u64,
    seed: u64,
    hash_mask: u64,
    held: Mutex<Held>,
    /// For what goes to the host and comes from there.
    pub(super) stream: Mutex<Stream>,
}

/// Records are never changed, so a table has those of the one that it was made of.
#[derive(Debug, Clone)]
struct Held {
    chunks: Vec<Arc<Part>>,
    contents: TableContents,
    /// Slots of deleted keys, also those that were taken again.
    gone: u64,
}

impl ResidentTable for DeviceTable {}

impl DeviceTable {
    /// Device memory in bytes that slots for so many keys take.
    pub fn slot_bytes(keys: u64) -> u64 {
        buckets(keys).saturating_mul(BUCKET_BYTES)
    }

    /// Device memory in bytes that a key and its value take beside their slot.
    pub fn record_bytes(key_bytes: u64, value_bytes: u64) -> u64 {
        /// `record.hpp`: lengths in front of a key, and what keys and values are aligned to.
        const HEAD: u64 = 8;
        const UNIT: u64 = 16;
        let aligned = |bytes: u64| bytes.div_ceil(UNIT).saturating_mul(UNIT);
        aligned(key_bytes.saturating_add(HEAD)).saturating_add(aligned(value_bytes))
    }

    /// An empty table.
    ///
    /// # Errors
    /// Device if the table may not take so much memory, or the device does not have it.
    pub fn new(device: &Device, settings: &TableSettings<'_>) -> Result<Self> {
        Self::within(
            device,
            settings,
            Arc::new(Budget::new(settings.memory_bytes)),
        )
    }

    /// An empty table on the same device. What both take is limited by the memory that this one was given, whatever the
    /// settings say of it.
    ///
    /// # Errors
    /// As those of [`DeviceTable::new`].
    pub fn beside(&self, settings: &TableSettings<'_>) -> Result<Self> {
        Self::within(&self.device, settings, Arc::clone(&self.budget))
    }

    fn within(device: &Device, settings: &TableSettings<'_>, budget: Arc<Budget>) -> Result<Self> {
        let (ends, bytes) = bounds(settings.outside);
        let bounds_at = size_of_val(&ends[..]);
        // Words are read whole.
        let bounds_len = (bounds_at + bytes.len()).next_multiple_of(size_of::<u64>());
        let bounds_len = bounds_len as u64;
        let slots_len = Self::slot_bytes(settings.keys);
        let _current = device.make_current()?;
        let bounds = budget.take(device, bounds_len)?;
        let slots = budget.take(device, slots_len)?;
        let stream = Stream::with_staging(device)?;
        // SAFETY: the memory is as long as what is written there, and lives until the stream was waited for.
        unsafe {
            stream.fill(slots.as_ptr().cast(), 0, slots_len as usize)?;
            stream.upload(bounds.as_ptr(), ends.as_ptr().cast(), bounds_at)?;
            let to = bounds.as_ptr().wrapping_add(bounds_at);
            stream.upload(to, bytes.as_ptr(), bytes.len())?;
        }
        stream.synchronize()?;
        Ok(Self {
            device: device.clone(),
            budget,
            slots,
            bounds: Arc::new(bounds),
            num_bounds: ends.len() as u64,
            buckets: buckets(settings.keys),
            seed: settings.seed,
            hash_mask: settings.hash_mask,
            held: Mutex::new(Held {
                chunks: Vec::new(),
                contents: TableContents {
                    slot_bytes: slots_len.saturating_add(bounds_len),
                    ..TableContents::default()
                },
                gone: 0,
            }),
            stream: Mutex::new(stream),
        })
    }

    /// A copy of the slots. Both tables have the same records, in the same memory.
    ///
    /// # Errors
    /// Device if both may not take so much memory, or the device does not have it.
    pub(super) fn copied(&self) -> Result<Self> {
        let _current = self.device.make_current()?;
        let slots = self.budget.take(&self.device, self.slots.len())?;
        let stream = Stream::with_staging(&self.device)?;
        let (to, from) = (slots.as_ptr(), self.slots.as_ptr());
        // SAFETY: both have so many bytes, and live until the stream was waited for. Nobody changes what is copied.
        unsafe { stream.copy(CopyKind::Inside, to, from, self.slots.len() as usize)? };
        stream.synchronize()?;
        Ok(Self {
            device: self.device.clone(),
            budget: Arc::clone(&self.budget),
            slots,
            bounds: Arc::clone(&self.bounds),
            num_bounds: self.num_bounds,
            buckets: self.buckets,
            seed: self.seed,
            hash_mask: self.hash_mask,
            held: Mutex::new(self.held().clone()),
            stream: Mutex::new(stream),
        })
    }

    /// Whether so many slots are taken that lookups would go on in many buckets.
    pub fn is_crowded(&self) -> bool {
        /// Of sixteen slots.
        const MOST: u64 = 15;
        let held = self.held();
        let taken = held.contents.keys + held.contents.ask + held.gone;
        let slots = self.slots.len() / size_of::<u64>() as u64;
        taken.saturating_mul(16) > slots.saturating_mul(MOST)
    }

    /// The number of the GPU where the table lies; nothing if it lies on the host.
    pub fn gpu(&self) -> Option<u32> {
        let is_gpu = self.device.memory_bytes() > 0;
        is_gpu.then(|| self.device.number())
    }

    /// What the table has now.
    pub fn contents(&self) -> TableContents {
        self.held().contents
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table as kernels see it.
    pub(crate) fn as_kernels_see_it(&self) -> ffi::ResidentTable {
        let bounds = self.bounds.as_ptr();
        let bytes_at = self.num_bounds as usize * size_of::<u64>();
        ffi::ResidentTable {
            slots: self.slots.as_ptr().cast(),
            buckets: self.buckets,
            seed: self.seed,
            hash_mask: self.hash_mask,
            bound_ends: bounds.cast_const().cast(),
            bound_bytes: bounds.wrapping_add(bytes_at),
            num_bounds: self.num_bounds,
        }
    }

    /// Memory for records, which lives as long as a table that has it.
    ///
    /// # Errors
    /// Device if the table may not take so much more, or the device does not have it.
    pub(super) fn chunk(&self, bytes: u64) -> Result<*mut u8> {
        let chunk = self.budget.take(&self.device, bytes)?;
        let memory = chunk.as_ptr();
        if (memory.addr() as u64).saturating_add(bytes) > MAX_ADDRESS {
            let what = format!("slots have no room for the address {memory:p} of records");
            return Err(Error::new(ErrorKind::Device, what));
        }
        let mut held = self.held();
        held.contents.record_bytes += bytes;
        held.chunks.push(Arc::new(chunk));
        Ok(memory)
    }

    /// Counts the rows of a task.
    pub(super) fn add(&self, rows: u64, totals: PlaceTotals) {
        let mut held = self.held();
        let contents = &mut held.contents;
        let records = rows.saturating_sub(totals.without);
        contents.keys = (contents.keys + records).saturating_sub(totals.replaced);
        contents.ask += totals.ask;
        contents.left_over += totals.left_over;
        contents.dead_bytes += totals.dead_bytes;
        held.gone += totals.gone;
    }
}

fn buckets(keys: u64) -> u64 {
    let (keys_of, buckets) = KEYS_PER_BUCKETS;
    share(keys, buckets, keys_of).max(1)
}

/// Ends of the ranges' bounds among their bytes, and the bytes. An even bound begins a range.
fn bounds(ranges: &[KeyRange]) -> (Vec<u64>, Vec<u8>) {
    let (mut ends, mut bytes) = (Vec::new(), Vec::new());
    for range in ranges {
        let begin = range.begin.as_deref().unwrap_or_default();
        for bound in [Some(begin), range.end.as_deref()].into_iter().flatten() {
            bytes.extend_from_slice(bound);
            ends.push(bytes.len() as u64);
        }
    }
    (ends, bytes)
}

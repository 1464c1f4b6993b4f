//! A table: its slots, and the memory of its records.

use std::ptr;
use std::sync::Arc;

use rockmill_core::{Error, ErrorKind, KeyRange, Lock, ResidentTable, Result};

use super::budget::{Budget, Part};
use super::ranges::Ranges;
use crate::driver::ffi::{self, InsertTotals, SlotsArgs, Stages};
use crate::driver::{CopyKind, Device, Reservation, Stream};
use crate::read::share;

/// Bytes of a bucket.
const BUCKET_BYTES: u64 = ffi::BUCKET_SLOTS as u64 * size_of::<u64>() as u64;

/// This many keys have at least this many buckets of eight slots: a load of 0.8.
const KEYS_PER_BUCKETS: (u64, u64) = (32, 5);

/// Addresses in slots are below this.
const MAX_ADDRESS: u64 = ffi::RECORD_UNIT << ffi::SLOT_ADDRESS_BITS;

/// Properties of a new table.
#[derive(Debug, Clone, Copy)]
pub struct TableSettings<'a> {
    /// Maximum number of keys.
    pub keys: u64,
    /// Maximum device memory in bytes, of this table and of those derived from it.
    pub memory_bytes: u64,
    /// Memory that is reserved for the table.
    pub reservation: Option<&'a Arc<Reservation>>,
    /// Seed of the hash of keys.
    pub seed: u64,
    /// Bits of a hash that are used. Tests keep few, so that many keys have equal hashes; all other callers keep all.
    pub hash_mask: u64,
    /// Ranges of keys that are not in the table, disjoint and ascending. For keys in these ranges, RocksDB must be
    /// asked.
    pub outside: &'a [KeyRange],
}

/// Contents of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableContents {
    /// Keys with their values.
    pub keys: u64,
    /// Keys without a value, for which RocksDB must be asked.
    pub needs_host: u64,
    /// Keys for which there was no room near the bucket of their hash. If there are some, the table cannot be used;
    /// another seed or more slots help.
    pub left_over: u64,
    /// Device memory of slots and bounds in bytes.
    pub slot_bytes: u64,
    /// Device memory of records in bytes, dead ones included.
    pub record_bytes: u64,
    /// Device memory in bytes of replaced or deleted records, which no slot names any more.
    pub dead_bytes: u64,
}

/// A table on a device.
#[derive(Debug)]
pub struct DeviceTable {
    pub(super) device: Device,
    pub(super) budget: Arc<Budget>,
    pub(super) slots: Part,
    outside: Ranges,
    buckets: u64,
    seed: u64,
    hash_mask: u64,
    pub(super) held: Lock<TableState>,
    /// For kernels that process slots: their totals, and a number. The holder of the stream may use it.
    pub(super) scratch: Arc<Part>,
    /// For copies to the host and back. Tables that are derived from others share it.
    pub(super) stream: Arc<Lock<Stream>>,
}

/// Records are never changed, so a derived table shares those of its base.
#[derive(Debug, Clone, Default)]
pub(super) struct TableState {
    pub chunks: Vec<Arc<Part>>,
    pub contents: TableContents,
    /// Slots of deleted keys.
    pub gone: u64,
}

impl ResidentTable for DeviceTable {}

impl DeviceTable {
    /// Bytes behind the end of records that kernels may read and not use.
    pub const READ_BEHIND: u64 = (ffi::FETCHED_AHEAD + ffi::SECTOR) as u64;

    /// Device memory in bytes of slots for `keys` keys.
    pub fn slot_bytes(keys: u64) -> u64 {
        buckets(keys).saturating_mul(BUCKET_BYTES)
    }

    /// Device memory in bytes of a key and its value without their slot.
    pub fn record_bytes(key_bytes: u64, value_bytes: u64) -> u64 {
        /// Lengths in front of a key (`record.hpp:RecordHead`), and the alignment of keys and values.
        const HEAD: u64 = 8;
        const UNIT: u64 = ffi::RECORD_UNIT;
        let aligned = |bytes: u64| bytes.div_ceil(UNIT).saturating_mul(UNIT);
        aligned(key_bytes.saturating_add(HEAD)).saturating_add(aligned(value_bytes))
    }

    /// An empty table.
    ///
    /// # Errors
    /// Device if the table may not take that much memory, or the device does not have it.
    pub fn new(device: &Device, settings: &TableSettings<'_>) -> Result<Self> {
        let budget = Arc::new(Budget::new(settings.memory_bytes));
        if let Some(reservation) = settings.reservation {
            budget.use_reservation(reservation);
        }
        let stream = Stream::with_staging(device)?;
        let slots = budget.take(device, Self::slot_bytes(settings.keys))?;
        let outside = Ranges::new(settings.outside, &budget, device, &stream)?;
        let scratch = size_of::<InsertTotals>() + size_of::<u64>();
        let table = Self {
            scratch: Arc::new(budget.take(device, scratch as u64)?),
            device: device.clone(),
            budget,
            held: Lock::new(TableState {
                contents: TableContents {
                    slot_bytes: slots.len() + outside.len(),
                    ..TableContents::default()
                },
                ..TableState::default()
            }),
            slots,
            outside,
            buckets: buckets(settings.keys),
            seed: settings.seed,
            hash_mask: settings.hash_mask,
            stream: Arc::new(Lock::new(stream)),
        };
        table.clear(&table.slots)?;
        Ok(table)
    }

    /// Bytes that tables which are made of this one may take beside those that are there.
    pub fn bytes_left(&self) -> u64 {
        self.budget.left()
    }

    /// Makes derived tables take memory of a reservation while that lives.
    pub fn use_reservation(&self, reservation: &Arc<Reservation>) {
        self.budget.use_reservation(reservation);
    }

    /// A copy of the slots. RocksDB must be asked for keys in the ranges `outside`. Both tables have the same records,
    /// in the same memory.
    ///
    /// # Errors
    /// Device if both may not take that much memory, or the device does not have it.
    pub(super) fn copied(&self, outside: &[KeyRange]) -> Result<Self> {
        let _current = self.device.make_current()?;
        let stream = self.stream.lock();
        let outside = Ranges::new(outside, &self.budget, &self.device, &stream)?;
        let slots = self.budget.take(&self.device, self.slots.len())?;
        let (to, from) = (slots.as_ptr(), self.slots.as_ptr());
        // SAFETY: both have `self.slots.len()` bytes, and live until the stream has been waited for. No code changes
        // the source.
        let copied = unsafe { stream.copy(CopyKind::Inside, to, from, self.slots.len() as usize) };
        settled(&stream, copied)?;
        Ok(self.successor(slots, outside, self.held.lock().clone()))
    }

    /// A table with the same records and slots for `keys` keys, without slots of deleted keys. `seed` is the seed of
    /// its hash. Its contents report keys without room.
    ///
    /// # Errors
    /// Device if both may not take that much memory, or the device does not have it.
    pub fn with_slots(&self, keys: u64, seed: u64) -> Result<Self> {
        let _current = self.device.make_current()?;
        let outside = self.outside.clone();
        let slots = self.empty_part(Self::slot_bytes(keys))?;
        let mut table = self.successor(slots, outside, self.held.lock().clone());
        (table.buckets, table.seed) = (buckets(keys), seed);
        // SAFETY: the slots are those of the tables.
        let stage = |stages: &Stages<'_>, args: &SlotsArgs| unsafe { stages.rehash(args) };
        let totals = self.go_through(stage, |args| {
            args.table = table.kernel_form();
        })?;
        let mut held = table.held.lock();
        held.gone = 0;
        held.contents.left_over = totals.left_over;
        drop(held);
        Ok(table)
    }

    /// A table of the same kind.
    fn successor(&self, slots: Part, outside: Ranges, mut held: TableState) -> Self {
        held.contents.slot_bytes = slots.len() + outside.len();
        Self {
            device: self.device.clone(),
            budget: Arc::clone(&self.budget),
            slots,
            outside,
            buckets: self.buckets,
            seed: self.seed,
            hash_mask: self.hash_mask,
            held: Lock::new(held),
            scratch: Arc::clone(&self.scratch),
            stream: Arc::clone(&self.stream),
        }
    }

    /// Memory of the table's budget, all zeros.
    ///
    /// # Errors
    /// Device.
    pub(crate) fn empty_part(&self, bytes: u64) -> Result<Part> {
        let part = self.budget.take(&self.device, bytes)?;
        self.clear(&part)?;
        Ok(part)
    }

    /// Sets all bytes to 0.
    fn clear(&self, part: &Part) -> Result<()> {
        let _current = self.device.make_current()?;
        let stream = self.stream.lock();
        // SAFETY: the part has `part.len()` bytes, and lives until the stream has been waited for.
        let filled = unsafe { stream.fill(part.as_ptr().cast(), 0, part.len() as usize) };
        settled(&stream, filled)
    }

    /// Whether lookups need many buckets because too many slots are taken.
    pub fn is_nearly_full(&self) -> bool {
        /// Maximum number of taken slots per sixteen.
        const MOST: u64 = 15;
        let slots = self.slots.len() / size_of::<u64>() as u64;
        self.slots_taken().saturating_mul(16) > slots.saturating_mul(MOST)
    }

    /// Slots of keys, and of deleted keys.
    pub fn slots_taken(&self) -> u64 {
        let held = self.held.lock();
        held.contents.keys + held.contents.needs_host + held.gone
    }

    /// The number of the table's GPU; `None` if it lies on the host.
    pub fn gpu(&self) -> Option<u32> {
        let is_gpu = self.device.memory_bytes() > 0;
        is_gpu.then(|| self.device.number())
    }

    /// Current contents of the table.
    pub fn contents(&self) -> TableContents {
        self.held.lock().contents
    }

    /// The table in the kernels' form.
    pub(crate) fn kernel_form(&self) -> ffi::ResidentTable {
        ffi::ResidentTable {
            slots: self.slots.as_ptr().cast(),
            buckets: self.buckets,
            seed: self.seed,
            hash_mask: self.hash_mask,
            outside: self.outside.kernel_form(),
        }
    }

    /// Memory for records, which lives as long as a table that refers to it.
    ///
    /// # Errors
    /// Device if the table may not take that much more, or the device does not have it.
    pub(super) fn chunk(&self, bytes: u64) -> Result<*mut u8> {
        if bytes == 0 {
            return Ok(ptr::null_mut());
        }
        let chunk = self.budget.take(&self.device, bytes)?;
        let memory = chunk.as_ptr();
        if (memory.addr() as u64).saturating_add(bytes) > MAX_ADDRESS {
            let what = format!("slots have no room for the address {memory:p} of records");
            return Err(Error::new(ErrorKind::Device, what));
        }
        let mut held = self.held.lock();
        held.contents.record_bytes += bytes;
        held.chunks.push(Arc::new(chunk));
        Ok(memory)
    }

    /// Counts the rows of a task.
    pub(super) fn add(&self, rows: u64, totals: InsertTotals) {
        let mut held = self.held.lock();
        let contents = &mut held.contents;
        let values = rows.saturating_sub(totals.without + totals.needs_host_in);
        contents.keys = (contents.keys + values).saturating_sub(totals.values_out);
        contents.needs_host =
            (contents.needs_host + totals.needs_host_in).saturating_sub(totals.needs_host_out);
        contents.left_over += totals.left_over;
        contents.dead_bytes += totals.dead_bytes;
        held.gone = (held.gone + totals.gone).saturating_sub(totals.retaken);
    }
}

/// Waits for a stream, also after a failure to queue work: earlier work may still use memory that is freed with the
/// error.
pub(super) fn settled<T>(stream: &Stream, queued: Result<T>) -> Result<T> {
    let done = stream.synchronize();
    queued.and_then(|value| done.map(|()| value))
}

fn buckets(keys: u64) -> u64 {
    let (keys_of, buckets) = KEYS_PER_BUCKETS;
    share(keys, buckets, keys_of).max(1)
}

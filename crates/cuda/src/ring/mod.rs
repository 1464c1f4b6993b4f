//! Queues in which device threads send requests to the host: see `kernels/ring/ring.hpp`.
//!
//! Threads of the host read and write pinned memory here, and call no function of CUDA, because it might wait for the
//! kernel that waits for them.

use crate::driver::ffi;
use crate::resident::DeviceTable;

mod changed;
mod queue;
mod server;
#[cfg(test)]
mod tests;

pub use changed::ChangedSet;
pub(crate) use queue::is_held;
pub use queue::{RequestQueue, RingPin, RingSettings};
pub use server::{Operation, Request, Server, Status};

/// The parameter of a kernel: `KvRecord` of `kernels/common/types.hpp`.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct KvRecord(ffi::KvRecord);

// SAFETY: it consists of addresses and numbers.
unsafe impl Send for KvRecord {}

impl KvRecord {
    /// Version of the record. A program and the library must have the same.
    pub const ABI: u32 = ffi::KV_ABI;

    /// The record.
    pub(crate) fn kernel_form(&self) -> ffi::KvRecord {
        self.0
    }

    /// A record for a table, with the queue for keys that it cannot answer.
    pub fn new(
        version: u64,
        table: &DeviceTable,
        ring: Option<(&RequestQueue, &ChangedSet)>,
    ) -> Self {
        let ring = ring.map(|(queue, changed)| queue.kernel_form(changed));
        Self(ffi::KvRecord {
            abi: Self::ABI,
            num_tickets: 0,
            version,
            table: table.kernel_form(),
            ring: ring.unwrap_or_else(ffi::Ring::none),
            last_slot: 0,
            last_number: 0,
        })
    }
}

impl ffi::Ring {
    /// No queue.
    fn none() -> Self {
        use std::ptr::{null, null_mut};
        Self {
            posted: null_mut(),
            requests: null_mut(),
            outgoing: null_mut(),
            answered: null(),
            answers: null(),
            incoming: null(),
            states: null_mut(),
            numbers: null_mut(),
            changed: ffi::ChangedKeys {
                slots: null_mut(),
                mask: 0,
                state: null_mut(),
                seed: 0,
            },
            timeout_ns: 0,
            slots: 0,
            slot_bytes: 0,
        }
    }
}

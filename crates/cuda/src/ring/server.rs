//! A host thread's side of a request queue.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::queue::RequestQueue;
use crate::driver::ffi::{self, RingRequest};

/// `ring.hpp:RingOperation`, without the one for parts of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// The value of a key in a version.
    Get,
    /// The current value of a key.
    GetLatest,
    /// Puts a value.
    Put,
    /// Deletes a key.
    Delete,
}

impl Operation {
    fn of(number: u32) -> Option<Self> {
        match number {
            ffi::RING_GET => Some(Self::Get),
            ffi::RING_GET_LATEST => Some(Self::GetLatest),
            ffi::RING_PUT => Some(Self::Put),
            ffi::RING_DELETE => Some(Self::Delete),
            _ => None,
        }
    }
}

/// Result of a request: `probe.hpp:KeyStatus`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    /// The key is not in the database.
    NotFound = ffi::KEY_NOT_FOUND as u32,
    /// The value is in the answer; or the next part of a request is expected.
    Found = ffi::KEY_FOUND as u32,
    /// The device alone cannot answer, and there is no host to ask.
    NeedsHost = ffi::KEY_NEEDS_HOST as u32,
    /// The caller has no room for the value.
    TooSmall = ffi::KEY_TOO_SMALL as u32,
    /// The write is done.
    Written = ffi::KEY_WRITTEN as u32,
    /// RocksDB stalls writes.
    Busy = ffi::KEY_BUSY as u32,
    /// The database accepts no writes.
    ReadOnly = ffi::KEY_READ_ONLY as u32,
    /// RocksDB could not read or write.
    IoError = ffi::KEY_IO_ERROR as u32,
    /// RocksDB has found damaged data.
    Corrupt = ffi::KEY_CORRUPT as u32,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The requested operation.
    pub operation: Operation,
    /// The requested version.
    pub version: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value to put.
    pub value: &'a [u8],
}

/// The server's state of a slot.
#[derive(Debug, Default)]
struct SlotState {
    /// Number of the last request.
    number: u32,
    operation: Option<Operation>,
    version: u64,
    key_len: usize,
    value_at: usize,
    capacity: u64,
    /// The parts of the request so far.
    message: Vec<u8>,
    /// The value that is sent in parts.
    value: RefCell<Vec<u8>>,
    is_answered: Cell<bool>,
}

/// Bytes of messages and values that a slot keeps allocated.
const KEPT_BYTES: usize = 64 << 10;

/// Some slots of a queue, for the thread that serves them.
#[derive(Debug)]
pub struct Server {
    queue: Arc<RequestQueue>,
    range: Range<usize>,
    states: Vec<SlotState>,
    taken: Vec<usize>,
}

impl Server {
    /// The slots of a range, which only this server answers.
    pub fn new(queue: Arc<RequestQueue>, range: Range<usize>) -> Self {
        let states = range.clone().map(|_| SlotState::default());
        Self {
            queue,
            range,
            states: states.collect(),
            taken: Vec::new(),
        }
    }

    /// Takes the complete requests. Each must be answered before the next call. Returns their number, and whether
    /// anything was posted.
    pub fn take(&mut self) -> (usize, bool) {
        self.taken.clear();
        let mut has_posted = false;
        let queue = &*self.queue;
        for (slot, state) in self.range.clone().zip(&mut self.states) {
            let Some(number) = queue.next_number(slot) else {
                continue;
            };
            has_posted = true;
            state.number = number;
            let request = queue.request(slot);
            if request.operation == ffi::RING_REST {
                state.send(queue, (slot, number), request.at);
                continue;
            }
            match state.add(queue, slot, &request) {
                Some(true) => self.taken.push(slot - self.range.start),
                // The client may send the next part.
                Some(false) => {
                    queue.answer(slot, number, Status::Found as u32, &[], 0);
                }
                None => {
                    queue.answer(slot, number, Status::IoError as u32, &[], 0);
                }
            }
        }
        (self.taken.len(), has_posted)
    }

    /// A request that was taken.
    pub fn request(&self, at: usize) -> Request<'_> {
        let state = &self.states[self.taken[at]];
        Request {
            // Only requests with an operation are taken.
            operation: state.operation.unwrap_or(Operation::Get),
            version: state.version,
            key: &state.message[..state.key_len],
            value: &state.message[state.value_at..],
        }
    }

    /// Answers a request that was taken.
    pub fn answer(&self, at: usize, status: Status, value: &[u8]) {
        let at = self.taken[at];
        let (state, slot) = (&self.states[at], self.range.start + at);
        if state.is_answered.replace(true) {
            return;
        }
        let len = value.len() as u64;
        let (status, part) = match status {
            Status::Found if len > state.capacity => (Status::TooSmall, &value[..0]),
            status => (status, value),
        };
        if part.len() > self.queue.settings().request_slot_bytes as usize {
            let mut kept = state.value.borrow_mut();
            kept.clear();
            kept.extend_from_slice(part);
        }
        self.queue
            .answer(slot, state.number, status as u32, part, len);
    }
}

impl SlotState {
    /// Adds a part of a request. Returns whether it is complete; `None` if it is invalid.
    fn add(&mut self, queue: &RequestQueue, slot: usize, request: &RingRequest) -> Option<bool> {
        /// `record.hpp:RECORD_UNIT`.
        const UNIT: usize = 16;
        if request.at == 0 {
            self.message.clear();
            self.message.shrink_to(KEPT_BYTES);
            let value = self.value.get_mut();
            value.clear();
            value.shrink_to(KEPT_BYTES);
        }
        let key_len = request.key_len as usize;
        // RocksDB accepts no longer values. A larger length would fill the host's memory part by part.
        let value_len = u32::try_from(request.value_len).ok()? as usize;
        let value_at = match value_len {
            0 => key_len,
            _ => key_len.next_multiple_of(UNIT),
        };
        let total = value_at.checked_add(value_len)?;
        let part_len = usize::try_from(request.part_len).ok()?;
        let is_next = request.at == self.message.len() as u64;
        if !is_next
            || part_len > queue.settings().request_slot_bytes as usize
            || part_len > total - self.message.len().min(total)
        {
            return None;
        }
        queue.append_to(&mut self.message, slot, part_len);
        self.operation = Some(Operation::of(request.operation)?);
        (self.version, self.capacity) = (request.version, request.capacity);
        (self.key_len, self.value_at) = (key_len, value_at);
        self.is_answered.set(false);
        Some(self.message.len() == total)
    }

    /// Sends more of a value to the request of a slot.
    fn send(&self, queue: &RequestQueue, (slot, number): (usize, u32), from: u64) {
        let value = self.value.borrow();
        let rest = usize::try_from(from)
            .ok()
            .and_then(|from| value.get(from..));
        let (status, rest) = match rest {
            Some(rest) => (Status::Found, rest),
            None => (Status::IoError, &[][..]),
        };
        queue.answer(slot, number, status as u32, rest, value.len() as u64);
    }
}

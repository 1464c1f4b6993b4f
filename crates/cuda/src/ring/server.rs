//! A host thread's side of its mailboxes.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;

use super::mailboxes::Mailboxes;
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
    Ask = ffi::KEY_ASK as u32,
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

/// The server's state of a mailbox.
#[derive(Debug, Default)]
struct Mail {
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

/// Bytes of messages and values that a mailbox keeps allocated.
const KEPT_BYTES: usize = 64 << 10;

/// Some of the mailboxes, for the thread that serves them.
#[derive(Debug)]
pub struct Server {
    mailboxes: Arc<Mailboxes>,
    range: Range<usize>,
    mails: Vec<Mail>,
    taken: Vec<usize>,
}

impl Server {
    /// The mailboxes of a range, which only this server answers.
    pub fn new(mailboxes: Arc<Mailboxes>, range: Range<usize>) -> Self {
        let mails = range.clone().map(|_| Mail::default());
        Self {
            mailboxes,
            range,
            mails: mails.collect(),
            taken: Vec::new(),
        }
    }

    /// Takes the complete requests. Each must be answered before the next call. Returns their number, and whether
    /// anything was posted.
    pub fn take(&mut self) -> (usize, bool) {
        self.taken.clear();
        let mut has_posted = false;
        let mailboxes = &*self.mailboxes;
        for (mailbox, mail) in self.range.clone().zip(&mut self.mails) {
            let Some(number) = mailboxes.next_number(mailbox) else {
                continue;
            };
            has_posted = true;
            mail.number = number;
            let request = mailboxes.request(mailbox);
            if request.operation == ffi::RING_REST {
                mail.send(mailboxes, (mailbox, number), request.at);
                continue;
            }
            match mail.add(mailboxes, mailbox, &request) {
                Some(true) => self.taken.push(mailbox - self.range.start),
                // The client may send the next part.
                Some(false) => {
                    mailboxes.answer(mailbox, number, Status::Found as u32, &[], 0);
                }
                None => {
                    mailboxes.answer(mailbox, number, Status::IoError as u32, &[], 0);
                }
            }
        }
        (self.taken.len(), has_posted)
    }

    /// A request that was taken.
    pub fn request(&self, at: usize) -> Request<'_> {
        let mail = &self.mails[self.taken[at]];
        Request {
            // Only requests with an operation are taken.
            operation: mail.operation.unwrap_or(Operation::Get),
            version: mail.version,
            key: &mail.message[..mail.key_len],
            value: &mail.message[mail.value_at..],
        }
    }

    /// Answers a request that was taken.
    pub fn answer(&self, at: usize, status: Status, value: &[u8]) {
        let at = self.taken[at];
        let (mail, mailbox) = (&self.mails[at], self.range.start + at);
        if mail.is_answered.replace(true) {
            return;
        }
        let len = value.len() as u64;
        let (status, part) = match status {
            Status::Found if len > mail.capacity => (Status::TooSmall, &value[..0]),
            status => (status, value),
        };
        if part.len() > self.mailboxes.settings().mailbox_bytes as usize {
            let mut kept = mail.value.borrow_mut();
            kept.clear();
            kept.extend_from_slice(part);
        }
        self.mailboxes
            .answer(mailbox, mail.number, status as u32, part, len);
    }
}

impl Mail {
    /// Adds a part of a request. Returns whether it is complete; `None` if it is invalid.
    fn add(
        &mut self,
        mailboxes: &Mailboxes,
        mailbox: usize,
        request: &RingRequest,
    ) -> Option<bool> {
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
            || part_len > mailboxes.settings().mailbox_bytes as usize
            || part_len > total - self.message.len().min(total)
        {
            return None;
        }
        mailboxes.append_to(&mut self.message, mailbox, part_len);
        self.operation = Some(Operation::of(request.operation)?);
        (self.version, self.capacity) = (request.version, request.capacity);
        (self.key_len, self.value_at) = (key_len, value_at);
        self.is_answered.set(false);
        Some(self.message.len() == total)
    }

    /// Sends more of a value to a request of a mailbox.
    fn send(&self, mailboxes: &Mailboxes, (mailbox, number): (usize, u32), from: u64) {
        let value = self.value.borrow();
        let rest = usize::try_from(from)
            .ok()
            .and_then(|from| value.get(from..));
        let (status, rest) = match rest {
            Some(rest) => (Status::Found, rest),
            None => (Status::IoError, &[][..]),
        };
        mailboxes.answer(mailbox, number, status as u32, rest, value.len() as u64);
    }
}

//! Pinned memory in which kernels post requests: a slot for each request.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rockmill_core::{Error, ErrorKind, Lock, Result};

use super::changed::ChangedSet;
use crate::driver::ffi::{self, RING_ABORTED, RingAnswer, RingRequest};
use crate::driver::{Device, DeviceMemory, PinnedBuffer, Stream};
use crate::resident::CallerStream;

/// Maximum number of holds at a time.
const HOLDS: usize = 1024;

/// Words of a cache line. Each part begins on one.
const LINE_WORDS: usize = 16;

/// Properties of a new queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSettings {
    /// Maximum number of requests in progress.
    pub request_slots: u32,
    /// Bytes of a request that are sent at once, and of an answer: a key with its value. Longer ones take several
    /// turns.
    pub request_slot_bytes: u32,
    /// Maximum time for which kernels wait for an answer.
    pub timeout: Duration,
    /// Number of host threads that answer.
    pub threads: usize,
}

impl Default for RingSettings {
    fn default() -> Self {
        Self {
            request_slots: 4096,
            request_slot_bytes: 4096,
            timeout: Duration::from_secs(10),
            threads: 1,
        }
    }
}

impl RingSettings {
    /// The same, rounded to sizes of the memory layout.
    ///
    /// # Errors
    /// Device if one of them is 0 or too large.
    fn rounded(self) -> Result<Self> {
        const MAX: u32 = 1 << 20;
        let is_possible = |number: u32| (1..=MAX).contains(&number);
        if !is_possible(self.request_slots) || !is_possible(self.request_slot_bytes) {
            let what = format!(
                "a view cannot have {} request slots of {} bytes: both are from 1 to {MAX}",
                self.request_slots, self.request_slot_bytes
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        Ok(Self {
            request_slots: self.request_slots.next_multiple_of(LINE_WORDS as u32),
            request_slot_bytes: self.request_slot_bytes.next_multiple_of(LINE_WORDS as u32),
            threads: self.threads.clamp(1, self.request_slots as usize),
            ..self
        })
    }
}

/// Slots for requests, and the words that record which kernels may use them.
#[derive(Debug)]
pub struct RequestQueue {
    device: Device,
    settings: RingSettings,
    /// States and numbers of slots, and behind them the word that ends a hold. Dropped before the pinned memory,
    /// because that waits for kernels and for copies that end holds, which write there.
    own: DeviceMemory,
    shared: Lock<PinnedBuffer>,
    parts: Parts,
    /// For each slot, the number of the last request that was read.
    seen: Vec<AtomicU32>,
    free_pins: Lock<Vec<usize>>,
}

/// All queues of the process.
static ALL: Lock<Vec<Weak<RequestQueue>>> = Lock::new(Vec::new());

/// Whether a kernel on the device may use a queue of the process.
pub fn is_held(device: &Device) -> bool {
    // Dropping the last reference takes long, and must not happen under the lock.
    let all: Vec<_> = {
        let all = ALL.lock();
        all.iter().filter_map(Weak::upgrade).collect()
    };
    (all.iter()).any(|queue| queue.device.is(device) && queue.is_held())
}

/// Places of the parts of the shared memory.
#[derive(Debug, Clone, Copy)]
struct Parts {
    posted: *const AtomicU32,
    answered: *const AtomicU32,
    ended: *const AtomicU32,
    requests: *mut RingRequest,
    answers: *mut RingAnswer,
    outgoing: *mut u8,
    incoming: *mut u8,
}

// SAFETY: words are atomic, and they decide who may access the other parts at a time.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

/// A kernel's right to use a queue, until its stream has reached the end of the hold.
#[derive(Debug)]
pub struct RingPin {
    word: usize,
}

impl RequestQueue {
    /// Creates a queue without requests.
    ///
    /// # Errors
    /// Device, also if settings are invalid.
    pub fn new(device: &Device, settings: RingSettings) -> Result<Arc<Self>> {
        let settings = settings.rounded()?;
        let _current = device.make_current()?;
        let n = settings.request_slots as usize;
        let room = n * settings.request_slot_bytes as usize;
        let lens = [
            n * size_of::<u32>(),
            n * size_of::<u32>(),
            HOLDS * size_of::<u32>(),
            n * size_of::<RingRequest>(),
            n * size_of::<RingAnswer>(),
            room,
            room,
        ];
        let shared = PinnedBuffer::new(device, lens.iter().sum())?;
        let mut at = shared.as_ptr();
        let [
            posted,
            answered,
            ended,
            requests,
            answers,
            outgoing,
            incoming,
        ] = lens.map(|len| {
            let part = at;
            at = at.wrapping_add(len);
            part
        });
        let parts = Parts {
            posted: posted.cast_const().cast(),
            answered: answered.cast_const().cast(),
            ended: ended.cast_const().cast(),
            requests: requests.cast(),
            answers: answers.cast(),
            outgoing,
            incoming,
        };
        let own_len = 2 * n * size_of::<u32>();
        let own = DeviceMemory::for_view(device, None, (own_len + size_of::<u32>()) as u64)?;
        let stream = Stream::with_staging(device)?;
        let one = 1u32.to_ne_bytes();
        // SAFETY: the memory is as long as the data written there, and the stream is waited for.
        unsafe {
            stream.fill(own.as_ptr().cast(), 0, own_len)?;
            stream.upload(own.as_ptr().wrapping_add(own_len), one.as_ptr(), one.len())?;
        }
        stream.synchronize()?;
        let queue = Arc::new(Self {
            device: device.clone(),
            settings,
            shared: Lock::new(shared),
            parts,
            seen: (0..n).map(|_| AtomicU32::default()).collect(),
            own,
            free_pins: Lock::new((0..HOLDS).rev().collect()),
        });
        let mut all = ALL.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&queue));
        Ok(queue)
    }

    /// The settings, rounded up to the memory layout.
    pub fn settings(&self) -> RingSettings {
        self.settings
    }

    /// Pinned memory in bytes.
    pub fn pinned_bytes(&self) -> u64 {
        self.shared.lock().len() as u64
    }

    /// The queue in the kernels' form.
    pub(crate) fn kernel_form(&self, changed: &ChangedSet) -> ffi::Ring {
        let states: *mut u32 = self.own.as_ptr().cast();
        ffi::Ring {
            posted: self.parts.posted.cast_mut().cast(),
            requests: self.parts.requests,
            outgoing: self.parts.outgoing,
            answered: self.parts.answered.cast(),
            answers: self.parts.answers,
            incoming: self.parts.incoming,
            states,
            numbers: states.wrapping_add(self.settings.request_slots as usize),
            changed: changed.kernel_form(),
            timeout_ns: u64::try_from(self.settings.timeout.as_nanos()).unwrap_or(u64::MAX),
            slots: self.settings.request_slots,
            slot_bytes: self.settings.request_slot_bytes,
        }
    }

    /// Answers all requests, also future ones, with "aborted".
    pub fn abort(&self) {
        for answered in self.words(self.parts.answered) {
            answered.store(RING_ABORTED, Ordering::Release);
        }
    }

    /// Begins a hold.
    ///
    /// # Errors
    /// Device if there are too many.
    pub fn hold(&self) -> Result<RingPin> {
        let mut free = self.free_pins.lock();
        if free.is_empty() {
            free.extend(self.ended_holds());
        }
        // The first words are taken first, so that `is_held` soon finds one.
        let Some(word) = free.pop() else {
            let what = format!("a view is held {HOLDS} times at most: end a hold first");
            return Err(Error::new(ErrorKind::Device, what));
        };
        self.ended()[word].store(HELD, Ordering::Release);
        Ok(RingPin { word })
    }

    /// Ends a hold once a stream has reached its current end. Does not wait.
    ///
    /// # Errors
    /// Device. The hold does not end then.
    pub fn end_hold(&self, hold: RingPin, stream: CallerStream) -> Result<()> {
        let word = self.parts.ended.wrapping_add(hold.word);
        let one = self.own.as_ptr();
        let one = one.wrapping_add(2 * self.settings.request_slots as usize * size_of::<u32>());
        let to = word.cast_mut().cast();
        let _current = self.device.make_current()?;
        // SAFETY: the word is pinned memory that lives until the device has been waited for, and the caller's stream is
        // valid.
        let code = unsafe {
            (self.device.table().copy_from_device)(
                to,
                one.cast(),
                size_of::<u32>() as u64,
                stream.as_ptr(),
            )
        };
        self.device.check(code, "end a hold")
    }

    /// Whether a kernel may use the queue.
    pub fn is_held(&self) -> bool {
        let mut words = self.ended().iter();
        words.any(|word| word.load(Ordering::Acquire) == HELD)
    }

    /// Words of ended holds without an owner.
    fn ended_holds(&self) -> impl Iterator<Item = usize> {
        let ended = self.ended().iter().enumerate().rev();
        let ended = ended.filter(|(_, word)| word.load(Ordering::Acquire) == ENDED);
        ended.map(|(at, _)| at)
    }

    fn ended(&self) -> &[AtomicU32] {
        // SAFETY: the part has `HOLDS` words, which live as long as this.
        unsafe { std::slice::from_raw_parts(self.parts.ended, HOLDS) }
    }

    fn words(&self, part: *const AtomicU32) -> &[AtomicU32] {
        // SAFETY: the part has a word for each slot, which lives as long as this.
        unsafe { std::slice::from_raw_parts(part, self.settings.request_slots as usize) }
    }

    /// Numbers of the requests that were posted last.
    fn posted(&self) -> &[AtomicU32] {
        self.words(self.parts.posted)
    }

    /// Whether a range has a posted request that was not read. Many threads may call this, so it writes nothing.
    pub fn has_posted(&self, range: Range<usize>) -> bool {
        let (posted, seen) = (&self.posted()[range.clone()], &self.seen[range]);
        // Without a branch for each word, since all of them are read each time.
        let differs = |(posted, seen): (&[AtomicU32], &[AtomicU32])| {
            let words = posted.iter().zip(seen);
            let differ = words.map(|(a, b)| a.load(Ordering::Relaxed) ^ b.load(Ordering::Relaxed));
            differ.fold(0, |a, b| a | b) != 0
        };
        let mut lines = posted.chunks(LINE_WORDS).zip(seen.chunks(LINE_WORDS));
        lines.any(differs)
    }

    /// The number of a request that was not read. The caller must read it.
    pub(super) fn next_number(&self, slot: usize) -> Option<u32> {
        let number = self.posted()[slot].load(Ordering::Acquire);
        let is_new = self.seen[slot].load(Ordering::Relaxed) != number;
        is_new.then(|| {
            self.seen[slot].store(number, Ordering::Relaxed);
            number
        })
    }

    /// Whether a posted request has no answer.
    pub fn has_unanswered(&self) -> bool {
        let both = self.posted().iter().zip(self.words(self.parts.answered));
        let mut both = both.map(|(posted, answered)| {
            let posted = posted.load(Ordering::Relaxed);
            // A thread that finds an answer also finds the write that it is for.
            let answered = answered.load(Ordering::Acquire);
            posted != answered && answered != RING_ABORTED
        });
        both.any(|is_open| is_open)
    }

    /// A posted request. The device may write any bytes there, so the numbers must be checked.
    pub(super) fn request(&self, slot: usize) -> RingRequest {
        assert!(slot < self.settings.request_slots as usize);
        // SAFETY: the place is one of the slot's, and every bit pattern is a request.
        unsafe { ptr::read_volatile(self.parts.requests.wrapping_add(slot)) }
    }

    /// Appends the first bytes of a slot.
    pub(super) fn append_to(&self, message: &mut Vec<u8>, slot: usize, len: usize) {
        let room = self.settings.request_slot_bytes as usize;
        assert!(slot < self.settings.request_slots as usize && len <= room);
        message.reserve(len);
        // SAFETY: the slot has at least as many bytes, and the vector has room for them.
        unsafe {
            let from = self.parts.outgoing.wrapping_add(slot * room);
            let end = message.as_mut_ptr().wrapping_add(message.len());
            ptr::copy_nonoverlapping(from.cast_const(), end, len);
            message.set_len(message.len() + len);
        }
    }

    /// Answers a request with as much of a value as fits. Returns that length.
    pub(super) fn answer(
        &self,
        slot: usize,
        number: u32,
        status: u32,
        rest: &[u8],
        len: u64,
    ) -> usize {
        let room = self.settings.request_slot_bytes as usize;
        assert!(slot < self.settings.request_slots as usize);
        let part = rest.len().min(room);
        let answer = RingAnswer {
            status,
            part_len: part as u32,
            len,
        };
        // SAFETY: the places are those of the slot, in which the device writes nothing at present.
        unsafe {
            let to = self.parts.incoming.wrapping_add(slot * room);
            ptr::copy_nonoverlapping(rest.as_ptr(), to, part);
            ptr::write_volatile(self.parts.answers.wrapping_add(slot), answer);
        }
        self.words(self.parts.answered)[slot].store(number, Ordering::Release);
        part
    }
}

/// States of a hold's word. 0 is one that was never used.
const HELD: u32 = 2;
const ENDED: u32 = 1;

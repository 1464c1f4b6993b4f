//! The memory of mailboxes.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use rockmill_core::{Error, ErrorKind, Result};

use super::changed::ChangedSet;
use crate::driver::ffi::{self, RING_ABORTED, RingAnswer, RingRequest};
use crate::driver::{Device, DeviceMemory, MemoryUser, PinnedBuffer, Stream};
use crate::resident::CallerStream;

/// Maximum number of holds at a time.
const HOLDS: usize = 1024;

/// Words of a cache line. Each part begins on one.
const LINE_WORDS: usize = 16;

/// Properties of new mailboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingSettings {
    /// Maximum number of requests in progress.
    pub mailboxes: u32,
    /// Bytes of a request that are sent at once, and of an answer: a key with its value. Longer ones take several
    /// turns.
    pub mailbox_bytes: u32,
    /// Maximum time for which kernels wait for an answer.
    pub timeout: Duration,
    /// Number of host threads that answer.
    pub threads: usize,
}

impl Default for RingSettings {
    fn default() -> Self {
        Self {
            mailboxes: 4096,
            mailbox_bytes: 4096,
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
        if !is_possible(self.mailboxes) || !is_possible(self.mailbox_bytes) {
            let what = format!(
                "a view cannot have {} mailboxes of {} bytes: both are from 1 to {MAX}",
                self.mailboxes, self.mailbox_bytes
            );
            return Err(Error::new(ErrorKind::Device, what));
        }
        Ok(Self {
            mailboxes: self.mailboxes.next_multiple_of(LINE_WORDS as u32),
            mailbox_bytes: self.mailbox_bytes.next_multiple_of(LINE_WORDS as u32),
            threads: self.threads.clamp(1, self.mailboxes as usize),
            ..self
        })
    }
}

/// Mailboxes, and the words that record which kernels may use them.
#[derive(Debug)]
pub struct Mailboxes {
    device: Device,
    settings: RingSettings,
    /// States and numbers of mailboxes, and behind them the word that ends a hold. Dropped before the pinned memory,
    /// because that waits for kernels and for copies that end holds, which write there.
    own: DeviceMemory,
    shared: Mutex<PinnedBuffer>,
    parts: Parts,
    /// For each mailbox, the number of the last request that was read.
    seen: Vec<AtomicU32>,
    free_holds: Mutex<Vec<usize>>,
}

/// All mailboxes of the process.
static ALL: Mutex<Vec<Weak<Mailboxes>>> = Mutex::new(Vec::new());

/// Whether a kernel on the device may use mailboxes of the process.
pub fn is_held(device: &Device) -> bool {
    // Dropping the last reference takes long, and must not happen under the lock.
    let all: Vec<_> = {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    (all.iter()).any(|mailboxes| mailboxes.device.is(device) && mailboxes.is_held())
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

/// A kernel's right to use mailboxes, until its stream has reached the end of the hold.
#[derive(Debug)]
pub struct Hold {
    word: usize,
}

impl Mailboxes {
    /// Empty mailboxes.
    ///
    /// # Errors
    /// Device, also if settings are invalid.
    pub fn new(device: &Device, settings: RingSettings) -> Result<Arc<Self>> {
        let settings = settings.rounded()?;
        let _current = device.make_current()?;
        let n = settings.mailboxes as usize;
        let room = n * settings.mailbox_bytes as usize;
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
        let own = DeviceMemory::new(
            device,
            MemoryUser::Views,
            (own_len + size_of::<u32>()) as u64,
        )?;
        let stream = Stream::with_staging(device)?;
        let one = 1u32.to_ne_bytes();
        // SAFETY: the memory is as long as the data written there, and the stream is waited for.
        unsafe {
            stream.fill(own.as_ptr().cast(), 0, own_len)?;
            stream.upload(own.as_ptr().wrapping_add(own_len), one.as_ptr(), one.len())?;
        }
        stream.synchronize()?;
        let mailboxes = Arc::new(Self {
            device: device.clone(),
            settings,
            shared: Mutex::new(shared),
            parts,
            seen: (0..n).map(|_| AtomicU32::default()).collect(),
            own,
            free_holds: Mutex::new((0..HOLDS).rev().collect()),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&mailboxes));
        Ok(mailboxes)
    }

    /// The settings, rounded up to the memory layout.
    pub fn settings(&self) -> RingSettings {
        self.settings
    }

    /// Pinned memory in bytes.
    pub fn pinned_bytes(&self) -> u64 {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.len() as u64
    }

    /// The mailboxes in the kernels' form.
    pub(crate) fn as_kernels_see_them(&self, changed: &ChangedSet) -> ffi::Ring {
        let states: *mut u32 = self.own.as_ptr().cast();
        ffi::Ring {
            posted: self.parts.posted.cast_mut().cast(),
            requests: self.parts.requests,
            outgoing: self.parts.outgoing,
            answered: self.parts.answered.cast(),
            answers: self.parts.answers,
            incoming: self.parts.incoming,
            states,
            numbers: states.wrapping_add(self.settings.mailboxes as usize),
            changed: changed.as_kernels_see_it(),
            timeout_ns: u64::try_from(self.settings.timeout.as_nanos()).unwrap_or(u64::MAX),
            mailboxes: self.settings.mailboxes,
            mailbox_bytes: self.settings.mailbox_bytes,
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
    pub fn hold(&self) -> Result<Hold> {
        let mut free = self.free_holds();
        if free.is_empty() {
            free.extend(self.ended_holds());
        }
        // The first words are taken first, so that `is_held` soon finds one.
        let Some(word) = free.pop() else {
            let what = format!("a view is held {HOLDS} times at most: end a hold first");
            return Err(Error::new(ErrorKind::Device, what));
        };
        self.ended()[word].store(HELD, Ordering::Release);
        Ok(Hold { word })
    }

    /// Ends a hold once a stream has reached its current end. Does not wait.
    ///
    /// # Errors
    /// Device. The hold does not end then.
    pub fn end_hold(&self, hold: Hold, stream: CallerStream) -> Result<()> {
        let word = self.parts.ended.wrapping_add(hold.word);
        let one = self.own.as_ptr();
        let one = one.wrapping_add(2 * self.settings.mailboxes as usize * size_of::<u32>());
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

    /// Whether a kernel may use the mailboxes.
    pub fn is_held(&self) -> bool {
        let mut words = self.ended().iter();
        words.any(|word| word.load(Ordering::Acquire) == HELD)
    }

    fn free_holds(&self) -> std::sync::MutexGuard<'_, Vec<usize>> {
        self.free_holds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        // SAFETY: the part has a word for each mailbox, which lives as long as this.
        unsafe { std::slice::from_raw_parts(part, self.settings.mailboxes as usize) }
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
    pub(super) fn next_number(&self, mailbox: usize) -> Option<u32> {
        let number = self.posted()[mailbox].load(Ordering::Acquire);
        let is_new = self.seen[mailbox].load(Ordering::Relaxed) != number;
        is_new.then(|| {
            self.seen[mailbox].store(number, Ordering::Relaxed);
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
    pub(super) fn request(&self, mailbox: usize) -> RingRequest {
        assert!(mailbox < self.settings.mailboxes as usize);
        // SAFETY: the place is one of the mailbox's, and every bit pattern is a request.
        unsafe { ptr::read_volatile(self.parts.requests.wrapping_add(mailbox)) }
    }

    /// Appends the first bytes of a mailbox.
    pub(super) fn append_to(&self, message: &mut Vec<u8>, mailbox: usize, len: usize) {
        let room = self.settings.mailbox_bytes as usize;
        assert!(mailbox < self.settings.mailboxes as usize && len <= room);
        message.reserve(len);
        // SAFETY: the mailbox has at least as many bytes, and the vector has room for them.
        unsafe {
            let from = self.parts.outgoing.wrapping_add(mailbox * room);
            let end = message.as_mut_ptr().wrapping_add(message.len());
            ptr::copy_nonoverlapping(from.cast_const(), end, len);
            message.set_len(message.len() + len);
        }
    }

    /// Answers a request with as much of a value as fits. Returns that length.
    pub(super) fn answer(
        &self,
        mailbox: usize,
        number: u32,
        status: u32,
        rest: &[u8],
        len: u64,
    ) -> usize {
        let room = self.settings.mailbox_bytes as usize;
        assert!(mailbox < self.settings.mailboxes as usize);
        let part = rest.len().min(room);
        let answer = RingAnswer {
            status,
            part_len: part as u32,
            len,
        };
        // SAFETY: the places are those of the mailbox, in which the device writes nothing at present.
        unsafe {
            let to = self.parts.incoming.wrapping_add(mailbox * room);
            ptr::copy_nonoverlapping(rest.as_ptr(), to, part);
            ptr::write_volatile(self.parts.answers.wrapping_add(mailbox), answer);
        }
        self.words(self.parts.answered)[mailbox].store(number, Ordering::Release);
        part
    }
}

/// States of a hold's word. 0 is one that was never used.
const HELD: u32 = 2;
const ENDED: u32 = 1;

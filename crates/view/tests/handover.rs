//! The hand-over of requests as `kernels/ring/ring.hpp` and `rockmill_cuda::Server` do it, with loom's words in place of
//! pinned memory: every order in which two requesters, two servers, an abort and time-outs can meet.
//!
//! Loom reports data that two threads access at once; the rest is asserted.

use std::sync::atomic::{AtomicUsize, Ordering as Counted};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const LEFT: u32 = 2;
const ABORTED: u32 = u32::MAX;

/// Number of polls before a time-out.
const LOOKS: usize = 2;

struct RequestSlot {
    state: AtomicU32,
    posted: AtomicU32,
    answered: AtomicU32,
    number: UnsafeCell<u32>,
    request: UnsafeCell<u32>,
    answer: UnsafeCell<u32>,
}

impl RequestSlot {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(FREE),
            posted: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            number: UnsafeCell::new(0),
            request: UnsafeCell::new(0),
            answer: UnsafeCell::new(0),
        }
    }

    /// `try_claim`.
    fn claims(&self) -> bool {
        let takes = |from| {
            (self.state)
                .compare_exchange(from, CLAIMED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        match self.state.load(Ordering::Relaxed) {
            FREE => takes(FREE),
            LEFT if takes(LEFT) => {
                // SAFETY: loom checks the accesses to the cell.
                let number = self.number.with(|number| unsafe { *number });
                if self.answered.load(Ordering::Acquire) == number {
                    return true;
                }
                self.state.store(LEFT, Ordering::Release);
                false
            }
            _ => false,
        }
    }

    /// `post_part` and `await_with_group`. Returns whether there was an answer, which must be the one to the request.
    fn asks(&self, what: u32) -> bool {
        // SAFETY: loom checks the accesses to the cell.
        let number = self.number.with_mut(|number| unsafe {
            *number += 1;
            *number
        });
        // SAFETY: as above.
        self.request.with_mut(|request| unsafe { *request = what });
        self.posted.store(number, Ordering::Release);
        for _ in 0..LOOKS {
            let answered = self.answered.load(Ordering::Acquire);
            if answered == number {
                // SAFETY: as above.
                let answer = self.answer.with(|answer| unsafe { *answer });
                assert_eq!(answer, what * 10, "the answer to another request");
                self.state.store(FREE, Ordering::Release);
                return true;
            }
            if answered == ABORTED {
                break;
            }
            thread::yield_now();
        }
        self.state.store(LEFT, Ordering::Release);
        false
    }

    /// `Server::take` and `Server::answer`, once.
    fn serves(&self, seen: &mut u32) {
        let number = self.posted.load(Ordering::Acquire);
        if number == *seen {
            return;
        }
        *seen = number;
        // SAFETY: loom checks the accesses to the cells.
        let request = self.request.with(|request| unsafe { *request });
        self.answer.with_mut(|answer| {
            // SAFETY: as above.
            unsafe { *answer = request * 10 }
        });
        self.answered.store(number, Ordering::Release);
    }
}

// SAFETY: loom checks the accesses to the cells.
unsafe impl Sync for RequestSlot {}
// SAFETY: as above.
unsafe impl Send for RequestSlot {}

/// Events in all orders together.
#[derive(Default)]
struct Seen {
    answered: AtomicUsize,
    unanswered: AtomicUsize,
    taken_over: AtomicUsize,
}

/// A request in the first slot that can be claimed.
fn request(slots: &[RequestSlot], what: u32, seen: &Seen) {
    for _ in 0..LOOKS {
        for slot in slots {
            let was_left = slot.state.load(Ordering::Relaxed) == LEFT;
            if !slot.claims() {
                continue;
            }
            let count = match slot.asks(what) {
                true => &seen.answered,
                false => &seen.unanswered,
            };
            count.fetch_add(1, Counted::Relaxed);
            if was_left {
                seen.taken_over.fetch_add(1, Counted::Relaxed);
            }
            return;
        }
        thread::yield_now();
    }
}

/// Runs requesters, each with some requests, and a server for each slot. Returns the events.
fn check(slots: usize, requesters: u32, requests: u32, has_abort: bool) -> std::sync::Arc<Seen> {
    let seen = std::sync::Arc::new(Seen::default());
    let all = std::sync::Arc::clone(&seen);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let all = std::sync::Arc::clone(&all);
        let shared: Arc<Vec<RequestSlot>> =
            Arc::new((0..slots).map(|_| RequestSlot::new()).collect());
        let mut threads = Vec::new();
        for requester in 1..=requesters {
            let (shared, all) = (Arc::clone(&shared), std::sync::Arc::clone(&all));
            threads.push(thread::spawn(move || {
                for number in 0..requests {
                    request(&shared, requester + 100 * number, &all);
                }
            }));
        }
        for server in 1..slots {
            let shared = Arc::clone(&shared);
            threads.push(thread::spawn(move || {
                shared[server].serves(&mut 0);
            }));
        }
        // The first server is this thread. Closing aborts first, and again when no server is left.
        let abort = || {
            if has_abort {
                for slot in shared.iter() {
                    slot.answered.store(ABORTED, Ordering::Release);
                }
            }
        };
        let mut last = 0;
        shared[0].serves(&mut last);
        abort();
        thread::yield_now();
        shared[0].serves(&mut last);
        for thread in threads {
            thread.join().expect("no thread panics");
        }
        abort();
    });
    seen
}

fn count(of: &AtomicUsize) -> usize {
    of.load(Counted::Relaxed)
}

#[test]
fn two_requesters_share_a_request_slot_and_no_late_answer_is_used() {
    let seen = check(1, 2, 1, false);
    assert!(count(&seen.answered) > 0 && count(&seen.unanswered) > 0);
    assert!(count(&seen.taken_over) > 0, "nobody took what was left");
}

#[test]
fn two_servers_answer_two_requesters() {
    let seen = check(2, 2, 1, false);
    assert!(count(&seen.answered) > 0 && count(&seen.unanswered) > 0);
}

#[test]
fn a_requester_posts_twice_while_the_ring_is_aborted() {
    let seen = check(1, 1, 2, true);
    assert!(count(&seen.answered) > 0 && count(&seen.unanswered) > 0);
}

#[test]
fn two_requesters_meet_an_abort() {
    let seen = check(1, 2, 1, true);
    assert!(count(&seen.answered) > 0 && count(&seen.unanswered) > 0);
}

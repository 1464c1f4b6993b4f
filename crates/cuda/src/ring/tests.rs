//! For any bytes that a device writes into slots, a server neither panics nor reads other slots, and answers
//! once.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;
use crate::driver::ffi::{Ring, RingAnswer, RingRequest};
use crate::driver::{Device, Target};
use crate::resident::TableSettings;

const SLOTS: usize = 48;
const ROOM: usize = 32;

/// The server's slots.
const RANGE: std::ops::Range<usize> = 16..32;

/// An action of the device.
#[derive(Debug, Clone)]
enum Post {
    /// Writes any bytes and posts them under the next number, or under any.
    Any {
        request: RingRequest,
        number: Option<u32>,
    },
    /// Posts a request in parts as `ring.hpp` does, except for one change.
    Whole {
        operation: u32,
        key: Vec<u8>,
        value: Vec<u8>,
        capacity: u64,
        change: Option<(usize, usize, u64)>,
    },
}

/// Numbers, most of them near limits.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..200u64,
        (0..8u64).prop_map(|n| n * ROOM as u64),
        any::<u32>().prop_map(u64::from),
        (0..40u64).prop_map(|n| u64::from(u32::MAX) - 20 + n),
        (0..40u64).prop_map(|n| u64::MAX - n),
        any::<u64>(),
    ]
}

fn post() -> impl Strategy<Value = Post> {
    let operation = prop_oneof![4 => 0..7u32, 1 => any::<u32>()];
    let fields = (operation, number(), number(), number(), number(), number());
    let any_post = (fields, option::of(any::<u32>())).prop_map(|(fields, number)| {
        let (operation, key_len, value_len, capacity, at, part_len) = fields;
        let request = RingRequest {
            operation,
            key_len: key_len as u32,
            value_len,
            version: capacity,
            capacity,
            at,
            part_len,
        };
        Post::Any { request, number }
    });
    let bytes = || vec(any::<u8>(), 0..100);
    let change = option::of((0..8usize, 0..7usize, number()));
    let whole = (1..5u32, bytes(), bytes(), number(), change);
    let whole = whole.prop_map(|(operation, key, value, capacity, change)| Post::Whole {
        operation,
        key,
        value,
        capacity,
        change,
    });
    prop_oneof![1 => any_post, 2 => whole]
}

/// A key and a value.
type Message = (Vec<u8>, Vec<u8>);

/// The side of the device.
struct Requester {
    ring: Ring,
}

impl Requester {
    fn word(&self, words: *const u32, slot: usize) -> &AtomicU32 {
        // SAFETY: there is a word for each slot, as long as these.
        unsafe { &*words.wrapping_add(slot).cast() }
    }

    /// Returns the number that the request was posted under.
    fn post(&self, slot: usize, request: RingRequest, bytes: &[u8], number: Option<u32>) -> u32 {
        let posted = self.word(self.ring.posted, slot);
        let next = posted.load(Ordering::Relaxed).wrapping_add(1);
        let number = number.unwrap_or(next);
        // SAFETY: these are places of the slot, and no server looks at them now.
        unsafe {
            let to = self.ring.outgoing.wrapping_add(slot * ROOM);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len().min(ROOM));
            ptr::write(self.ring.requests.wrapping_add(slot), request);
        }
        posted.store(number, Ordering::Release);
        number
    }

    /// The answered number, the answer, and all bytes of values.
    fn answer(&self, slot: usize) -> (u32, RingAnswer, [u8; ROOM]) {
        let number = self.word(self.ring.answered, slot).load(Ordering::Acquire);
        // SAFETY: these are places of the slot, and no server writes there now.
        unsafe {
            let incoming = self.ring.incoming.wrapping_add(slot * ROOM);
            (
                number,
                ptr::read(self.ring.answers.wrapping_add(slot)),
                ptr::read(incoming.cast()),
            )
        }
    }
}

/// A request with one number changed.
fn changed(request: RingRequest, field: usize, value: u64) -> RingRequest {
    let mut request = request;
    match field {
        0 => request.operation = value as u32,
        1 => request.key_len = value as u32,
        2 => request.value_len = value,
        3 => request.version = value,
        4 => request.capacity = value,
        5 => request.at = value,
        _ => request.part_len = value,
    }
    request
}

/// Lets the server read a slot's request once, and checks its answer. `value` is the result of a get. Returns the
/// key and the value of the request if it was complete.
fn serve(
    server: &mut Server,
    requester: &Requester,
    slot: usize,
    request: RingRequest,
    value: &[u8],
) -> Result<Option<Message>, TestCaseError> {
    let number = requester
        .word(requester.ring.posted, slot)
        .load(Ordering::Relaxed);
    let (taken, has_posted) = server.take();
    let mut message = None;
    if taken > 0 {
        prop_assert!(has_posted && taken == 1);
        let request = server.request(0);
        message = Some((request.key.to_vec(), request.value.to_vec()));
        server.answer(0, Status::Found, value);
        let first = requester.answer(slot);
        server.answer(0, Status::IoError, b"another answer");
        let (answered, answer, bytes) = requester.answer(slot);
        prop_assert_eq!((answered, bytes), (first.0, first.2), "answered twice");
        prop_assert_eq!(answer.status, first.1.status, "answered twice");
    }
    if has_posted {
        let (answered, answer, bytes) = requester.answer(slot);
        prop_assert_eq!(answered, number);
        prop_assert!(answer.part_len as usize <= ROOM && u64::from(answer.part_len) <= answer.len);
        let is_too_large = request.operation != 5 && request.value_len > u64::from(u32::MAX);
        prop_assert!(!is_too_large || answer.status == Status::IoError as u32);
        if taken > 0 && value.len() as u64 <= request.capacity {
            prop_assert_eq!(answer.status, Status::Found as u32);
            prop_assert_eq!(
                &bytes[..value.len().min(ROOM)],
                &value[..value.len().min(ROOM)]
            );
        } else if taken > 0 {
            prop_assert_eq!(answer.status, Status::TooSmall as u32);
            prop_assert_eq!(answer.part_len, 0);
        }
    }
    let (again, has_more) = server.take();
    prop_assert!(again == 0 && !has_more, "looked at twice");
    Ok(message)
}

fn check(posts: &[(usize, Post)]) -> Result<(), TestCaseError> {
    let device = Device::open(Target::Host).expect("the host");
    let settings = RingSettings {
        request_slots: SLOTS as u32,
        request_slot_bytes: ROOM as u32,
        timeout: Duration::from_secs(1),
        threads: 1,
    };
    let queue = RequestQueue::new(&device, settings).expect("a queue");
    let given = TableSettings {
        keys: 1,
        memory_bytes: u64::MAX,
        reservation: None,
        seed: 1,
        hash_mask: u64::MAX,
        outside: &[],
    };
    let table = DeviceTable::new(&device, &given).expect("a table");
    let set = ChangedSet::new(&table, 1).expect("a set");
    let requester = Requester {
        ring: queue.kernel_form(&set),
    };
    let mut server = Server::new(queue, RANGE);
    for (slot, post) in posts {
        let slot = *slot;
        match post {
            Post::Any { request, number } => {
                requester.post(slot, *request, &[0xee; ROOM], *number);
                serve(&mut server, &requester, slot, *request, &[1; 3 * ROOM])?;
            }
            Post::Whole {
                operation,
                key,
                value,
                capacity,
                change,
            } => {
                let mut message = key.clone();
                if !value.is_empty() {
                    message.resize(key.len().next_multiple_of(16), 0);
                    message.extend_from_slice(value);
                }
                let mut taken = None;
                let parts = message.len().div_ceil(ROOM).max(1);
                for part in 0..parts {
                    let at = part * ROOM;
                    let bytes = &message[at..message.len().min(at + ROOM)];
                    let request = RingRequest {
                        operation: *operation,
                        key_len: key.len() as u32,
                        value_len: value.len() as u64,
                        version: 7,
                        capacity: *capacity,
                        at: at as u64,
                        part_len: bytes.len() as u64,
                    };
                    let request = match *change {
                        Some((of, field, to)) if of == part => changed(request, field, to),
                        _ => request,
                    };
                    requester.post(slot, request, bytes, None);
                    taken = serve(&mut server, &requester, slot, request, &message)?;
                    prop_assert!(change.is_some() || taken.is_some() == (part + 1 == parts));
                }
                if change.is_none() {
                    let (found_key, found_value) = taken.expect("it was complete");
                    prop_assert_eq!((&found_key, &found_value), (key, value));
                    let mut at = ROOM.min(message.len());
                    while message.len() as u64 <= *capacity && at < message.len() {
                        let request = RingRequest {
                            operation: 5,
                            at: at as u64,
                            ..RingRequest::default()
                        };
                        requester.post(slot, request, &[], None);
                        serve(&mut server, &requester, slot, request, &[])?;
                        let (_, answer, bytes) = requester.answer(slot);
                        let len = ROOM.min(message.len() - at);
                        prop_assert_eq!(answer.part_len as usize, len);
                        prop_assert_eq!(&bytes[..len], &message[at..at + len]);
                        at += len;
                    }
                }
            }
        }
    }
    for other in (0..SLOTS).filter(|at| !RANGE.contains(at)) {
        let (number, answer, bytes) = requester.answer(other);
        prop_assert_eq!((number, answer.status, answer.len), (0, 0, 0));
        prop_assert_eq!(bytes, [0; ROOM]);
    }
    Ok(())
}

#[test]
fn a_server_answers_anything_that_a_device_posts() {
    let mut config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().build_hasher().finish());
    }
    if let RngSeed::Fixed(seed) = config.rng_seed {
        println!("PROPTEST_RNG_SEED={seed}");
    }
    let posts = vec((RANGE, post()), 1..60);
    let checked = TestRunner::new(config).run(&posts, |posts| check(&posts));
    // The message has the smallest failing case.
    checked.unwrap_or_else(|error| panic!("{error}"));
}

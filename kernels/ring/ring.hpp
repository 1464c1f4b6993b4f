// Requests of device threads, which host threads answer. A request lies in a slot of pinned memory.
//
//   requester                                   host
//   claims a slot (device memory)
//   writes the request and its bytes
//   posted[m] = number             ------->     sees a number that it has not answered
//                                               writes the answer and its bytes
//   sees its number                <-------     answered[m] = number
//   copies the bytes, frees the slot
//
// Each word that both sides read has one writer, so no atomic operation crosses the bus. A requester whose wait has
// ended leaves its slot behind; once it is answered, the next requester takes it. So a late answer does not write to
// memory of a later user. Keys and values that do not fit into a slot are sent in parts.
#pragma once

#include "../common/atomic.hpp"
#include "../view/probe.hpp"

namespace rockmill::ROCKMILL_TARGET {

enum RingOperation : u32 {
  // The value of a key in a version.
  RING_GET = 1,
  // The current value of a key.
  RING_GET_LATEST = 2,
  RING_PUT = 3,
  RING_DELETE = 4,
  // More of a requested value.
  RING_REST = 5,
};

// Owner of a slot.
enum SlotState : u32 { SLOT_FREE = 0, SLOT_CLAIMED = 1, SLOT_LEFT = 2 };

// Written in place of all numbers after the host has stopped answering.
constexpr u32 RING_ABORTED = ~u32{0};

// Slots that a thread checks before it pauses.
constexpr u32 SLOTS_AT_ONCE = 64;

// Pauses of a thread without a slot between two reads of the host's memory. Frequent reads by many threads would
// saturate the bus.
constexpr u32 RESTS_BETWEEN_LOOKS = 16;

// Minimum and maximum pause of a waiting thread. In between it is a part of the time waited so far, so that many long
// waits do not saturate the bus.
constexpr u32 MIN_REST_NS = 100, MAX_REST_NS = 100'000, REST_SHARE = 8;

// A request that was posted.
struct Posted {
  u32 slot;
  u32 number;
};

ROCKMILL_HD void rest_after(u64 waited_ns) {
  const u64 part = waited_ns / REST_SHARE;
  sleep_ns(part < MIN_REST_NS ? MIN_REST_NS : part > MAX_REST_NS ? MAX_REST_NS : u32(part));
}

ROCKMILL_HD bool try_claim(const Ring& ring, u32 slot) {
  u32* state = ring.states + slot;
  const u32 before = load_relaxed(state);
  if (before == SLOT_FREE) return acquire_word(state, SLOT_FREE, SLOT_CLAIMED);
  if (before != SLOT_LEFT || !acquire_word(state, SLOT_LEFT, SLOT_CLAIMED)) return false;
  if (acquire_of_system(ring.answered + slot) == ring.numbers[slot]) return true;
  release_word(state, SLOT_LEFT);
  return false;
}

// Claims a slot for a thread. If all are taken, it waits for one only with `may_wait`.
ROCKMILL_HD KeyStatus claim_slot(const Ring& ring, bool may_wait, u32* slot) {
  const u64 start = clock_ns();
  u32 next = u32(fold(start ^ PRIME64_2, thread_mark() ^ PRIME64_1) % ring.slots);
  for (u32 looked = 0, rests = 0;; ++rests) {
    for (u32 i = 0; i < SLOTS_AT_ONCE; ++i, ++looked) {
      if (try_claim(ring, next)) {
        *slot = next;
        return KEY_FOUND;
      }
      next = next + 1 < ring.slots ? next + 1 : 0;
    }
    if (rests % RESTS_BETWEEN_LOOKS == 0 && acquire_of_system(ring.answered) == RING_ABORTED) return KEY_ABORTED;
    if (!may_wait && looked >= ring.slots) return KEY_BUSY;
    const u64 waited = clock_ns() - start;
    if (waited > ring.timeout_ns) return KEY_TIMED_OUT;
    if (may_wait) rest_after(waited);
  }
}

// Posts a part of a request; called by rank 0 after all ranks have written its bytes.
ROCKMILL_HD Posted post_part(const Ring& ring, u32 slot, const RingRequest& request) {
  u32 number = ring.numbers[slot] + 1;
  // No request is posted under 0.
  if (number == 0 || number == RING_ABORTED) number = 1;
  ring.numbers[slot] = number;
  ring.requests[slot] = request;
  release_to_system(ring.posted + slot, number);
  return {slot, number};
}

// Waits until a request is answered: KEY_FOUND, or the reason why it will not be.
ROCKMILL_HD KeyStatus await_answer(const Ring& ring, Posted posted) {
  const u64 start = clock_ns();
  for (;;) {
    const u32 answered = acquire_of_system(ring.answered + posted.slot);
    if (answered == posted.number) return KEY_FOUND;
    if (answered == RING_ABORTED) return KEY_ABORTED;
    const u64 waited = clock_ns() - start;
    if (waited > ring.timeout_ns) return KEY_TIMED_OUT;
    rest_after(waited);
  }
}

// The same for a whole group, which leaves the slot behind if there is no answer.
template <class G>
ROCKMILL_HD KeyStatus await_with_group(const G& g, const Ring& ring, Posted posted) {
  u32 status = 0;
  if (g.rank() == 0) {
    status = await_answer(ring, posted);
    if (status != KEY_FOUND) release_word(ring.states + posted.slot, SLOT_LEFT);
  }
  status = g.shuffle(status, 0);
  g.sync();
  return KeyStatus(status);
}

// A request of a caller.
struct RingCall {
  RingOperation operation;
  u32 key_len;
  const u8* key;
  const u8* value;
  u64 value_len;
  u64 version;
  u64 capacity;
};

// Start of the value in the bytes of a request.
ROCKMILL_HD u64 request_value_at(u64 key_len) { return record_units_bytes(key_len); }

// Copies the bytes of a request from `at` on.
template <class G>
ROCKMILL_HD void copy_request(const G& g, u8* to, const RingCall& call, u64 at, u64 len) {
  const u64 value_at = request_value_at(call.key_len), end = at + len;
  if (at < call.key_len) copy_bytes(g, to, call.key + at, (end < call.key_len ? end : call.key_len) - at);
  const u64 from = at > value_at ? at : value_at;
  if (from < end) copy_value(g, to + (from - at), call.value + (from - value_at), end - from);
}

// Posts a request without waiting for its last part: KEY_FOUND, or the reason why it was not posted.
template <class G>
ROCKMILL_HD KeyStatus post_request(const G& g, const Ring& ring, const RingCall& call, bool may_wait, Posted* posted) {
  u32 slot = 0, status = 0;
  if (g.rank() == 0) status = claim_slot(ring, may_wait, &slot);
  status = g.shuffle(status, 0);
  if (status != KEY_FOUND) return KeyStatus(status);
  slot = g.shuffle(slot, 0);
  const u64 len = call.value_len == 0 ? call.key_len : request_value_at(call.key_len) + call.value_len;
  for (u64 at = 0;;) {
    const u64 part_len = len - at < ring.slot_bytes ? len - at : ring.slot_bytes;
    copy_request(g, ring.outgoing + u64(slot) * ring.slot_bytes, call, at, part_len);
    g.sync();
    u32 number = 0;
    if (g.rank() == 0) {
      const RingRequest request{call.operation, call.key_len,  call.value_len, call.version,
                                call.capacity,  at,            part_len};
      number = post_part(ring, slot, request).number;
    }
    *posted = {slot, g.shuffle(number, 0)};
    at += part_len;
    if (at == len) return KEY_FOUND;
    const KeyStatus answered = await_with_group(g, ring, *posted);
    if (answered != KEY_FOUND) return answered;
    // The host accepts the next part, or has refused the request.
    const u32 said = ring.answers[slot].status;
    g.sync();
    if (said == KEY_FOUND) continue;
    if (g.rank() == 0) release_word(ring.states + slot, SLOT_FREE);
    return KeyStatus(said);
  }
}

struct RingResult {
  KeyStatus status;
  u32 len;
};

// Waits for the answer to a request and copies its value, for which there is room if the host sends it.
template <class G>
ROCKMILL_HD RingResult take_answer(const G& g, const Ring& ring, Posted posted, u8* buffer) {
  KeyStatus status = await_with_group(g, ring, posted);
  if (status != KEY_FOUND) return {status, 0};
  const u32 slot = posted.slot;
  const RingAnswer* answer = ring.answers + slot;
  status = KeyStatus(answer->status);
  const u64 len = answer->len;
  for (u64 at = 0; status == KEY_FOUND && at < len;) {
    // An empty part would repeat forever.
    if (answer->part_len == 0 || answer->part_len > len - at) {
      status = KEY_IO_ERROR;
      break;
    }
    copy_value(g, buffer + at, ring.incoming + u64(slot) * ring.slot_bytes, answer->part_len);
    at += answer->part_len;
    if (at == len) break;
    g.sync();
    u32 number = 0;
    if (g.rank() == 0) number = post_part(ring, slot, {RING_REST, 0, 0, 0, 0, at, 0}).number;
    posted.number = g.shuffle(number, 0);
    const KeyStatus answered = await_with_group(g, ring, posted);
    if (answered != KEY_FOUND) return {answered, 0};
    status = KeyStatus(answer->status);
  }
  g.sync();
  if (g.rank() == 0) release_word(ring.states + slot, SLOT_FREE);
  return {status, u32(len)};
}

}  // namespace rockmill::ROCKMILL_TARGET

// Gets, puts and deletes in kernels: requests that the table cannot answer are sent to the host.
#pragma once

#include "changed.hpp"
#include "ring.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Version of KvRecord and its parts. A program and the library must have the same.
constexpr u32 KV_ABI = 2;

// A request for which its owner has yet to wait.
struct KvTicket {
  KeyStatus status;
  Posted posted;
  u8* buffer;
};

// Copies a found value, if there is room.
template <class G>
ROCKMILL_HD RingResult copy_found(const G& g, const FoundValue& found, u8* buffer, u32 capacity) {
  if (found.status == KEY_FOUND && found.len > capacity) return {KEY_TOO_SMALL, found.len};
  if (found.status == KEY_FOUND) copy_value(g, buffer, found.data, found.len);
  return {found.status, found.len};
}

// The functions that a kernel calls. All lanes of a group call together, with the same arguments; groups of a warp are
// independent.
struct Kv : KvRecord {
  // The value in place, which stays there as long as the view is held. KEY_NEEDS_HOST: only `get` finds it.
  template <class G>
  ROCKMILL_HD FoundValue find_in(const G& g, const u8* key, u32 len) const {
    if (ring.slots != 0 && is_changed_for(g, key, len)) return {KEY_NEEDS_HOST, 0, nullptr};
    return find_key(g, table, key, len);
  }

  // Copies the value to `buffer`. If there is too little room, only the length is returned.
  template <class G>
  ROCKMILL_HD RingResult get_in(const G& g, const u8* key, u32 len, u8* buffer, u32 capacity) const {
    const bool can_ask = ring.slots != 0, has_changed = can_ask && is_changed_for(g, key, len);
    if (!has_changed) {
      const RingResult found = copy_found(g, find_key(g, table, key, len), buffer, capacity);
      if (found.status != KEY_NEEDS_HOST || !can_ask) return found;
    }
    const RingOperation operation = has_changed ? RING_GET_LATEST : RING_GET;
    const RingCall call{operation, len, key, nullptr, 0, version, capacity};
    Posted posted;
    const KeyStatus status = post_request(g, ring, call, num_tickets == 0, &posted);
    if (status != KEY_FOUND) return {status, 0};
    return take_answer(g, ring, posted, buffer);
  }

  template <class G>
  ROCKMILL_HD KvTicket get_latest_in(const G& g, const u8* key, u32 len, u8* buffer, u32 capacity) {
    return request(g, {RING_GET_LATEST, len, key, nullptr, 0, version, capacity}, buffer);
  }

  template <class G>
  ROCKMILL_HD KvTicket put_in(const G& g, const u8* key, u32 len, const u8* value, u32 value_len) {
    return write(g, {RING_PUT, len, key, value, value_len, version, 0});
  }

  template <class G>
  ROCKMILL_HD KvTicket del_in(const G& g, const u8* key, u32 len) {
    return write(g, {RING_DELETE, len, key, nullptr, 0, version, 0});
  }

  template <class G>
  ROCKMILL_HD RingResult wait_in(const G& g, const KvTicket& ticket) {
    if (ticket.status != KEY_FOUND) return {ticket.status, 0};
    --num_tickets;
    if (last_slot == ticket.posted.slot) last_number = 0;
    return take_answer(g, ring, ticket.posted, ticket.buffer);
  }

 private:
  // Once for the whole group: other threads add keys meanwhile, so lanes might see different sets.
  template <class G>
  ROCKMILL_HD bool is_changed_for(const G& g, const u8* key, u32 len) const {
    return g.any(is_changed(ring.changed, key, len));
  }

  template <class G>
  ROCKMILL_HD KvTicket request(const G& g, const RingCall& call, u8* buffer) {
    KvTicket ticket{KEY_READ_ONLY, {0, 0}, buffer};
    if (ring.slots == 0) return ticket;
    ticket.status = post_request(g, ring, call, num_tickets == 0, &ticket.posted);
    if (ticket.status == KEY_FOUND) ++num_tickets;
    return ticket;
  }

  template <class G>
  ROCKMILL_HD KvTicket write(const G& g, const RingCall& call) {
    // Other host threads may answer later requests first, so a group posts writes one by one.
    if (last_number != 0) {
      u32 status = 0;
      if (g.rank() == 0) status = await_answer(ring, {last_slot, last_number});
      status = g.shuffle(status, 0);
      if (status != KEY_FOUND) return {KeyStatus(status), {0, 0}, nullptr};
    }
    // Before it is posted, so that a thread that knows of the write does not find the older value.
    if (ring.slots != 0 && g.rank() == 0) add_changed(ring.changed, call.key, call.key_len);
    const KvTicket ticket = request(g, call, nullptr);
    if (ticket.status == KEY_FOUND) {
      last_slot = ticket.posted.slot;
      last_number = ticket.posted.number;
    }
    return ticket;
  }
};

static_assert(sizeof(Kv) == sizeof(KvRecord), "the host passes a record where kernels take this");

}  // namespace rockmill::ROCKMILL_TARGET

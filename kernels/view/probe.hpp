// Finds a key in a resident table, with a group of any width.
#pragma once

#include "../common/atomic.hpp"
#include "record.hpp"
#include "slots.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Result for a key.
enum KeyStatus : u8 {
  KEY_NOT_FOUND = 0,
  KEY_FOUND = 1,
  // The table cannot answer: RocksDB must be asked.
  KEY_NEEDS_HOST = 2,
  // There is no room for the value.
  KEY_TOO_SMALL = 3,
  // The others come only from a ring. The database accepted a write.
  KEY_WRITTEN = 4,
  // Nothing was done: all slots are taken, or RocksDB stalls writes.
  KEY_BUSY = 5,
  // Nothing was done: the view does not write to the database.
  KEY_READ_ONLY = 6,
  // The view is being closed. A write may have happened.
  KEY_ABORTED = 7,
  // There was no answer in time. A write may have happened.
  KEY_TIMED_OUT = 8,
  // RocksDB could not read or write. The host has the cause.
  KEY_IO_ERROR = 9,
  // RocksDB has found damaged data. The host has the place.
  KEY_CORRUPT = 10,
};

struct FoundValue {
  KeyStatus status;
  u32 len;
  // Aligned to 16 bytes; null unless the key was found.
  const u8* data;
};

struct alignas(16) SlotPair {
  u64 slots[2];
};

constexpr u32 BUCKET_PAIRS = BUCKET_SLOTS / 2;

// Bytes of a read of device memory, and bytes behind a record's first ones that are read before they are needed. Memory
// of records continues for as many bytes.
constexpr u32 SECTOR = 32, FETCHED_AHEAD = 128;

// Order of a key and a bound: negative, 0, positive.
ROCKMILL_HD int compare_to_bound(const u8* key, u32 len, const u8* bound, u64 bound_len) {
  for (u64 i = 0; i < len && i < bound_len; ++i)
    if (key[i] != bound[i]) return key[i] < bound[i] ? -1 : 1;
  return len < bound_len ? -1 : len > bound_len;
}

// Whether the key lies in one of the ranges.
ROCKMILL_HD bool is_in(const KeyRanges& ranges, const u8* key, u32 len) {
  u64 from = 0, to = ranges.num_bounds;
  while (from < to) {
    const u64 middle = from + (to - from) / 2;
    const u64 start = middle == 0 ? 0 : ranges.ends[middle - 1];
    const u8* bound = ranges.bytes + start;
    if (compare_to_bound(key, len, bound, ranges.ends[middle] - start) < 0) to = middle;
    else from = middle + 1;
  }
  return from % 2 == 1;
}

// The slot of a key's record, if there is one.
struct FoundSlot {
  // Null if there is none.
  const u8* record;
  // Number of the slot.
  u64 slot;
};

// Finds the record of a key, which is the same for the whole group. Slots are never emptied, so a run ends at a bucket
// with an empty one.
template <class G>
ROCKMILL_HD FoundSlot find_slot(const G& g, const ResidentTable& table, u64 hash, const u8* key, u32 len) {
  u64 bucket = first_bucket(table, hash);
  for (u32 left = run_buckets(table); left > 0; --left, bucket = next_bucket(table, bucket)) {
    const SlotPair* pairs = reinterpret_cast<const SlotPair*>(table.slots + bucket * BUCKET_SLOTS);
    bool ends = false;
ROCKMILL_UNROLL
    for (u32 first = 0; first < BUCKET_PAIRS; first += g.width) {
      const bool has_pair = first + g.rank() < BUCKET_PAIRS;
      const SlotPair pair = has_pair ? pairs[first + g.rank()] : SlotPair{};
ROCKMILL_UNROLL
      for (u32 i = 0; i < 2; ++i) {
        const u64 own = pair.slots[i];
        const bool is_empty = own == EMPTY_SLOT;
        ends |= has_pair && is_empty;
        for (u32 lanes = g.ballot(!is_empty && slot_may_be(own, hash)); lanes != 0; lanes &= lanes - 1) {
          const u32 lane = lowest_bit(lanes);
          const u64 address = g.shuffle(own, lane) & SLOT_ADDRESS;
          if (address == GONE_ADDRESS) continue;
          const u8* record = reinterpret_cast<const u8*>(address * RECORD_UNIT);
          // The bytes behind the key are needed next, and hashes are hardly ever equal by chance.
          if (g.rank() < FETCHED_AHEAD / SECTOR) fetch_ahead(record + SECTOR * (1 + g.rank()));
          if (record_has_key(g, record, key, len)) return {record, bucket * BUCKET_SLOTS + 2 * (first + lane) + i};
        }
      }
    }
    if (g.any(ends)) break;
  }
  return {nullptr, 0};
}

// Finds the value of a key, which is the same for the whole group.
template <class G>
ROCKMILL_HD FoundValue find_key(const G& g, const ResidentTable& table, const u8* key, u32 len) {
  const FoundSlot found = find_slot(g, table, key_hash(table, key, len), key, len);
  if (found.record != nullptr) {
    const u32 value_len = reinterpret_cast<const RecordHead*>(found.record)->value_len;
    if (value_len == NEEDS_HOST_VALUE) return {KEY_NEEDS_HOST, 0, nullptr};
    return {KEY_FOUND, value_len, found.record + record_value_at(len)};
  }
  return {is_in(table.outside, key, len) ? KEY_NEEDS_HOST : KEY_NOT_FOUND, 0, nullptr};
}

}  // namespace rockmill::ROCKMILL_TARGET

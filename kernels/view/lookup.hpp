// The values of many keys, each into a row of its own.
#pragma once

#include "../common/exec.hpp"
#include "../ring/kv.hpp"

namespace rockmill::ROCKMILL_TARGET {

// ASKS: what the table does not tell is asked through the ring. Without, far fewer registers are taken.
template <bool ASKS>
struct LookUp {
  Kv kv;
  const u8* keys;
  // Null if all keys have `key_bytes` bytes. Else the beginning of each key, and the end of the last, within
  // `key_bytes` bytes.
  const u64* key_offsets;
  u64 key_bytes;
  // A row each `stride` bytes. Bytes behind a value stay as they are, and so do rows without one.
  u8* rows;
  u64 stride;
  // For keys that were not found; may be null.
  const u8* default_row;
  u8* statuses;
  // Sizes of the values, also of those without room; may be null.
  u32* sizes;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const u64 start = key_offsets == nullptr ? i * key_bytes : key_offsets[i];
    const u64 end = key_offsets == nullptr ? start + key_bytes : key_offsets[i + 1];
    const u64 len = end - start;
    const bool is_inside = start <= end && (key_offsets == nullptr || end <= key_bytes);
    u8* row = rows + i * stride;
    const u32 room = stride < u32(-1) ? u32(stride) : u32(-1);
    // No key is longer, or lies outside.
    RingResult got{KEY_NOT_FOUND, 0};
    if (!is_inside || len > u32(-1)) {
    } else if constexpr (ASKS) {
      got = kv.get_in(g, keys + start, u32(len), row, room);
    } else {
      got = copy_found(g, find_key(g, kv.table, keys + start, u32(len)), row, room);
    }
    if (got.status == KEY_NOT_FOUND && default_row != nullptr) copy_value(g, row, default_row, stride);
    if (g.rank() != 0) return;
    statuses[i] = got.status;
    if (sizes != nullptr) sizes[i] = got.len;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

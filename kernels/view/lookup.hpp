// The values of many keys, each into a row of its own.
#pragma once

#include "../common/exec.hpp"
#include "probe.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct LookUp {
  ResidentTable table;
  const u8* keys;
  // Null if all keys are of `key_bytes`; else where each begins, and the last one ends.
  const u64* key_offsets;
  u64 key_bytes;
  // A row each `stride` bytes. What lies behind a value stays as it is, and so do rows without one.
  u8* rows;
  u64 stride;
  // For keys that were not found; may be null.
  const u8* default_row;
  u8* statuses;
  // Of the values, also of those without room; may be null.
  u32* sizes;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const u64 start = key_offsets == nullptr ? i * key_bytes : key_offsets[i];
    const u64 len = key_offsets == nullptr ? key_bytes : key_offsets[i + 1] - start;
    // No key is longer. Offsets that descend look like it.
    FoundValue found{KEY_NOT_FOUND, 0, nullptr};
    if (len <= u32(-1)) found = find_key(g, table, keys + start, u32(len));
    if (found.status == KEY_FOUND && found.len > stride) found.status = KEY_TOO_SMALL;
    u8* row = rows + i * stride;
    if (found.status == KEY_FOUND) copy_value(g, row, found.data, found.len);
    if (found.status == KEY_NOT_FOUND && default_row != nullptr) copy_value(g, row, default_row, stride);
    if (g.rank() != 0) return;
    statuses[i] = found.status;
    if (sizes != nullptr) sizes[i] = found.len;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

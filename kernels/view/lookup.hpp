// The values of many keys, each into its own row.
#pragma once

#include "../common/exec.hpp"
#include "../ring/kv.hpp"
#include "ids.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Zeroes the bytes of a row from `from` on with the whole group, 16 at a time if the row is aligned to them.
template <class G>
ROCKMILL_HD void zero_rest(const G& g, u8* row, u64 from, u64 bytes) {
  const bool is_aligned = reinterpret_cast<u64>(row) % RECORD_UNIT == 0;
  const u64 first = is_aligned && record_units_bytes(from) < bytes ? record_units_bytes(from) : bytes;
  const u64 last = first < bytes ? bytes / RECORD_UNIT * RECORD_UNIT : bytes;
  for (u64 i = from + g.rank(); i < first; i += g.width) row[i] = 0;
  RecordWords* words = reinterpret_cast<RecordWords*>(row);
  for (u64 i = first / RECORD_UNIT + g.rank(); i < last / RECORD_UNIT; i += g.width) words[i] = {0, 0};
  for (u64 i = last + g.rank(); i < bytes; i += g.width) row[i] = 0;
}

// ASKS: requests for keys that the table cannot answer go through the ring. Without it, far fewer registers are needed.
// OF_IDS: keys are integers, which `form` describes.
template <bool ASKS, bool OF_IDS>
struct LookUp {
  Kv kv;
  const u8* keys;
  // Null if all keys have `key_bytes` bytes. Else the start of each key, and the end of the last, within `key_bytes`
  // bytes.
  const u64* key_offsets;
  u64 key_bytes;
  // Rows at a distance of `stride` bytes. Bytes behind a value stay unchanged, and so do rows without one.
  u8* rows;
  u64 stride;
  // Row for keys that were not found; may be null.
  const u8* default_row;
  // The status of each key; null if `found` tells enough.
  u8* statuses;
  // Sizes of the values, also of those without room; may be null.
  u32* sizes;
  // Whether each key was found, as 0 or 1; may be null.
  u8* found;
  // Memory of the host. It gets the status of a key that was looked up without an answer; may be null.
  u32* unanswered;
  IdForm form;
  // Of LookupOption.
  u32 options;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    u8* row = rows + i * stride;
    RingResult got{KEY_NOT_FOUND, 0};
    if constexpr (OF_IDS) {
      u64 key[ID_KEY_ROOM / sizeof(u64)];
      const u32 len = key_of_id(form, keys + i * form.id_bytes, key);
      if (len != 0) got = get(g, reinterpret_cast<const u8*>(key), len, row);
    } else {
      const u64 start = key_offsets == nullptr ? i * key_bytes : key_offsets[i];
      const u64 end = key_offsets == nullptr ? start + key_bytes : key_offsets[i + 1];
      const u64 len = end - start;
      const bool is_inside = start <= end && (key_offsets == nullptr || end <= key_bytes);
      // No longer keys exist, nor keys outside the range.
      if (is_inside && len <= u32(-1)) got = get(g, keys + start, u32(len), row);
    }
    if (got.status == KEY_NOT_FOUND && default_row != nullptr) copy_value(g, row, default_row, stride);
    // Bytes that other lanes have copied are left alone.
    else if ((options & LOOKUP_CLEARS) != 0) zero_rest(g, row, got.status == KEY_FOUND ? got.len : 0, stride);
    // A value of another size that came through the ring is in its row already.
    if (got.status == KEY_FOUND && !fits(got.len)) got.status = KEY_TOO_SMALL;
    if (g.rank() != 0) return;
    if (statuses != nullptr) statuses[i] = got.status;
    if (sizes != nullptr) sizes[i] = got.len;
    if (found != nullptr) found[i] = got.status == KEY_FOUND;
    if (unanswered != nullptr && got.status > KEY_FOUND) release_to_system(unanswered, got.status);
  }

 private:
  template <class G>
  ROCKMILL_HD RingResult get(const G& g, const u8* key, u32 len, u8* row) const {
    const u32 room = stride < u32(-1) ? u32(stride) : u32(-1);
    if constexpr (ASKS) {
      return kv.get_in(g, key, len, row, room);
    } else {
      const FoundValue found = find_key(g, kv.table, key, len);
      if (found.status == KEY_FOUND && !fits(found.len)) return {KEY_TOO_SMALL, found.len};
      return copy_found(g, found, row, room);
    }
  }

  // Whether a value may have this size; that a longer one has no room is found out elsewhere.
  ROCKMILL_HD bool fits(u32 len) const { return (options & LOOKUP_EXACT) == 0 || len == stride; }
};

}  // namespace rockmill::ROCKMILL_TARGET

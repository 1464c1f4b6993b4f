// The keys that a view's kernels have put or deleted since its version was taken, as a set of hashes. The table does not
// tell what they are now.
#pragma once

#include "../common/atomic.hpp"
#include "../view/slots.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Contiguous slots that a hash may be in. If all of them are taken, every key counts as changed.
constexpr u32 CHANGED_RUN = 32;
constexpr u64 EVERY_KEY_CHANGED = u64{1} << 63;

// 0 is an empty slot.
ROCKMILL_HD u64 changed_hash(const ChangedKeys& changed, const u8* key, u32 len) {
  return hash_bytes(changed.seed, key, len) | 1;
}

// Many threads may add at once.
ROCKMILL_HD void add_changed(const ChangedKeys& changed, const u8* key, u32 len) {
  const u64 hash = changed_hash(changed, key, len);
  for (u32 i = 0; i < CHANGED_RUN; ++i) {
    const u64 before = compare_and_swap(changed.slots + (((hash >> 1) + i) & changed.mask), 0, hash);
    if (before == hash) return;
    if (before != 0) continue;
    add_relaxed(changed.state, 1);
    return;
  }
  or_relaxed(changed.state, EVERY_KEY_CHANGED);
}

ROCKMILL_HD bool is_changed(const ChangedKeys& changed, const u8* key, u32 len) {
  const u64 state = load_relaxed(changed.state);
  if (state == 0) return false;
  if ((state & EVERY_KEY_CHANGED) != 0) return true;
  const u64 hash = changed_hash(changed, key, len);
  for (u32 i = 0; i < CHANGED_RUN; ++i) {
    const u64 own = load_relaxed(changed.slots + (((hash >> 1) + i) & changed.mask));
    if (own == hash) return true;
    if (own == 0) return false;
  }
  return false;
}

}  // namespace rockmill::ROCKMILL_TARGET

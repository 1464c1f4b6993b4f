// Finds the entries that a snapshot sees (crates/cpu/src/read/snapshot.rs is the sequential form). The newest entry of
// a user key at or below the snapshot's sequence number counts: newer ones are skipped, older ones are hidden. It is no row
// if a range tombstone deletes it.
#pragma once

#include "retain.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct SelectVisible {
  const Key* keys;
  KeyBytes bytes;
  const u64* hashes;
  SnapshotRules rules;
  const u32* cover;
  u32* keep;
  u64* errors;

  ROCKMILL_HD bool is_above(u64 i) const { return sequence_of(keys[i].tag) > rules.sequence; }

  // Whether a range tombstone deletes the entry.
  ROCKMILL_HD bool is_deleted(u64 i) const {
    if (cover == nullptr || cover[i] == 0) return false;
    const Fragment& fragment = rules.fragments[cover[i] - 1];
    return rules.sequences[fragment.first] > sequence_of(keys[i].tag) &&
           compare_user(bytes, keys[i], fragment.end) < 0;
  }

  ROCKMILL_HD bool see(u64 i, RetainSums& sums) const {
    if (is_above(i)) {
      sums.above += 1;
      return false;
    }
    // Newer entries come first.
    const bool is_hidden = i > 0 && !is_above(i - 1) && same_user_key(bytes, keys[i - 1], keys[i]);
    if (is_hidden || is_deleted(i)) {
      sums.replaced += 1;
      return false;
    }
    const u64 type = keys[i].tag & 0xff;
    if (type == TYPE_VALUE) return true;
    if (type == TYPE_DELETION || type == TYPE_SINGLE_DELETION) {
      sums.tombstones_dropped += !rules.keep_tombstones;
      return rules.keep_tombstones;
    }
    if (!rules.mark_needs_merge) report(errors, i, ERROR_UNDECIDED);
    return rules.mark_needs_merge;
  }

  ROCKMILL_HD void operator()(u64 i, RetainSums& sums) const {
    const u64 hash = entry_hash(hashes[keys[i].entry], keys[i].tag);
    const bool kept = see(i, sums);
    keep[i] = kept;
    sums.hash_kept += kept ? hash : 0;
    sums.hash_dropped += kept ? 0 : hash;
    sums.rows_hash += kept ? hash : 0;
    sums.kept += kept;
    sums.dropped += !kept;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// The surviving entries (`db/compaction/compaction_iterator.cc`; crates/cpu/src/read/retain.rs is the sequential form).
// Snapshots divide the versions of a key into stripes; the newest entry of a stripe, its head, hides the others.
//
//   FindFragments, MarkFragments
//                the last fragment of range tombstones     -> inclusive_max -> that in front of every entry
//   MarkHeads    the stripe's head, by position           -> inclusive_max -> head of every entry
//   MarkOlder    heads below which the key has an older stripe
//   Decide       keep or drop, sums                       -> exclusive_sum -> places of selected rows
//   Gather       selected rows with their final tags
//
// A task with SingleDeletes processes user keys one by one instead (groups.hpp). In a task with merge operands,
// DecideMerged replaces Decide (operands.hpp).
#pragma once

#include "../common/sums.hpp"
#include "decode.hpp"

namespace rockmill::ROCKMILL_TARGET {

ROCKMILL_HD u64 sequence_of(u64 tag) { return tag >> 8; }

// Number of snapshots that do not see the sequence number: the number of its stripe.
ROCKMILL_HD u64 stripe_of(const RetainRules& rules, u64 sequence) {
  u64 from = 0, to = rules.num_snapshots;
  while (from < to) {
    const u64 middle = from + (to - from) / 2;
    if (rules.snapshots[middle] < sequence) from = middle + 1;
    else to = middle;
  }
  return from;
}

// Whether no file of a deeper level can have the key.
ROCKMILL_HD bool absent_in_deeper_levels(const RetainRules& rules, const KeyBytes& bytes, const Key& key) {
  if (rules.deeper_unknown) return false;
  u32 from = 0;
  for (u32 level = 0; level < rules.num_levels; ++level) {
    const u32 end = rules.level_ends[level];
    u32 to = end;
    // First file whose last key is not below the key.
    while (from < to) {
      const u32 middle = from + (to - from) / 2;
      if (compare_user(bytes, key, rules.deeper[middle].last) > 0) from = middle + 1;
      else to = middle;
    }
    if (from < end && compare_user(bytes, key, rules.deeper[from].first) >= 0) return false;
    from = end;
  }
  return true;
}

// Records the last of the fragments before a key. `cover` is 0 at first.
struct MarkFragments {
  const u64* places;
  u64 num_fragments;
  u64 n;
  u32* cover;

  ROCKMILL_HD void operator()(u64 f) const {
    const bool is_last = f + 1 == num_fragments || places[f + 1] != places[f];
    if (is_last && places[f] < n) cover[places[f]] = u32(f) + 1;
  }
};

// Whether range tombstones delete entries (rockmill_core::Fragment::deletes).
struct Coverage {
  const Key* keys;
  KeyBytes bytes;
  // One more than the last fragment that begins at or before each entry's key; null without any.
  const u32* cover;

  ROCKMILL_HD bool deletes(const RetainRules& rules, u64 i) const {
    if (cover == nullptr || cover[i] == 0) return false;
    const Fragment& fragment = rules.fragments[cover[i] - 1];
    if (compare_user(bytes, keys[i], fragment.end) >= 0) return false;
    const u64 sequence = sequence_of(keys[i].tag), stripe = stripe_of(rules, sequence);
    const u64 visible_to = stripe < rules.num_snapshots ? rules.snapshots[stripe] : MAX_SEQUENCE;
    u64 from = fragment.first, to = fragment.last;
    while (from < to) {
      const u64 middle = from + (to - from) / 2;
      if (rules.sequences[middle] > visible_to) from = middle + 1;
      else to = middle;
    }
    return from < fragment.last && rules.sequences[from] > sequence;
  }
};

// The tag with which an entry is written: sequence number 0 if every reader sees it and nothing older exists.
ROCKMILL_HD u64 final_tag(const RetainRules& rules, u64 tag) {
  const u64 sequence = sequence_of(tag);
  const bool zeroed = rules.bottommost && sequence <= rules.earliest && sequence < MAX_SEQUENCE;
  // Operands keep their order.
  return zeroed && (tag & 0xff) != TYPE_MERGE ? tag & 0xff : tag;
}

// Sums over entries in the order of decoding, which merging must not change.
struct SumInput {
  const Key* keys;
  const ValueRef* values;
  const u64* hashes;

  ROCKMILL_HD void operator()(u64 i, InputSums& sums) const {
    sums.hash += entry_hash(hashes[i], keys[i].tag);
    const u64 type = keys[i].tag & 0xff;
    sums.tombstones +=
        type == TYPE_DELETION || type == TYPE_SINGLE_DELETION || type == TYPE_DELETION_WITH_TIMESTAMP;
    sums.single_deletes += type == TYPE_SINGLE_DELETION;
    sums.operands += type == TYPE_MERGE;
    sums.key_bytes += keys[i].len + TAG_BYTES;
    sums.value_bytes += values[i].len;
  }
};

struct MarkHeads {
  const Key* keys;
  KeyBytes bytes;
  RetainRules rules;
  u32* heads;

  ROCKMILL_HD void operator()(u64 i) const {
    const bool is_head =
        i == 0 || !same_user_key(bytes, keys[i - 1], keys[i]) ||
        stripe_of(rules, sequence_of(keys[i - 1].tag)) != stripe_of(rules, sequence_of(keys[i].tag));
    heads[i] = is_head ? u32(i) : 0;
  }
};

struct MarkOlder {
  const Key* keys;
  KeyBytes bytes;
  const u32* heads;
  u8* has_older;

  ROCKMILL_HD void operator()(u64 i) const {
    if (i > 0 && heads[i] == i && same_user_key(bytes, keys[i - 1], keys[i])) has_older[heads[i - 1]] = 1;
  }
};

struct Decide {
  const Key* keys;
  KeyBytes bytes;
  const u32* heads;
  const u8* has_older;
  const u64* hashes;
  RetainRules rules;
  const u32* cover;
  u32* keep;

  // Whether a tombstone at the bottom is too new to be dropped at once.
  ROCKMILL_HD bool is_late_delete(u64 tag) const {
    return rules.bottommost && (tag & 0xff) == TYPE_DELETION && sequence_of(tag) > rules.earliest;
  }

  ROCKMILL_HD bool decide(u64 i, RetainSums& sums) const {
    if (heads[i] != i) {
      // Entries that a late tombstone hides are not counted, as in RocksDB.
      sums.replaced += is_late_delete(keys[heads[i]].tag) ? 0 : 1;
      return false;
    }
    return decide_head(i, i, sums);
  }

  // Whether the newest entry of a stripe without merging is kept; `head` is the stripe's first entry.
  ROCKMILL_HD bool decide_head(u64 i, u64 head, RetainSums& sums) const {
    const u64 tag = keys[i].tag;
    if ((tag & 0xff) == TYPE_DELETION) {
      const bool obsolete = sequence_of(tag) <= rules.earliest && absent_in_deeper_levels(rules, bytes, keys[i]);
      // A late tombstone is dropped uncounted.
      sums.tombstones_dropped += obsolete;
      if (obsolete) return false;
      if (rules.bottommost) return has_older[head];
    }
    // RocksDB also counts it as hidden.
    const bool covered = Coverage{keys, bytes, cover}.deletes(rules, i);
    sums.replaced += covered;
    return !covered;
  }

  ROCKMILL_HD void operator()(u64 i, RetainSums& sums) const { settle(i, decide(i, sums), sums); }

  // Keeps an entry or drops it.
  ROCKMILL_HD void settle(u64 i, bool kept, RetainSums& sums) const {
    if (!kept) return drop(i, sums);
    const u64 kv = hashes[keys[i].entry];
    keep[i] = 1;
    sums.kept += 1;
    sums.hash_kept += entry_hash(kv, keys[i].tag);
    sums.rows_hash += entry_hash(kv, final_tag(rules, keys[i].tag));
  }
  ROCKMILL_HD void drop(u64 i, RetainSums& sums) const {
    keep[i] = 0;
    sums.dropped += 1;
    sums.hash_dropped += entry_hash(hashes[keys[i].entry], keys[i].tag);
  }
  ROCKMILL_HD void consume(u64 i, RetainSums& sums) const {
    keep[i] = 0;
    sums.consumed += 1;
    sums.hash_consumed += entry_hash(hashes[keys[i].entry], keys[i].tag);
  }
};

struct Gather {
  const Key* keys;
  const u32* keep;
  const u32* places;
  RetainRules rules;
  Key* selected_rows;

  ROCKMILL_HD void operator()(u64 i) const {
    if (!keep[i]) return;
    Key key = keys[i];
    key.tag = final_tag(rules, key.tag);
    selected_rows[places[i]] = key;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Merge operands (`db/merge_helper.cc:MergeUntil`; crates/cpu/src/read/operands.rs is the sequential form). The newest
// entry of a stripe is its head. If it is an operand, one thread processes the stripe:
//
//   DecideMerged   what is kept, dropped and consumed, and how many bytes are made   -> exclusive_sum -> places of made values
//   MakeValues     the bytes of each made value, by a group
//   CheckMerged      the same once more by one thread, from operands with the hashes with which they were decoded
//   FinishMerged     tags, values and hashes of made rows, each of which takes the place of its newest operand
#pragma once

#include "retain.hpp"

namespace rockmill::ROCKMILL_TARGET {

enum MergeFunction : u32 { MERGE_ADD = 1, MERGE_PUT = 2, MERGE_MAX = 3, MERGE_XOR = 4, MERGE_APPEND = 5 };

constexpr u64 ADD_BYTES = 8;
// Maximum entries of a stripe that begins with an operand.
constexpr u64 MAX_STRIPE = u64{1} << 18;

// The sources of a row: a number of operands from its newest on, and the value beneath them, if there is one.
struct MergeSources {
  u32 word;

  ROCKMILL_HD static MergeSources of(u32 operands, bool is_operand, bool has_base) {
    return {operands << 2 | u32(is_operand) << 1 | u32(has_base)};
  }
  ROCKMILL_HD bool any() const { return word != 0; }
  ROCKMILL_HD u32 operands() const { return word >> 2; }
  // Whether it is one operand that replaces several.
  ROCKMILL_HD bool is_operand() const { return word >> 1 & 1; }
  // All that is merged.
  ROCKMILL_HD u32 parts() const { return operands() + (word & 1); }
};

struct DecideMerged {
  Decide entries;
  const ValueRef* values;
  u64 n;
  MergeRules merging;
  u32* made;
  // n + 1.
  u64* sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, RetainSums& sums) const {
    made[i] = 0;
    sizes[i] = 0;
    const u64 head = entries.heads[i];
    if (type(head) != TYPE_MERGE) entries(i, sums);
    else if (head == i) decide_stripe(i, sums);
    if (i + 1 == n) sizes[n] = 0;
  }

 private:
  ROCKMILL_HD u64 type(u64 i) const { return entries.keys[i].tag & 0xff; }
  ROCKMILL_HD u64 value_len(u64 i) const { return values[entries.keys[i].entry].len; }
  ROCKMILL_HD bool is_covered(u64 i) const {
    return Coverage{entries.keys, entries.bytes, entries.cover}.deletes(entries.rules, i);
  }

  ROCKMILL_HD void decide_stripe(u64 head, RetainSums& sums) const {
    u64 end = head + 1;
    while (end < n && entries.heads[end] == head) {
      // One thread does a stripe, so a long one is left to the CPU.
      if (end - head == MAX_STRIPE) return report(errors, head, ERROR_MERGED_BYTES);
      ++end;
    }
    u64 i = head, operands = 0, bytes = 0;
    bool covered = false;
    for (; i < end && type(i) == TYPE_MERGE; ++i) {
      // A range tombstone of the stripe deletes an entry together with all older ones.
      covered = covered || is_covered(i);
      if (covered) {
        entries.drop(i, sums);
        continue;
      }
      operands += 1;
      bytes += taken(i);
      if (bytes > merging.max_bytes) return report(errors, head, ERROR_MERGED_BYTES);
    }
    if (operands == 0) {
      // Range tombstones delete all operands, so they hide nothing.
      if (i == end) return;
      entries.settle(i, entries.decide_head(i, head, sums), sums);
      const bool counted = !entries.is_late_delete(entries.keys[i].tag);
      for (u64 k = i + 1; k < end; ++k) hide(k, counted, sums);
      return;
    }
    const bool has_beneath = i < end;
    bool has_base = false;
    if (has_beneath) {
      covered = covered || is_covered(i);
      has_base = !covered && type(i) == TYPE_VALUE;
      if (!covered && !has_base && type(i) != TYPE_DELETION) report(errors, head, ERROR_MERGED_TYPE);
      if (has_base) {
        entries.consume(i, sums);
        bytes += taken(i);
        if (bytes > merging.max_bytes) return report(errors, head, ERROR_MERGED_BYTES);
      } else {
        entries.drop(i, sums);
      }
      for (u64 k = i + 1; k < end; ++k) hide(k, true, sums);
    }
    const bool is_last = end == n || !same_user_key(entries.bytes, entries.keys[end - 1], entries.keys[end]);
    const bool is_whole = has_beneath || (is_last && entries.rules.bottommost);
    if (!is_whole && (operands < 2 || !merging.partial)) {
      for (u64 k = 0; k < operands; ++k) entries.settle(head + k, true, sums);
      return;
    }
    for (u64 k = 0; k < operands; ++k) entries.consume(head + k, sums);
    entries.keep[head] = 1;
    sums.made += 1;
    const MergeSources row = MergeSources::of(u32(operands), !is_whole, has_base);
    made[head] = row.word;
    sizes[head] = made_bytes(head, row);
  }

  ROCKMILL_HD u64 taken(u64 i) const { return value_len(i) + merging.operand_bytes + merging.delimiter_len; }

  ROCKMILL_HD void hide(u64 i, bool counted, RetainSums& sums) const {
    sums.replaced += counted;
    entries.drop(i, sums);
  }

  // Bytes of the value; 0 if it is an entry's own value.
  ROCKMILL_HD u64 made_bytes(u64 head, const MergeSources& row) const {
    if (merging.function == MERGE_ADD) return ADD_BYTES;
    u64 sum = (row.parts() - 1) * merging.delimiter_len, longest = 0;
    for (u32 k = 0; k < row.parts(); ++k) {
      const u64 len = value_len(head + k);
      sum += len;
      if (len > longest) longest = len;
    }
    return merging.function == MERGE_APPEND ? sum : merging.function == MERGE_XOR ? longest : 0;
  }
};

// Values that are merged.
struct MergedValues {
  const u8* arena;
  const Key* keys;
  const ValueRef* values;

  ROCKMILL_HD ValueRef of(u64 i) const { return values[keys[i].entry]; }

  // Sum of all values with 8 bytes, as numbers.
  ROCKMILL_HD u64 sum(u64 head, const MergeSources& row) const {
    u64 sum = 0;
    for (u32 k = 0; k < row.parts(); ++k) {
      const ValueRef value = of(head + k);
      if (value.len == ADD_BYTES) sum += load64(arena + value.at);
    }
    return sum;
  }

  // Position of the largest in the order of bytes.
  ROCKMILL_HD u64 largest(u64 head, const MergeSources& row) const {
    u64 largest = head;
    for (u32 k = 1; k < row.parts(); ++k)
      if (is_less(of(largest), of(head + k))) largest = head + k;
    return largest;
  }

 private:
  ROCKMILL_HD bool is_less(const ValueRef& a, const ValueRef& b) const {
    const u64 len = a.len < b.len ? a.len : b.len;
    const u8 *left = arena + a.at, *right = arena + b.at;
    u64 i = 0;
    while (i + 8 <= len && load64(left + i) == load64(right + i)) i += 8;
    while (i < len && left[i] == right[i]) ++i;
    return i < len ? left[i] < right[i] : a.len < b.len;
  }
};

struct MakeValues {
  MergedValues merged;
  MergeRules merging;
  const u32* made;
  const u64* offsets;
  // Places of the values.
  u8* to;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const MergeSources row{made[i]};
    const u64 bytes = offsets[i + 1] - offsets[i];
    if (!row.any() || bytes == 0) return;
    u8* out = to + offsets[i];
    if (merging.function == MERGE_ADD) {
      const u64 sum = merged.sum(i, row);
      for (u32 k = g.rank(); k < ADD_BYTES; k += g.width) out[k] = u8(sum >> 8 * k);
    } else if (merging.function == MERGE_XOR) {
      // Each lane has its own bytes of the value, so the work is the sum of all lengths.
      for (u64 b = g.rank(); b < bytes; b += g.width) out[b] = 0;
      for (u32 k = 0; k < row.parts(); ++k) {
        const ValueRef value = merged.of(i + k);
        for (u64 b = g.rank(); b < value.len; b += g.width) out[b] ^= merged.arena[value.at + b];
      }
    } else {
      // Oldest first.
      for (u32 k = row.parts(); k-- > 0;) {
        const ValueRef value = merged.of(i + k);
        copy_bytes(g, out, merged.arena + value.at, value.len);
        out += value.len;
        if (k == 0) break;
        for (u64 b = g.rank(); b < merging.delimiter_len; b += g.width) out[b] = merging.delimiter[b];
        out += merging.delimiter_len;
      }
    }
  }
};

// The check of values behind the hashes of entries: a merged value gets its hash from its own bytes.
struct CheckMerged {
  MergedValues merged;
  KeyBytes bytes;
  MergeRules merging;
  const u32* made;
  const u64* offsets;
  const u8* values;
  const u64* hashes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i) const {
    const MergeSources row{made[i]};
    if (!row.any()) return;
    const u64 key_hash = rapidhash_key(bytes, merged.keys[i]);
    bool is_right = true;
    for (u32 k = 0; k < row.parts(); ++k) {
      const ValueRef value = merged.of(i + k);
      const u64 read = hashes[merged.keys[i + k].entry];
      is_right &= kv_hash(key_hash, rapidhash(merged.arena + value.at, value.len)) == read;
    }
    const u8* value = values + offsets[i];
    const u64 len = offsets[i + 1] - offsets[i];
    if (merging.function == MERGE_ADD) is_right &= len == ADD_BYTES && load64(value) == merged.sum(i, row);
    if (merging.function == MERGE_XOR) is_right &= is_xor(i, row, value, len);
    if (merging.function == MERGE_APPEND) is_right &= is_appended(i, row, value, len);
    if (!is_right) report(errors, i, ERROR_MADE);
  }

 private:
  // The work is the sum of all lengths: words are folded into one.
  ROCKMILL_HD bool is_xor(u64 i, const MergeSources& row, const u8* value, u64 len) const {
    u64 sum = fold(value, len);
    for (u32 k = 0; k < row.parts(); ++k) {
      const ValueRef part = merged.of(i + k);
      sum ^= fold(merged.arena + part.at, part.len);
    }
    return sum == 0;
  }

  ROCKMILL_HD static u64 fold(const u8* bytes, u64 len) {
    u64 sum = 0, at = 0;
    for (; at + 8 <= len; at += 8) sum ^= load64(bytes + at);
    for (u64 shift = 0; at < len; ++at, shift += 8) sum ^= u64(bytes[at]) << shift;
    return sum;
  }

  ROCKMILL_HD bool is_appended(u64 i, const MergeSources& row, const u8* value, u64 len) const {
    u64 at = 0;
    for (u32 k = row.parts(); k-- > 0;) {
      const ValueRef part = merged.of(i + k);
      if (!is_at(value, &at, len, merged.arena + part.at, part.len)) return false;
      if (k > 0 && !is_at(value, &at, len, merging.delimiter, merging.delimiter_len)) return false;
    }
    return at == len;
  }

  // Whether `part` is at position `*at` of the value, behind which the position moves.
  ROCKMILL_HD static bool is_at(const u8* value, u64* at, u64 len, const u8* part, u64 part_len) {
    if (part_len > len - *at) return false;
    for (u64 b = 0; b < part_len; ++b)
      if (value[*at + b] != part[b]) return false;
    *at += part_len;
    return true;
  }
};

struct FinishMerged {
  const u8* arena;
  Key* keys;
  KeyBytes bytes;
  ValueRef* values;
  u64* hashes;
  RetainRules rules;
  MergeRules merging;
  const u32* made;
  const u64* offsets;
  // Places of the merged values in the arena.
  u64 made_at;

  ROCKMILL_HD void operator()(u64 i, RetainSums& sums) const {
    const MergeSources row{made[i]};
    if (!row.any()) return;
    Key& key = keys[i];
    if (!row.is_operand()) key.tag = (key.tag & ~u64{0xff}) | TYPE_VALUE;
    if (merging.function == MERGE_MAX) {
      // The hash of an entry's key and value is the same for all entries with them.
      const u32 from = keys[MergedValues{arena, keys, values}.largest(i, row)].entry;
      hashes[key.entry] = hashes[from];
      values[key.entry] = values[from];
    } else if (merging.function != MERGE_PUT) {
      const ValueRef value{made_at + offsets[i], offsets[i + 1] - offsets[i]};
      values[key.entry] = value;
      hashes[key.entry] = kv_hash(rapidhash_key(bytes, key), rapidhash(arena + value.at, value.len));
    }
    sums.rows_hash += entry_hash(hashes[key.entry], final_tag(rules, key.tag));
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

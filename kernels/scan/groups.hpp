// From selected rows to groups, and to the states of their aggregates.
//
// All states of a group are sums or maxima of words. So they do not depend on the order of rows.
#pragma once

#include "../common/exec.hpp"
#include "../common/hash.hpp"
#include "program.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Rows that a warp processes at once.
constexpr u32 GROUP_ROWS = 32;

// The keys of a row as words. None of them is 0, and no row's words are the beginning of another's.
struct GroupKey {
  static constexpr u32 most = SCAN_KEY_WORDS * SCAN_KEY_WORD_BYTES;

  u64 words[SCAN_KEY_WORDS] = {};
  u32 len = 0;

  ROCKMILL_HD void put(u64 byte) {
    if (len < most) words[len / SCAN_KEY_WORD_BYTES] |= byte << 8 * (len % SCAN_KEY_WORD_BYTES);
    ++len;
  }

  // Writes the keys of a row one after another: whether the key is not null, and the key. The length precedes bytes.
  // Returns false if there is no room for them.
  ROCKMILL_HD bool write(const ScanRow& row, const ScanGroups& groups) {
    for (u32 k = 0; k < groups.num_keys; ++k) {
      const ScanGroupKey key = groups.keys[k];
      const ScanValue value = row.operand(key.operand);
      put(value.is_set);
      if (!value.is_set) continue;
      if (key.stored != STORED_BYTES) {
        const u128 integer = u128(value.integer());
        for (u32 i = 0; i < key.bytes; ++i) put(u8(integer >> 8 * i));
        continue;
      }
      if (value.len() >= most) return false;
      const ScanBytes all = row.bytes();
      const ByteSpan bytes = all.bytes(value);
      put(bytes.len);
      for (u64 i = 0; i < bytes.len; ++i) put(bytes[i]);
    }
    return len <= most;
  }

  ROCKMILL_HD u32 num_words() const {
    return len == 0 ? 1 : (len + SCAN_KEY_WORD_BYTES - 1) / SCAN_KEY_WORD_BYTES;
  }

  // A word with its last byte: 1, and in the last word 2 and the number of the word's bytes.
  ROCKMILL_HD u64 word(u32 k) const {
    const u64 end = k + 1 < num_words() ? 1 : 2 + len - k * SCAN_KEY_WORD_BYTES;
    return words[k] | end << 8 * SCAN_KEY_WORD_BYTES;
  }

  ROCKMILL_HD u64 hash() const {
    u64 hash = PRIME64_1;
    for (u32 k = 0; k < num_words(); ++k) hash = fold(word(k) ^ PRIME64_2, hash ^ PRIME64_3);
    return hash;
  }
};

struct GroupRows {
  static constexpr u32 NO_SLOT = ~u32{0};
  // Number of groups among a warp's rows for which the rows are added up before memory is updated.
  static constexpr u32 FEW = 4;
  static constexpr u64 GIVE_UP = u64{1} << 32;

  ScanProgram program;
  u32 first_op, end_op;
  const u32* selected;
  u64 n;
  ScanGroups groups;
  // Finds the lower words of wide values after the first run has found their higher words.
  bool is_second;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 item, const ThreadWords& words) const {
    const u64 first = item * GROUP_ROWS, end = n - first < GROUP_ROWS ? n : first + GROUP_ROWS;
    for (u64 from = first; from < end; from += g.width) {
      // Volatile, or a thread might see the old number forever.
      if (g.any(*const_cast<const volatile u64*>(groups.found) > groups.most)) return;
      const bool has_row = from + g.rank() < end;
      const u32 at = selected[has_row ? from + g.rank() : first];
      ScanRow row(program, at, words);
      u32 slot = NO_SLOT;
      if (has_row) {
        if (row.run(first_op, end_op) == ROW_IS_SELECTED) slot = find(row, at);
        else report(errors, at, ERROR_OUT_OF_RANGE);
      }
      if (is_second) {
        if (slot != NO_SLOT) add_lower_words(row, slot);
      } else {
        add_row(g, row, slot);
      }
    }
  }

  // The slot of a row's group. A thread fills words that are 0 one after another, and moves to the next slot if it
  // finds another word. A word never changes, so threads with the same keys end in the same slot.
  ROCKMILL_HD u32 find(const ScanRow& row, u32 at) const {
    GroupKey key;
    if (!key.write(row, groups)) return give_up();
    const u32 num_words = key.num_words();
    u64 slot = key.hash() & (groups.num_slots - 1);
    for (u64 tries = 0; tries < groups.num_slots; ++tries, slot = (slot + 1) & (groups.num_slots - 1)) {
      u64* const place = groups.table + slot * SCAN_KEY_WORDS;
      bool is_new = false;
      u32 k = 0;
      for (; k < num_words; ++k) {
        const u64 word = key.word(k);
        u64 there = place[k];
        if (there == 0) there = atomic_claim(place + k, word);
        is_new = there == 0;
        if (!is_new && there != word) break;
      }
      if (k < num_words) continue;
      if (is_new) atomic_add(groups.found, 1);
      if (at < groups.firsts[slot]) atomic_min(groups.firsts + slot, at);
      return u32(slot);
    }
    return give_up();
  }

  ROCKMILL_HD u32 give_up() const {
    atomic_max(groups.found, GIVE_UP);
    return NO_SLOT;
  }

  ROCKMILL_HD u64* words_of(u32 slot) const { return groups.words + u64(slot) * groups.num_words; }

  template <class G>
  ROCKMILL_HD void add_row(const G& g, const ScanRow& row, u32 slot) const {
    const bool has_slot = slot != NO_SLOT;
    const u32 below = (u32{1} << g.rank()) - 1;
    const u32 peers = g.peers(slot);
    // One lane of each group.
    const u32 leaders = g.ballot(has_slot && (peers & below) == 0);
    add(g, slot, leaders, 0, has_slot);
    for (u32 a = 0; a < groups.num_arguments; ++a) {
      const ScanArgument argument = groups.arguments[a];
      const ScanValue value = has_slot ? row.operand(argument.operand) : null_value();
      u32 at = argument.at;
      add(g, slot, leaders, at++, value.is_set);
      if (argument.needed & NEEDED_SUM) {
        const u64 low = value.is_set ? value.low : 0, high = value.is_set ? value.high : 0;
        add(g, slot, leaders, at++, u32(low));
        add(g, slot, leaders, at++, u32(low >> 32));
        add(g, slot, leaders, at++, u32(high));
        add(g, slot, leaders, at++, u32(high >> 32));
        add(g, slot, leaders, at++, u32(high >> 63));
      }
      if (value.is_set) {
        extremes(argument, at, [&](u32 word, bool is_least) {
          raise(words_of(slot) + word, upper_word(value, argument.needed, is_least));
        });
      }
    }
  }

  ROCKMILL_HD void add_lower_words(const ScanRow& row, u32 slot) const {
    for (u32 a = 0; a < groups.num_arguments; ++a) {
      const ScanArgument argument = groups.arguments[a];
      const ScanValue value = row.operand(argument.operand);
      if (!value.is_set || !(argument.needed & NEEDED_WIDE)) continue;
      const u32 at = argument.at + 1 + (argument.needed & NEEDED_SUM ? SCAN_SUM_WORDS : 0);
      extremes(argument, at, [&](u32 word, bool is_least) {
        u64* const upper = words_of(slot) + word;
        if (*upper == upper_word(value, argument.needed, is_least)) raise(upper + 1, is_least ? ~value.low : value.low);
      });
    }
  }

  // Calls f(word, is_least) for the minimum and the maximum, if they are needed.
  template <class F>
  ROCKMILL_HD static void extremes(const ScanArgument& argument, u32 at, F f) {
    if (argument.needed & NEEDED_LEAST) {
      f(at, true);
      at += argument.needed & NEEDED_WIDE ? 2 : 1;
    }
    if (argument.needed & NEEDED_GREATEST) f(at, false);
  }

  // The word that decides first, mapped so that the minimum or maximum value has the greatest word.
  ROCKMILL_HD static u64 upper_word(const ScanValue& value, u32 needed, bool is_least) {
    const u64 word = (needed & NEEDED_WIDE ? value.high : value.low) ^ u64{1} << 63;
    return is_least ? ~word : word;
  }

  ROCKMILL_HD static void raise(u64* to, u64 word) {
    if (word > *to) atomic_max(to, word);
  }

  // Adds each lane's amount to a word of its group.
  template <class G>
  ROCKMILL_HD void add(const G& g, u32 slot, u32 leaders, u32 word, u32 amount) const {
    if (!g.any(amount != 0)) return;
    if (count_bits(leaders) > FEW) {
      if (amount != 0) atomic_add(words_of(slot) + word, amount);
      return;
    }
    for (u32 left = leaders; left != 0; left &= left - 1) {
      const u32 group = g.shuffle(slot, lowest_bit(left));
      const u32 own = slot == group ? amount : 0;
      // Sums of 32 bits have room for 16 bits of each lane.
      const u64 sum = g.sum(own & 0xffff) + (u64(g.sum(own >> 16)) << 16);
      if (g.rank() == 0 && sum != 0) atomic_add(words_of(group) + word, sum);
    }
  }
};

struct TakeGroups {
  ScanGroups groups;
  const u32* slots;
  u64* out;

  ROCKMILL_HD void operator()(u64 i) const {
    out[i] = groups.words[u64(slots[i / groups.num_words]) * groups.num_words + i % groups.num_words];
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

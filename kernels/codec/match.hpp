// The matches of LZ4 and Snappy blocks. They are a function of the input alone, whatever the width of the group. They
// define the identities lz4/rockmill-1 and snappy/rockmill-1, so a change of them takes a new number.
//
//  - 32 positions at a time, a batch, look up their next four bytes in a table and are noted there, one after another:
//    slot `word * 2654435761 >> 21` has the last position that was noted there, modulo 2^16, and first 0. The candidate
//    is the nearest earlier position with this remainder, 1 to 65,535 bytes back; it counts if its four bytes are the
//    same.
//  - The first position of the batch with a candidate is a match. It is made longer backwards, as far as nothing is
//    written yet, then forwards. The next match is the first one behind it in the batch, and so on.
//  - The next batch begins behind this one or behind the last match, whichever is later.
//  - No match begins in the last 11 bytes (before it is made longer) or takes one of the last 5. LZ4 demands it.
#pragma once

#include "codec.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Positions by a hash of their next four bytes. The scratch memory of one group, in shared memory on the device.
struct MatchTable {
  static constexpr u32 BITS = 11;
  // Positions modulo 2^16.
  std::uint16_t slots[u32{1} << BITS];

  static ROCKMILL_HD u32 slot_of(u32 word) { return word * 2654435761u >> (32 - BITS); }

  template <class G>
  ROCKMILL_HD void clear(const G& g) {
    for (u32 i = g.rank(); i < u32{1} << BITS; i += G::width) slots[i] = 0;
    g.sync();
  }

  // Looks up a position a lane, consecutive by rank, and notes them. Returns how far back the nearest earlier position
  // with the lane's slot is, modulo 2^16. Lanes that are not in take no part.
  template <class G>
  ROCKMILL_HD u32 exchange(const G& g, u32 slot, u32 position, bool is_in) {
    // No slot has such a number.
    const u32 peers = g.peers(is_in ? slot : ~g.rank());
    const u32 below = peers & ((u32{1} << g.rank()) - 1);
    u32 offset = 0;
    if (is_in) offset = below != 0 ? g.rank() - highest_bit(below) : (position - slots[slot]) & 0xffff;
    g.sync();
    if (is_in && highest_bit(peers) == g.rank()) slots[slot] = std::uint16_t(position);
    g.sync();
    return offset;
  }
};

constexpr u32 MIN_MATCH = 4;
// Minimum bytes between the beginning of a match and the end of the block, and between the ends of both.
constexpr u32 MATCH_BEGINS_BEFORE = 12, MATCH_ENDS_BEFORE = 5;

constexpr u32 BATCH = 32;

// A value for each position of a batch: the one for position i is with rank i % width.
template <class G>
struct BatchOf {
  static constexpr u32 PER_LANE = BATCH / G::width;
  u32 own[PER_LANE];

  // All lanes get it.
  ROCKMILL_HD u32 at(const G& g, u32 i) const {
    if constexpr (PER_LANE == 1) return g.shuffle(own[0], i);
    return g.shuffle(own[i / G::width], i % G::width);
  }
};

// How many bytes at `a` and `b` are the same, at most `limit`. Up to three more bytes of both are read.
template <class G>
ROCKMILL_HD u32 common_length(const G& g, const u8* a, const u8* b, u32 limit) {
  for (u32 done = 0;; done += 4 * G::width) {
    const u32 i = done + 4 * g.rank();
    u32 same = 0;
    if (i < limit) {
      const u32 differing = load32(a + i) ^ load32(b + i);
      same = differing == 0 ? 4 : lowest_bit(differing) / 8;
      if (same > limit - i) same = limit - i;
    }
    const u32 ends = g.ballot(same < 4);
    if (ends != 0) return done + 4 * lowest_bit(ends) + g.shuffle(same, lowest_bit(ends));
  }
}

// How many bytes before `a` and before `b` are the same, at most `limit`.
template <class G>
ROCKMILL_HD u32 common_length_before(const G& g, const u8* a, const u8* b, u32 limit) {
  for (u32 done = 0;; done += G::width) {
    const u32 i = done + g.rank();
    const u32 ends = g.ballot(!(i < limit && *(a - 1 - i) == *(b - 1 - i)));
    if (ends != 0) return done + lowest_bit(ends);
  }
}

// Hands `out` the block as sequences of literals and a match, then the last literals; false once `out` has no room:
//   bool sequence(g, literals, num_literals, offset, length), bool last(g, literals, num_literals)
template <class G, class Out>
ROCKMILL_HD bool find_matches(const G& g, const u8* src, u32 n, MatchTable& table, Out& out) {
  table.clear(g);
  const u32 begins = n > MATCH_BEGINS_BEFORE ? n - MATCH_BEGINS_BEFORE + 1 : 0;
  // Bytes before `written` are handed on.
  u32 written = 0;
  for (u32 batch = 0; batch < begins;) {
    BatchOf<G> offsets;
    u32 found = 0;
    ROCKMILL_UNROLL
    for (u32 k = 0; k < offsets.PER_LANE; ++k) {
      const u32 position = batch + k * G::width + g.rank();
      const bool is_in = position < begins;
      const u32 word = is_in ? load32(src + position) : 0;
      const u32 offset = table.exchange(g, table.slot_of(word), position, is_in);
      offsets.own[k] = offset;
      const bool is_match = offset != 0 && offset <= position && load32(src + position - offset) == word;
      found |= g.ballot(is_match) << k * G::width;
    }
    while (found != 0) {
      const u32 i = lowest_bit(found);
      const u32 position = batch + i, offset = offsets.at(g, i);
      const u8* here = src + position;
      const u8* there = here - offset;
      const u32 possible = position - written < position - offset ? position - written : position - offset;
      const u32 before = common_length_before(g, here, there, possible);
      const u32 length = MIN_MATCH + common_length(g, here + MIN_MATCH, there + MIN_MATCH,
                                                   n - MATCH_ENDS_BEFORE - position - MIN_MATCH);
      if (!out.sequence(g, src + written, position - before - written, offset, before + length)) return false;
      written = position + length;
      found = written - batch < BATCH ? found & ~u32{0} << (written - batch) : 0;
    }
    batch = written > batch + BATCH ? written : batch + BATCH;
  }
  return out.last(g, src + written, n - written);
}

}  // namespace rockmill::ROCKMILL_TARGET

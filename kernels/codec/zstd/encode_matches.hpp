// The sequences of a ZSTD block, as a function of its bytes alone.
//
//  - 32 positions at a time, a batch, are looked up in two tables and noted there, as in match.hpp: by their next four
//    bytes, and by their next eight. The offsets that the next sequence may repeat are candidates as well, and after
//    each match in the batch its offset is one for the positions behind it.
//  - A candidate's score is four times the bytes that are the same, of up to 16, less the bits of its offset, which are
//    none for one that is repeated. A position has the first candidate with the best score.
//  - The first position of the batch with a score is a match, unless the score of the next position is better by more
//    than one; then that position is in its place, and so on. The match is made longer backwards, as far as nothing is
//    written yet, and forwards. The next match is looked for behind it in the batch.
//  - The next batch begins behind this one or behind the last match, whichever is later.
#pragma once

#include "../match.hpp"
#include "encode_sequences.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Offsets that sequences may repeat, the latest first.
struct ZstdRecent {
  u32 offsets[3] = {1, 4, 8};

  // The code of an offset, which is noted.
  ROCKMILL_HD u32 code(u32 offset, bool is_without_literals) {
    const u32 a = offsets[0], b = offsets[1], c = offsets[2];
    if (!is_without_literals && offset == a) return 1;
    offsets[0] = offset;
    offsets[1] = a;
    if (offset == b) return 2 - is_without_literals;
    offsets[2] = b;
    if (offset == c) return 3 - is_without_literals;
    if (is_without_literals && offset == a - 1) return 3;
    return offset + 3;
  }
};

struct ZstdMatchTables {
  MatchTable longs, shorts;
};

template <class G>
struct ZstdMatcher {
  static constexpr u32 LONG_MATCH = 8, LOOK = 16, BYTE_SCORE = 4, LATER_COST = 1;

  const G& g;
  const u8* src;
  u32 n;
  ZstdMatchTables& t;
  ZstdRecent& recent;
  // Literals are put there, and sequences from `last` downwards.
  u8* literals;
  ZstdSequence* last;
  u32 num_literals = 0, num_sequences = 0;
  // Bytes in front of it are handed on.
  u32 written = 0;
  // Offsets and scores for the positions of a batch.
  BatchOf<G> offsets, scores;

  ROCKMILL_HD void run() {
    t.longs.clear(g);
    t.shorts.clear(g);
    const u32 begins = n >= MIN_MATCH ? n - MIN_MATCH + 1 : 0;
    for (u32 batch = 0; batch < begins;) {
      ROCKMILL_UNROLL
      for (u32 k = 0; k < BatchOf<G>::PER_LANE; ++k) look_up(k, batch + k * G::width + g.rank());
      u32 offset = 0;
      for (u32 at = batch; find(batch, at, offset); at = written) {
        take(at, offset);
        if (written - batch < BATCH) consider_latest(batch);
      }
      batch = written > batch + BATCH ? written : batch + BATCH;
    }
    copy_apart(g, literals + num_literals, src + written, n - written);
    num_literals += n - written;
    g.sync();
  }

 private:
  // How many bytes are the same, up to LOOK; `word` is the first four. The last ones of the block may be left out.
  ROCKMILL_HD u32 same_bytes(u32 position, u32 offset, u32 word) const {
    const u8 *here = src + position, *there = here - offset;
    const u32 differing = word ^ load32(there);
    if (differing != 0) return lowest_bit(differing) / 8;
    // All at once, as each load is a way to the cache.
    u32 more[LOOK / 4];
    ROCKMILL_UNROLL
    for (u32 i = 1; i < LOOK / 4; ++i)
      more[i] = position + 4 * i + 4 <= n ? load32(here + 4 * i) ^ load32(there + 4 * i) : 1;
    u32 length = LOOK;
    ROCKMILL_UNROLL
    for (u32 i = LOOK / 4 - 1; i > 0; --i)
      if (more[i] != 0) length = 4 * i + lowest_bit(more[i]) / 8;
    return length;
  }

  static ROCKMILL_HD u32 score_of(u32 length, u32 offset_bits) {
    return length < MIN_MATCH || BYTE_SCORE * length <= offset_bits ? 0 : BYTE_SCORE * length - offset_bits;
  }

  // Finds the best offset of a lane's k-th position, and notes the position in the tables.
  ROCKMILL_HD void look_up(u32 k, u32 position) {
    const bool is_in = position + MIN_MATCH <= n, is_long = position + LONG_MATCH <= n;
    const u32 word = is_in ? load32(src + position) : 0, next = is_long ? load32(src + position + 4) : 0;
    const u32 near = t.shorts.exchange(g, t.shorts.slot_of(word), position, is_in);
    const u32 far = t.longs.exchange(g, t.longs.slot_of(word + next * 0x9e3779b1u), position, is_long);
    offsets.own[k] = scores.own[k] = 0;
    if (near != 0 && near <= position) consider(k, position, word, near, highest_bit(near));
    if (far != 0 && far <= position && far != near) consider(k, position, word, far, highest_bit(far));
    ROCKMILL_UNROLL
    for (u32 i = 0; i < 3; ++i)
      if (is_in && recent.offsets[i] <= position) consider(k, position, word, recent.offsets[i], 0);
  }

  ROCKMILL_HD void consider(u32 k, u32 position, u32 word, u32 offset, u32 offset_bits) {
    const u32 score = score_of(same_bytes(position, offset, word), offset_bits);
    if (score <= scores.own[k]) return;
    scores.own[k] = score;
    offsets.own[k] = offset;
  }

  // The latest offset may be repeated from here on.
  ROCKMILL_HD void consider_latest(u32 batch) {
    const u32 offset = recent.offsets[0];
    for (u32 k = (written - batch) / G::width; k < BatchOf<G>::PER_LANE; ++k) {
      const u32 position = batch + k * G::width + g.rank();
      if (position >= written && position + MIN_MATCH <= n) consider(k, position, load32(src + position), offset, 0);
    }
  }

  // The next match of a batch, at `at` or behind it.
  ROCKMILL_HD bool find(u32 batch, u32& at, u32& offset) const {
    u32 score = 0;
    for (u32 k = (at - batch) / G::width; k < BatchOf<G>::PER_LANE; ++k) {
      const u32 first = batch + k * G::width;
      const u32 own = first + g.rank() < at ? 0 : scores.own[k];
      u32 i = 0;
      if (score == 0) {
        const u32 found = g.ballot(own > 0);
        if (found == 0) continue;
        i = lowest_bit(found);
      } else if (g.shuffle(own, 0) <= score + LATER_COST) {
        return true;
      }
      const u32 next = g.shuffle(own, (g.rank() + 1) % G::width);
      const u32 is_next_better = g.ballot(g.rank() + 1 < G::width && next > own + LATER_COST);
      i += lowest_bit(~(is_next_better >> i));
      score = g.shuffle(own, i);
      at = first + i;
      offset = g.shuffle(offsets.own[k], i);
      if (i + 1 < G::width) return true;
    }
    return score != 0;
  }

  // Makes the match at `position` as long as it can be, and writes its sequence.
  ROCKMILL_HD void take(u32 position, u32 offset) {
    const u8 *here = src + position, *there = here - offset;
    const u32 possible = position - written < position - offset ? position - written : position - offset;
    const u32 before = common_length_before(g, here, there, possible);
    u32 length = MIN_MATCH, rest = n - position - MIN_MATCH;
    // Words are compared, so the last bytes are left to be compared one by one.
    if (rest > 3) length += common_length(g, here + length, there + length, rest - 3);
    while (position + length < n && n - position - length <= 3 && here[length] == there[length]) ++length;
    const u32 count = position - before - written;
    copy_apart(g, literals + num_literals, src + written, count);
    num_literals += count;
    const u32 code = recent.code(offset, count == 0);
    if (g.rank() == 0) *(last - num_sequences) = ZstdSequence::of(count, before + length, code);
    ++num_sequences;
    written = position + length;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

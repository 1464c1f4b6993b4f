// FSE tables of ZSTD (RFC 8878, 4.1): their descriptions, and building them with a whole group.
#pragma once

#include "bits.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 FSE_MIN_LOG = 5, FSE_MAX_LOG = 9, FSE_SYMBOLS = 64;
// Frequency of a symbol that has less than one place in a table.
constexpr u16 FSE_RARE = 0xffff;

// What building takes.
struct FseCounts {
  // Frequency of each symbol in the table, or FSE_RARE; then the number of its next state.
  u16 of[FSE_SYMBOLS];
  // Sum of the frequencies of all smaller symbols, without rare ones.
  u16 below[FSE_SYMBOLS + 1];
};

// A table of 2^log states. A state is its symbol, in the lowest six bits, and its number among the symbol's states. The
// numbers begin with the symbol's frequency in the table; the bits to be read and the next state follow from them. So a
// state takes two bytes.
struct FseTable {
  static constexpr u32 SYMBOL_BITS = 6;
  const u16* states;
  u32 log;

  ROCKMILL_HD u32 symbol(u32 state) const { return states[state] & ((u32{1} << SYMBOL_BITS) - 1); }
  // The state after `state`; takes up to FSE_MAX_LOG bits.
  ROCKMILL_HD u32 next(u32 state, BackwardBits& in) const {
    const u32 number = states[state] >> SYMBOL_BITS;
    const u32 bits = log - highest_bit(number);
    return (number << bits) - (u32{1} << log) + in.take(bits);
  }
};

// Reads a description; returns its number of bytes, or 0 if it is malformed. All lanes read the same.
template <class G>
ROCKMILL_HD u32 read_fse_counts(const G& g, const u8* at, u32 n, u32 max_log, u32 max_symbols, FseCounts& counts,
                                u32& symbols, u32& log) {
  log = bits_at(at, n, 0, 4) + FSE_MIN_LOG;
  if (log > max_log) return 0;
  u32 bit = 4, count = 0;
  // Remaining sum of frequencies, plus one.
  u32 left = (u32{1} << log) + 1;
  while (left > 1) {
    if (count == max_symbols) return 0;
    // Values up to `left`, of which the smallest take one bit less.
    const u32 bits = highest_bit(left) + 1, half = u32{1} << (bits - 1);
    const u32 shorter = 2 * half - 1 - left;
    u32 value = bits_at(at, n, bit, bits);
    if ((value & (half - 1)) < shorter) {
      value &= half - 1;
      bit += bits - 1;
    } else {
      if (value >= half) value -= shorter;
      bit += bits;
    }
    if (g.rank() == 0) counts.of[count] = u16(value - 1);
    ++count;
    left -= value == 0 ? 1 : value - 1;
    if (value != 1) continue;
    for (u32 zeros = 3; zeros == 3;) {
      zeros = bits_at(at, n, bit, 2);
      bit += 2;
      if (zeros > max_symbols - count) return 0;
      for (u32 i = 0; i < zeros; ++i, ++count)
        if (g.rank() == 0) counts.of[count] = 0;
    }
  }
  symbols = count;
  g.sync();
  return (bit + 7) / 8 <= n ? (bit + 7) / 8 : 0;
}

// Builds a table from its counts, which are those of a table of 2^log states.
template <class G>
ROCKMILL_HD void build_fse_table(const G& g, FseCounts& counts, u32 symbols, u32 log, u16* states) {
  const u32 size = u32{1} << log, step = (size >> 1) + (size >> 3) + 3;
  const u32 lower_lanes = (u32{1} << g.rank()) - 1;
  // Rare symbols have the last states, the first of them the very last; the others share the states before them.
  u32 shared = size, others = 0;
  for (u32 chunk = 0; chunk < symbols; chunk += g.width) {
    const u32 symbol = chunk + g.rank();
    const u32 count = symbol < symbols ? counts.of[symbol] : 0;
    const bool is_rare = count == FSE_RARE;
    const u32 rare = g.ballot(is_rare);
    if (is_rare) {
      states[shared - 1 - count_bits(rare & lower_lanes)] = u16(symbol);
      counts.of[symbol] = 1;
    }
    shared -= count_bits(rare);
    const u32 own = is_rare ? 0 : count, below = others + g.sum_below(own);
    if (symbol < symbols) counts.below[symbol] = u16(below);
    others += g.sum(own);
  }
  if (g.rank() == 0) counts.below[symbols] = u16(others);
  g.sync();
  // Steps through the states, so that those of a symbol are far apart. The n-th step that hits one of the shared states
  // gives it to the symbol of the n-th place in the order of symbols.
  u32 places = 0, symbol = 0;
  for (u32 chunk = 0; chunk < size; chunk += g.width) {
    const u32 state = (chunk + g.rank()) * step & (size - 1);
    const bool is_shared = state < shared;
    const u32 lanes = g.ballot(is_shared);
    if (is_shared) {
      const u32 place = places + count_bits(lanes & lower_lanes);
      while (counts.below[symbol + 1] <= place) ++symbol;
      states[state] = u16(symbol);
    }
    places += count_bits(lanes);
  }
  g.sync();
  // Numbers each symbol's states in their order.
  for (u32 chunk = 0; chunk < size; chunk += g.width) {
    const u32 state = chunk + g.rank(), own = states[state];
    u32 same = g.width == 32 ? ~u32{0} : (u32{1} << g.width % 32) - 1;
ROCKMILL_UNROLL
    for (u32 bit = 0; bit < FseTable::SYMBOL_BITS; ++bit) {
      const bool is_set = own >> bit & 1;
      const u32 lanes = g.ballot(is_set);
      same &= is_set ? lanes : ~lanes;
    }
    const u32 number = counts.of[own] + count_bits(same & lower_lanes);
    g.sync();
    if ((same & lower_lanes) == 0) counts.of[own] = u16(number + count_bits(same));
    states[state] = u16(own | number << FseTable::SYMBOL_BITS);
    g.sync();
  }
}

}  // namespace rockmill::ROCKMILL_TARGET

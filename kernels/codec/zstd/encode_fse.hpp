// FSE tables of ZSTD from how often symbols occur: choosing their counts, describing them, and encoding with them.
#pragma once

#include "fse.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Writes bits from the lowest of each byte on, at most `limit` bytes of them; beyond, they are counted. All lanes may
// write the same, those with a limit of 0 to know the size.
struct BitWriter {
  u8* to;
  u32 limit;
  u32 size = 0;
  u64 window = 0;
  u32 have = 0;

  // At most 32 bits, those above which are 0.
  ROCKMILL_HD void put(u32 value, u32 bits) {
    window |= u64(value) << have;
    have += bits;
    if (have < 32) return;
    if (size + 4 <= limit) store32(to + size, u32(window));
    size += 4;
    window >>= 32;
    have -= 32;
  }
  // Fills the last byte with zeros. Returns the bytes that all takes.
  ROCKMILL_HD u32 end() {
    for (; have > 0; have = have > 8 ? have - 8 : 0) {
      if (size < limit) to[size] = u8(window);
      ++size;
      window >>= 8;
    }
    return size;
  }
  // Ends what is read backwards.
  ROCKMILL_HD u32 close() {
    put(1, 1);
    return end();
  }
};

// How often each value occurs among `value(i)` for i < n, which is not 0; `counts` has room for all values. Returns the
// highest value.
template <class G, class F>
ROCKMILL_HD u32 count_values(const G& g, u32 n, u32* counts, u32 values, F value) {
  for (u32 i = g.rank(); i < values; i += g.width) counts[i] = 0;
  g.sync();
  // The next one is loaded while this one is counted.
  u32 next = g.rank() < n ? value(g.rank()) : 0;
  for (u32 chunk = 0; chunk < n; chunk += g.width) {
    const u32 i = chunk + g.rank(), own = next;
    if (i + g.width < n) next = value(i + g.width);
    // Nothing has such a value.
    const u32 peers = g.peers(i < n ? own : ~g.rank());
    if (i < n && lowest_bit(peers) == g.rank()) counts[own] += count_bits(peers);
    g.sync();
  }
  u32 highest = 0;
  for (u32 i = g.rank(); i < values; i += g.width)
    if (counts[i] != 0) highest = i;
  return g.max(highest);
}

constexpr u32 BIT_COST_LOG = 8;

// Binary logarithm in 2^-BIT_COST_LOG bits, rounded down; x is not 0.
ROCKMILL_HD u32 log2_fraction(u32 x) {
  constexpr u32 ONE_LOG = 15;
  u32 result = highest_bit(x);
  u32 rest = u32((u64{x} << ONE_LOG) >> result);
  for (u32 i = 0; i < BIT_COST_LOG; ++i) {
    rest = rest * rest >> ONE_LOG;
    const u32 bit = rest >> (ONE_LOG + 1);
    result = result << 1 | bit;
    rest >>= bit;
  }
  return result;
}

// The size of a table for so many symbols, of which `highest` is the highest.
ROCKMILL_HD u32 fse_log_for(u32 total, u32 highest, u32 max_log) {
  const u32 total_log = highest_bit(total), symbols_log = highest_bit(highest | 1) + 2;
  u32 log = total_log > 2 + FSE_MIN_LOG ? total_log - 2 : FSE_MIN_LOG;
  const u32 least = symbols_log < total_log + 1 ? symbols_log : total_log + 1;
  if (log < least) log = least;
  return log < max_log ? log : max_log;
}

// Counts in a table of 2^log states for symbols that occur `occurring[symbol]` times, `total` times together, less than
// 2^16. At most 2^log symbols occur.
template <class G>
ROCKMILL_HD void choose_fse_counts(const G& g, const u32* occurring, u32 symbols, u32 total, u32 log, u16* counts) {
  const u32 size = u32{1} << log;
  u32 given = 0;
  for (u32 i = g.rank(); i < symbols; i += g.width) {
    const u32 rounded = (2 * occurring[i] * size + total) / (2 * total);
    counts[i] = u16(rounded == 0 && occurring[i] > 0 ? 1 : rounded);
    given += counts[i];
  }
  given = g.sum(given);
  // A state more saves about occurring / (count + 1/2) bits, one less costs as much with count - 1/2.
  constexpr u32 SYMBOL_BITS = FseTable::SYMBOL_BITS, VALUE_LOG = 31 - SYMBOL_BITS - 16;
  while (given != size) {
    const bool is_more = given < size;
    u32 best = 0;
    for (u32 i = g.rank(); i < symbols; i += g.width) {
      if (occurring[i] == 0 || (!is_more && counts[i] == 1)) continue;
      const u32 value = (occurring[i] << VALUE_LOG) / (2 * counts[i] + (is_more ? 1 : -1));
      const u32 key = (is_more ? value : (u32{1} << (VALUE_LOG + 16)) - 1 - value) << SYMBOL_BITS | i;
      best = key > best ? key : best;
    }
    const u32 symbol = g.max(best) & ((u32{1} << SYMBOL_BITS) - 1);
    if (symbol % g.width == g.rank()) counts[symbol] = u16(is_more ? counts[symbol] + 1 : counts[symbol] - 1);
    given = is_more ? given + 1 : given - 1;
  }
  g.sync();
}

// Describes a table for read_fse_counts. Returns how many bytes that takes.
ROCKMILL_HD u32 write_fse_counts(const u16* counts, u32 log, u8* to, u32 limit) {
  BitWriter out{to, limit};
  out.put(log - FSE_MIN_LOG, 4);
  u32 left = (u32{1} << log) + 1;
  for (u32 symbol = 0; left > 1;) {
    const u32 count = counts[symbol++], value = count + 1;
    const u32 bits = highest_bit(left) + 1, half = u32{1} << (bits - 1), shorter = 2 * half - 1 - left;
    if (value < shorter) out.put(value, bits - 1);
    else out.put(value < half ? value : value + shorter, bits);
    left -= count;
    if (count != 0) continue;
    u32 zeros = 0;
    for (; counts[symbol] == 0; ++symbol) ++zeros;
    for (; zeros >= 3; zeros -= 3) out.put(3, 2);
    out.put(zeros, 2);
  }
  return out.end();
}

// The states of each symbol, by their numbers; see FseTable.
struct FseEncodeTable {
  u16 states[u32{1} << FSE_MAX_LOG];
  // How many states each symbol has, and above it where they are.
  u32 symbols[FSE_SYMBOLS];
  u32 log;

  static ROCKMILL_HD u32 entry(u32 count, u32 first) { return count | first << 16; }
  // The state that a stream ends with.
  ROCKMILL_HD u32 last_state(u32 symbol) const { return (u32{1} << log) + states[symbols[symbol] >> 16]; }
  // Moves to a state in front of `state`, from which a decoder comes there with the bits that are added to `bits`.
  ROCKMILL_HD void encode(u32& state, u32 symbol, u32& bits, u32& num_bits) const {
    const u32 entry = symbols[symbol], count = entry & 0xffff;
    u32 more = log - highest_bit(count);
    if (state >> more < count) --more;
    bits |= (state & ((u32{1} << more) - 1)) << num_bits;
    num_bits += more;
    state = (u32{1} << log) + states[(entry >> 16) + (state >> more) - count];
  }
  // Ends encoding: the first state, for the decoder to begin with.
  ROCKMILL_HD void flush(u32 state, BitWriter& out) const { out.put(state - (u32{1} << log), log); }
};

// `states` is room for 2^log of them.
template <class G>
ROCKMILL_HD void build_fse_encode_table(const G& g, FseCounts& counts, u32 symbols, u32 log, u16* states,
                                        FseEncodeTable& table) {
  u32 total = 0;
  for (u32 chunk = 0; chunk < symbols; chunk += g.width) {
    const u32 symbol = chunk + g.rank();
    u32 count = 0;
    if (symbol < symbols) count = counts.of[symbol] == FSE_RARE ? 1 : counts.of[symbol];
    const u32 below = total + g.sum_below(count);
    if (symbol < symbols) table.symbols[symbol] = FseEncodeTable::entry(count, below);
    total += g.sum(count);
  }
  if (g.rank() == 0) table.log = log;
  g.sync();
  build_fse_table(g, counts, symbols, log, states);
  for (u32 state = g.rank(); state < u32{1} << log; state += g.width) {
    const u32 symbol = states[state] & ((u32{1} << FseTable::SYMBOL_BITS) - 1);
    const u32 number = states[state] >> FseTable::SYMBOL_BITS;
    const u32 entry = table.symbols[symbol];
    table.states[(entry >> 16) + number - (entry & 0xffff)] = u16(state);
  }
  g.sync();
}

}  // namespace rockmill::ROCKMILL_TARGET

// Huffman codes of ZSTD's literals (RFC 8878, 4.2).
#pragma once

#include "tables.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Numbers of symbols with each weight: fields of ten bits, six in a word.
struct WeightCounts {
  static constexpr u32 FIELD_BITS = 10, FIELDS = 6;
  u64 light = 0, heavy = 0;

  static ROCKMILL_HD u32 shift_of(u32 weight) { return FIELD_BITS * ((weight - 1) % FIELDS); }
  ROCKMILL_HD void add(u32 weight) { (weight <= FIELDS ? light : heavy) += u64{1} << shift_of(weight); }
  ROCKMILL_HD u32 of(u32 weight) const {
    return u32((weight <= FIELDS ? light : heavy) >> shift_of(weight)) & ((u32{1} << FIELD_BITS) - 1);
  }
};

// Reads the weights of all symbols but the last one with a code. Returns their number of bytes, or 0 if they are
// malformed.
template <class G>
ROCKMILL_HD u32 read_huffman_weights(const G& g, const u8* at, u32 n, ZstdTables& t, u32& symbols) {
  if (n == 0) return 0;
  if (at[0] >= 128) {
    symbols = at[0] - 127;
    const u32 bytes = 1 + (symbols + 1) / 2;
    if (bytes > n) return 0;
    for (u32 i = g.rank(); i < symbols; i += g.width) t.weights[i] = at[1 + i / 2] >> (i % 2 == 0 ? 4 : 0) & 15;
    g.sync();
    return bytes;
  }
  const u32 bytes = at[0];
  if (bytes >= n) return 0;
  u32 kinds, log;
  const u32 counts_bytes =
      read_fse_counts(g, at + 1, bytes, HUFFMAN_WEIGHT_LOG, HUFFMAN_MAX_LOG + 1, t.weight_counts, kinds, log);
  if (counts_bytes == 0) return 0;
  build_fse_table(g, t.weight_counts, kinds, log, t.huffman);
  const FseTable table{t.huffman, log};
  BackwardBits in;
  if (!in.open(at + 1 + counts_bytes, bytes - counts_bytes)) return 0;
  in.refill();
  // Two states alternate, until one finds no bits left; then the other still has a symbol.
  u32 state = in.take(log), other = in.take(log);
  if (in.is_over()) return 0;
  symbols = 0;
  while (!in.is_over()) {
    if (symbols > HUFFMAN_SYMBOLS - 3) return 0;
    in.refill();
    if (g.rank() == 0) t.weights[symbols] = u8(table.symbol(state));
    ++symbols;
    const u32 next = table.next(state, in);
    state = other;
    other = next;
  }
  if (g.rank() == 0) t.weights[symbols] = u8(table.symbol(state));
  ++symbols;
  g.sync();
  return 1 + bytes;
}

// Builds the table of a description; returns its number of bytes, or 0 if it is malformed.
template <class G>
ROCKMILL_HD u32 build_huffman_table(const G& g, const u8* at, u32 n, ZstdTables& t, u32& log) {
  u32 symbols;
  const u32 bytes = read_huffman_weights(g, at, n, t, symbols);
  if (bytes == 0) return 0;

  // Each lane processes adjacent symbols, so that those of lower lanes come first.
  constexpr u32 PART = HUFFMAN_SYMBOLS / G::width;
  const u32 first = g.rank() * PART;
  WeightCounts own;
  bool is_bad = false;
  for (u32 i = first; i < first + PART && i < symbols; ++i) {
    const u32 weight = t.weights[i];
    if (weight > HUFFMAN_MAX_LOG) is_bad = true;
    else if (weight != 0) own.add(weight);
  }
  if (g.any(is_bad)) return 0;
  WeightCounts all{g.sum64(own.light), g.sum64(own.heavy)}, below{g.sum64_below(own.light), g.sum64_below(own.heavy)};
  u32 cells = 0;
  for (u32 weight = 1; weight <= HUFFMAN_MAX_LOG; ++weight) cells += all.of(weight) << (weight - 1);
  if (cells == 0) return 0;
  log = highest_bit(cells) + 1;
  if (log > HUFFMAN_MAX_LOG) return 0;
  // The last symbol takes the rest, which must be a power of 2.
  const u32 left = (u32{1} << log) - cells;
  if ((left & (left - 1)) != 0) return 0;
  const u32 last = highest_bit(left) + 1;
  all.add(last);
  // The longest codes come in pairs. Without any, the frame gives all codes one bit too many.
  if (all.of(1) == 0) return 0;

  for (u32 weight = 1 + g.rank(); weight <= HUFFMAN_MAX_LOG; weight += g.width) {
    u32 cell = 0;
    for (u32 lighter = 1; lighter < weight; ++lighter) cell += all.of(lighter) << (lighter - 1);
    t.cells[weight] = u16(cell);
  }
  g.sync();
  for (u32 i = first; i < first + PART && i <= symbols; ++i) {
    const u32 weight = i < symbols ? t.weights[i] : last;
    if (weight == 0) continue;
    const u32 count = u32{1} << (weight - 1);
    const u32 cell = t.cells[weight] + (below.of(weight) << (weight - 1));
    below.add(weight);
    const u32 value = i | (log + 1 - weight) << 8;
    if (count < 4) {
      for (u32 j = 0; j < count; ++j) t.huffman[cell + j] = u16(value);
    } else {
      u64* four = reinterpret_cast<u64*>(t.huffman + cell);
      for (u32 j = 0; j < count / 4; ++j) four[j] = value * u64{0x0001000100010001};
    }
  }
  g.sync();
  return bytes;
}

// Decodes one stream into `count` symbols; false if it has more or fewer bits.
ROCKMILL_HD bool decode_huffman(const u16* table, u32 log, const u8* at, u32 n, u8* to, u32 count) {
  BackwardBits in;
  if (!in.open(at, n)) return false;
  const auto next = [&] {
    const u32 cell = table[in.peek(log)];
    in.skip(cell >> 8);
    return cell & 0xff;
  };
  const auto one = [&](u32 i) {
    in.refill();
    to[i] = u8(next());
  };
  u32 i = 0;
  for (; i < count && (reinterpret_cast<u64>(to + i) & 3) != 0; ++i) one(i);
  for (; i + 4 <= count; i += 4) {
    in.refill();
    u32 word = next();
    word |= next() << 8;
    in.refill();
    word |= next() << 16;
    word |= next() << 24;
    *reinterpret_cast<u32*>(to + i) = word;
  }
  for (; i < count; ++i) one(i);
  return in.is_done();
}

}  // namespace rockmill::ROCKMILL_TARGET

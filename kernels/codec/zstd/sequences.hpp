// Sequences of ZSTD (RFC 8878, 3.1.1.3.2): their tables, and executing a batch of them.
#pragma once

#include "tables.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 ZSTD_LITERAL_CODES = 36, ZSTD_MATCH_CODES = 53, ZSTD_OFFSET_CODES = 32, ZSTD_DEFAULT_OFFSET_CODES = 29;
constexpr u32 ZSTD_LONGEST_CODES = 53;

// Constants of the format.
struct ZstdConstants {
  struct Code {
    u32 base, bits;
  };
  Code literals[ZSTD_LITERAL_CODES], matches[ZSTD_MATCH_CODES];
  // Frequency of each code in the predefined table, by ZstdField.
  u16 counts[ZSTD_FIELDS][ZSTD_LONGEST_CODES];

  constexpr ZstdConstants() : literals{}, matches{}, counts{} {
    constexpr u8 literal_bits[] = {1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    constexpr u8 match_bits[] = {1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    fill(literals, ZSTD_LITERAL_CODES, 0, literal_bits, ZSTD_LITERAL_CODES - sizeof literal_bits);
    fill(matches, ZSTD_MATCH_CODES, 3, match_bits, ZSTD_MATCH_CODES - sizeof match_bits);
    for (u32 i = 0; i < ZSTD_LITERAL_CODES; ++i)
      counts[ZSTD_LITERALS][i] = i == 0                           ? 4
                                 : i == 1 || i == 25              ? 3
                                 : i >= 32                        ? FSE_RARE
                                 : i >= 27 || (i >= 13 && i < 16) ? 1
                                                                  : 2;
    for (u32 i = 0; i < ZSTD_DEFAULT_OFFSET_CODES; ++i)
      counts[ZSTD_OFFSETS][i] = i >= 24 ? FSE_RARE : i >= 6 && i < 9 ? 2 : 1;
    for (u32 i = 0; i < ZSTD_MATCH_CODES; ++i)
      counts[ZSTD_MATCHES][i] = i >= 46 ? FSE_RARE : i == 1 ? 4 : i == 2 ? 3 : i >= 3 && i < 9 ? 2 : 1;
  }
  // The first `plain` codes have one value each.
  static constexpr void fill(Code* codes, u32 count, u32 base, const u8* bits, u32 plain) {
    for (u32 i = 0; i < count; ++i) {
      codes[i] = {base, i < plain ? u32{0} : bits[i - plain]};
      base += u32{1} << codes[i].bits;
    }
  }
};
#if defined(__CUDACC__)
__constant__ const ZstdConstants DEVICE_ZSTD{};
#endif
static const ZstdConstants HOST_ZSTD{};

ROCKMILL_HD const ZstdConstants& zstd_constants() {
#if defined(__CUDA_ARCH__)
  return DEVICE_ZSTD;
#else
  return HOST_ZSTD;
#endif
}

enum ZstdMode : u32 { ZSTD_PREDEFINED = 0, ZSTD_RLE = 1, ZSTD_DESCRIBED = 2, ZSTD_REPEAT = 3 };

// Number of codes of a field in a frame.
ROCKMILL_HD u32 zstd_codes(u32 field) {
  return field == ZSTD_LITERALS ? ZSTD_LITERAL_CODES : field == ZSTD_OFFSETS ? ZSTD_OFFSET_CODES : ZSTD_MATCH_CODES;
}

// Builds one field's table; its description begins at `at` of the `n` bytes of `src`. Moves `at` behind it; false if it
// is malformed.
template <class G>
ROCKMILL_HD bool build_field_table(const G& g, u32 field, u32 mode, const u8* src, u32 n, u32& at, ZstdTables& t) {
  u32 codes = 1, log = 0;
  if (mode == ZSTD_RLE) {
    if (at == n || src[at] >= zstd_codes(field)) return false;
    // One state, which takes no bits.
    if (g.rank() == 0) t.states[field][0] = u16(src[at] | 1 << FseTable::SYMBOL_BITS);
    ++at;
  } else {
    if (mode == ZSTD_PREDEFINED) {
      log = field == ZSTD_OFFSETS ? 5 : 6;
      codes = field == ZSTD_OFFSETS ? ZSTD_DEFAULT_OFFSET_CODES : zstd_codes(field);
      for (u32 i = g.rank(); i < codes; i += g.width) t.counts.of[i] = zstd_constants().counts[field][i];
      g.sync();
    } else {
      const u32 max_log = field == ZSTD_OFFSETS ? ZSTD_OFFSET_LOG : FSE_MAX_LOG;
      const u32 bytes = read_fse_counts(g, src + at, n - at, max_log, zstd_codes(field), t.counts, codes, log);
      if (bytes == 0) return false;
      at += bytes;
    }
    build_fse_table(g, t.counts, codes, log, t.states[field]);
  }
  if (g.rank() == 0) t.logs[field] = log;
  g.sync();
  return true;
}

// The sequences of a block, one after another. The tables are in shared memory, as registers are scarce.
struct ZstdSequenceReader {
  const ZstdTables& t;
  u32 literal, offset, match;
  BackwardBits in;

  // False if the stream is not closed.
  ROCKMILL_HD bool open(const u8* at, u32 n) {
    if (!in.open(at, n)) return false;
    in.refill();
    literal = in.take(t.logs[ZSTD_LITERALS]);
    offset = in.take(t.logs[ZSTD_OFFSETS]);
    match = in.take(t.logs[ZSTD_MATCHES]);
    return true;
  }
  // The lengths of the literals and of the match; returns the coded offset. For any bits, the codes are in range.
  ROCKMILL_HD u32 read(bool is_last, u32& literal_length, u32& match_length) {
    const ZstdConstants::Code literal_code = zstd_constants().literals[table(ZSTD_LITERALS).symbol(literal)];
    const ZstdConstants::Code match_code = zstd_constants().matches[table(ZSTD_MATCHES).symbol(match)];
    const u32 offset_bits = table(ZSTD_OFFSETS).symbol(offset);
    in.refill();
    const u32 coded_offset = (u32{1} << offset_bits) + in.take(offset_bits);
    in.refill();
    match_length = match_code.base + in.take(match_code.bits);
    literal_length = literal_code.base + in.take(literal_code.bits);
    if (!is_last) {
      in.refill();
      literal = table(ZSTD_LITERALS).next(literal, in);
      match = table(ZSTD_MATCHES).next(match, in);
      offset = table(ZSTD_OFFSETS).next(offset, in);
    }
    return coded_offset;
  }

 private:
  ROCKMILL_HD FseTable table(u32 field) const { return {t.states[field], t.logs[field]}; }
};

// Source of output byte `p`, which is in sequence `i`. The output is read only before `known`. The next `run` bytes,
// this one included, have adjacent sources.
ROCKMILL_HD const u8* zstd_origin(const u8* dst, const u8* literals, const ZstdBatch& batch, u32 p, u32 i, u32 known,
                                  u32& run) {
  run = ~u32{0};
  const auto at_most = [&](u32 bytes) { run = run < bytes ? run : bytes; };
  // Each turn continues before the match that contains the byte, and so in an earlier sequence, or stays in this one.
  for (;;) {
    const u32 output = batch.output[i], literal = batch.literal[i];
    const u32 match = output + (batch.literal[i + 1] - literal);
    if (p < match) {
      at_most(match - p);
      return literals + literal + (p - output);
    }
    at_most(batch.output[i + 1] - p);
    // A match that is longer than its offset repeats.
    const u32 offset = batch.offset[i], into = p - match, once = into < offset ? into : into % offset;
    at_most(offset - once);
    p = match - offset + once;
    if (p < known) {
      at_most(known - p);
      return dst + p;
    }
    while (p < batch.output[i]) --i;
  }
}

// Writes the output of a batch. The literals may lie in the output as well, if none lies before its own place there.
template <class G>
ROCKMILL_HD void execute_sequences(const G& g, u8* dst, const u8* literals, const ZstdBatch& batch, u32 count) {
  if constexpr (G::width == 1) {
    for (u32 i = 0; i < count; ++i) {
      u8* to = dst + batch.output[i];
      const u32 plain = batch.literal[i + 1] - batch.literal[i];
      std::memmove(to, literals + batch.literal[i], plain);
      copy_match(g, to + plain, batch.offset[i], batch.output[i + 1] - batch.output[i] - plain);
    }
  } else {
    // All lanes write a row, a word of four bytes each, then the next one. A copy that waits for the previous one costs
    // a trip to the cache, and there are many short ones. So within a row nothing waits: each byte is traced back to
    // bytes that existed before the row.
    const u32 skew = u32(reinterpret_cast<u64>(dst) & 3);
    const u32 begin = batch.output[0] + skew, end = batch.output[count] + skew;
    u32 i = 0;
    for (u32 row = begin & ~u32{3}; row < end; row += 4 * g.width) {
      const u32 own = row + 4 * g.rank();
      const u32 from = own < begin ? begin : own, to = own + 4 < end ? own + 4 : end;
      const u32 known = (row < begin ? begin : row) - skew;
      u32 word = 0;
      for (u32 p = from; p < to;) {
        while (batch.output[i + 1] <= p - skew) ++i;
        u32 run;
        const u8* origin = zstd_origin(dst, literals, batch, p - skew, i, known, run);
        if (run > to - p) run = to - p;
ROCKMILL_UNROLL
        for (u32 k = 0; k < 4; ++k)
          if (k < run) word |= u32(origin[k]) << 8 * (p + k - own);
        p += run;
      }
      g.sync();
      if (from + 4 == to) {
        *reinterpret_cast<u32*>(dst + (own - skew)) = word;
      } else {
        for (u32 p = from; p < to; ++p) dst[p - skew] = u8(word >> 8 * (p - own));
      }
      g.sync();
    }
  }
}

}  // namespace rockmill::ROCKMILL_TARGET

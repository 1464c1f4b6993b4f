// Sequences of a ZSTD block (RFC 8878, 3.1.1.3.2), written with the tables that give the shortest result.
#pragma once

#include "encode_fse.hpp"
#include "sequences.hpp"

namespace rockmill::ROCKMILL_TARGET {

// One word for each, in which they wait in global memory.
struct ZstdSequence {
  static constexpr u32 LENGTH_BITS = 20;
  u64 word;

  static ROCKMILL_HD ZstdSequence of(u32 literals, u32 match, u32 coded_offset) {
    return {literals | u64{match} << LENGTH_BITS | u64{coded_offset} << 2 * LENGTH_BITS};
  }
  ROCKMILL_HD u32 literals() const { return u32(word) & ((u32{1} << LENGTH_BITS) - 1); }
  ROCKMILL_HD u32 match() const { return u32(word >> LENGTH_BITS) & ((u32{1} << LENGTH_BITS) - 1); }
  ROCKMILL_HD u32 coded_offset() const { return u32(word >> 2 * LENGTH_BITS); }

  // The code of a field.
  ROCKMILL_HD u32 code(u32 field) const {
    if (field == ZSTD_OFFSETS) return highest_bit(coded_offset());
    if (field == ZSTD_LITERALS) {
      const u32 length = literals();
      if (length < 16) return length;
      if (length >= 64) return highest_bit(length) + 19;
      return below(zstd_constants().literals, 16, length);
    }
    const u32 length = match();
    if (length < 35) return length - 3;
    if (length >= 131) return highest_bit(length - 3) + 36;
    return below(zstd_constants().matches, 32, length);
  }

 private:
  // From `code` on, the last code whose values do not begin above `length`.
  static ROCKMILL_HD u32 below(const ZstdConstants::Code* codes, u32 code, u32 length) {
    while (codes[code + 1].base <= length) ++code;
    return code;
  }
};

struct ZstdSequenceTables {
  FseEncodeTable fields[ZSTD_FIELDS];
  u32 occurring[FSE_SYMBOLS];
  FseCounts counts;
  u16 states[u32{1} << FSE_MAX_LOG];
};

// Sequence i of `count` is `*(last - i)`.
template <class G>
struct ZstdSequenceWriter {
  const G& g;
  const ZstdSequence* last;
  u32 count;
  u8* to;
  u32 limit;
  ZstdSequenceTables& t;

  // Bytes of all sequences; at most `limit` are written.
  ROCKMILL_HD u32 write() {
    u32 head = count, head_bytes = 1;
    if (count >= 0x7f00) {
      head = 0xff | (count - 0x7f00) << 8;
      head_bytes = 3;
    } else if (count >= 128) {
      head = (count >> 8 | 128) | (count & 0xff) << 8;
      head_bytes = 2;
    }
    for (u32 i = g.rank(); i < head_bytes && i < limit; i += g.width) to[i] = u8(head >> 8 * i);
    if (count == 0) return head_bytes;
    u32 at = head_bytes + 1, modes = 0;
    for (u32 field = 0; field < ZSTD_FIELDS; ++field) modes |= build_table(field, at) << (6 - 2 * field);
    if (g.rank() == 0 && head_bytes < limit) to[head_bytes] = u8(modes);
    return at + write_stream(to + at, own_limit(at));
  }

 private:
  ROCKMILL_HD u32 own_limit(u32 at) const { return g.rank() == 0 && limit > at ? limit - at : 0; }

  // Cost of a table's codes without the bits behind them, in 2^-BIT_COST_LOG bits.
  ROCKMILL_HD u32 cost(u32 symbols, u32 log) const {
    u32 bits = 0;
    for (u32 i = g.rank(); i < symbols; i += g.width) {
      const u32 occurring = t.occurring[i], states = t.counts.of[i] == FSE_RARE ? 1 : t.counts.of[i];
      if (occurring > 0) bits += occurring * ((log << BIT_COST_LOG) - log2_fraction(states));
    }
    return g.sum(bits);
  }

  // Returns the mode; moves `at` behind the description.
  ROCKMILL_HD u32 build_table(u32 field, u32& at) {
    constexpr u32 BYTE_COST = 8 << BIT_COST_LOG;
    FseEncodeTable& table = t.fields[field];
    const auto code = [&](u32 i) { return (last - i)->code(field); };
    const u32 highest = count_values(g, count, t.occurring, FSE_SYMBOLS, code);
    load_predefined(field);
    u32 log = field == ZSTD_OFFSETS ? 5 : 6;
    u32 codes = field == ZSTD_OFFSETS ? ZSTD_DEFAULT_OFFSET_CODES : zstd_codes(field);
    const u32 predefined_cost = highest < codes ? cost(highest + 1, log) : ~u32{0};
    u32 mode = ZSTD_PREDEFINED;
    if (t.occurring[highest] == count) {
      if (predefined_cost > BYTE_COST) {
        if (g.rank() == 0) {
          if (at < limit) to[at] = u8(highest);
          table.symbols[highest] = FseEncodeTable::entry(1, 0);
          table.states[0] = 0;
          table.log = 0;
        }
        ++at;
        g.sync();
        return ZSTD_RLE;
      }
    } else {
      const u32 own_log = fse_log_for(count, highest, field == ZSTD_OFFSETS ? ZSTD_OFFSET_LOG : FSE_MAX_LOG);
      g.sync();
      choose_fse_counts(g, t.occurring, highest + 1, count, own_log, t.counts.of);
      const u32 bytes = write_fse_counts(t.counts.of, own_log, to + at, own_limit(at));
      if (cost(highest + 1, own_log) + bytes * BYTE_COST < predefined_cost) {
        at += bytes;
        log = own_log;
        codes = highest + 1;
        mode = ZSTD_DESCRIBED;
      } else {
        g.sync();
        load_predefined(field);
      }
    }
    g.sync();
    build_fse_encode_table(g, t.counts, codes, log, t.states, table);
    return mode;
  }

  ROCKMILL_HD void load_predefined(u32 field) {
    for (u32 i = g.rank(); i < ZSTD_LONGEST_CODES; i += g.width) t.counts.of[i] = zstd_constants().counts[field][i];
    g.sync();
  }

  ROCKMILL_HD u32 write_stream(u8* stream, u32 stream_limit) const {
    BitWriter out{stream, stream_limit};
    const FseEncodeTable &literals = t.fields[ZSTD_LITERALS], &offsets = t.fields[ZSTD_OFFSETS],
                         &matches = t.fields[ZSTD_MATCHES];
    u32 literal = 0, offset = 0, match = 0;
    for (u32 end = count; end > 0;) {
      // Each lane reads a sequence, then all write one after another.
      const u32 first = (end - 1) / g.width * g.width, own = first + g.rank();
      u32 codes = 0, lengths = 0, offset_bits = 0;
      if (own < end) {
        const ZstdSequence sequence = *(last - own);
        const u32 literal_code = sequence.code(ZSTD_LITERALS), match_code = sequence.code(ZSTD_MATCHES),
                  offset_code = sequence.code(ZSTD_OFFSETS);
        const ZstdConstants::Code of_literals = zstd_constants().literals[literal_code],
                                  of_match = zstd_constants().matches[match_code];
        lengths = (sequence.literals() - of_literals.base) | (sequence.match() - of_match.base) << of_literals.bits;
        offset_bits = sequence.coded_offset() - (u32{1} << offset_code);
        codes = literal_code | match_code << 8 | offset_code << 16 | (of_literals.bits + of_match.bits) << 24;
      }
      while (end-- > first) {
        const u32 i = end - first, here = g.shuffle(codes, i);
        const u32 literal_code = here & 0xff, match_code = here >> 8 & 0xff, offset_code = here >> 16 & 0xff;
        if (end + 1 == count) {
          literal = literals.last_state(literal_code);
          match = matches.last_state(match_code);
          offset = offsets.last_state(offset_code);
        } else {
          u32 bits = 0, num_bits = 0;
          offsets.encode(offset, offset_code, bits, num_bits);
          matches.encode(match, match_code, bits, num_bits);
          literals.encode(literal, literal_code, bits, num_bits);
          out.put(bits, num_bits);
        }
        out.put(g.shuffle(lengths, i), here >> 24);
        out.put(g.shuffle(offset_bits, i), offset_code);
      }
      end = first;
    }
    matches.flush(match, out);
    offsets.flush(offset, out);
    literals.flush(literal, out);
    return out.close();
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

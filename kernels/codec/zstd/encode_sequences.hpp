// Sequences of a ZSTD block (RFC 8878, 3.1.1.3.2), written with the tables that make them shortest.
#pragma once

#include "encode_fse.hpp"
#include "sequences.hpp"

namespace rockmill::ROCKMILL_TARGET {

// In a word each, as they wait in global memory.
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

  // Bytes of all; at most `limit` are written.
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

  // What a table's codes take without the bits behind them, in 2^-BIT_COST_LOG bits.
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
    count_values(g, count, t.occurring, FSE_SYMBOLS, [&](u32 i) { return (last - i)->code(field); });
    u32 highest = FSE_SYMBOLS - 1;
    while (t.occurring[highest] == 0) --highest;
    load_predefined(field);
    const u32 predefined_log = field == ZSTD_OFFSETS ? 5 : 6;
    const u32 predefined_codes = field == ZSTD_OFFSETS ? ZSTD_DEFAULT_OFFSET_CODES : zstd_codes(field);
    const u32 predefined_cost = highest < predefined_codes ? cost(highest + 1, predefined_log) : ~u32{0};
    if (t.occurring[highest] == count) {
      if (predefined_cost > BYTE_COST) {
        if (g.rank() == 0) {
          if (at < limit) to[at] = u8(highest);
          table.counts[highest] = 1;
          table.first[highest] = 0;
          table.states[0] = 0;
          table.log = 0;
        }
        ++at;
        g.sync();
        return ZSTD_RLE;
      }
    } else {
      const u32 log = fse_log_for(count, highest, field == ZSTD_OFFSETS ? ZSTD_OFFSET_LOG : FSE_MAX_LOG);
      g.sync();
      if (g.rank() == 0) choose_fse_counts(t.occurring, highest + 1, count, log, t.counts.of);
      g.sync();
      const u32 bytes = write_fse_counts(t.counts.of, log, to + at, own_limit(at));
      if (cost(highest + 1, log) + bytes * BYTE_COST < predefined_cost) {
        at += bytes;
        g.sync();
        build_fse_encode_table(g, t.counts, highest + 1, log, t.states, table);
        return ZSTD_DESCRIBED;
      }
      g.sync();
      load_predefined(field);
    }
    build_fse_encode_table(g, t.counts, predefined_codes, predefined_log, t.states, table);
    return ZSTD_PREDEFINED;
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
    for (u32 i = count; i-- > 0;) {
      const ZstdSequence sequence = *(last - i);
      const u32 literal_code = sequence.code(ZSTD_LITERALS), offset_code = sequence.code(ZSTD_OFFSETS),
                match_code = sequence.code(ZSTD_MATCHES);
      if (i + 1 == count) {
        literal = literals.last_state(literal_code);
        offset = offsets.last_state(offset_code);
        match = matches.last_state(match_code);
      } else {
        offset = offsets.encode(offset, offset_code, out);
        match = matches.encode(match, match_code, out);
        literal = literals.encode(literal, literal_code, out);
      }
      const ZstdConstants::Code &of_literals = zstd_constants().literals[literal_code],
                                &of_match = zstd_constants().matches[match_code];
      out.put(sequence.literals() - of_literals.base, of_literals.bits);
      out.put(sequence.match() - of_match.base, of_match.bits);
      out.put(sequence.coded_offset() - (u32{1} << offset_code), offset_code);
    }
    matches.flush(match, out);
    offsets.flush(offset, out);
    literals.flush(literal, out);
    return out.close();
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

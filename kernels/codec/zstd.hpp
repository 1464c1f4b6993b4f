// ZSTD frames (RFC 8878): everything that libzstd writes without a dictionary. A frame that names a dictionary is
// unsupported. A frame that was made with an unnumbered dictionary is malformed, unless it does not use it. Bytes
// behind the frame make it malformed, and so does another frame or a skippable one before it.
//
// Stricter than libzstd, which accepts Huffman codes of 12 bits, Huffman streams that end within a code, and raw and
// repeated blocks above the window's size or 128 KiB. Offsets beyond the window are accepted, as by libzstd.
//
// The work is linear in the sizes of source and target: a sequence produces at least three bytes, and a block builds at
// most 400 states and cells of tables for each byte of the source. On the device, summing a target's content reads
// aligned words of eight bytes.
#pragma once

#include "../common/checksum.hpp"
#include "zstd/huffman.hpp"
#include "zstd/sequences.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 ZSTD_MAGIC = 0xfd2fb528, ZSTD_MIN_WINDOW_LOG = 10, ZSTD_MAX_WINDOW_LOG = 31;
constexpr u32 ZSTD_MAX_BLOCK = 128 << 10;

template <class G>
struct ZstdDecoder {
  const G& g;
  const u8* src;
  u32 n;
  u8* dst;
  u32 m;
  ZstdTables& t;
  // Bytes read and written so far.
  u32 at = 0, written = 0;
  // Maximum size of a block, packed or not, and the limit of this block's output.
  u32 block_max = 0, limit = 0;
  // Offsets that sequences may repeat.
  u32 recent0 = 1, recent1 = 4, recent2 = 8;
  // Literals of the block. Packed literals are unpacked into the end of the output: the remaining output is at least as
  // long as the remaining literals, so none is overwritten before it is read.
  const u8* literals = nullptr;
  u32 num_literals = 0;

  ROCKMILL_HD u32 decode() {
    const u32 status = read_header();
    if (status != CODEC_OK) return status;
    if (g.rank() == 0) {
      t.huffman_at = 0;
      for (u32 field = 0; field < ZSTD_FIELDS; ++field) t.fields[field].mode = ZSTD_REPEAT;
    }
    g.sync();
    for (bool is_last = false; !is_last;) {
      if (n - at < 3) return CODEC_MALFORMED;
      const u32 head = u32(little_endian(src + at, 3));
      at += 3;
      is_last = head & 1;
      if (!decode_block(head >> 1 & 3, head >> 3)) return CODEC_MALFORMED;
      g.sync();
    }
    if (written != m) return CODEC_MALFORMED;
    if ((src[4] & HAS_CHECKSUM) != 0) {
      if (n - at < 4) return CODEC_MALFORMED;
      const u64 sum = m == 0 ? xxh64_avalanche(PRIME64_5) : xxh64(dst, m - 1, dst[m - 1]);
      if (u32(sum) != load32(src + at)) return CODEC_MALFORMED;
      at += 4;
    }
    return at == n ? CODEC_OK : CODEC_MALFORMED;
  }

  static constexpr u32 RESERVED = 1 << 3, HAS_CHECKSUM = 1 << 2, IS_SINGLE = 1 << 5;

  ROCKMILL_HD u32 read_header() {
    if (n < 9 || load32(src) != ZSTD_MAGIC) return CODEC_MALFORMED;
    const u32 flags = src[4];
    at = 5;
    const bool is_single = (flags & IS_SINGLE) != 0;
    const u32 dictionary_bytes = (u32{1} << (flags & 3)) >> 1;
    const u32 size_form = flags >> 6, size_bytes = size_form == 0 ? is_single : u32{1} << size_form;
    if ((flags & RESERVED) != 0 || n - at < !is_single + dictionary_bytes + size_bytes) return CODEC_MALFORMED;
    u64 window = m;
    if (!is_single) {
      const u32 log = (src[at] >> 3) + ZSTD_MIN_WINDOW_LOG;
      if (log > ZSTD_MAX_WINDOW_LOG) return CODEC_MALFORMED;
      window = (u64{1} << log) + ((u64{1} << log) >> 3) * (src[at] & 7);
      ++at;
    }
    block_max = window < ZSTD_MAX_BLOCK ? u32(window) : ZSTD_MAX_BLOCK;
    if (little_endian(src + at, dictionary_bytes) != 0) return CODEC_UNSUPPORTED;
    at += dictionary_bytes;
    const u64 size = little_endian(src + at, size_bytes) + (size_form == 1 ? 256 : 0);
    at += size_bytes;
    return size_bytes == 0 || size == m ? CODEC_OK : CODEC_MALFORMED;
  }

  ROCKMILL_HD bool decode_block(u32 kind, u32 size) {
    constexpr u32 RAW = 0, REPEATED = 1, PACKED = 2;
    limit = written + (m - written < block_max ? m - written : block_max);
    if (kind > PACKED || size > block_max || (kind == REPEATED ? 1 : size) > n - at) return false;
    if (kind == PACKED) {
      const u32 end = at + size;
      return read_literals(end) && read_sequences(end);
    }
    if (size > limit - written) return false;
    if (kind == RAW) {
      copy_apart(g, dst + written, src + at, size);
      at += size;
    } else {
      fill(dst + written, src[at], size);
      ++at;
    }
    written += size;
    return true;
  }

  ROCKMILL_HD void fill(u8* to, u8 byte, u32 count) const {
    for (u32 i = g.rank(); i < count; i += g.width) to[i] = byte;
  }

  // The block ends at `end`.
  ROCKMILL_HD bool read_literals(u32 end) {
    constexpr u32 RAW = 0, REPEATED = 1, WITH_TABLE = 2;
    if (at == end) return false;
    const u32 kind = src[at] & 3, form = src[at] >> 2 & 3;
    const u32 bytes = kind >= WITH_TABLE ? (form < 2 ? 3 : form + 2) : form % 2 == 0 ? 1 : form == 1 ? 2 : 3;
    if (bytes > end - at) return false;
    const u64 head = little_endian(src + at, bytes);
    const u32 size_bits = 4 * bytes - 2;
    at += bytes;
    num_literals = u32(head >> (kind < WITH_TABLE && bytes == 1 ? 3 : 4));
    if (kind >= WITH_TABLE) num_literals &= (u32{1} << size_bits) - 1;
    if (num_literals > limit - written) return false;
    if (kind == RAW) {
      if (num_literals > end - at) return false;
      literals = src + at;
      at += num_literals;
      return true;
    }
    u8* const unpacked = dst + (m - num_literals);
    literals = unpacked;
    if (kind == REPEATED) {
      if (at == end) return false;
      fill(unpacked, src[at], num_literals);
      ++at;
      return true;
    }
    const u32 packed = u32(head >> (4 + size_bits));
    if (packed > end - at) return false;
    return unpack_literals(kind == WITH_TABLE, form == 0, at + packed, unpacked);
  }

  // Literals in Huffman codes, from `at` to `end`.
  ROCKMILL_HD bool unpack_literals(bool has_table, bool is_single, u32 end, u8* to) {
    const u32 table_at = has_table ? at : t.huffman_at;
    if (table_at == 0) return false;
    u32 log;
    const u32 table_bytes = build_huffman_table(g, src + table_at, (has_table ? end : n) - table_at, t, log);
    if (table_bytes == 0) return false;
    if (g.rank() == 0) t.huffman_at = table_at;
    u32 from = at + (has_table ? table_bytes : 0);
    at = end;
    bool is_sound = true;
    if (is_single) {
      if (g.rank() == 0) is_sound = decode_huffman(t.huffman, log, src + from, end - from, to, num_literals);
    } else {
      const u32 part = (num_literals + 3) / 4;
      if (end - from < 10 || num_literals < 6 || 3 * part > num_literals) return false;
      const auto length = [&](u32 i) { return u32(little_endian(src + from + 2 * i, 2)); };
      if (length(0) + length(1) + length(2) > end - from - 6) return false;
      for (u32 i = g.rank(); i < 4; i += g.width) {
        u32 stream = from + 6;
        for (u32 j = 0; j < i; ++j) stream += length(j);
        const u32 packed = i < 3 ? length(i) : end - stream, count = i < 3 ? part : num_literals - 3 * part;
        is_sound &= decode_huffman(t.huffman, log, src + stream, packed, to + i * part, count);
      }
    }
    g.sync();
    return g.all(is_sound);
  }

  ROCKMILL_HD bool read_sequences(u32 end) {
    if (at == end) return false;
    u32 count = src[at++];
    if (count >= 128) {
      const bool is_long = count == 255;
      if (end - at < 1 + u32{is_long}) return false;
      count = is_long ? u32(little_endian(src + at, 2)) + 0x7f00 : (count - 128) << 8 | src[at];
      at += 1 + u32{is_long};
    }
    ZstdSequenceReader sequences{t, 0, 0, 0, {}};
    if (count != 0) {
      if (!build_field_tables(end) || !sequences.open(src + at, end - at)) return false;
      at = end;
    }
    return at == end && execute(sequences, count);
  }

  ROCKMILL_HD bool build_field_tables(u32 end) {
    if (at == end) return false;
    const u32 modes = src[at++];
    if ((modes & 3) != 0) return false;
    for (u32 field = 0; field < ZSTD_FIELDS; ++field) {
      u32 mode = modes >> (6 - 2 * field) & 3, from = at;
      const bool is_repeat = mode == ZSTD_REPEAT;
      if (is_repeat) {
        mode = t.fields[field].mode;
        from = t.fields[field].at;
        if (mode == ZSTD_REPEAT) return false;
      }
      u32 behind = from;
      if (!build_field_table(g, field, mode, src, is_repeat ? n : end, behind, t)) return false;
      if (is_repeat) continue;
      at = behind;
      if (g.rank() == 0) t.fields[field] = {mode, from};
    }
    return true;
  }

  // All lanes decode the same sequences: together they take no longer than one lane would, and all know the result. The
  // literals behind the last match are one more sequence, without a match.
  ROCKMILL_HD bool execute(ZstdSequenceReader& sequences, u32 count) {
    u32 left = num_literals;
    for (u32 done = 0; done <= count;) {
      u32 batch = 0;
      begin_sequence(batch, left);
      for (; batch < ZstdBatch::SIZE && done <= count; ++done) {
        u32 plain = left, match = 0, offset = 1;
        if (done < count) {
          const u32 coded = sequences.read(done + 1 == count, plain, match);
          offset = offset_of(coded, plain == 0);
          if (plain > left || match > limit - written - left || offset == 0 || offset > written + plain) return false;
        } else if (count != 0 && !sequences.in.is_done()) {
          return false;
        }
        if (g.rank() == 0) t.batch.offset[batch] = offset;
        left -= plain;
        written += plain + match;
        begin_sequence(++batch, left);
      }
      g.sync();
      execute_sequences(g, dst, literals, t.batch, batch);
      g.sync();
    }
    return true;
  }

  ROCKMILL_HD void begin_sequence(u32 i, u32 left) const {
    if (g.rank() != 0) return;
    t.batch.output[i] = written;
    t.batch.literal[i] = num_literals - left;
  }

  // 0 if there is no such offset.
  ROCKMILL_HD u32 offset_of(u32 coded, bool is_without_literals) {
    constexpr u32 REPEATS = 3;
    const u32 which = coded - 1 + is_without_literals;
    if (coded <= REPEATS && which == 0) return recent0;
    u32 offset = coded - REPEATS;
    if (coded <= REPEATS) offset = which == 1 ? recent1 : which == 2 ? recent2 : recent0 - 1;
    if (coded > REPEATS || which != 1) recent2 = recent1;
    recent1 = recent0;
    recent0 = offset;
    return offset;
  }
};

// Decodes a frame; all lanes receive the CodecStatus. Writes m bytes or fails.
template <class G>
ROCKMILL_HD u32 zstd_decode(const G& g, const u8* src, u32 n, u8* dst, u32 m, ZstdTables& tables) {
  if (m > MAX_BLOCK_BYTES) return CODEC_MALFORMED;
  return ZstdDecoder<G>{g, src, n, dst, m, tables}.decode();
}

}  // namespace rockmill::ROCKMILL_TARGET

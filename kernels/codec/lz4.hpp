// LZ4 blocks, without frames: sequences of a token, literals, an offset and a match; literals alone at the end.
#pragma once

#include "match.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The value of a token's half that says that more bytes follow.
constexpr u32 LZ4_LONG = 15;

// Sums the bytes of a long length; false if they do not end or the length exceeds `limit`.
ROCKMILL_HD bool lz4_read_length(const u8* src, u32 n, u32 limit, u32& at, u32& length) {
  for (u32 byte = 255; byte == 255; length += byte) {
    if (at >= n || length > limit) return false;
    byte = src[at++];
  }
  return true;
}

// Requires the end of the block to obey MATCH_BEGINS_BEFORE and MATCH_ENDS_BEFORE. Like liblz4, it accepts only a 0 for
// an empty block. Unlike liblz4, it refuses every offset of 0 and every match that ends late: liblz4 checks neither if
// it copies a short match in one step.
template <class G>
ROCKMILL_HD u32 lz4_decode(const G& g, const u8* src, u32 n, u8* dst, u32 m) {
  if (m > MAX_BLOCK_BYTES) return CODEC_MALFORMED;
  for (u32 in = 0, out = 0;;) {
    if (in >= n) return CODEC_MALFORMED;
    const u32 token = src[in++];
    u32 literals = token >> 4;
    if (literals == LZ4_LONG && !lz4_read_length(src, n, m, in, literals)) return CODEC_MALFORMED;
    if (literals > n - in || literals > m - out) return CODEC_MALFORMED;
    copy_apart(g, dst + out, src + in, literals);
    in += literals;
    out += literals;
    if (in == n) return out == m && (m > 0 || token == 0) ? CODEC_OK : CODEC_MALFORMED;
    if (n - in < 2 || m - out < MATCH_BEGINS_BEFORE) return CODEC_MALFORMED;
    const u32 offset = src[in] | u32(src[in + 1]) << 8;
    in += 2;
    u32 length = token & 15;
    if (length == LZ4_LONG && !lz4_read_length(src, n, m, in, length)) return CODEC_MALFORMED;
    length += MIN_MATCH;
    if (offset == 0 || offset > out || length > m - out - MATCH_ENDS_BEFORE) return CODEC_MALFORMED;
    copy_match(g, dst + out, offset, length);
    out += length;
  }
}

// Writes sequences; see find_matches.
struct Lz4Out {
  u8* dst;
  u32 capacity;
  u32 size;

  // Bytes of a length beside its token.
  static ROCKMILL_HD u32 more_bytes(u32 length) { return length < LZ4_LONG ? 0 : (length - LZ4_LONG) / 255 + 1; }
  static ROCKMILL_HD u32 in_token(u32 length) { return length < LZ4_LONG ? length : LZ4_LONG; }

  template <class G>
  ROCKMILL_HD void put_more(const G& g, u32 length, u32 bytes) {
    for (u32 i = g.rank(); i < bytes; i += G::width)
      dst[size + i] = u8(i + 1 < bytes ? 255 : (length - LZ4_LONG) % 255);
    size += bytes;
  }

  template <class G>
  ROCKMILL_HD void put_literals(const G& g, const u8* from, u32 count, u32 bytes, u32 match) {
    if (g.rank() == 0) dst[size] = u8(in_token(count) << 4 | in_token(match));
    size += 1;
    put_more(g, count, bytes);
    copy_apart(g, dst + size, from, count);
    size += count;
  }

  template <class G>
  ROCKMILL_HD bool sequence(const G& g, const u8* literals, u32 count, u32 offset, u32 length) {
    const u32 match = length - MIN_MATCH;
    const u32 count_bytes = more_bytes(count), match_bytes = more_bytes(match);
    if (1 + count_bytes + count + 2 + match_bytes > capacity - size) return false;
    put_literals(g, literals, count, count_bytes, match);
    if (g.rank() == 0) {
      dst[size] = u8(offset);
      dst[size + 1] = u8(offset >> 8);
    }
    size += 2;
    put_more(g, match, match_bytes);
    return true;
  }

  template <class G>
  ROCKMILL_HD bool last(const G& g, const u8* literals, u32 count) {
    const u32 count_bytes = more_bytes(count);
    if (1 + count_bytes + count > capacity - size) return false;
    put_literals(g, literals, count, count_bytes, 0);
    return true;
  }
};

// The size of the block as LZ4, or 0 if it would exceed the capacity. Groups of all widths write the same bytes.
template <class G>
ROCKMILL_HD u32 lz4_encode(const G& g, const u8* src, u32 n, u8* dst, u32 capacity, MatchTable& table) {
  if (n > MAX_BLOCK_BYTES) return 0;
  Lz4Out out{dst, capacity, 0};
  return find_matches(g, src, n, table, out) ? out.size : 0;
}

}  // namespace rockmill::ROCKMILL_TARGET

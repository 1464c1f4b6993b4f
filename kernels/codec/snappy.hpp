// Snappy blocks, without frames: the size of the content, then literals and copies, each with a tag in front.
#pragma once

#include "match.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The lowest two bits of a tag.
enum SnappyTag : u32 { SNAPPY_LITERALS = 0, SNAPPY_COPY_1 = 1, SNAPPY_COPY_2 = 2, SNAPPY_COPY_4 = 3 };

// Literals of more bytes have their length behind the tag.
constexpr u32 SNAPPY_SHORT_LITERALS = 60;
constexpr u32 SNAPPY_LONGEST_COPY = 64;

// Little-endian number of up to four bytes.
ROCKMILL_HD u32 snappy_number(const u8* at, u32 bytes) {
  u32 value = 0;
  ROCKMILL_UNROLL
  for (u32 i = 0; i < 4; ++i)
    if (i < bytes) value |= u32(at[i]) << 8 * i;
  return value;
}

// `src` begins with the content's size, which must be `m`.
template <class G>
ROCKMILL_HD u32 snappy_decode(const G& g, const u8* src, u32 n, u8* dst, u32 m) {
  const u8* first = src;
  u32 said;
  if (m > MAX_BLOCK_BYTES || !read_varint(first, src + n, said) || said != m) return CODEC_MALFORMED;
  u32 out = 0;
  for (u32 in = u32(first - src); in < n;) {
    const u32 tag = src[in++], kind = tag & 3;
    // Number of bytes behind the tag.
    u32 bytes = kind == SNAPPY_COPY_4 ? 4 : kind;
    u32 length = (tag >> 2) + 1;
    if (kind == SNAPPY_LITERALS && length > SNAPPY_SHORT_LITERALS) bytes = length - SNAPPY_SHORT_LITERALS;
    if (bytes > n - in) return CODEC_MALFORMED;
    const u32 number = snappy_number(src + in, bytes);
    in += bytes;
    if (kind == SNAPPY_LITERALS) {
      if (bytes > 0) length = number + 1;
      // A length that does not fit in 32 bits has become 0.
      if (length == 0 || length > n - in || length > m - out) return CODEC_MALFORMED;
      copy_apart(g, dst + out, src + in, length);
      in += length;
    } else {
      u32 offset = number;
      if (kind == SNAPPY_COPY_1) {
        length = 4 + (tag >> 2 & 7);
        offset |= tag >> 5 << 8;
      }
      if (offset == 0 || offset > out || length > m - out) return CODEC_MALFORMED;
      copy_match(g, dst + out, offset, length);
    }
    out += length;
  }
  return out == m ? CODEC_OK : CODEC_MALFORMED;
}

// Writes literals and copies; see find_matches.
struct SnappyOut {
  u8* dst;
  u32 capacity;
  u32 size;

  template <class G>
  ROCKMILL_HD bool begin(const G& g, u32 n) {
    const u32 bytes = varint_len(n);
    if (bytes > capacity) return false;
    for (u32 i = g.rank(); i < bytes; i += G::width)
      dst[i] = u8((n >> 7 * i & 0x7f) | (i + 1 < bytes ? 0x80 : 0));
    size = bytes;
    return true;
  }

  // Also called between matches: zero literals are a separate case.
  template <class G>
  ROCKMILL_HD bool last(const G& g, const u8* literals, u32 count) {
    if (count == 0) return true;
    const u32 less_one = count - 1;
    const u32 bytes = less_one < SNAPPY_SHORT_LITERALS ? 0
                      : less_one < 1u << 8             ? 1
                      : less_one < 1u << 16            ? 2
                      : less_one < 1u << 24            ? 3
                                                       : 4;
    if (1 + bytes + count > capacity - size) return false;
    if (g.rank() == 0) {
      const u32 tag = bytes == 0 ? less_one : SNAPPY_SHORT_LITERALS - 1 + bytes;
      dst[size] = u8(tag << 2 | SNAPPY_LITERALS);
      for (u32 i = 0; i < bytes; ++i) dst[size + 1 + i] = u8(less_one >> 8 * i);
    }
    size += 1 + bytes;
    copy_apart(g, dst + size, literals, count);
    size += count;
    return true;
  }

  template <class G>
  ROCKMILL_HD bool sequence(const G& g, const u8* literals, u32 count, u32 offset, u32 length) {
    if (!last(g, literals, count)) return false;
    while (length > 0) {
      // So that no part has less than four bytes.
      const u32 part = length >= SNAPPY_LONGEST_COPY + MIN_MATCH ? SNAPPY_LONGEST_COPY
                       : length > SNAPPY_LONGEST_COPY            ? SNAPPY_LONGEST_COPY - MIN_MATCH
                                                                 : length;
      const bool is_short = part < 12 && offset < 1u << 11;
      const u32 bytes = is_short ? 2 : 3;
      if (bytes > capacity - size) return false;
      if (g.rank() == 0) {
        dst[size] = u8(is_short ? offset >> 8 << 5 | (part - 4) << 2 | SNAPPY_COPY_1 : (part - 1) << 2 | SNAPPY_COPY_2);
        dst[size + 1] = u8(offset);
        if (!is_short) dst[size + 2] = u8(offset >> 8);
      }
      size += bytes;
      length -= part;
    }
    return true;
  }
};

// The size of the block as Snappy, or 0 if it would exceed the capacity. Groups of all widths write the same bytes.
template <class G>
ROCKMILL_HD u32 snappy_encode(const G& g, const u8* src, u32 n, u8* dst, u32 capacity, MatchTable& table) {
  if (n > MAX_BLOCK_BYTES) return 0;
  SnappyOut out{dst, capacity, 0};
  return out.begin(g, n) && find_matches(g, src, n, table, out) ? out.size : 0;
}

}  // namespace rockmill::ROCKMILL_TARGET

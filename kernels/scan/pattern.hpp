// Whether bytes match a pattern (crates/cpu/src/scan/pattern.rs is the same on the CPU).
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Some bytes. Those of a string in groups are not contiguous: a marker follows each group, and spaces the last.
struct ByteSpan {
  // Start of the first group, if there are groups.
  const u8* at;
  u64 len;
  // Bytes of a group without its marker; 0 if the bytes are contiguous. Then the other fields are unused.
  u32 group = 0;
  // Bytes of the string before these, and its bytes in groups.
  u32 before = 0, stored = 0;

  ROCKMILL_HD u8 operator[](u64 i) const {
    if (group == 0) return at[i];
    const u32 place = before + u32(i);
    return place < stored ? at[place + place / group] : u8(' ');
  }
  // The byte at an offset; 0 behind the end.
  ROCKMILL_HD u32 get(u64 i) const { return i < len ? (*this)[i] : 0; }
  ROCKMILL_HD ByteSpan from(u64 start) const {
    if (group == 0) return {at + start, len - start};
    return {at, len - start, group, before + u32(start), stored};
  }
};

// Number of leading bytes in which two spans agree, of `len` bytes that both have.
ROCKMILL_HD u64 common_bytes(const ByteSpan& a, const ByteSpan& b, u64 len) {
  u64 i = 0;
  if (a.group == 0 && b.group == 0) {
    for (; i < len; i += 8) {
      const u32 bytes = len - i < 8 ? u32(len - i) : 8;
      const u64 differing = load_bytes(a.at + i, bytes) ^ load_bytes(b.at + i, bytes);
      if (differing != 0) return i + leading_zeros(byte_swap(differing)) / 8;
    }
    return len;
  }
  while (i < len && a[i] == b[i]) ++i;
  return i;
}

ROCKMILL_HD bool starts_with(const ByteSpan& bytes, const ByteSpan& part) {
  return part.len <= bytes.len && common_bytes(bytes, part, part.len) == part.len;
}

ROCKMILL_HD int compare_bytes(const ByteSpan& a, const ByteSpan& b) {
  const u64 len = a.len < b.len ? a.len : b.len, common = common_bytes(a, b, len);
  if (common < len) return a[common] < b[common] ? -1 : 1;
  return a.len < b.len ? -1 : a.len > b.len;
}

ROCKMILL_HD bool is_continuation(u32 byte) { return (byte & 0xc0) == 0x80; }

// Bytes of the character of UTF-8 at the start of some bytes; 0 if there is none.
ROCKMILL_HD u32 utf8_len(const ByteSpan& bytes) {
  const u32 first = bytes.get(0), second = bytes.get(1);
  if (first < 0x80) return bytes.len > 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const u32 len = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  const u32 least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const u32 most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (second < least || second > most) return 0;
  for (u32 i = 2; i < len; ++i)
    if (!is_continuation(bytes.get(i))) return 0;
  return len;
}

ROCKMILL_HD bool is_text(const ByteSpan& bytes) {
  constexpr u64 ABOVE_ASCII = 0x8080808080808080;
  for (u64 at = 0; at < bytes.len;) {
    const u32 word = bytes.len - at < 8 ? u32(bytes.len - at) : 8;
    if (bytes.group == 0 && (load_bytes(bytes.at + at, word) & ABOVE_ASCII) == 0) {
      at += word;
      continue;
    }
    const u32 len = utf8_len(bytes.from(at));
    if (len == 0) return false;
    at += len;
  }
  return true;
}

// Bytes of the character that begins at an offset; 0 at the end and within a character.
ROCKMILL_HD u32 character_len(const ByteSpan& bytes, u64 at) {
  if (at >= bytes.len) return 0;
  if (!is_continuation(bytes[at])) {
    const u32 len = utf8_len(bytes.from(at));
    return len == 0 ? 1 : len;
  }
  for (u32 back = 1; back < 4 && back <= at; ++back)
    if (utf8_len(bytes.from(at - back)) > back) return 0;
  return 1;
}

// Tries the parts behind the last `%` at one place after another. `part(i)` is a ScanConstant, `bytes_of` its bytes.
template <class Part, class BytesOf>
ROCKMILL_HD bool matches_parts(const ByteSpan& bytes, u32 num_parts, Part part, BytesOf bytes_of) {
  u64 at = 0, again_at = 0;
  u32 i = 0, again = ~u32{0};
  for (;;) {
    bool is_found = false;
    if (i == num_parts) {
      if (at == bytes.len) return true;
    } else if (part(i).part == PART_ANY_BYTES) {
      again = i + 1;
      again_at = at + 1;
      is_found = true;
    } else if (part(i).part == PART_ANY_CHARACTER) {
      const u32 len = character_len(bytes, at);
      is_found = len > 0;
      at += len;
    } else {
      const ByteSpan own = bytes_of(part(i));
      is_found = starts_with(bytes.from(at), own);
      at += is_found ? own.len : 0;
    }
    if (is_found) {
      ++i;
    } else {
      if (again == ~u32{0} || again_at > bytes.len) return false;
      i = again;
      at = again_at++;
    }
  }
}

ROCKMILL_HD bool contains(const ByteSpan& bytes, const ByteSpan& part) {
  for (u64 at = 0; at + part.len <= bytes.len; ++at)
    if (starts_with(bytes.from(at), part)) return true;
  return false;
}

}  // namespace rockmill::ROCKMILL_TARGET

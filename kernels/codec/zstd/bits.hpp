// Bits of a ZSTD frame, read from the end of a stream or from the beginning of a table's description.
#pragma once

#include "../codec.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Up to eight bytes as a little-endian word.
ROCKMILL_HD u64 little_endian(const u8* at, u32 n) {
  u64 word = 0;
  for (u32 i = 0; i < n; ++i) word |= u64(at[i]) << 8 * i;
  return word;
}

// `count` bits, at most 25, from bit `at` of `n` bytes on. Zeros follow the bytes.
ROCKMILL_HD u32 bits_at(const u8* bytes, u32 n, u32 at, u32 count) {
  const u32 first = at / 8;
  const u32 left = n > first ? n - first : 0;
  return u32(little_endian(bytes + first, left < 4 ? left : 4)) >> at % 8 & ((u32{1} << count) - 1);
}

// A stream that is read from its end (RFC 8878, 4.1). Before its beginning it returns arbitrary bits: a reader calls
// is_done() or is_over() before it uses the bits.
struct BackwardBits {
  const u8* base;
  // The highest `have` bits of `window` are next. Then come `rest` bits from `base` on; if `rest` is below 0, the
  // window has bits from before the stream.
  u64 window;
  i32 have;
  i32 rest;

  // False if the stream is not closed by a bit. It takes at most 2^27 bytes, and at least three bytes of the source
  // precede it: words are read at aligned addresses, so that each takes one load on the device.
  ROCKMILL_HD bool open(const u8* at, u32 n) {
    if (n == 0 || at[n - 1] == 0) return false;
    const u32 tail = u32(reinterpret_cast<u64>(at + n - 1) & 3) + 1;
    base = at;
    have = i32(8 * (tail - 1) + highest_bit(at[n - 1]));
    window = little_endian(at + n - tail, tail) << 32 << (32 - have);
    rest = 8 * (i32(n) - i32(tail));
    return true;
  }
  // After it 32 bits may be taken.
  ROCKMILL_HD void refill() {
    if (have > 32 || rest <= 0) return;
    rest -= 32;
    window |= u64(*reinterpret_cast<const u32*>(base + rest / 8)) << (32 - have);
    have += 32;
  }
  // At most 32 bits.
  ROCKMILL_HD u32 peek(u32 count) const { return u32(window >> 1 >> (63 - count)); }
  ROCKMILL_HD void skip(u32 count) {
    window <<= count;
    have -= i32(count);
  }
  ROCKMILL_HD u32 take(u32 count) {
    const u32 bits = peek(count);
    skip(count);
    return bits;
  }
  // Whether all bits were taken, or more than exist.
  ROCKMILL_HD bool is_done() const { return have + rest == 0; }
  ROCKMILL_HD bool is_over() const { return have + rest < 0; }
};

}  // namespace rockmill::ROCKMILL_TARGET

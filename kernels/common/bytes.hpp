// Loads at any address, big-endian words, varints, copies.
#pragma once

#include "group.hpp"

namespace rockmill::ROCKMILL_TARGET {

ROCKMILL_HD u64 byte_swap(u64 x) {
#if defined(__CUDA_ARCH__)
  u32 low = __byte_perm(u32(x), 0, 0x0123), high = __byte_perm(u32(x >> 32), 0, 0x0123);
  return u64(low) << 32 | high;
#else
  return __builtin_bswap64(x);
#endif
}

ROCKMILL_HD u32 byte_swap(u32 x) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(x, 0, 0x0123);
#else
  return __builtin_bswap32(x);
#endif
}

// Leading zero bits; x is not 0.
ROCKMILL_HD u32 leading_zeros(u64 x) {
#if defined(__CUDA_ARCH__)
  return u32(__clzll(static_cast<long long>(x)));
#else
  return u32(__builtin_clzll(x));
#endif
}

// The lowest bit that is set; x is not 0.
ROCKMILL_HD u32 lowest_bit(u32 x) {
#if defined(__CUDA_ARCH__)
  return u32(__ffs(int(x))) - 1;
#else
  return u32(__builtin_ctz(x));
#endif
}

// The highest bit that is set; x is not 0.
ROCKMILL_HD u32 highest_bit(u32 x) {
#if defined(__CUDA_ARCH__)
  return 31 - u32(__clz(int(x)));
#else
  return 31 - u32(__builtin_clz(x));
#endif
}

ROCKMILL_HD u32 count_bits(u32 x) {
#if defined(__CUDA_ARCH__)
  return u32(__popc(x));
#else
  return u32(__builtin_popcount(x));
#endif
}

// Little-endian word at any address. On the device two aligned words are read, with up to seven bytes outside:
// ARENA_PADDING makes room for them.
ROCKMILL_HD u64 load64(const u8* at) {
#if defined(__CUDA_ARCH__)
  const u64 address = reinterpret_cast<u64>(at);
  const u64* words = reinterpret_cast<const u64*>(address & ~u64{7});
  const u32 shift = u32(address & 7) * 8;
  const u64 low = words[0];
  if (shift == 0) return low;
  return low >> shift | words[1] << (64 - shift);
#else
  u64 word;
  std::memcpy(&word, at, sizeof word);
  return word;
#endif
}

// On the device, only the aligned words with the first and the last byte are read.
ROCKMILL_HD u32 load32(const u8* at) {
#if defined(__CUDA_ARCH__)
  const u64 address = reinterpret_cast<u64>(at);
  const u32 low = *reinterpret_cast<const u32*>(address & ~u64{3});
  const u32 high = *reinterpret_cast<const u32*>((address + 3) & ~u64{3});
  return __funnelshift_r(low, high, u32(address & 3) * 8);
#else
  u32 word;
  std::memcpy(&word, at, sizeof word);
  return word;
#endif
}

// One to eight bytes as a little-endian word. On the device, only the aligned words with the first and the last byte are read.
ROCKMILL_HD u64 load_bytes(const u8* at, u32 len) {
  u64 word = 0;
#if defined(__CUDA_ARCH__)
  const u64 address = reinterpret_cast<u64>(at), first = address & ~u64{7}, last = (address + len - 1) & ~u64{7};
  const u32 shift = u32(address & 7) * 8;
  word = *reinterpret_cast<const u64*>(first) >> shift;
  if (last != first) word |= *reinterpret_cast<const u64*>(last) << (64 - shift);
  return word & ~u64{0} >> (64 - 8 * len);
#else
  std::memcpy(&word, at, len);
  return word;
#endif
}

// A place in an arena. Entries that are not in it have the distance, which may wrap.
ROCKMILL_HD const u8* place_in(const u8* arena, u64 at) {
  return reinterpret_cast<const u8*>(reinterpret_cast<u64>(arena) + at);
}

// Up to eight bytes as a big-endian word, zero padded.
ROCKMILL_HD u64 word_of(const u8* bytes, u32 len) {
  u64 word = 0;
  for (u32 i = 0; i < 8; ++i) word = word << 8 | (i < len ? bytes[i] : 0);
  return word;
}

ROCKMILL_HD void store32(u8* at, u32 word) {
  for (u32 i = 0; i < 4; ++i) at[i] = u8(word >> 8 * i);
}

// Reads a varint32 from `at` and moves `at` behind it; false if it does not end before `end` or is too long.
ROCKMILL_HD bool read_varint(const u8*& at, const u8* end, u32& value) {
  u64 result = 0;
  for (u32 shift = 0; shift <= 28 && at < end; shift += 7) {
    const u8 byte = *at++;
    result |= u64(byte & 0x7f) << shift;
    if (byte < 0x80) {
      value = u32(result);
      return result <= 0xffffffff;
    }
  }
  return false;
}

ROCKMILL_HD u32 varint_len(u64 value) {
  u32 len = 1;
  for (; value >= 0x80; value >>= 7) ++len;
  return len;
}

// Copies with the whole group, in words if the target is aligned; see load64.
template <class G>
ROCKMILL_HD void copy_bytes(const G& g, u8* to, const u8* from, u64 len) {
  u64 head = -reinterpret_cast<u64>(to) & 7;
  if (head > len) head = len;
  const u64 words = (len - head) / 8;
  for (u64 i = g.rank(); i < head; i += g.width) to[i] = from[i];
  u64* target = reinterpret_cast<u64*>(to + head);
  for (u64 i = g.rank(); i < words; i += g.width) target[i] = load64(from + head + 8 * i);
  for (u64 i = head + 8 * words + g.rank(); i < len; i += g.width) to[i] = from[i];
}

}  // namespace rockmill::ROCKMILL_TARGET

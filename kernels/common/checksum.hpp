// Checksums of blocks other than XXH3: CRC-32C, XXH32, XXH64 with seed 0; and which of them guards a block.
#pragma once

#include "hash.hpp"

namespace rockmill::ROCKMILL_TARGET {

// CRC-32C, reflected. Multiplication is that of polynomials modulo the CRC's own, bit 31 health for 1.
constexpr u32 CRC_POLYNOMIAL = 0x82f63b78, CRC_ONE = 0x80000000, CRC_MASK_DELTA = 0xa282ead8;
// x^8.
constexpr u32 CRC_BYTE = CRC_ONE >> 8;

struct CrcTable {
  u32 entries[256];
  constexpr CrcTable() : entries{} {
    for (u32 i = 0; i < 256; ++i) {
      u32 crc = i;
      for (u32 bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
      entries[i] = crc;
    }
  }
};
#if defined(__CUDACC__)
__device__ const CrcTable DEVICE_CRC{};
#endif
static const CrcTable HOST_CRC{};

ROCKMILL_HD u32 crc_byte(u32 crc, u8 byte) {
#if defined(__CUDA_ARCH__)
  return crc >> 8 ^ DEVICE_CRC.entries[u8(crc) ^ byte];
#else
  return crc >> 8 ^ HOST_CRC.entries[u8(crc) ^ byte];
#endif
}

ROCKMILL_HD u32 crc_times(u32 a, u32 b) {
  u32 product = 0;
  for (u32 bit = 0; bit < 32; ++bit) {
    if (a & CRC_ONE >> bit) product ^= b;
    b = b >> 1 ^ (b & 1 ? CRC_POLYNOMIAL : 0);
  }
  return product;
}

// x^(8 * bytes): the factor of a CRC that is followed by `bytes` zero bytes.
ROCKMILL_HD u32 crc_shift(u64 bytes) {
  u32 result = CRC_ONE;
  for (u32 power = CRC_BYTE; bytes != 0; bytes >>= 1) {
    if (bytes & 1) result = crc_times(result, power);
    power = crc_times(power, power);
  }
  return result;
}

// Masked CRC-32C of `data` and one more byte; all of the group get it. Each lane takes a part, and the parts'
// CRCs are put together as if zeros followed each.
template <class G>
ROCKMILL_HD u32 masked_crc32c(const G& g, const u8* data, u64 len, u8 last) {
  const u64 part = len / g.width;
  const u8* own = data + g.rank() * part;
  u32 crc = g.rank() == 0 ? ~u32{0} : 0;
  for (u64 i = 0; i < part; ++i) crc = crc_byte(crc, own[i]);
  if (g.width > 1) crc = g.reduce_xor(crc_times(crc, crc_shift(part * (g.width - 1 - g.rank()))));
  for (u64 i = part * g.width; i < len; ++i) crc = crc_byte(crc, data[i]);
  crc = ~crc_byte(crc, last);
  return (crc >> 15 | crc << 17) + CRC_MASK_DELTA;
}

constexpr u32 XXH32_1 = 0x9e3779b1, XXH32_2 = 0x85ebca77, XXH32_3 = 0xc2b2ae3d;
constexpr u32 XXH32_4 = 0x27d4eb2f, XXH32_5 = 0x165667b1;

ROCKMILL_HD u32 rotate_left32(u32 x, u32 by) { return x << by | x >> (32 - by); }

// XXH32 of `data` and one more byte.
ROCKMILL_HD u32 xxh32(const u8* data, u64 len, u8 last) {
  u32 acc[4] = {XXH32_1 + XXH32_2, XXH32_2, 0, 0 - XXH32_1};
  const u64 total = len + 1;
  u64 at = 0;
  u32 hash = XXH32_5;
  const auto byte_at = [=](u64 i) { return i < len ? data[i] : last; };
  const auto word_at = [=](u64 i) {
    return i + 4 <= len ? load32(data + i)
                        : u32(byte_at(i)) | u32(byte_at(i + 1)) << 8 | u32(byte_at(i + 2)) << 16 |
                              u32(byte_at(i + 3)) << 24;
  };
  if (total >= 16) {
    for (; at + 16 <= total; at += 16)
      for (u32 i = 0; i < 4; ++i)
        acc[i] = rotate_left32(acc[i] + word_at(at + 4 * i) * XXH32_2, 13) * XXH32_1;
    hash = rotate_left32(acc[0], 1) + rotate_left32(acc[1], 7) + rotate_left32(acc[2], 12) +
           rotate_left32(acc[3], 18);
  }
  hash += u32(total);
  for (; at + 4 <= total; at += 4) hash = rotate_left32(hash + word_at(at) * XXH32_3, 17) * XXH32_4;
  for (; at < total; ++at) hash = rotate_left32(hash + byte_at(at) * XXH32_5, 11) * XXH32_1;
  hash = (hash ^ hash >> 15) * XXH32_2;
  hash = (hash ^ hash >> 13) * XXH32_3;
  return hash ^ hash >> 16;
}

ROCKMILL_HD u64 xxh64_round(u64 acc, u64 word) {
  return rotate_left(acc + word * PRIME64_2, 31) * PRIME64_1;
}

// XXH64 of `data` and one more byte.
ROCKMILL_HD u64 xxh64(const u8* data, u64 len, u8 last) {
  u64 acc[4] = {PRIME64_1 + PRIME64_2, PRIME64_2, 0, 0 - PRIME64_1};
  const u64 total = len + 1;
  u64 at = 0;
  u64 hash = PRIME64_5;
  const auto byte_at = [=](u64 i) { return i < len ? data[i] : last; };
  const auto word_at = [=](u64 i) {
    if (i + 8 <= len) return load64(data + i);
    u64 word = 0;
    for (u32 k = 0; k < 8; ++k) word |= u64(byte_at(i + k)) << 8 * k;
    return word;
  };
  if (total >= 32) {
    for (; at + 32 <= total; at += 32)
      for (u32 i = 0; i < 4; ++i) acc[i] = xxh64_round(acc[i], word_at(at + 8 * i));
    hash = rotate_left(acc[0], 1) + rotate_left(acc[1], 7) + rotate_left(acc[2], 12) +
           rotate_left(acc[3], 18);
    for (u32 i = 0; i < 4; ++i) hash = (hash ^ xxh64_round(0, acc[i])) * PRIME64_1 + PRIME64_4;
  }
  hash += total;
  for (; at + 8 <= total; at += 8)
    hash = rotate_left(hash ^ xxh64_round(0, word_at(at)), 27) * PRIME64_1 + PRIME64_4;
  if (at + 4 <= total) {
    const u64 word = u64(byte_at(at)) | u64(byte_at(at + 1)) << 8 | u64(byte_at(at + 2)) << 16 |
                     u64(byte_at(at + 3)) << 24;
    hash = rotate_left(hash ^ word * PRIME64_1, 23) * PRIME64_2 + PRIME64_3;
    at += 4;
  }
  for (; at < total; ++at) hash = rotate_left(hash ^ byte_at(at) * PRIME64_5, 11) * PRIME64_1;
  return xxh64_avalanche(hash);
}

// Factor of the last byte before it is mixed into an XXH3 checksum (`table/format.cc`).
constexpr u32 LAST_BYTE_PRIME = 0x6b9083d9;

// Checksum of a block whose trailer begins with `codec` (`table/format.cc:ComputeBuiltinChecksumWithLastByte`), with the
// context that format_version 6 and later add (`table/format.h:ChecksumModifierForContext`). All of the
// group get it.
template <class G>
ROCKMILL_HD u32 block_checksum(const G& g, u32 type, const u8* data, u32 len, u8 codec, u32 base,
                               u64 file_offset) {
  u32 sum = 0;
  switch (type) {
    case CHECKSUM_CRC32C: sum = masked_crc32c(g, data, len, codec); break;
    case CHECKSUM_XXHASH: sum = xxh32(data, len, codec); break;
    case CHECKSUM_XXHASH64: sum = u32(xxh64(data, len, codec)); break;
    case CHECKSUM_XXH3: sum = u32(xxh3(g, data, len)) ^ codec * LAST_BYTE_PRIME; break;
    default: break;
  }
  if (base != 0) sum += base ^ (u32(file_offset) + u32(file_offset >> 32));
  return sum;
}

}  // namespace rockmill::ROCKMILL_TARGET

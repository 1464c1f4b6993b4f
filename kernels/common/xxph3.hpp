// XXPH3 as RocksDB's util/xxph3.h defines it, of keys, for filters.
#pragma once

#include "hash.hpp"
#include "key.hpp"

namespace rockmill::ROCKMILL_TARGET {

ROCKMILL_HD u64 xxph3_avalanche(u64 h) {
  h = (h ^ h >> 37) * PRIME64_3;
  return h ^ h >> 32;
}

// Hash of a key of up to 16 bytes.
ROCKMILL_HD u64 xxph3_words(u64 hi, u64 lo, u32 len) {
  if (len == 0) return fold(secret_word(0), PRIME64_2);
  if (len <= 3) {
    const u64 ends = word_byte(hi, 0) | word_byte(hi, len / 2) << 8 | word_byte(hi, len - 1) << 16;
    return xxph3_avalanche(((ends | u64(len) << 24) ^ u32(secret_word(0))) * PRIME64_1);
  }
  const KeyEnds ends = key_ends(hi, lo, len);
  if (len <= 8) {
    const u64 keyed = (ends.first | ends.last << 32) ^ secret_word(0);
    const u64 mixed = (keyed ^ keyed >> 51) * PRIME32_1 + len;
    return xxph3_avalanche((mixed ^ mixed >> 47) * PRIME64_2);
  }
  const u64 low = ends.first ^ secret_word(0), high = ends.last ^ secret_word(1);
  return xxph3_avalanche(len + low + high + fold(low, high));
}

// Of more than 240 bytes.
ROCKMILL_HD u64 xxph3_long(const u8* data, u64 len) {
  u64 acc[HASH_LANES] = {ROCKMILL_XXH3_START};
  const u64 stripes = len / STRIPE_BYTES;
  // In this preview of XXH3 the data go to their own lane, not to the neighbour's.
  const auto add = [&acc](u32 lane, u64 value, u64 mask) {
    const u64 key = value ^ mask;
    acc[lane] += value + u64(u32(key)) * (key >> 32);
  };
  for (u64 s = 0; s < stripes; ++s) {
    const u32 in_block = u32(s % STRIPES_PER_BLOCK);
    for (u32 i = 0; i < HASH_LANES; ++i)
      add(i, load64(data + STRIPE_BYTES * s + 8 * i), secret_word(in_block + i));
    if (in_block + 1 < STRIPES_PER_BLOCK) continue;
    for (u32 i = 0; i < HASH_LANES; ++i)
      acc[i] = (acc[i] ^ acc[i] >> 47 ^ secret_word(SCRAMBLE_SECRET_WORD + i)) * PRIME32_1;
  }
  if (len % STRIPE_BYTES != 0)
    for (u32 i = 0; i < HASH_LANES; ++i)
      add(i, load64(data + len - STRIPE_BYTES + 8 * i), secret_at(LAST_STRIPE_SECRET + 8 * i));
  u64 result = len * PRIME64_1;
  for (u32 i = 0; i < HASH_LANES; i += 2)
    result += fold(acc[i] ^ secret_at(MERGE_SECRET + 8 * i),
                   acc[i + 1] ^ secret_at(MERGE_SECRET + 8 * i + 8));
  return xxph3_avalanche(result);
}

ROCKMILL_HD u64 xxph3_mix16(const u8* at, u32 secret) {
  return fold(load64(at) ^ secret_at(secret), load64(at + 8) ^ secret_at(secret + 8));
}

ROCKMILL_HD u64 xxph3_bytes(const u8* data, u64 len) {
  if (len <= 16) {
    const u64 lo = len <= 8 ? 0 : word_of(data + 8, u32(len) - 8);
    return xxph3_words(word_of(data, u32(len)), lo, u32(len));
  }
  u64 acc = len * PRIME64_1;
  if (len <= 128) {
    for (u32 pair = 0; pair < (len + 31) / 32; ++pair) {
      acc += xxph3_mix16(data + 16 * pair, 32 * pair);
      acc += xxph3_mix16(data + len - 16 * (pair + 1), 32 * pair + 16);
    }
    return xxph3_avalanche(acc);
  }
  if (len > 240) return xxph3_long(data, len);
  for (u32 i = 0; i < 8; ++i) acc += xxph3_mix16(data + 16 * i, 16 * i);
  acc = xxph3_avalanche(acc);
  for (u32 i = 8; i < len / 16; ++i) acc += xxph3_mix16(data + 16 * i, 16 * (i - 8) + 3);
  return xxph3_avalanche(acc + xxph3_mix16(data + len - 16, 119));
}

}  // namespace rockmill::ROCKMILL_TARGET

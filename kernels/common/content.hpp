// Hashes of entries, as in rockmill_core: rapidhash V3 micro with seed 0, without its last step but with the length
// added, and the hashes derived from it.
#pragma once

#include "hash.hpp"
#include "key.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u64 RAPID_SECRET_0 = 0x2d358dccaa6c78a5, RAPID_SECRET_1 = 0x8bb84b93962eacc9;
constexpr u64 RAPID_SECRET_2 = 0x4b33a62ed433d4a3, RAPID_SECRET_3 = 0x4d5a2da51de1aa47;
constexpr u64 RAPID_SECRET_4 = 0xa0761d6478bd642f;
// Initial value for seed 0: fold(RAPID_SECRET_2, RAPID_SECRET_1).
constexpr u64 RAPID_SEED = 0x422765567d8fbfd6;
// Bytes that five lanes process at once.
constexpr u64 RAPID_STRIDE = 80;

// Bytes are an address, or an object with its own load64.
template <class Bytes>
ROCKMILL_HD u64 rapid_mix16(Bytes at, u64 secret, u64 seed) {
  return fold(load64(at) ^ secret, load64(at + 8) ^ seed);
}

ROCKMILL_HD u64 rapid_finish(u64 a, u64 b, u64 seed, u64 len) {
  return fold(a ^ RAPID_SECRET_1, b ^ seed) + len;
}

// Up to 16 bytes.
ROCKMILL_HD u64 rapid_short(const u8* data, u64 len) {
  if (len >= 8) return rapid_finish(load64(data), load64(data + len - 8), RAPID_SEED ^ len, len);
  if (len >= 4) return rapid_finish(load32(data), load32(data + len - 4), RAPID_SEED ^ len, len);
  if (len == 0) return rapid_finish(0, 0, RAPID_SEED, 0);
  return rapid_finish(u64(data[0]) << 45 | data[len - 1], data[len / 2], RAPID_SEED, len);
}

// More than 16 bytes.
template <class Bytes>
ROCKMILL_HD u64 rapidhash_long(Bytes data, u64 len) {
  const Bytes end = data + len;
  u64 seed = RAPID_SEED, rest = len;
  if (rest > RAPID_STRIDE) {
    u64 see1 = seed, see2 = seed, see3 = seed, see4 = seed;
    for (; rest > RAPID_STRIDE; rest -= RAPID_STRIDE, data = data + RAPID_STRIDE) {
      seed = rapid_mix16(data, RAPID_SECRET_0, seed);
      see1 = rapid_mix16(data + 16, RAPID_SECRET_1, see1);
      see2 = rapid_mix16(data + 32, RAPID_SECRET_2, see2);
      see3 = rapid_mix16(data + 48, RAPID_SECRET_3, see3);
      see4 = rapid_mix16(data + 64, RAPID_SECRET_4, see4);
    }
    seed ^= see1 ^ see2 ^ see3 ^ see4;
  }
  if (rest > 16) seed = rapid_mix16(data, RAPID_SECRET_2, seed);
  if (rest > 32) seed = rapid_mix16(data + 16, RAPID_SECRET_2, seed);
  if (rest > 48) seed = rapid_mix16(data + 32, RAPID_SECRET_1, seed);
  if (rest > 64) seed = rapid_mix16(data + 48, RAPID_SECRET_1, seed);
  return rapid_finish(load64(end - 16) ^ rest, load64(end - 8), seed, len);
}

ROCKMILL_HD u64 rapidhash(const u8* data, u64 len) {
  return len <= 16 ? rapid_short(data, len) : rapidhash_long(data, len);
}

// rapidhash of a user key.
ROCKMILL_HD u64 rapidhash_key(const KeyBytes& bytes, const Key& key) {
  if (key.len > WORD_KEY_BYTES) return rapidhash(bytes.of(key), key.len);
  if (key.len >= 4) {
    const KeyEnds ends =
        key.len == 8 ? KeyEnds{byte_swap(key.hi), byte_swap(key.hi)} : key_ends(key.hi, key.lo, key.len);
    return rapid_finish(ends.first, ends.last, RAPID_SEED ^ key.len, key.len);
  }
  if (key.len == 0) return rapid_finish(0, 0, RAPID_SEED, 0);
  return rapid_finish(word_byte(key.hi, 0) << 45 | word_byte(key.hi, key.len - 1),
                      word_byte(key.hi, key.len / 2), RAPID_SEED, key.len);
}

// rockmill_core::kv_hash.
ROCKMILL_HD u64 kv_hash(u64 key_hash, u64 value_hash) {
  return rotate_left(key_hash, 29) + value_hash;
}

// rockmill_core::entry_hash.
ROCKMILL_HD u64 entry_hash(u64 kv_hash, u64 tag) {
  constexpr u64 ODD = 0x9e3779b97f4a7c15;
  const u64 mixed = (kv_hash ^ tag * ODD) * ODD;
  return mixed ^ mixed >> 32;
}

// rockmill_core::placed_hash.
ROCKMILL_HD u64 placed_hash(u64 entry_hash, u64 position) {
  constexpr u64 STEP = 0xc2b2ae3d27d4eb4f, ODD = 0xd6e8feb86659fd93;
  const u64 mixed = (entry_hash ^ position * STEP) * ODD;
  return (mixed ^ mixed >> 32) * ODD;
}

}  // namespace rockmill::ROCKMILL_TARGET

// XXH3-64 with seed 0, as xxhash 0.8 defines it: block checksums. Other hashes use its primes and secret too.
#pragma once

#include "bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u64 PRIME32_1 = 0x9e3779b1, PRIME32_2 = 0x85ebca77, PRIME32_3 = 0xc2b2ae3d;
constexpr u64 PRIME64_1 = 0x9e3779b185ebca87, PRIME64_2 = 0xc2b2ae3d27d4eb4f;
constexpr u64 PRIME64_3 = 0x165667b19e3779f9, PRIME64_4 = 0x85ebca77c2b2ae63;
constexpr u64 PRIME64_5 = 0x27d4eb2f165667c5;
constexpr u64 XXH3_AVALANCHE = 0x165667919e3779f9;

#define ROCKMILL_XXH3_SECRET                                                                      \
  0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,                 \
      0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,             \
      0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,             \
      0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,             \
      0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,             \
      0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af

#if defined(__CUDACC__)
__device__ const u64 DEVICE_SECRET[24] = {ROCKMILL_XXH3_SECRET};
#endif
static const u64 HOST_SECRET[24] = {ROCKMILL_XXH3_SECRET};

#define ROCKMILL_XXH3_START                                                                \
  PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1

// Word `i` of the secret.
ROCKMILL_HD u64 secret_word(u32 i) {
#if defined(__CUDA_ARCH__)
  return DEVICE_SECRET[i];
#else
  return HOST_SECRET[i];
#endif
}

// The eight bytes of the secret at `offset`.
ROCKMILL_HD u64 secret_at(u32 offset) {
  const u32 i = offset / 8, shift = offset % 8 * 8;
  if (shift == 0) return secret_word(i);
  return secret_word(i) >> shift | secret_word(i + 1) << (64 - shift);
}

// Low half of the 128-bit product XOR its high half.
ROCKMILL_HD u64 fold(u64 a, u64 b) {
#if defined(__CUDA_ARCH__)
  return a * b ^ __umul64hi(a, b);
#else
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return u64(product) ^ u64(product >> 64);
#endif
}

ROCKMILL_HD u64 rotate_left(u64 x, u32 by) { return x << by | x >> (64 - by); }

ROCKMILL_HD u64 xxh3_avalanche(u64 h) {
  h = (h ^ h >> 37) * XXH3_AVALANCHE;
  return h ^ h >> 32;
}

ROCKMILL_HD u64 xxh64_avalanche(u64 h) {
  h = (h ^ h >> 33) * PRIME64_2;
  h = (h ^ h >> 29) * PRIME64_3;
  return h ^ h >> 32;
}

// 4 to 8 bytes, of which `first` and `last` are the first and last four.
ROCKMILL_HD u64 xxh3_4_to_8(u32 first, u32 last, u64 len) {
  constexpr u64 FACTOR = 0x9fb21c651e98df25;
  u64 h = (u64(last) + (u64(first) << 32)) ^ (secret_word(1) ^ secret_word(2));
  h ^= rotate_left(h, 49) ^ rotate_left(h, 24);
  h *= FACTOR;
  h ^= (h >> 35) + len;
  h *= FACTOR;
  return h ^ h >> 28;
}

// 9 to 16 bytes, of which `first` and `last` are the first and last eight.
ROCKMILL_HD u64 xxh3_9_to_16(u64 first, u64 last, u64 len) {
  const u64 low = first ^ (secret_word(3) ^ secret_word(4));
  const u64 high = last ^ (secret_word(5) ^ secret_word(6));
  return xxh3_avalanche(len + byte_swap(low) + high + fold(low, high));
}

ROCKMILL_HD u64 xxh3_mix16(const u8* at, u32 secret) {
  return fold(load64(at) ^ secret_at(secret), load64(at + 8) ^ secret_at(secret + 8));
}

// Up to 240 bytes.
ROCKMILL_HD u64 xxh3_short(const u8* data, u64 len) {
  if (len == 0) return xxh64_avalanche(secret_word(7) ^ secret_word(8));
  if (len <= 3) {
    const u64 combined = u64(data[0]) << 16 | u64(data[len / 2]) << 24 | data[len - 1] | len << 8;
    return xxh64_avalanche(combined ^ (u32(secret_word(0)) ^ u32(secret_word(0) >> 32)));
  }
  if (len <= 8) return xxh3_4_to_8(load32(data), load32(data + len - 4), len);
  if (len <= 16) return xxh3_9_to_16(load64(data), load64(data + len - 8), len);
  u64 acc = len * PRIME64_1;
  if (len <= 128) {
    for (u32 pair = 0; pair < (len + 31) / 32; ++pair) {
      acc += xxh3_mix16(data + 16 * pair, 32 * pair);
      acc += xxh3_mix16(data + len - 16 * (pair + 1), 32 * pair + 16);
    }
    return xxh3_avalanche(acc);
  }
  for (u32 i = 0; i < 8; ++i) acc += xxh3_mix16(data + 16 * i, 16 * i);
  acc = xxh3_avalanche(acc);
  for (u32 i = 8; i < len / 16; ++i) acc += xxh3_mix16(data + 16 * i, 16 * (i - 8) + 3);
  return xxh3_avalanche(acc + xxh3_mix16(data + len - 16, 119));
}

constexpr u32 STRIPE_BYTES = 64, STRIPES_PER_BLOCK = 16, HASH_LANES = 8;
constexpr u32 HASH_BLOCK_BYTES = STRIPE_BYTES * STRIPES_PER_BLOCK;
constexpr u32 LAST_STRIPE_SECRET = 192 - 64 - 7, SCRAMBLE_SECRET_WORD = 16, MERGE_SECRET = 11;

// The eight accumulators of the long form, kept by one thread. Within a block of 16 stripes they only
// grow by sums, so the order of stripes does not matter: the warp's form takes four at once.
struct LongHashSingle {
  u64 acc[HASH_LANES] = {ROCKMILL_XXH3_START};

  ROCKMILL_HD void add(u32 lane, u64 value, u64 secret) {
    const u64 key = value ^ secret;
    acc[lane ^ 1] += value;
    acc[lane] += u64(u32(key)) * (key >> 32);
  }
  ROCKMILL_HD void stripes(const SingleThread&, const u8* data, u32 count) {
    for (u32 s = 0; s < count; ++s) {
ROCKMILL_UNROLL
      for (u32 i = 0; i < HASH_LANES; ++i)
        add(i, load64(data + STRIPE_BYTES * s + 8 * i), secret_word(s + i));
    }
  }
  ROCKMILL_HD void scramble() {
ROCKMILL_UNROLL
    for (u32 i = 0; i < HASH_LANES; ++i) {
      const u64 mixed = acc[i] ^ acc[i] >> 47 ^ secret_word(SCRAMBLE_SECRET_WORD + i);
      acc[i] = mixed * PRIME32_1;
    }
  }
  ROCKMILL_HD void last_stripe(const u8* data) {
ROCKMILL_UNROLL
    for (u32 i = 0; i < HASH_LANES; ++i)
      add(i, load64(data + 8 * i), secret_at(LAST_STRIPE_SECRET + 8 * i));
  }
  ROCKMILL_HD u64 merge(const SingleThread&, u64 len) const {
    u64 result = len * PRIME64_1;
ROCKMILL_UNROLL
    for (u32 i = 0; i < HASH_LANES; i += 2)
      result += fold(acc[i] ^ secret_at(MERGE_SECRET + 8 * i),
                     acc[i + 1] ^ secret_at(MERGE_SECRET + 8 * i + 8));
    return xxh3_avalanche(result);
  }
};

#if defined(__CUDACC__)
__device__ const u64 DEVICE_START[HASH_LANES] = {ROCKMILL_XXH3_START};

// The same, kept by a warp: lane l adds the words of accumulator l % 8 in every fourth stripe from l / 8.
struct LongHashWarp {
  u64 acc;

  __device__ LongHashWarp() : acc(DEVICE_START[lane()]) {}
  __device__ static u32 lane() { return Warp{}.rank() % HASH_LANES; }

  // Adds this lane's result for its own accumulator and for its neighbour's.
  __device__ void gather(u64 own, u64 other) {
    own += Warp{}.shuffle_xor(other, 1);
    own += Warp{}.shuffle_xor(own, 8);
    own += Warp{}.shuffle_xor(own, 16);
    acc += own;
  }
  __device__ void stripes(const Warp& g, const u8* data, u32 count) {
    u64 own = 0, other = 0;
    for (u32 s = g.rank() / HASH_LANES; s < count; s += Warp::width / HASH_LANES) {
      const u64 value = load64(data + STRIPE_BYTES * s + 8 * lane());
      const u64 key = value ^ secret_word(s + lane());
      other += value;
      own += u64(u32(key)) * (key >> 32);
    }
    gather(own, other);
  }
  __device__ void scramble() {
    acc = (acc ^ acc >> 47 ^ secret_word(SCRAMBLE_SECRET_WORD + lane())) * PRIME32_1;
  }
  __device__ void last_stripe(const u8* data) {
    u64 own = 0, other = 0;
    if (Warp{}.rank() < HASH_LANES) {
      other = load64(data + 8 * lane());
      const u64 key = other ^ secret_at(LAST_STRIPE_SECRET + 8 * lane());
      own = u64(u32(key)) * (key >> 32);
    }
    gather(own, other);
  }
  __device__ u64 merge(const Warp& g, u64 len) const {
    const u64 mixed = acc ^ secret_at(MERGE_SECRET + 8 * lane());
    u64 part = fold(mixed, g.shuffle_xor(mixed, 1));
    part += g.shuffle_xor(part, 2);
    part += g.shuffle_xor(part, 4);
    return xxh3_avalanche(len * PRIME64_1 + part);
  }
};
__device__ __forceinline__ LongHashWarp long_hash(const Warp&) { return {}; }
#endif
ROCKMILL_HD LongHashSingle long_hash(const SingleThread&) { return {}; }

// XXH3-64 of `len` bytes; all of the group receive it.
template <class G>
ROCKMILL_HD u64 xxh3(const G& g, const u8* data, u64 len) {
  if (len <= 240) return xxh3_short(data, len);
  auto hash = long_hash(g);
  const u64 blocks = (len - 1) / HASH_BLOCK_BYTES;
  for (u64 b = 0; b < blocks; ++b) {
    hash.stripes(g, data + b * HASH_BLOCK_BYTES, STRIPES_PER_BLOCK);
    hash.scramble();
  }
  const u64 rest = len - 1 - blocks * HASH_BLOCK_BYTES;
  hash.stripes(g, data + blocks * HASH_BLOCK_BYTES, u32(rest / STRIPE_BYTES));
  hash.last_stripe(data + len - STRIPE_BYTES);
  return hash.merge(g, len);
}

}  // namespace rockmill::ROCKMILL_TARGET

// The slots of a resident table. A slot has 20 bits of a key's hash and the address of the key's record. Eight slots are
// a bucket of 64 bytes; a key whose bucket is full has its slot in one of the next buckets.
#pragma once

#include "../common/hash.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 BUCKET_SLOTS = 8;
// A key has its slot in one of so many buckets in a row, or the table cannot be built.
constexpr u32 MAX_RUN = 128;

constexpr u64 EMPTY_SLOT = 0;
constexpr u32 SLOT_ADDRESS_BITS = 44;
constexpr u64 SLOT_ADDRESS = (u64{1} << SLOT_ADDRESS_BITS) - 1;
// Address of no record: the key was deleted. The slot may be taken again, but is never emptied: a run ends at an empty one.
constexpr u64 GONE_ADDRESS = 1;

ROCKMILL_HD u64 slot_of(u64 hash, u64 address) { return hash << SLOT_ADDRESS_BITS | address; }

ROCKMILL_HD bool has_record(u64 slot) { return (slot & SLOT_ADDRESS) > GONE_ADDRESS; }

// Slots differ in their upper bits if their hashes do in the lower 20.
ROCKMILL_HD bool slot_may_be(u64 slot, u64 hash) { return (slot ^ hash << SLOT_ADDRESS_BITS) <= SLOT_ADDRESS; }

ROCKMILL_HD u64 multiply_high(u64 a, u64 b) {
#if defined(__CUDA_ARCH__)
  return __umul64hi(a, b);
#else
  return u64(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

// The upper bits of a hash say where its run begins.
ROCKMILL_HD u64 first_bucket(const ResidentTable& table, u64 hash) { return multiply_high(hash, table.buckets); }

ROCKMILL_HD u64 next_bucket(const ResidentTable& table, u64 bucket) {
  return bucket + 1 == table.buckets ? 0 : bucket + 1;
}

// Buckets of a run.
ROCKMILL_HD u32 run_buckets(const ResidentTable& table) {
  return table.buckets < MAX_RUN ? u32(table.buckets) : MAX_RUN;
}

// Hash of a key, as wyhash has it: 16 bytes are multiplied at a time, and the last 16 may overlap those before. Each
// factor has the seed, so that keys with equal hashes cannot be found without it. No byte outside the words that the
// key lies in is read.
ROCKMILL_HD u64 hash_bytes(u64 seed, const u8* key, u32 len) {
  const u64 first = seed ^ PRIME64_3;
  u64 state = fold(seed ^ PRIME64_1, PRIME64_2), a = 0, b = 0;
  if (len > 16) {
    for (u32 at = 0; len - at > 16; at += 16)
      state = fold(load64(key + at) ^ first, load64(key + at + 8) ^ state);
    a = load64(key + len - 16);
    b = load64(key + len - 8);
  } else if (len >= 8) {
    a = load64(key);
    b = load64(key + len - 8);
  } else if (len >= 4) {
    a = load32(key);
    b = load32(key + len - 4);
  } else if (len > 0) {
    a = u64(key[0]) << 16 | u64(key[len / 2]) << 8 | key[len - 1];
  }
  return fold(PRIME64_4 ^ len, fold(a ^ first, b ^ state));
}

ROCKMILL_HD u64 key_hash(const ResidentTable& table, const u8* key, u32 len) {
  return hash_bytes(table.seed, key, len) & table.hash_mask;
}

}  // namespace rockmill::ROCKMILL_TARGET

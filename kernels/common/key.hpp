// Keys of any length: order, equality, common prefixes, single bytes.
#pragma once

#include "bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Places of the bytes of long user keys. If no user key of a task is longer than its two words, the task is narrow and
// has none; otherwise it is wide, and all entries have theirs, tag included.
struct KeyBytes {
  const u8* bytes;
  // Position of each entry's key; null in a narrow task.
  const u64* at;

  ROCKMILL_HD bool wide() const { return at != nullptr; }
  ROCKMILL_HD const u8* of(const Key& key) const { return place_in(bytes, at[key.entry]); }

  // Byte `i` of the internal key.
  ROCKMILL_HD u8 byte(const Key& key, u32 i) const {
    if (i >= key.len) return u8(key.tag >> 8 * (i - key.len));
    if (i < 8) return u8(key.hi >> (56 - 8 * i));
    return i < WORD_KEY_BYTES ? u8(key.lo >> (120 - 8 * i)) : of(key)[i];
  }
};

// The key of the first `len` bytes of a user key, at most those in its record.
ROCKMILL_HD Key beginning_of(Key key, u32 len) {
  key.hi = len == 0 ? 0 : len < 8 ? key.hi & ~u64{0} << (64 - 8 * len) : key.hi;
  key.lo = len <= 8 ? 0 : len < 16 ? key.lo & ~u64{0} << (128 - 8 * len) : key.lo;
  key.len = len;
  return key;
}

// First and last bytes of a user key of 4 to 16 bytes, little endian.
struct KeyEnds {
  u64 first, last;
};

ROCKMILL_HD KeyEnds key_ends(u64 hi, u64 lo, u32 len) {
  if (len <= 8) {
    const u64 padded = 64 - 8 * len;
    return {byte_swap(u32(hi >> 32)), byte_swap(u32(hi >> padded))};
  }
  const u32 over = 8 * (len - 8);
  const u64 last = over == 64 ? lo : hi << over | lo >> (64 - over);
  return {byte_swap(hi), byte_swap(last)};
}

// Byte `i`, below 8, of a key.
ROCKMILL_HD u64 word_byte(u64 hi, u32 i) { return hi >> (56 - 8 * i) & 0xff; }

ROCKMILL_HD u32 min_of(u32 a, u32 b) { return a < b ? a : b; }

// Common leading bytes of a and b with length `len`, of which the first 16 are known to be equal.
ROCKMILL_HD u32 common_tail(const u8* a, const u8* b, u32 len) {
  u32 i = WORD_KEY_BYTES;
  for (; i + 8 <= len; i += 8) {
    const u64 differing = load64(a + i) ^ load64(b + i);
    if (differing != 0) return i + leading_zeros(byte_swap(differing)) / 8;
  }
  while (i < len && a[i] == b[i]) ++i;
  return i;
}

// Order of two user keys whose words are equal: negative, 0, positive.
ROCKMILL_HD int compare_tails(const u8* a, u32 a_len, const u8* b, u32 b_len) {
  const u32 len = min_of(a_len, b_len);
  const u32 common = common_tail(a, b, len);
  if (common < len) return a[common] < b[common] ? -1 : 1;
  return a_len < b_len ? -1 : a_len > b_len;
}

ROCKMILL_HD int compare_user(const KeyBytes& bytes, const Key& a, const Key& b) {
  if (a.hi != b.hi) return a.hi < b.hi ? -1 : 1;
  if (a.lo != b.lo) return a.lo < b.lo ? -1 : 1;
  // If two keys have equal padded words, the shorter one is the beginning of the other.
  if (a.len <= WORD_KEY_BYTES || b.len <= WORD_KEY_BYTES) return a.len < b.len ? -1 : a.len > b.len;
  return compare_tails(bytes.of(a), a.len, bytes.of(b), b.len);
}

ROCKMILL_HD int compare_user(const KeyBytes& bytes, const Key& a, const UserKey& b) {
  if (a.hi != b.hi) return a.hi < b.hi ? -1 : 1;
  if (a.lo != b.lo) return a.lo < b.lo ? -1 : 1;
  if (a.len <= WORD_KEY_BYTES || b.len <= WORD_KEY_BYTES) return a.len < b.len ? -1 : a.len > b.len;
  return compare_tails(bytes.of(a), a.len, b.bytes, b.len);
}

ROCKMILL_HD int compare_user(const UserKey& a, const UserKey& b) {
  if (a.hi != b.hi) return a.hi < b.hi ? -1 : 1;
  if (a.lo != b.lo) return a.lo < b.lo ? -1 : 1;
  if (a.len <= WORD_KEY_BYTES || b.len <= WORD_KEY_BYTES) return a.len < b.len ? -1 : a.len > b.len;
  return compare_tails(a.bytes, a.len, b.bytes, b.len);
}

// The user key of an entry. A key that fits into its words has no bytes.
ROCKMILL_HD UserKey user_key_of(const KeyBytes& bytes, const Key& key) {
  return {key.hi, key.lo, key.len > WORD_KEY_BYTES ? bytes.of(key) : nullptr, key.len, 1};
}

ROCKMILL_HD bool same_user_key(const KeyBytes& bytes, const Key& a, const Key& b) {
  if (a.hi != b.hi || a.lo != b.lo || a.len != b.len) return false;
  return a.len <= WORD_KEY_BYTES || common_tail(bytes.of(a), bytes.of(b), a.len) == a.len;
}

// User key ascending, newest first.
struct KeyLess {
  KeyBytes bytes;

  ROCKMILL_HD bool operator()(const Key& a, const Key& b) const {
    const int order = compare_user(bytes, a, b);
    return order != 0 ? order < 0 : a.tag > b.tag;
  }
};

// First of the keys [from, to) that is not below the bound; with `above`, the first that is above it.
ROCKMILL_HD u64 lower_bound(const KeyBytes& bytes, const Key* keys, u64 from, u64 to,
                            const UserKey& bound, bool above) {
  while (from < to) {
    const u64 middle = from + (to - from) / 2;
    const int order = compare_user(bytes, keys[middle], bound);
    if (order < 0 || (above && order == 0)) from = middle + 1;
    else to = middle;
  }
  return from;
}

// Keys before the begin of each fragment of range tombstones.
struct FindFragments {
  const Key* keys;
  KeyBytes bytes;
  u64 n;
  const Fragment* fragments;
  u64* places;

  ROCKMILL_HD void operator()(u64 f) const {
    places[f] = lower_bound(bytes, keys, 0, n, fragments[f].begin, false);
  }
};

// Number of common leading bytes of two user keys.
ROCKMILL_HD u32 common_user_bytes(const KeyBytes& bytes, const Key& a, const Key& b) {
  const u32 len = min_of(a.len, b.len);
  if (a.hi != b.hi) return min_of(len, leading_zeros(a.hi ^ b.hi) / 8);
  if (a.lo != b.lo) return min_of(len, 8 + leading_zeros(a.lo ^ b.lo) / 8);
  return len <= WORD_KEY_BYTES ? len : common_tail(bytes.of(a), bytes.of(b), len);
}

ROCKMILL_HD u32 common_user_bytes(const UserKey& a, const UserKey& b) {
  const u32 len = min_of(a.len, b.len);
  if (a.hi != b.hi) return min_of(len, leading_zeros(a.hi ^ b.hi) / 8);
  if (a.lo != b.lo) return min_of(len, 8 + leading_zeros(a.lo ^ b.lo) / 8);
  return len <= WORD_KEY_BYTES ? len : common_tail(a.bytes, b.bytes, len);
}

// Number of common leading bytes of two internal keys.
ROCKMILL_HD u32 common_bytes(const KeyBytes& bytes, const Key& a, const Key& b) {
  const u32 len = min_of(a.len, b.len);
  u32 common = common_user_bytes(bytes, a, b);
  if (common < len) return common;
  if (a.len == b.len)
    return len + (a.tag == b.tag ? TAG_BYTES : leading_zeros(byte_swap(a.tag ^ b.tag)) / 8);
  // The tag of the shorter one is compared with bytes of the longer user key.
  while (common < len + TAG_BYTES && bytes.byte(a, common) == bytes.byte(b, common)) ++common;
  return common;
}

constexpr u32 MURMUR_MULTIPLIER = 0xc6a4a793;

// Hash of the first `len` bytes of a user key (`util/hash.cc:Hash`): a variant of MurmurHash1 that treats the last one
// to three bytes as signed.
ROCKMILL_HD u32 murmur_hash(const KeyBytes& bytes, const Key& key, u32 len, u32 seed) {
  u32 hash = seed ^ len * MURMUR_MULTIPLIER;
  u32 i = 0;
  for (; i + 4 <= len; i += 4) {
    u32 word = 0;
    for (u32 k = 0; k < 4; ++k) word |= u32(bytes.byte(key, i + k)) << 8 * k;
    hash = (hash + word) * MURMUR_MULTIPLIER;
    hash ^= hash >> 16;
  }
  if (i == len) return hash;
  for (u32 k = 0; i + k < len; ++k) hash += u32(static_cast<signed char>(bytes.byte(key, i + k))) << 8 * k;
  hash *= MURMUR_MULTIPLIER;
  return hash ^ hash >> 24;
}

}  // namespace rockmill::ROCKMILL_TARGET

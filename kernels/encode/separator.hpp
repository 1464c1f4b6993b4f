// Separators of data blocks (`util/comparator.cc:FindShortestSeparator`, `FindShortSuccessor`): the block's last
// key, or the beginning of its user key with the last byte one larger. Verification finds them again in what it
// has decoded.
#pragma once

#include "../common/content.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Tag of a separator that is not a key of its own: the largest sequence number, and the type that seeks use.
constexpr u64 SEEK_TAG = MAX_SEQUENCE << 8 | 0x18;

struct Separator {
  // The block's last key.
  Key key;
  // Bytes of its user key; whether the last of them is one larger than in the key.
  u32 len;
  u32 grown;

  ROCKMILL_HD u64 tag() const { return grown ? SEEK_TAG : key.tag; }
  // Byte `i` of user key and tag.
  ROCKMILL_HD u8 byte(const KeyBytes& bytes, u32 i) const {
    if (i >= len) return u8(tag() >> 8 * (i - len));
    return u8(bytes.byte(key, i) + (grown && i + 1 == len));
  }
};

ROCKMILL_HD Separator whole(const Key& key) { return {key, key.len, 0}; }

// Leading bytes that two separators have in common, in user keys and `tag_bytes` bytes of the tags.
ROCKMILL_HD u32 common_bytes(const KeyBytes& bytes, const Separator& a, const Separator& b, u32 tag_bytes) {
  const u32 kept = min_of(a.len - a.grown, b.len - b.grown);
  u32 common = common_user_bytes(bytes, a.key, b.key);
  if (common < kept) return common;
  const u32 end = min_of(a.len, b.len) + tag_bytes;
  for (common = kept; common < end && a.byte(bytes, common) == b.byte(bytes, common);) ++common;
  return common;
}

// Order of a separator and a key, by their user keys.
ROCKMILL_HD int compare_user(const KeyBytes& bytes, const Separator& a, const Key& b) {
  const u32 common = common_bytes(bytes, a, whole(b), 0);
  if (common < min_of(a.len, b.len)) return a.byte(bytes, common) < bytes.byte(b, common) ? -1 : 1;
  return a.len < b.len ? -1 : a.len > b.len;
}

// Separators of the blocks of which block b has the keys [block_starts[b], block_starts[b + 1]).
struct Separators {
  const Key* keys;
  KeyBytes bytes;
  const u32* block_starts;
  IndexLayout layout;

  ROCKMILL_HD const Key& last_key(u64 b) const { return keys[block_starts[b + 1] - 1]; }
  ROCKMILL_HD const Key& next_key(u64 b) const { return keys[block_starts[b + 1]]; }

  // Whether the next block begins with the user key with which this one ends.
  ROCKMILL_HD bool key_goes_on(u64 b) const { return same_user_key(bytes, last_key(b), next_key(b)); }

  // That of block `b`, which is its file's last or not.
  ROCKMILL_HD Separator of(u64 b, bool last) const {
    if (last) {
      // With a common prefix, which a successor could shorten, there is none.
      const bool successor = layout.shortening == SHORTEN_SUCCESSOR && !layout.common_prefix;
      return successor ? grow(last_key(b), 0) : whole(last_key(b));
    }
    return layout.shortening == SHORTEN_NOTHING ? whole(last_key(b)) : between(last_key(b), next_key(b));
  }

 private:
  ROCKMILL_HD Separator between(const Key& a, const Key& b) const {
    const u32 i = common_user_bytes(bytes, a, b);
    if (i >= a.len || i >= b.len) return whole(a);
    const u32 own = bytes.byte(a, i), other = bytes.byte(b, i);
    if (own >= other) return whole(a);
    // If b ends here and is a's successor, a later byte has to grow.
    return i + 1 < b.len || own + 1 < other ? Separator{a, i + 1, 1} : grow(a, i + 1);
  }
  // Grows the first byte from `from` on that can.
  ROCKMILL_HD Separator grow(const Key& key, u32 from) const {
    for (u32 i = from; i < key.len; ++i)
      if (bytes.byte(key, i) != 0xff) return {key, i + 1, 1};
    return whole(key);
  }
};

// Bytes of which the one at `grown` counts one more; it is not 255.
struct GrownBytes {
  const u8* at;
  const u8* grown;

  ROCKMILL_HD GrownBytes operator+(u64 n) const { return {at + n, grown}; }
  ROCKMILL_HD GrownBytes operator-(u64 n) const { return {at - n, grown}; }
};

ROCKMILL_HD u64 load64(const GrownBytes& bytes) {
  const u64 i = u64(bytes.grown - bytes.at);
  return load64(bytes.at) + (i < 8 ? u64{1} << 8 * i : 0);
}

// rapidhash of a separator's user key.
ROCKMILL_HD u64 rapidhash_key(const KeyBytes& bytes, const Separator& separator) {
  const u32 len = separator.len;
  if (len > WORD_KEY_BYTES) {
    const u8* at = bytes.of(separator.key);
    return separator.grown ? rapidhash_long(GrownBytes{at, at + len - 1}, len) : rapidhash_long(at, len);
  }
  Key key = beginning_of(separator.key, len);
  if (separator.grown && len <= 8) key.hi += u64{1} << (64 - 8 * len);
  if (separator.grown && len > 8) key.lo += u64{1} << (128 - 8 * len);
  return rapidhash_key(bytes, key);
}

}  // namespace rockmill::ROCKMILL_TARGET

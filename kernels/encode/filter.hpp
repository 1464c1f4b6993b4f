// Bloom filters: which hashes go in, and their bits. FastLocalBloom (`util/bloom_impl.h`) has all probes of a hash in
// one line of 64 bytes, and so has the legacy filter as it is written here.
#pragma once

#include "../common/exec.hpp"
#include "../common/hash.hpp"
#include "../common/key.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 LINE_BYTES = 64, LINE_BITS_LOG2 = 9;
constexpr u32 PROBE_MULTIPLIER = 0x9e3779b9;
constexpr u32 LEGACY_SEED = 0xbc9f1d34, LEGACY_MULTIPLIER = 0xc6a4a793, LEGACY_STEP_ROTATION = 17;

// A filter's shape.
struct FilterShape {
  u32 format;
  u32 num_lines;
  u32 num_probes;
};

// Calls f(word of the filter, mask) for each probe of a hash.
template <class F>
ROCKMILL_HD void for_each_probe(u64 hash, const FilterShape& shape, F f) {
  const bool legacy = shape.format == FILTER_LEGACY;
  const u32 low = u32(hash);
  const u64 line = legacy ? low % shape.num_lines : u64(low) * shape.num_lines >> 32;
  const u32 step = low >> LEGACY_STEP_ROTATION | low << (32 - LEGACY_STEP_ROTATION);
  u32 state = legacy ? low : u32(hash >> 32);
  for (u32 p = 0; p < shape.num_probes; ++p) {
    const u32 bit = legacy ? state % (LINE_BYTES * 8) : state >> (32 - LINE_BITS_LOG2);
    f(line * (LINE_BYTES / 4) + bit / 32, u32{1} << bit % 32);
    state = legacy ? state + step : state * PROBE_MULTIPLIER;
  }
}

// Which hashes the keys of a file add to its filter (crates/format/src/filter/builder.rs): those of whole keys, of
// prefixes, or both; what follows itself counts once. Two different keys of one 64-bit hash side by side would be
// told apart where RocksDB counts them as one, were there ever such.
struct FilterKeys {
  const Key* keys;
  KeyBytes bytes;
  FilterRules rules;
  // One more than the last position up to here whose key has a prefix; null if all keys have one.
  const u32* last_with_prefix;

  ROCKMILL_HD bool has_prefix(const Key& key) const {
    return rules.prefix_kind == PREFIX_CAPPED ||
           (rules.prefix_kind == PREFIX_FIXED && key.len >= rules.prefix_len);
  }
  ROCKMILL_HD u64 hash_of_key(const Key& key) const { return hash(key, key.len); }
  ROCKMILL_HD u64 hash_of_prefix(const Key& key) const {
    return hash(key, key.len < rules.prefix_len ? key.len : u32(rules.prefix_len));
  }

  // Calls f(hash) for what entry `i` of the file that begins at `start` adds.
  template <class F>
  ROCKMILL_HD void for_each_hash(u64 start, u64 i, F f) const {
    if (rules.format == FILTER_NONE) return;
    const Key& key = keys[start + i];
    const bool prefixed = has_prefix(key);
    if (!prefixed && !rules.whole_keys) return;
    // The last prefix in the file before this key.
    u64 before = 0;
    bool any_prefix = false;
    if (rules.prefix_kind != PREFIX_NONE && i > 0) {
      const u64 last = last_with_prefix != nullptr ? last_with_prefix[start + i - 1] : start + i;
      any_prefix = last > start;
      if (any_prefix && prefixed) before = hash_of_prefix(keys[last - 1]);
    }
    const u64 prefix = prefixed ? hash_of_prefix(key) : 0;
    if (!rules.whole_keys) {
      if (!any_prefix || prefix != before) f(prefix);
      return;
    }
    const u64 whole = hash_of_key(key);
    const bool first = i == 0;
    const u64 key_before = first ? 0 : hash_of_key(keys[start + i - 1]);
    const bool new_prefix = !any_prefix || prefix != before;
    if (prefixed && new_prefix && prefix != whole && (first || prefix != key_before)) f(prefix);
    if ((first || whole != key_before) && !(prefixed && any_prefix && whole == before)) f(whole);
  }

 private:
  // Of the key's first `len` bytes.
  ROCKMILL_HD u64 hash(const Key& key, u32 len) const {
    if (rules.format == FILTER_LEGACY) return legacy_hash(key, len);
    if (len > WORD_KEY_BYTES) return xxph3_bytes(bytes.of(key), len);
    const Key beginning = beginning_of(key, len);
    return xxph3_words(beginning.hi, beginning.lo, len);
  }

  // `util/hash.cc:BloomHash`: a variant of MurmurHash1 whose last one to three bytes are taken as signed.
  ROCKMILL_HD u64 legacy_hash(const Key& key, u32 len) const {
    u32 hash = LEGACY_SEED ^ len * LEGACY_MULTIPLIER;
    u32 i = 0;
    for (; i + 4 <= len; i += 4) {
      u32 word = 0;
      for (u32 k = 0; k < 4; ++k) word |= u32(bytes.byte(key, i + k)) << 8 * k;
      hash = (hash + word) * LEGACY_MULTIPLIER;
      hash ^= hash >> 16;
    }
    if (i == len) return hash;
    for (u32 k = 0; i + k < len; ++k) hash += u32(static_cast<signed char>(bytes.byte(key, i + k))) << 8 * k;
    hash *= LEGACY_MULTIPLIER;
    return hash ^ hash >> 24;
  }
};

// Marks keys that have a prefix -> inclusive_max -> FilterKeys::last_with_prefix.
struct MarkPrefixed {
  FilterKeys filter;
  u32* marks;

  ROCKMILL_HD void operator()(u64 i) const { marks[i] = filter.has_prefix(filter.keys[i]) ? u32(i) + 1 : 0; }
};

// Sets the bits of a file's keys in lines that were cleared.
struct SetFilterBits {
  FilterKeys filter;
  u64 start;
  FilterShape shape;
  u32* lines;

  ROCKMILL_HD void operator()(u64 i) const {
    u32* words = lines;
    const FilterShape own = shape;
    filter.for_each_hash(start, i, [words, own](u64 hash) {
      for_each_probe(hash, own, [words](u64 word, u32 mask) { atomic_or(words + word, mask); });
    });
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// What goes into a filter.
#pragma once

#include "../common/exec.hpp"
#include "../common/xxph3.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 LEGACY_SEED = 0xbc9f1d34;

// Which hashes the keys of a file add to its filter (crates/format/src/filter/builder.rs): those of whole keys, of
// prefixes, or both. A hash is left out if it was the last one, and one of both also if it is that of the last
// prefix. The last one is nearly always that of the key before; where hashes collide, it is found by going back to
// an entry behind which it is known, and forward again.
struct FilterKeys {
  const Key* keys;
  KeyBytes bytes;
  FilterRules rules;
  // One more than the last position up to here whose key has a prefix; null if all keys have one.
  const u32* last_with_prefix;
  u64* errors;

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
    if (!rules.whole_keys) {
      if (!has_prefix(key)) return;
      const u64 prefix = hash_of_prefix(key);
      if (!prefix_before(start, i).is(prefix)) f(prefix);
      return;
    }
    const Added added = added_by(start, i, last_before(start, i));
    if (added.with_prefix) f(added.prefix);
    if (added.with_key) f(added.key);
  }

 private:
  // Entries to go back at most: one more has the CPU build the filter.
  static constexpr u64 MAX_BACK = 4096;

  struct MaybeHash {
    u64 hash;
    bool any;
    ROCKMILL_HD bool is(u64 other) const { return any && hash == other; }
  };

  // What a key adds, the prefix first.
  struct Added {
    u64 key, prefix;
    bool with_key, with_prefix;
  };

  // That of the last prefix in front of entry `i`.
  ROCKMILL_HD MaybeHash prefix_before(u64 start, u64 i) const {
    if (rules.prefix_kind == PREFIX_NONE || i == 0) return {0, false};
    const u64 last = last_with_prefix != nullptr ? last_with_prefix[start + i - 1] : start + i;
    return last > start ? MaybeHash{hash_of_prefix(keys[last - 1]), true} : MaybeHash{0, false};
  }

  // Of whole keys, with prefixes or not, if `last` was added last.
  ROCKMILL_HD Added added_by(u64 start, u64 i, MaybeHash last) const {
    const Key& key = keys[start + i];
    const u64 whole = hash_of_key(key);
    if (!has_prefix(key)) return {whole, 0, !last.is(whole), false};
    const u64 prefix = hash_of_prefix(key);
    const MaybeHash before = prefix_before(start, i);
    return {whole, prefix, !last.is(whole) && !before.is(whole),
            !before.is(prefix) && prefix != whole && !last.is(prefix)};
  }

  // What was added last in front of entry `i`.
  ROCKMILL_HD MaybeHash last_before(u64 start, u64 i) const {
    if (i == 0) return {0, false};
    u64 known = i - 1;
    for (; !key_is_last(start, known); --known) {
      if (i - known < MAX_BACK) continue;
      report(errors, start + i, ERROR_FILTER);
      return {0, false};
    }
    MaybeHash last{hash_of_key(keys[start + known]), true};
    for (u64 j = known + 1; j < i; ++j) {
      const Added added = added_by(start, j, last);
      if (added.with_key) last.hash = added.key;
      else if (added.with_prefix) last.hash = added.prefix;
    }
    return last;
  }

  // Whether behind entry `i` its key's hash is the last one, whatever was before. If not, it may be all the same.
  ROCKMILL_HD bool key_is_last(u64 start, u64 i) const {
    const Key& key = keys[start + i];
    if (i == 0 || !has_prefix(key)) return true;
    const u64 whole = hash_of_key(key);
    const MaybeHash before = prefix_before(start, i);
    if (before.is(whole)) return false;
    if (before.is(hash_of_prefix(key))) return true;
    // A new prefix may have been added without the key, if the key's hash was the last: that of the key before, of
    // its prefix, or, if that key was left out for the prefix before, one from before.
    const Key& key_before = keys[start + i - 1];
    const u64 whole_before = hash_of_key(key_before);
    if (whole == whole_before) return false;
    return !has_prefix(key_before) || !prefix_before(start, i - 1).is(whole_before);
  }

  // Hash of the key's first `len` bytes.
  ROCKMILL_HD u64 hash(const Key& key, u32 len) const {
    if (rules.format == FILTER_LEGACY) return murmur_hash(bytes, key, len, LEGACY_SEED);
    if (len > WORD_KEY_BYTES) return xxph3_bytes(bytes.of(key), len);
    const Key beginning = beginning_of(key, len);
    return xxph3_words(beginning.hi, beginning.lo, len);
  }
};

// Marks keys that have a prefix -> inclusive_max -> FilterKeys::last_with_prefix.
struct MarkPrefixed {
  FilterKeys filter;
  u32* marks;

  ROCKMILL_HD void operator()(u64 i) const { marks[i] = filter.has_prefix(filter.keys[i]) ? u32(i) + 1 : 0; }
};

}  // namespace rockmill::ROCKMILL_TARGET

// The surviving entries if there are SingleDeletes: the result for an entry then depends on that for the previous one,
// so that one thread processes all versions of a user key. It computes the same as crates/cpu/src/read/retain.rs, and
// is as slow as the longest list of versions.
#pragma once

#include "retain.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The thread of a user key's newest version decides for all of them: `keep`, and the tags, values and hashes with which
// they are written. Other threads do nothing.
struct RetainGroup {
  Key* keys;
  KeyBytes bytes;
  u64 n;
  ValueRef* values;
  u64* hashes;
  RetainRules rules;
  const u32* cover;
  u32* keep;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, RetainSums& sums) const {
    if (i == 0 || !same_user_key(bytes, keys[i - 1], keys[i])) Group{*this, sums, i}.run();
  }

 private:
  struct Group {
    const RetainGroup& all;
    RetainSums& sums;
    u64 at;
    bool emitted = false, zeroed = false;

    ROCKMILL_HD Group(const RetainGroup& a, RetainSums& s, u64 first) : all(a), sums(s), at(first) {}

    ROCKMILL_HD u64 tag(u64 i) const { return all.keys[i].tag; }
    ROCKMILL_HD u64 stripe(u64 i) const { return stripe_of(all.rules, sequence_of(tag(i))); }
    ROCKMILL_HD u64 hash(u64 i) const {
      return entry_hash(all.hashes[all.keys[i].entry], all.keys[i].tag);
    }
    ROCKMILL_HD bool obsolete(u64 i) const {
      return sequence_of(tag(i)) <= all.rules.earliest &&
             absent_in_deeper_levels(all.rules, all.bytes, all.keys[i]);
    }
    // Whether there is an older version behind `i`. Tags of earlier entries may have changed, keys have not.
    ROCKMILL_HD bool more(u64 i) const {
      return i + 1 < all.n && same_user_key(all.bytes, all.keys[i], all.keys[i + 1]);
    }

    ROCKMILL_HD void drop(u64 i) {
      all.keep[i] = 0;
      sums.dropped += 1;
      sums.hash_dropped += hash(i);
    }
    ROCKMILL_HD void drop_tombstone(u64 i) {
      drop(i);
      sums.tombstones_dropped += 1;
    }
    // Keeps an entry with its final tag.
    ROCKMILL_HD void write(u64 i, u64 written_tag) {
      all.keep[i] = 1;
      sums.hash_kept += hash(i);
      sums.kept += 1;
      all.keys[i].tag = written_tag;
      emitted = true;
    }
    ROCKMILL_HD void keep_entry(u64 i) {
      const u64 written = final_tag(all.rules, tag(i));
      write(i, written);
      sums.rows_hash += hash(i);
      zeroed |= sequence_of(written) == 0;
    }
    ROCKMILL_HD void keep_tombstone(u64 i) {
      write(i, tag(i));
      sums.rows_hash += hash(i);
    }
    // Keeps the Put of a kept SingleDelete, without its value.
    ROCKMILL_HD void keep_cleared(u64 i) {
      const u64 written = final_tag(all.rules, (tag(i) & ~u64{0xff}) | TYPE_VALUE);
      write(i, written);
      const u32 entry = all.keys[i].entry;
      all.values[entry].len = 0;
      all.hashes[entry] = kv_hash(rapidhash_key(all.bytes, all.keys[i]), rapidhash(nullptr, 0));
      sums.rows_hash += hash(i);
      zeroed |= sequence_of(written) == 0;
    }

    ROCKMILL_HD void run() {
      u64 stripe_before = ~u64{0};
      bool clear_next = false, is_last = false;
      while (!is_last) {
        const u64 i = at, own = tag(i), type = own & 0xff;
        const u64 own_stripe = stripe(i);
        const bool hidden = own_stripe == stripe_before;
        stripe_before = own_stripe;
        // The last entry that this step handles.
        u64 last = i;
        if (clear_next) {
          clear_next = false;
          keep_cleared(i);
        } else if (type == TYPE_SINGLE_DELETION) {
          last = single_delete(i, clear_next);
        } else if (hidden) {
          drop(i);
          sums.replaced += 1;
        } else if (type == TYPE_DELETION && obsolete(i)) {
          drop_tombstone(i);
        } else if (type == TYPE_DELETION && all.rules.bottommost) {
          last = delete_at_bottom(i);
        } else if (Coverage{all.keys, all.bytes, all.cover}.deletes(all.rules, i)) {
          drop(i);
          sums.replaced += 1;
        } else {
          keep_entry(i);
        }
        is_last = !more(last);
        at = last + 1;
      }
    }

    // A Delete at the bottom that is too new to be dropped at once. The entries that it hides in its own stripe are
    // dropped; it stays only if an older stripe still has an entry of the key. RocksDB counts neither the hidden
    // entries nor the Delete.
    ROCKMILL_HD u64 delete_at_bottom(u64 i) {
      const u64 own_stripe = stripe(i);
      u64 last = i;
      for (; more(last); ++last) {
        if (stripe(last + 1) != own_stripe) {
          keep_tombstone(i);
          return last;
        }
        drop(last + 1);
      }
      drop(i);
      return last;
    }

    // A SingleDelete cancels the next older entry of its key; a pair above the earliest snapshot is kept, the Put
    // without its value.
    ROCKMILL_HD u64 single_delete(u64 i, bool& clear_next) {
      if (!more(i)) {
        if (zeroed || obsolete(i)) drop_tombstone(i);
        else keep_tombstone(i);
        return i;
      }
      const u64 next = i + 1;
      if (zeroed) return drop_pair(i);
      if (stripe(next) != stripe(i)) {
        keep_tombstone(i);
        return i;
      }
      const u64 type = tag(next) & 0xff;
      if (type == TYPE_SINGLE_DELETION || type == TYPE_DELETION) {
        if (type == TYPE_DELETION && all.rules.enforce_single_delete)
          report(all.errors, all.keys[i].entry, ERROR_SINGLE_DELETE);
        drop_tombstone(i);
        return i;
      }
      if (emitted || sequence_of(tag(i)) <= all.rules.earliest) return drop_pair(i);
      keep_tombstone(i);
      clear_next = true;
      return i;
    }

    ROCKMILL_HD u64 drop_pair(u64 i) {
      drop_tombstone(i);
      drop(i + 1);
      sums.replaced += 1;
      return i + 1;
    }
  };
};

}  // namespace rockmill::ROCKMILL_TARGET

// Where files end. The rules are those of crates/cpu/src/sst/split.rs (`compaction_outputs.cc:ShouldStopBefore`), asked
// only at the keys where they can say yes: where a file reaches its size, and where a grandparent begins or ends.
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"

namespace rockmill::ROCKMILL_TARGET {

// RocksDB's thresholds for splitting at a grandparent's boundary: boundaries crossed at once, and percentages of the
// target size by boundaries crossed in all.
constexpr u64 BOUNDARIES_IN_FILE = 3, BOUNDARIES_IN_GAP = 2, SKIPPED_SHARE = 8;
constexpr u64 BASE_PERCENT = 50, PERCENT_PER_BOUNDARY = 5, MAX_EXTRA_PERCENT = 40;

ROCKMILL_HD u64 saturating_add(u64 a, u64 b) { return a + b < a ? ~u64{0} : a + b; }

ROCKMILL_HD u64 entry_bytes(u32 shared, u32 non_shared, u64 value_len) {
  return varint_len(shared) + varint_len(non_shared) + varint_len(value_len) + non_shared + value_len;
}

// Q of an entry of the file that begins at `start`, of which no key precedes the first.
struct FileSum {
  const Key* survivors;
  const ValueRef* values;
  const u64* prefix;

  ROCKMILL_HD u64 at(u64 start, u64 i) const {
    if (i == start) return 0;
    const Key& key = survivors[start];
    return entry_bytes(0, key.len + TAG_BYTES, values[key.entry].len) + prefix[i] - prefix[start + 1];
  }
};

// The first survivor in each grandparent or behind its begin, and the first behind it: behind[2g], behind[2g + 1].
struct FindGrandparents {
  const Key* survivors;
  KeyBytes bytes;
  u64 n;
  Splitting splitting;
  u64* places;

  ROCKMILL_HD void operator()(u64 g) const {
    const KeySpan* files = splitting.grandparents;
    places[2 * g] = lower_bound(bytes, survivors, 0, n, files[g].first, false);
    const u64 at_end = lower_bound(bytes, survivors, 0, n, files[g].last, false);
    // A key on which one ends and the next begins belongs to the next.
    const bool shared = g + 1 < splitting.num_grandparents && at_end < n &&
                        compare_user(bytes, survivors[at_end], files[g].last) == 0 &&
                        compare_user(bytes, survivors[at_end], files[g + 1].first) >= 0;
    places[2 * g + 1] = shared ? at_end : lower_bound(bytes, survivors, at_end, n, files[g].last, true);
  }
};

// One thread: files are few, and so are grandparents.
struct SplitFiles {
  FileSum sum;
  KeyBytes bytes;
  Splitting splitting;
  const u64* places;
  u64 n;
  u32 max_files;
  u32* file_starts;
  u32* num_files;
  u64* errors;

  // Position of a walk along the grandparents.
  struct Walk {
    // Grandparent at or behind the last key, and whether the key lies before it rather than in it.
    u64 at = 0;
    bool in_gap = true;
    bool seen = false;
    // Bytes of grandparents that the file at hand overlaps, and boundaries crossed since it began.
    u64 overlapped = 0, crossed_in_file = 0;
  };

  ROCKMILL_HD void operator()(u64) const {
    u32 files = 0;
    Walk walk;
    u64 start = 0;
    cross(walk, 0);
    while (start < n) {
      if (files == max_files) {
        report(errors, start, ERROR_TOO_MANY_FILES);
        break;
      }
      file_starts[files++] = u32(start);
      start = end_of(walk, start);
    }
    file_starts[files] = u32(n);
    *num_files = files;
  }

 private:
  // The end of the file that begins at `start`.
  ROCKMILL_HD u64 end_of(Walk& walk, u64 start) const {
    u64 full = start + 1, to = n;
    while (full < to) {
      const u64 middle = full + (to - full) / 2;
      if (sum.at(start, middle) >= splitting.file_size) to = middle;
      else full = middle + 1;
    }
    while (full < n && same_user_key(bytes, sum.survivors[full - 1], sum.survivors[full])) ++full;
    for (;;) {
      // A place at or in front of `start` has been passed.
      const u64 boundary = next_boundary(walk);
      const u64 i = boundary < full ? boundary : full;
      if (i >= n) return n;
      const u64 before = walk.overlapped;
      const u64 crossed = boundary == i ? cross(walk, i) : 0;
      if (i == full || ends_at_boundary(walk, stored_size(sum.at(start, i)), crossed, before)) {
        walk.crossed_in_file = 0;
        walk.overlapped = overlapped_at(walk, i);
        return i;
      }
    }
  }

  ROCKMILL_HD u64 next_boundary(const Walk& walk) const {
    if (walk.at >= splitting.num_grandparents) return n;
    return places[2 * walk.at + (walk.in_gap ? 0 : 1)];
  }

  // Moves past all boundaries that lie at survivor `i` or in front of it; returns how many were crossed.
  ROCKMILL_HD u64 cross(Walk& walk, u64 i) const {
    u64 crossed = 0;
    while (walk.at < splitting.num_grandparents && next_boundary(walk) <= i) {
      crossed += walk.seen;
      if (walk.in_gap) {
        if (walk.seen)
          walk.overlapped = saturating_add(walk.overlapped, splitting.grandparents[walk.at].file_size);
        walk.in_gap = false;
      } else {
        walk.in_gap = true;
        walk.at += 1;
      }
    }
    if (!walk.seen && !walk.in_gap) walk.overlapped = overlapped_at(walk, i);
    walk.seen = true;
    walk.crossed_in_file += crossed;
    return crossed;
  }

  ROCKMILL_HD u64 overlapped_at(const Walk& walk, u64 i) const {
    if (walk.in_gap || walk.at >= splitting.num_grandparents) return 0;
    u64 size = splitting.grandparents[walk.at].file_size;
    for (u64 g = walk.at; g > 0; --g) {
      const KeySpan& file = splitting.grandparents[g - 1];
      if (compare_user(bytes, sum.survivors[i], file.last) != 0) break;
      size = saturating_add(size, file.file_size);
    }
    return size;
  }

  ROCKMILL_HD u64 stored_size(u64 uncompressed) const {
    if (splitting.uncompressed == 0 || splitting.stored >= splitting.uncompressed) return uncompressed;
    return u64(static_cast<unsigned __int128>(uncompressed) * splitting.stored / splitting.uncompressed);
  }

  ROCKMILL_HD bool ends_at_boundary(const Walk& walk, u64 size, u64 crossed, u64 before) const {
    if (saturating_add(walk.overlapped, size) > splitting.max_compaction_bytes) return true;
    if (!splitting.level_style) return false;
    const u64 enough = walk.in_gap ? BOUNDARIES_IN_GAP : BOUNDARIES_IN_FILE;
    const u64 skipped = walk.overlapped > before ? walk.overlapped - before : 0;
    if (crossed >= enough && skipped > splitting.target_file_size / SKIPPED_SHARE) return true;
    const u64 extra = walk.crossed_in_file * PERCENT_PER_BOUNDARY;
    const u64 percent = BASE_PERCENT + (extra < MAX_EXTRA_PERCENT ? extra : MAX_EXTRA_PERCENT);
    const unsigned __int128 share =
        (static_cast<unsigned __int128>(splitting.target_file_size) + 99) / 100 * percent;
    return size >= share;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

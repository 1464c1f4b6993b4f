// Where files end. The rules are those of crates/cpu/src/sst/split.rs (`compaction_outputs.cc:ShouldStopBefore`),
// evaluated only at the keys where a file can end: where it reaches its size, where a partitioner separates keys, and
// where a grandparent begins or ends.
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

// Q of an entry of the file that begins at `start`; the first key has no predecessor.
struct FileSum {
  const Key* selected_rows;
  const ValueRef* values;
  const u64* prefix;

  ROCKMILL_HD u64 at(u64 start, u64 i) const {
    if (i == start) return 0;
    const Key& key = selected_rows[start];
    return entry_bytes(0, key.len + TAG_BYTES, values[key.entry].len) + prefix[i] - prefix[start + 1];
  }
};

// The keys before which files may end, in order: surviving entries, and the begins of fragments, which have no bytes. A
// fragment that begins with a surviving entry's key comes before it.
struct Items {
  const Key* selected_rows;
  KeyBytes bytes;
  u64 n;
  const Fragment* fragments;
  // Surviving entries before each fragment.
  const u64* places;
  u64 num_fragments;

  ROCKMILL_HD u64 len() const { return n + num_fragments; }

  // First fragment with at least this number of surviving entries before it.
  ROCKMILL_HD u64 fragment_behind(u64 row) const {
    u64 from = 0, to = num_fragments;
    while (from < to) {
      const u64 middle = from + (to - from) / 2;
      if (places[middle] < row) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  // Fragments before item `i`.
  ROCKMILL_HD u64 fragments_before(u64 i) const {
    u64 from = 0, to = num_fragments;
    while (from < to) {
      const u64 middle = from + (to - from) / 2;
      if (places[middle] + middle < i) from = middle + 1;
      else to = middle;
    }
    return from;
  }
  ROCKMILL_HD u64 selected_before(u64 i) const { return i - fragments_before(i); }

  // The fragment whose begin is item `i`, or NO_FRAGMENT.
  ROCKMILL_HD u32 fragment_at(u64 i) const {
    const u64 f = fragments_before(i);
    return f < num_fragments && places[f] + f == i ? u32(f) : NO_FRAGMENT;
  }

  ROCKMILL_HD UserKey key(u64 i) const {
    const u32 f = fragment_at(i);
    return f != NO_FRAGMENT ? fragments[f].begin : user_key_of(bytes, selected_rows[selected_before(i)]);
  }

  // Whether item `i` is an older version of the previous key.
  ROCKMILL_HD bool goes_on(u64 i) const {
    const u64 s = selected_before(i);
    return fragment_at(i) == NO_FRAGMENT && s > 0 && same_user_key(bytes, selected_rows[s - 1], selected_rows[s]);
  }

  // First item that is not below the bound; with `above`, the first that is above it.
  ROCKMILL_HD u64 first_behind(const UserKey& bound, bool above) const {
    u64 from = 0, to = num_fragments;
    while (from < to) {
      const u64 middle = from + (to - from) / 2;
      const int order = compare_user(fragments[middle].begin, bound);
      if (order < 0 || (above && order == 0)) from = middle + 1;
      else to = middle;
    }
    return from + lower_bound(bytes, selected_rows, 0, n, bound, above);
  }

  // First item behind `i` with other leading bytes, or with another key if one of the two is shorter.
  ROCKMILL_HD u64 partition_end(u64 i, u64 prefix_len) const {
    const UserKey own = key(i);
    u64 f = fragments_before(i), s = i - f;
    for (u64 to = n; s < to;) {
      const u64 middle = s + (to - s) / 2;
      if (is_same_partition(own, user_key_of(bytes, selected_rows[middle]), prefix_len)) s = middle + 1;
      else to = middle;
    }
    for (u64 to = num_fragments; f < to;) {
      const u64 middle = f + (to - f) / 2;
      if (is_same_partition(own, fragments[middle].begin, prefix_len)) f = middle + 1;
      else to = middle;
    }
    return s + f;
  }

 private:
  ROCKMILL_HD static bool is_same_partition(const UserKey& a, const UserKey& b, u64 prefix_len) {
    const u64 a_len = a.len < prefix_len ? a.len : prefix_len, b_len = b.len < prefix_len ? b.len : prefix_len;
    return a_len == b_len && common_user_bytes(a, b) >= a_len;
  }
};

// The first item in or behind each grandparent's begin, and the first behind its end: places[2g], places[2g + 1].
struct FindGrandparents {
  Items items;
  Splitting splitting;
  u64* places;

  ROCKMILL_HD void operator()(u64 g) const {
    const KeySpan* files = splitting.grandparents;
    places[2 * g] = items.first_behind(files[g].first, false);
    // A key at which one ends and the next begins belongs to the next.
    const bool shared =
        g + 1 < splitting.num_grandparents && compare_user(files[g].last, files[g + 1].first) >= 0;
    places[2 * g + 1] = items.first_behind(files[g].last, !shared);
  }
};

// One thread: files are few, and so are grandparents.
struct SplitFiles {
  FileSum sum;
  Items items;
  Splitting splitting;
  const u64* places;
  u32 max_files, max_cuts;
  u32* file_starts;
  u32* num_files;
  FileCut* cuts;
  u64* errors;

  // Position of a walk along the grandparents.
  struct Walk {
    // Grandparent at or behind the last key, and whether the key lies before it instead of in it.
    u64 at = 0;
    bool in_gap = true;
    bool seen = false;
    // Bytes of grandparents that the current file overlaps, and boundaries crossed since it began.
    u64 overlapped = 0, crossed_in_file = 0;
  };

  ROCKMILL_HD void operator()(u64) const {
    u32 files = 0, num_cuts = 0;
    Walk walk;
    u64 start = 0, first = 0;
    const u64 tail = splitting.tail.present ? items.first_behind(splitting.tail, false) : items.len();
    if (items.len() > 0) cross(walk, 0);
    while (start < items.len()) {
      if (num_cuts == max_cuts || files == max_files) {
        report(errors, start, ERROR_TOO_MANY_FILES);
        break;
      }
      cuts[num_cuts++] = {u32(first), items.fragment_at(start)};
      start = end_of(walk, start, first, tail);
      const u64 end = items.selected_before(start);
      // A file may have only range tombstones.
      if (end > first) file_starts[files++] = u32(first);
      first = end;
    }
    file_starts[files] = u32(items.n);
    *num_files = files;
    cuts[max_cuts] = {num_cuts, NO_FRAGMENT};
  }

 private:
  // The end of the file that begins at item `start`, before which there are `first` surviving entries. From item `tail`
  // on, it does not end because of its size.
  ROCKMILL_HD u64 end_of(Walk& walk, u64 start, u64 first, u64 tail) const {
    const u64 n = items.len();
    u64 full = full_at(start, first);
    if (full >= tail) full = n;
    if (splitting.partition_bytes != NO_PARTITIONS) {
      const u64 partition = items.partition_end(start, splitting.partition_bytes);
      if (partition < full) full = partition;
    }
    for (;;) {
      // A place at or before `start` has been passed.
      const u64 boundary = next_boundary(walk);
      const u64 i = boundary < full ? boundary : full;
      if (i >= n) return n;
      const u64 before = walk.overlapped;
      const u64 crossed = boundary == i ? cross(walk, i) : 0;
      const u64 size = sum.at(first, items.selected_before(i));
      if (i == full || ends_at_boundary(walk, stored_size(size), crossed, before)) {
        walk.crossed_in_file = 0;
        walk.overlapped = overlapped_at(walk, i);
        return i;
      }
    }
  }

  // The first key behind `start` at which the file has reached its size.
  ROCKMILL_HD u64 full_at(u64 start, u64 first) const {
    u64 end = splitting.file_size == 0 ? first : first + 1, to = items.n + 1;
    while (end < to) {
      const u64 middle = end + (to - end) / 2;
      if (sum.at(first, middle) >= splitting.file_size) to = middle;
      else end = middle + 1;
    }
    if (end > items.n) return items.len();
    u64 full = end + items.fragment_behind(end);
    if (full <= start) full = start + 1;
    while (full < items.len() && items.goes_on(full)) ++full;
    return full;
  }

  ROCKMILL_HD u64 next_boundary(const Walk& walk) const {
    if (walk.at >= splitting.num_grandparents) return items.len();
    return places[2 * walk.at + (walk.in_gap ? 0 : 1)];
  }

  // Moves past all boundaries at or before item `i`; returns the number crossed.
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
      if (compare_user(items.key(i), file.last) != 0) break;
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

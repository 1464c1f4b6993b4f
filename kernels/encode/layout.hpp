// Where files and blocks end, and where each entry goes; nothing is written yet. The rules are those of
// crates/cpu/src/writer.rs and cut.rs. With Q the bytes of a file's entries so far, each encoded against its
// predecessor in the file, an entry goes into block Q / block_size, so that all of it is prefix sums:
//
//   MeasureEntries  size of each entry against its predecessor      -> exclusive_sum
//   CutFiles        first entry of each file
//   MarkBlocks      entries at which a block begins                 -> exclusive_sum
//   StartBlocks     first entry of each block
//   MeasureStored   size of each entry as it is stored              -> exclusive_sum
//   MeasureBlocks   size of each block                              -> exclusive_sum
//   PlaceBlocks     place of each block in the images
#pragma once

#include "../common/exec.hpp"
#include "../decode/decode.hpp"
#include "../retain/retain.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Leading bytes that two internal keys have in common.
ROCKMILL_HD u32 common_bytes(const Key& a, const Key& b, u32 key_bytes) {
  if (a.hi != b.hi) return leading_zeros(a.hi ^ b.hi) / 8;
  if (a.lo != b.lo) return 8 + leading_zeros(a.lo ^ b.lo) / 8;
  if (a.tag == b.tag) return key_bytes + TAG_BYTES;
  return key_bytes + leading_zeros(byte_swap(a.tag ^ b.tag)) / 8;
}

ROCKMILL_HD u64 entry_bytes(u32 shared, u32 key_bytes, u64 value_len) {
  const u32 non_shared = key_bytes + TAG_BYTES - shared;
  return varint_len(shared) + varint_len(non_shared) + varint_len(value_len) + non_shared + value_len;
}

struct MeasureEntries {
  const Key* survivors;
  const ValueRef* values;
  Layout layout;
  u8* shared;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    const Key& key = survivors[i];
    const bool delta = i > 0 && layout.delta_keys;
    const u32 common = delta ? common_bytes(survivors[i - 1], key, layout.key_bytes) : 0;
    shared[i] = u8(common);
    sizes[i] = u32(entry_bytes(common, layout.key_bytes, values[key.entry].len));
  }
};

// Q of an entry of the file that begins at `start`, of which no key precedes the first.
struct FileSum {
  const Key* survivors;
  const ValueRef* values;
  const u64* prefix;
  u32 key_bytes;

  ROCKMILL_HD u64 at(u64 start, u64 i) const {
    if (i == start) return 0;
    const u64 first = entry_bytes(0, key_bytes, values[survivors[start].entry].len);
    return first + prefix[i] - prefix[start + 1];
  }
};

// One thread: files are few, and each is found by binary search.
struct CutFiles {
  FileSum sum;
  Layout layout;
  u64 n;
  u32 most_files;
  u32* file_starts;
  u32* num_files;
  u64* errors;

  ROCKMILL_HD void operator()(u64) const {
    u32 files = 0;
    u64 start = 0;
    while (start < n) {
      if (files == most_files) {
        report(errors, start, ERROR_TOO_MANY_FILES);
        break;
      }
      file_starts[files++] = u32(start);
      u64 from = start + 1, to = n;
      while (from < to) {
        const u64 middle = from + (to - from) / 2;
        if (sum.at(start, middle) >= layout.file_size) to = middle;
        else from = middle + 1;
      }
      while (from < n && same_user_key(sum.survivors[from - 1], sum.survivors[from])) ++from;
      start = from;
    }
    file_starts[files] = u32(n);
    *num_files = files;
  }
};

// Last of the ascending `starts` that is not above i.
ROCKMILL_HD u32 part_of(const u32* starts, u32 parts, u64 i) {
  u32 from = 0, to = parts;
  while (to - from > 1) {
    const u32 middle = from + (to - from) / 2;
    if (starts[middle] <= i) from = middle;
    else to = middle;
  }
  return from;
}

struct MarkBlocks {
  FileSum sum;
  Layout layout;
  const u32* file_starts;
  const u32* num_files;
  u32* begins;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 start = file_starts[part_of(file_starts, *num_files, i)];
    begins[i] = i == start || sum.at(start, i) / layout.block_size !=
                                  sum.at(start, i - 1) / layout.block_size;
  }
};

// `before[i]` blocks begin in front of entry i.
struct StartBlocks {
  const u32* begins;
  const u32* before;
  u64 n;
  u32* block_starts;

  ROCKMILL_HD void operator()(u64 i) const {
    if (i == n) block_starts[before[n]] = u32(n);
    else if (begins[i]) block_starts[before[i]] = u32(i);
  }
};

// The first block of each file, and the number of blocks behind the last.
struct FindFileBlocks {
  const u32* before;
  const u32* file_starts;
  const u32* num_files;
  u32* file_blocks;

  // No block begins between those in front of the file's first entry and its own.
  ROCKMILL_HD void operator()(u64 f) const {
    if (f <= *num_files) file_blocks[f] = before[file_starts[f]];
  }
};

struct FindFileOffsets {
  const u32* file_blocks;
  const u32* num_files;
  const u64* block_offsets;
  u64* file_offsets;

  ROCKMILL_HD void operator()(u64 f) const {
    if (f <= *num_files) file_offsets[f] = block_offsets[file_blocks[f]];
  }
};

struct MeasureStored {
  const Key* survivors;
  const ValueRef* values;
  Layout layout;
  const u32* begins;
  const u32* before;
  const u32* block_starts;
  const u8* shared;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    const u32 start = block_starts[before[i] + begins[i] - 1];
    const u32 in_block = u32(i) - start;
    const u32 stored_shared = in_block % layout.restart_interval == 0 ? 0 : shared[i];
    sizes[i] = u32(entry_bytes(stored_shared, layout.key_bytes, values[survivors[i].entry].len));
  }
};

ROCKMILL_HD u32 num_restarts(u32 entries, u32 interval) { return (entries + interval - 1) / interval; }

// Sizes with trailers.
struct MeasureBlocks {
  const u32* block_starts;
  const u64* prefix;
  Layout layout;
  u32* block_sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 first = block_starts[b], end = block_starts[b + 1];
    const u32 restarts = num_restarts(end - first, layout.restart_interval);
    const u64 size = prefix[end] - prefix[first] + 4 * u64(restarts) + 4 + TRAILER_BYTES;
    if (size > 0xffffffff) report(errors, first, ERROR_LAYOUT);
    block_sizes[b] = u32(size);
  }
};

struct PlaceBlocks {
  const Key* survivors;
  const u32* block_starts;
  const u64* offsets;
  const u32* file_starts;
  const u64* file_offsets;
  u32 num_files;
  // Where each file's image begins.
  const u64* images;
  OutBlock* blocks;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 first = block_starts[b], end = block_starts[b + 1];
    const u32 file = part_of(file_starts, num_files, first);
    const u64 file_offset = offsets[b] - file_offsets[file];
    OutBlock& block = blocks[b];
    block.at = images[file] + file_offset;
    block.file_offset = file_offset;
    block.size = u32(offsets[b + 1] - offsets[b]) - TRAILER_BYTES;
    block.file = file;
    block.first = first;
    block.count = end - first;
    block.first_key = survivors[first];
    block.last_key = survivors[end - 1];
  }
};

// Sums over the entries of the file that begins at `start`.
struct SumFile {
  const Key* survivors;
  const ValueRef* values;
  const u64* hashes;
  u32 key_bytes;
  u64 start;

  ROCKMILL_HD void operator()(u64 i, FileSums& sums) const {
    const Key& key = survivors[start + i];
    const u64 sequence = sequence_of(key.tag);
    sums.content_hash += placed_hash(entry_hash(hashes[key.entry], key.tag), i);
    sums.kv_hash += hashes[key.entry];
    sums.deletions += (key.tag & 0xff) != TYPE_VALUE;
    sums.value_bytes += values[key.entry].len;
    if (sequence < sums.smallest_seqno) sums.smallest_seqno = sequence;
    if (sequence > sums.largest_seqno) sums.largest_seqno = sequence;
    // Equal hashes in a row count once, also those of different keys.
    const u64 hash = xxph3_key(key.hi, key.lo, key_bytes);
    const bool repeats = i > 0 && xxph3_key(survivors[start + i - 1].hi, survivors[start + i - 1].lo,
                                            key_bytes) == hash;
    sums.filter_entries += !repeats;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

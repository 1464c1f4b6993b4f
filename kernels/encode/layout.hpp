// Finds the ends of files and blocks, and the place of each entry; nothing is written yet. The rules are those of
// crates/cpu/src/sst/writer.rs and split.rs. Q is the number of bytes of a file's entries so far, each encoded against
// its predecessor in the file. An entry goes into block Q / block_size, so prefix sums compute everything:
//
//   MeasureEntries  size of each entry against its predecessor      -> exclusive_sum
//   SplitFiles        first entry of each file
//   MarkBlocks      entries at which a block begins                 -> exclusive_sum
//   StartBlocks     first entry of each block
//   FindPrefixes    bytes that the user keys of each block share, if they are stored once
//   MeasureStored   size of each entry as it is stored              -> exclusive_sum
//   MeasureBlocks   raw size of each block
//   SumBlocks       size of each block as it is stored              -> exclusive_sum
//   FindBlockOffsets     place of each block in the images
//
// If blocks are compressed, compression comes before SumBlocks (compress.hpp), with raw images of its own, and yields
// stored sizes and codecs. Uncompressed blocks are written directly to their place.
#pragma once

#include "../common/exec.hpp"
#include "../read/decode.hpp"
#include "../read/retain.hpp"
#include "split.hpp"
#include "filter.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct MeasureEntries {
  const Key* selected_rows;
  KeyBytes bytes;
  const ValueRef* values;
  Layout layout;
  u32* shared;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    const Key& key = selected_rows[i];
    const bool delta = i > 0 && layout.delta_keys;
    const u32 common = delta ? common_bytes(bytes, selected_rows[i - 1], key) : 0;
    shared[i] = common;
    sizes[i] = u32(entry_bytes(common, key.len + TAG_BYTES - common, values[key.entry].len));
  }
};

// Bytes of each surviving internal key.
struct MeasureKeys {
  const Key* selected_rows;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const { sizes[i] = selected_rows[i].len + TAG_BYTES; }
};

// 1 for each tombstone -> exclusive_sum -> tombstones in front of each selected row.
struct MarkDeletions {
  const Key* selected_rows;
  u64 n;
  u32* sums;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 type = i < n ? selected_rows[i].tag & 0xff : TYPE_VALUE;
    sums[i] = type == TYPE_DELETION || type == TYPE_SINGLE_DELETION;
  }
};

// Maximum tombstones in a window of the buckets of a file (`compact_on_deletion_collector.cc`).
struct MostDeletions {
  using Total = u64;
  static constexpr u32 words = 1;
  u64 most;
  ROCKMILL_HD static MostDeletions zero() { return {0}; }
  ROCKMILL_HD u64& word(u32) { return most; }
  ROCKMILL_HD void merge(const MostDeletions& other) { most = most < other.most ? other.most : most; }
  ROCKMILL_HD void merge_into(u64& total) { atomic_max(&total, most); }
};

struct FindMostDeletions {
  static constexpr u64 BUCKETS = 128;
  // Tombstones before each entry of the file.
  const u32* sums;
  u64 n;
  u64 bucket_size;

  // The window that ends with bucket `b`.
  ROCKMILL_HD void operator()(u64 b, MostDeletions& found) const {
    const u64 left = n - b * bucket_size;
    const u64 end = left < bucket_size ? n : (b + 1) * bucket_size;
    const u64 first = b < BUCKETS ? 0 : (b + 1 - BUCKETS) * bucket_size;
    found.merge({u64(sums[end] - sums[first])});
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

// `before[i]` blocks begin before entry i.
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

// The first block of each file, followed by the total number of blocks.
struct FindFileBlocks {
  const u32* before;
  const u32* file_starts;
  const u32* num_files;
  u32* file_blocks;

  // No block begins between those before the file's first entry and its own.
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

// Keys ascend, so all share the common prefix of the first and the last.
struct FindPrefixes {
  const Key* selected_rows;
  KeyBytes bytes;
  Layout layout;
  const u32* block_starts;
  u32* prefix_lens;

  ROCKMILL_HD void operator()(u64 b) const {
    const Key &first = selected_rows[block_starts[b]], &last = selected_rows[block_starts[b + 1] - 1];
    prefix_lens[b] = layout.common_prefix ? common_user_bytes(bytes, first, last) : 0;
  }
};

struct MeasureStored {
  const Key* selected_rows;
  const ValueRef* values;
  Layout layout;
  const u32* begins;
  const u32* before;
  const u32* block_starts;
  const u32* prefix_lens;
  const u32* shared;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    const u32 block = before[i] + begins[i] - 1;
    const u32 in_block = u32(i) - block_starts[block];
    const bool restarts = in_block % layout.restart_interval == 0;
    const u32 stored_shared = restarts ? 0 : shared[i];
    const u32 elsewhere = restarts ? prefix_lens[block] : stored_shared;
    const Key& key = selected_rows[i];
    sizes[i] = u32(entry_bytes(stored_shared, key.len + TAG_BYTES - elsewhere, values[key.entry].len));
  }
};

ROCKMILL_HD u32 num_restarts(u32 entries, u32 interval) { return (entries + interval - 1) / interval; }

// The hash index of a data block (crates/format/src/block/hash_index.rs): a byte for each bucket, and their number.
constexpr u8 NO_RESTART = 255, SEVERAL_RESTARTS = 254;
constexpr u32 MAX_HASHED_RESTARTS = 254, HASH_COUNT_BYTES = 2;
constexpr u64 MAX_HASHED_BLOCK = 1 << 16;
constexpr u32 SLICE_HASH_SEED = 397;

// Buckets of a block of `size` bytes; 0 if it has no hash index. The buckets of the entries are added, as in RocksDB,
// because a product would round differently.
ROCKMILL_HD u32 num_buckets(const Layout& layout, u32 entries, u32 restarts, u64 size) {
  if (restarts > MAX_HASHED_RESTARTS || size > MAX_HASHED_BLOCK) return 0;
  double exact = 0;
  for (u32 i = 0; i < entries; ++i) exact += layout.buckets_per_entry;
  const u32 buckets = (exact < 1 ? 1 : exact < 0xffff ? u32(exact) : 0xffff) | 1;
  return size + buckets + HASH_COUNT_BYTES <= MAX_HASHED_BLOCK ? buckets : 0;
}

ROCKMILL_HD u32 bucket_of(const KeyBytes& bytes, const Key& key, u32 buckets) {
  return murmur_hash(bytes, key, key.len, SLICE_HASH_SEED) % buckets;
}

struct MeasureBlocks {
  const u32* block_starts;
  const u32* prefix_lens;
  const u64* prefix;
  Layout layout;
  u32* hash_buckets;
  u32* raw_sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 first = block_starts[b], end = block_starts[b + 1];
    const u32 restarts = num_restarts(end - first, layout.restart_interval);
    u64 size = prefix_lens[b] + prefix[end] - prefix[first] + 4 * u64(restarts) + 4;
    if (hash_buckets != nullptr) {
      const u32 buckets = num_buckets(layout, end - first, restarts, size);
      hash_buckets[b] = buckets;
      if (buckets > 0) size += buckets + HASH_COUNT_BYTES;
    }
    if (size + TRAILER_BYTES > 0xffffffff) report(errors, first, ERROR_LAYOUT);
    raw_sizes[b] = u32(size);
  }
};

// Sizes with trailers.
struct SumBlocks {
  const u32* stored_sizes;
  u32* block_sizes;

  ROCKMILL_HD void operator()(u64 b) const { block_sizes[b] = stored_sizes[b] + TRAILER_BYTES; }
};

struct FindBlockOffsets {
  const u32* block_starts;
  const u64* offsets;
  const u32* file_starts;
  const u64* file_offsets;
  u32 num_files;
  const FileOffsets* places;
  // In a wide task; else null.
  const u64* key_sums;
  const u32* raw_sizes;
  // Null if no block is compressed.
  const u32* codecs;
  OutBlock* blocks;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 first = block_starts[b], end = block_starts[b + 1];
    const u32 file = part_of(file_starts, num_files, first);
    const u64 file_offset = offsets[b] - file_offsets[file];
    OutBlock& block = blocks[b];
    block.at = places[file].image + file_offset;
    block.file_offset = file_offset;
    block.size = u32(offsets[b + 1] - offsets[b]) - TRAILER_BYTES;
    block.raw_size = raw_sizes[b];
    block.codec = codecs != nullptr ? codecs[b] : u32(CODEC_NONE);
    block.file = file;
    block.first = first;
    block.count = end - first;
    block.key_start = key_sums != nullptr ? key_sums[first] : 0;
  }
};

// Sums over the entries of the file that begins at `start`.
struct SumFile {
  const Key* selected_rows;
  const ValueRef* values;
  const u64* hashes;
  FilterKeys filter;
  u64 start;

  ROCKMILL_HD void operator()(u64 i, FileSums& sums) const {
    const Key& key = selected_rows[start + i];
    sums.add(key, entry_hash(hashes[key.entry], key.tag), values[key.entry].len, i);
    filter.for_each_hash(start, i, [&sums](u64) { sums.filter_entries += 1; });
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

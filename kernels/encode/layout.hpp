// Finds where files and blocks end, and where each entry goes; nothing is written yet. The rules are those of
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
//   PlaceBlocks     place of each block in the images
//
// If blocks are compressed, compression comes before SumBlocks (compress.hpp), with raw images of its own, and yields
// stored sizes and codecs. Uncompressed blocks are written straight to their place.
#pragma once

#include "../common/exec.hpp"
#include "../read/decode.hpp"
#include "../read/retain.hpp"
#include "split.hpp"
#include "filter.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct MeasureEntries {
  const Key* survivors;
  KeyBytes bytes;
  const ValueRef* values;
  Layout layout;
  u32* shared;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    const Key& key = survivors[i];
    const bool delta = i > 0 && layout.delta_keys;
    const u32 common = delta ? common_bytes(bytes, survivors[i - 1], key) : 0;
    shared[i] = common;
    sizes[i] = u32(entry_bytes(common, key.len + TAG_BYTES - common, values[key.entry].len));
  }
};

// Bytes of each survivor's internal key.
struct MeasureKeys {
  const Key* survivors;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 i) const { sizes[i] = survivors[i].len + TAG_BYTES; }
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

// Keys ascend, so that what the first and the last share, all share.
struct FindPrefixes {
  const Key* survivors;
  KeyBytes bytes;
  Layout layout;
  const u32* block_starts;
  u32* prefix_lens;

  ROCKMILL_HD void operator()(u64 b) const {
    const Key &first = survivors[block_starts[b]], &last = survivors[block_starts[b + 1] - 1];
    prefix_lens[b] = layout.common_prefix ? common_user_bytes(bytes, first, last) : 0;
  }
};

struct MeasureStored {
  const Key* survivors;
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
    const Key& key = survivors[i];
    sizes[i] = u32(entry_bytes(stored_shared, key.len + TAG_BYTES - elsewhere, values[key.entry].len));
  }
};

ROCKMILL_HD u32 num_restarts(u32 entries, u32 interval) { return (entries + interval - 1) / interval; }

struct MeasureBlocks {
  const u32* block_starts;
  const u32* prefix_lens;
  const u64* prefix;
  Layout layout;
  u32* raw_sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 first = block_starts[b], end = block_starts[b + 1];
    const u32 restarts = num_restarts(end - first, layout.restart_interval);
    const u64 size = prefix_lens[b] + prefix[end] - prefix[first] + 4 * u64(restarts) + 4;
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

struct PlaceBlocks {
  const u32* block_starts;
  const u64* offsets;
  const u32* file_starts;
  const u64* file_offsets;
  u32 num_files;
  const FilePlace* places;
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
  const Key* survivors;
  const ValueRef* values;
  const u64* hashes;
  FilterKeys filter;
  u64 start;

  ROCKMILL_HD void operator()(u64 i, FileSums& sums) const {
    const Key& key = survivors[start + i];
    sums.add(key, entry_hash(hashes[key.entry], key.tag), values[key.entry].len, i);
    filter.for_each_hash(start, i, [&sums](u64) { sums.filter_entries += 1; });
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

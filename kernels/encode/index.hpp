// Index blocks: an entry for each data block, whose key separates it from the next one and whose value is the block's
// place. The bytes are those of crates/format/src/index/builder.rs.
//
//   DescribeFiles   prefix of each file's separators, and how long the keys at the file's ends are
//   MarkInternal    files in which versions of one user key lie in two blocks: separators need sequence numbers
//   MeasureIndex    size of each entry             -> exclusive_sum
//   SizeIndexes     size of each file's index; the host says where it goes
//   WriteIndex      entries and restart offsets
#pragma once

#include "blocks.hpp"
#include "separator.hpp"

namespace rockmill::ROCKMILL_TARGET {

// First format_version with delta coded values, and the first in which delta 0 means that a whole handle follows.
constexpr u32 FIRST_DELTA_VERSION = 4, FIRST_ESCAPE_VERSION = 8;
// First version whose separators may be user keys.
constexpr u32 FIRST_USER_KEY_VERSION = 3;

ROCKMILL_HD u64 check_of(const FileIndex& file) {
  const u64 lens = u64(file.smallest_len) | u64(file.largest_len) << 32;
  const u64 form = u64(file.prefix_len) | u64(file.internal_keys) << 32;
  const u64 sizes = entry_hash(entry_hash(entry_hash(0, file.data_size), file.raw_size), file.size);
  return entry_hash(entry_hash(sizes, form), lens);
}

// The work of one thread for each file, before blocks are processed.
struct DescribeFiles {
  Separators separators;
  const u32* file_starts;
  const u32* file_blocks;
  const u32* num_files;
  FileIndex* files;

  ROCKMILL_HD void operator()(u64 f) const {
    if (f >= *num_files) return;
    const IndexLayout& layout = separators.layout;
    const u32 first = file_blocks[f], end = file_blocks[f + 1];
    // Separators ascend, so all share the common prefix of the first and the last.
    const Separator from = separators.of(first, first + 1 == end), to = separators.of(end - 1, true);
    FileIndex& file = files[f];
    file.prefix_len = layout.common_prefix ? common_bytes(separators.bytes, from, to, 0) : 0;
    file.internal_keys = layout.format_version < FIRST_USER_KEY_VERSION;
    file.smallest_len = separators.keys[file_starts[f]].len;
    file.largest_len = separators.keys[file_starts[f + 1] - 1].len;
  }
};

struct MarkInternal {
  Separators separators;
  const u32* file_blocks;
  const u32* num_files;
  FileIndex* files;

  ROCKMILL_HD void operator()(u64 b) const {
    const u32 f = part_of(file_blocks, *num_files, b);
    if (b + 1 < file_blocks[f + 1] && separators.key_goes_on(b)) atomic_or(&files[f].internal_keys, 1);
  }
};

// A stored entry: bytes [from, to) of the separator between lengths and value.
struct IndexEntry {
  Separator separator;
  u32 from, to;
  PackedHeader lengths, value;

  ROCKMILL_HD u32 size() const { return lengths.len + (to - from) + value.len; }
  ROCKMILL_HD u8 byte(const KeyBytes& bytes, u32 i) const {
    if (i < lengths.len) return lengths.byte(i);
    i -= lengths.len;
    return i < to - from ? separator.byte(bytes, from + i) : value.byte(i - (to - from));
  }
};

struct IndexEntries {
  Separators separators;
  const u64* block_offsets;
  const u64* file_offsets;
  const u32* file_blocks;
  const u32* num_files;
  const FileIndex* files;

  ROCKMILL_HD u32 file_of(u64 b) const { return part_of(file_blocks, *num_files, b); }

  // The entry of block `b` of file `f`.
  ROCKMILL_HD IndexEntry entry(u32 f, u64 b) const {
    const IndexLayout& layout = separators.layout;
    const u32 tag_bytes = files[f].internal_keys ? TAG_BYTES : 0;
    const bool restarts = (b - file_blocks[f]) % layout.restart_interval == 0;
    IndexEntry entry;
    entry.separator = separators.of(b, b + 1 == file_blocks[f + 1]);
    u32 shared = 0;
    if (!restarts)
      shared = common_bytes(separators.bytes, separators.of(b - 1, false), entry.separator, tag_bytes);
    entry.from = restarts ? files[f].prefix_len : shared;
    entry.to = entry.separator.len + tag_bytes;
    const bool delta = layout.format_version >= FIRST_DELTA_VERSION;
    if (delta && shared > 0) {
      entry.value.varint(size_delta(b) + (layout.format_version >= FIRST_ESCAPE_VERSION));
    } else {
      entry.value.varint(block_offsets[b] - file_offsets[f]);
      entry.value.varint(payload_size(b));
    }
    entry.lengths.varint(shared);
    entry.lengths.varint(entry.to - entry.from);
    if (!delta) entry.lengths.varint(entry.value.len);
    return entry;
  }

 private:
  ROCKMILL_HD u64 payload_size(u64 b) const {
    return block_offsets[b + 1] - block_offsets[b] - TRAILER_BYTES;
  }
  // The difference of a block's size to the previous one, zigzag coded.
  ROCKMILL_HD u64 size_delta(u64 b) const {
    const u64 size = payload_size(b), before = payload_size(b - 1);
    return size >= before ? 2 * (size - before) : 2 * (before - size) - 1;
  }
};

struct MeasureIndex {
  IndexEntries entries;
  u32* sizes;

  ROCKMILL_HD void operator()(u64 b) const { sizes[b] = entries.entry(entries.file_of(b), b).size(); }
};

struct SizeIndexes {
  IndexEntries entries;
  // Prefix sums of the entries' sizes.
  const u64* sums;
  // Offsets of the blocks before compression, trailers included; null if they were not compressed.
  const u64* raw_offsets;
  FileIndex* files;
  u64* errors;

  ROCKMILL_HD void operator()(u64 f) const {
    if (f >= *entries.num_files) return;
    const u32 first = entries.file_blocks[f], end = entries.file_blocks[f + 1];
    const u32 restarts = num_restarts(end - first, entries.separators.layout.restart_interval);
    FileIndex& file = files[f];
    file.data_size = entries.file_offsets[f + 1] - entries.file_offsets[f];
    const u64 raw = raw_offsets != nullptr ? raw_offsets[end] - raw_offsets[first] : file.data_size;
    file.raw_size = raw - u64(end - first) * TRAILER_BYTES;
    file.size = file.prefix_len + sums[end] - sums[first] + 4 * u64(restarts) + 4;
    if (file.size > 0xffffffff) report(errors, first, ERROR_LAYOUT);
    file.check = check_of(file);
  }
};

struct WriteIndex {
  IndexEntries entries;
  const u64* sums;
  const FileOffsets* places;
  u8* images;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const u32 f = entries.file_of(b), first = entries.file_blocks[f], end = entries.file_blocks[f + 1];
    const u32 in_file = u32(b) - first, interval = entries.separators.layout.restart_interval;
    const u32 prefix_len = entries.files[f].prefix_len;
    const KeyBytes& bytes = entries.separators.bytes;
    const IndexEntry entry = entries.entry(f, b);
    u8* payload = images + places[f].index;
    const u64 at = prefix_len + sums[b] - sums[first];
    for (u32 k = g.rank(); k < entry.size(); k += g.width) payload[at + k] = entry.byte(bytes, k);
    if (in_file == 0)
      for (u32 k = g.rank(); k < prefix_len; k += g.width) payload[k] = entry.separator.byte(bytes, k);
    u8* table = payload + prefix_len + (sums[end] - sums[first]);
    if (g.rank() == 0 && in_file % interval == 0) store32(table + 4 * (in_file / interval), u32(at));
    if (b + 1 < end) return;
    u8* last = table + 4 * num_restarts(end - first, interval);
    if (g.rank() == 0) store32(last, num_restarts(end - first, interval));
    // As behind data blocks.
    for (u32 k = g.rank(); k < TRAILER_BYTES; k += g.width) last[4 + k] = 0;
  }
};

// Copies the internal keys at each file's ends.
struct CopyEdges {
  const Key* selected_rows;
  KeyBytes bytes;
  const u32* file_starts;
  const FileOffsets* places;
  u8* edges;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 f) const {
    const Key &smallest = selected_rows[file_starts[f]], &largest = selected_rows[file_starts[f + 1] - 1];
    u8* to = edges + places[f].edges;
    for (u32 k = g.rank(); k < smallest.len + TAG_BYTES; k += g.width) to[k] = bytes.byte(smallest, k);
    to += smallest.len + TAG_BYTES;
    for (u32 k = g.rank(); k < largest.len + TAG_BYTES; k += g.width) to[k] = bytes.byte(largest, k);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

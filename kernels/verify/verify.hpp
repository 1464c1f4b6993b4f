// Reading finished images back, by the decoder rather than the code that wrote them.
#pragma once

#include "../common/sums.hpp"
#include "../encode/filter.hpp"
#include "../encode/layout.hpp"
#include "../encode/separator.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The image's blocks as a decoder sees them, and where their entries and keys go.
struct ReferBlocks {
  const OutBlock* blocks;
  const u32* bases;
  Layout layout;
  u64 num_blocks;
  u32 num_entries;
  u64 num_key_bytes;
  BlockRef* refs;
  u32* starts;
  u64* key_starts;

  ROCKMILL_HD void operator()(u64 b) const {
    if (b == num_blocks) {
      starts[b] = num_entries;
      key_starts[b] = num_key_bytes;
      return;
    }
    const OutBlock& block = blocks[b];
    refs[b] = {block.at, block.file_offset, block.size, block.raw_size, block.codec,
               bases[block.file], layout.checksum, layout.restart_interval, STORED_SEQUENCE};
    starts[b] = block.first;
    key_starts[b] = block.key_start;
  }
};

// Each block has as many entries and restarts as were meant, and of the flags that may stand beside the number that of a
// hash index at most.
struct CompareCounts {
  const u8* arena;
  const OutBlock* blocks;
  const BlockRef* refs;
  const u32* counts;
  // Null if no block has a hash index.
  const u32* hash_buckets;
  u32 restart_interval;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    const OutBlock& block = blocks[b];
    if (counts[b] != block.count) report(errors, b, ERROR_ENTRY);
    if (refs[b].raw_size != block.raw_size) {
      report(errors, b, ERROR_LAYOUT);
      return;
    }
    const u32 footer = load32(arena + refs[b].at + block.raw_size - sizeof footer);
    const u32 flag = hash_buckets != nullptr && hash_buckets[b] > 0 ? HASH_INDEX_BIT : 0;
    if (footer != (num_restarts(block.count, restart_interval) | flag)) report(errors, b, ERROR_LAYOUT);
  }
};

// The hash index of each block leads to all of its keys.
struct CheckHashIndexes {
  const u8* arena;
  const Key* keys;
  KeyBytes bytes;
  const OutBlock* blocks;
  const BlockRef* refs;
  const u32* hash_buckets;
  u32 restart_interval;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock& block = blocks[b];
    const u32 buckets = hash_buckets[b];
    // Another size was reported.
    if (buckets == 0 || refs[b].raw_size != block.raw_size) return;
    const u8* end = arena + refs[b].at + block.raw_size - sizeof(u32) - HASH_COUNT_BYTES;
    bool found = (end[0] | u32(end[1]) << 8) == buckets;
    for (u32 j = g.rank(); j < block.count; j += g.width) {
      const u8 restart = (end - buckets)[bucket_of(bytes, keys[block.first + j], buckets)];
      found &= restart == SEVERAL_RESTARTS || restart == j / restart_interval;
    }
    if (!g.all(found) && g.rank() == 0) report(errors, b, ERROR_LAYOUT);
  }
};

// Separators are at or above all keys of their block and below those of the next one, if need be by their sequence
// numbers; the hash of what the index must hold of each block (rockmill_core::index_hash), to be compared with that of
// the index that the host has read.
struct FindIndex {
  Separators separators;
  const OutBlock* blocks;
  const u32* file_blocks;
  const FileIndex* indexes;
  FoundFile* found;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    const OutBlock& block = blocks[b];
    const KeyBytes& bytes = separators.bytes;
    const bool last = b + 1 == file_blocks[block.file + 1];
    const Separator separator = separators.of(b, last);
    const bool above = compare_user(bytes, separator, separators.last_key(b)) >= 0;
    const bool internal = indexes[block.file].internal_keys != 0;
    bool below = last;
    if (!last && separators.key_goes_on(b)) below = internal;
    else if (!last) below = compare_user(bytes, separator, separators.next_key(b)) < 0;
    if (!above || !below) report(errors, b, ERROR_LAYOUT);
    const u64 size = rapid_finish(block.size, block.size, RAPID_SEED ^ sizeof(u64), sizeof(u64));
    const u64 hash = entry_hash(kv_hash(rapidhash_key(bytes, separator), size), block.file_offset);
    const u64 at = b - file_blocks[block.file];
    atomic_add(&found[block.file].index_hash, placed_hash(hash, at));
    if (internal) atomic_add(&found[block.file].tags_hash, placed_hash(separator.tag(), at));
  }
};

// A hash of the keys at each file's ends, to be compared with that of the host's copy.
struct FindEdges {
  const Key* keys;
  KeyBytes bytes;
  const u32* file_starts;
  FoundFile* found;

  ROCKMILL_HD void operator()(u64 f) const {
    const Key &smallest = keys[file_starts[f]], &largest = keys[file_starts[f + 1] - 1];
    const u64 users = kv_hash(rapidhash_key(bytes, smallest), rapidhash_key(bytes, largest));
    found[f].edges_hash = entry_hash(entry_hash(users, smallest.tag), largest.tag);
  }
};

// Sums over the entries that were found in a file's image; order; nothing is missing from the filter.
struct VerifyFile {
  const Key* keys;
  const ValueRef* values;
  const u64* hashes;
  u64 start;
  FilterKeys filter;
  // In the image; no lines if there is no filter.
  const u8* lines;
  FilterShape shape;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, FileSums& sums) const {
    const Key& key = keys[start + i];
    sums.add(key, entry_hash(hashes[start + i], key.tag), values[start + i].len, i);
    if (i > 0 && !KeyLess{filter.bytes}(keys[start + i - 1], key)) report(errors, start + i, ERROR_ORDER);
    if (shape.num_lines == 0) return;
    bool found = true;
    if (filter.rules.whole_keys) found &= may_match(filter.hash_of_key(key));
    if (filter.has_prefix(key)) found &= may_match(filter.hash_of_prefix(key));
    if (!found) report(errors, start + i, ERROR_LAYOUT);
  }

 private:
  ROCKMILL_HD bool may_match(u64 hash) const {
    bool found = true;
    const u8* bytes = lines;
    for_each_probe(hash, shape, [bytes, &found](u64 word, u32 mask) {
      found &= (load32(bytes + 4 * word) & mask) != 0;
    });
    return found;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Reading finished images back, by the decoder rather than the code that wrote them.
#pragma once

#include "../common/sums.hpp"
#include "../encode/filter.hpp"
#include "../encode/layout.hpp"

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
    refs[b] = {block.at,        block.file_offset,       block.size,
               bases[block.file], layout.checksum, layout.restart_interval};
    starts[b] = block.first;
    key_starts[b] = block.key_start;
  }
};

// Each block has as many entries as were meant.
struct CompareCounts {
  const OutBlock* blocks;
  const u32* counts;
  u64* errors;

  ROCKMILL_HD void operator()(u64 b) const {
    if (counts[b] != blocks[b].count) report(errors, b, ERROR_ENTRY);
  }
};

// The keys by which the host builds the index are those that the blocks hold.
struct CompareKeys {
  const OutBlock* blocks;
  const Key* keys;
  KeyBytes bytes;
  // What the host is given of long keys.
  const u8* edges;
  u64* errors;

  ROCKMILL_HD bool equal(const Key& found, const Key& meant, u64 edge) const {
    if (found.hi != meant.hi || found.lo != meant.lo || found.len != meant.len || found.tag != meant.tag)
      return false;
    return found.len <= WORD_KEY_BYTES ||
           common_tail(bytes.of(found), edges + edge, found.len) == found.len;
  }
  ROCKMILL_HD void operator()(u64 b) const {
    const OutBlock& block = blocks[b];
    const u64 edge = block.edge_start;
    if (!equal(keys[block.first], block.first_key, edge) ||
        !equal(keys[block.first + block.count - 1], block.last_key, edge + block.first_key.len))
      report(errors, b, ERROR_LAYOUT);
  }
};

struct BlocksTotal {
  u64 hash;
};

// A hash of the list of blocks and of their keys, which the host compares with that of its copy.
struct HashBlocks {
  const OutBlock* blocks;
  // Null in a narrow slice.
  const u8* edges;

  ROCKMILL_HD void operator()(u64 b, Added<BlocksTotal>& sums) const {
    const u64* words = reinterpret_cast<const u64*>(blocks + b);
    u64 hash = 0;
    for (u32 w = 0; w < sizeof(OutBlock) / sizeof(u64); ++w) hash = entry_hash(hash, words[w]);
    if (edges != nullptr) {
      const u8* first = edges + blocks[b].edge_start;
      const u32 first_len = blocks[b].first_key.len;
      const u64 keys = kv_hash(rapidhash(first, first_len),
                               rapidhash(first + first_len, blocks[b].last_key.len));
      hash = entry_hash(hash, keys);
    }
    sums.hash += placed_hash(hash, b);
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
    const u64 hash = hashes[start + i];
    sums.add(key, entry_hash(hash, key.tag), hash, values[start + i].len, i);
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

// Reading finished images back, by the decoder rather than the code that wrote them.
#pragma once

#include "../common/sums.hpp"
#include "../encode/filter.hpp"
#include "../encode/layout.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The image's blocks as a decoder sees them, and where their entries go.
struct ReferBlocks {
  const OutBlock* blocks;
  const u32* bases;
  u64 num_blocks;
  u32 num_entries;
  BlockRef* refs;
  u32* starts;

  ROCKMILL_HD void operator()(u64 b) const {
    if (b == num_blocks) {
      starts[b] = num_entries;
      return;
    }
    const OutBlock& block = blocks[b];
    refs[b] = {block.at, block.file_offset, block.size, bases[block.file]};
    starts[b] = block.first;
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
  u64* errors;

  ROCKMILL_HD static bool equal(const Key& a, const Key& b) {
    return same_user_key(a, b) && a.tag == b.tag;
  }
  ROCKMILL_HD void operator()(u64 b) const {
    const OutBlock& block = blocks[b];
    if (!equal(keys[block.first], block.first_key) ||
        !equal(keys[block.first + block.count - 1], block.last_key))
      report(errors, b, ERROR_LAYOUT);
  }
};

struct BlocksTotal {
  u64 hash;
};

// A hash of the list of blocks, which the host compares with that of its copy.
struct HashBlocks {
  const OutBlock* blocks;

  ROCKMILL_HD void operator()(u64 b, Added<BlocksTotal>& sums) const {
    const u64* words = reinterpret_cast<const u64*>(blocks + b);
    u64 hash = 0;
    for (u32 w = 0; w < sizeof(OutBlock) / sizeof(u64); ++w) hash = entry_hash(hash, words[w]);
    sums.hash += placed_hash(hash, b);
  }
};

// Sums over the entries that were found in a file's image; order; no key is missing from the filter.
struct VerifyFile {
  const Key* keys;
  const ValueRef* values;
  const u64* hashes;
  u64 start;
  u32 key_bytes;
  // In the image; no lines if there is no filter.
  const u8* lines;
  u32 num_lines;
  u32 num_probes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i, FileSums& sums) const {
    const Key& key = keys[start + i];
    const u64 sequence = sequence_of(key.tag);
    sums.content_hash += placed_hash(entry_hash(hashes[start + i], key.tag), i);
    sums.kv_hash += hashes[start + i];
    sums.deletions += (key.tag & 0xff) != TYPE_VALUE;
    sums.value_bytes += values[start + i].len;
    if (sequence < sums.smallest_seqno) sums.smallest_seqno = sequence;
    if (sequence > sums.largest_seqno) sums.largest_seqno = sequence;
    if (i > 0 && !KeyLess{}(keys[start + i - 1], key)) report(errors, start + i, ERROR_ORDER);
    if (num_lines == 0) return;
    bool found = true;
    const u8* bytes = lines;
    for_each_probe(xxph3_key(key.hi, key.lo, key_bytes), num_lines, num_probes,
                   [bytes, &found](u64 word, u32 mask) { found &= (load32(bytes + 4 * word) & mask) != 0; });
    if (!found) report(errors, start + i, ERROR_LAYOUT);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

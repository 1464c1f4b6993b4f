// From raw images of blocks to stored blocks. Images are contiguous, as if they were stored uncompressed. The
// compressed form is written to the same place of a second buffer, and one of the two is copied into the file's image
// once its place is known.
#pragma once

#include "../codec/lz4.hpp"
#include "../codec/snappy.hpp"
#include "../codec/zstd_encode.hpp"
#include "blocks.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Finds the positions of raw images.
struct FindRawOffsets {
  const u32* block_starts;
  const u64* raw_offsets;
  const u32* raw_sizes;
  OutBlock* blocks;

  ROCKMILL_HD void operator()(u64 b) const {
    OutBlock& block = blocks[b];
    block.at = ARENA_PADDING + raw_offsets[b];
    block.size = block.raw_size = raw_sizes[b];
    block.first = block_starts[b];
    block.count = block_starts[b + 1] - block_starts[b];
  }
};

// Scratch memory of ZSTD's encoder: for each block, or for each group if there are more blocks than groups that run at
// once.
struct CompressScratch {
  u8* bytes;
  // 0 if each block has its own.
  u64 groups, group_bytes;
  // With groups: the largest block for which a group has enough. Fewer groups process larger blocks separately.
  u32 usual;
  u32 is_for_larger;
  // Number of blocks taken: behind the memory of the groups.
  u64* next;
};

struct Reset {
  u64* value;
  ROCKMILL_HD void operator()(u64) const { *value = 0; }
};

struct CompressBlocks {
  Compression compression;
  const OutBlock* blocks;
  const u8* raw;
  u8* packed;
  // For each block: stored bytes of payload, its codec, and the checksum of the raw image, with which the host checks
  // its decompressed blocks.
  u32* stored_sizes;
  u32* codecs;
  u32* raw_sums;
  // Of ZSTD.
  CompressScratch scratch;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b, MatchTable& table) const {
    compress(g, b, [&](const u8* image, u32 raw_size, u8* out, u32 limit) {
      if (compression.codec == CODEC_SNAPPY) return snappy_encode(g, image, raw_size, out, limit, table);
      return lz4_encode(g, image, raw_size, out, limit, table);
    });
  }

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b, ZstdEncodeTables& tables) const {
    // All blocks before take at most zstd_scratch_bytes each, a multiple of 8.
    const u64 before = 2 * (blocks[b].at - ARENA_PADDING) + 32 * b;
    compress_zstd(g, b, tables, scratch.bytes + before / 8 * 8);
  }

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b, ZstdEncodeTables& tables, u64 group) const {
    if ((blocks[b].raw_size > scratch.usual) != (scratch.is_for_larger != 0)) return;
    compress_zstd(g, b, tables, scratch.bytes + group * scratch.group_bytes);
  }

 private:
  template <class G>
  ROCKMILL_HD void compress_zstd(const G& g, u64 b, ZstdEncodeTables& tables, u8* own) const {
    compress(g, b, [&](const u8* image, u32 raw_size, u8* out, u32 limit) {
      return zstd_encode(g, image, raw_size, out, limit, tables, own);
    });
  }

  template <class G, class Encode>
  ROCKMILL_HD void compress(const G& g, u64 b, Encode encode) const {
    const OutBlock& block = blocks[b];
    const u8* image = raw + block.at;
    u8* out = packed + block.at;
    const u32 raw_size = block.raw_size;
    const u32 sum = block_checksum(g, CHECKSUM_XXH3, image, raw_size, CODEC_NONE, 0, 0);
    // RocksDB's rule for storing a block uncompressed (`CompressAndVerifyBlock`).
    const u32 limit = raw_size < COMPRESSION_SIZE_LIMIT ? u32(u64(compression.max_bytes_per_kb) * raw_size >> 10) : 0;
    // The size precedes the payload, unless it is a part of the format.
    PackedHeader header;
    if (compression.codec != CODEC_SNAPPY) header.varint(raw_size);
    u32 size = limit > header.len ? encode(image, raw_size, out + header.len, limit - header.len) : 0;
    if (size > 0) {
      for (u32 k = g.rank(); k < header.len; k += g.width) out[k] = header.byte(k);
      size += header.len;
    }
    if (g.rank() != 0) return;
    stored_sizes[b] = size > 0 ? size : raw_size;
    codecs[b] = size > 0 ? compression.codec : u32(CODEC_NONE);
    raw_sums[b] = sum;
  }
};

// Fewer groups, with enough memory for a block of any size, compress the larger blocks.
inline int compress_all_zstd(const Exec& exec, u64 n, CompressBlocks compress) {
  CompressScratch& scratch = compress.scratch;
  if (scratch.groups == 0) return for_each_group_with_shared<ZstdEncodeTables>(exec, n, compress);
  scratch.next = reinterpret_cast<u64*>(scratch.bytes + scratch.groups * scratch.group_bytes);
  const auto run = [&] {
    if (int error = for_each(exec, 1, Reset{scratch.next})) return error;
    return for_each_of_groups_with_shared<ZstdEncodeTables>(exec, n, compress, scratch.groups, scratch.next);
  };
  if (int error = run()) return error;
  const u64 most = zstd_scratch_bytes(ZSTD_MAX_BLOCK);
  scratch.groups = scratch.groups * scratch.group_bytes / most / 2 * 2;
  scratch.group_bytes = most;
  scratch.is_for_larger = 1;
  return run();
}

// Copies payloads into the files' images. The bytes behind them are sealed later.
struct GatherBlocks {
  const OutBlock* blocks;
  const u64* raw_offsets;
  const u8* raw;
  const u8* packed;
  u8* images;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock& block = blocks[b];
    const u8* from = (block.codec == CODEC_NONE ? raw : packed) + ARENA_PADDING + raw_offsets[b];
    u8* to = images + block.at;
    copy_bytes(g, to, from, block.size);
    for (u32 k = g.rank(); k < TRAILER_BYTES; k += g.width) to[block.size + k] = 0;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

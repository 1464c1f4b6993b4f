// From stored blocks to blocks from which entries are read: first the codec and size of each by its trailer and header,
// then all of them side by side in one buffer (`util/compression.cc`, "compress format version 2").
#pragma once

#include "../codec/lz4.hpp"
#include "../codec/snappy.hpp"
#include "../codec/zstd.hpp"
#include "../common/bytes.hpp"
#include "../common/exec.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Alignment of blocks, for the words in which they are written.
constexpr u64 RAW_ALIGNMENT = 16;

// Maximum bytes of output for one byte of payload; a larger size is invalid.
ROCKMILL_HD u64 max_growth(u32 codec) {
  switch (codec) {
    case CODEC_SNAPPY: return 32;
    case CODEC_LZ4:
    case CODEC_LZ4HC: return 256;
    default: return 128 << 10;
  }
}

ROCKMILL_HD bool is_decompressed_here(u32 codec) {
  return codec == CODEC_SNAPPY || codec == CODEC_LZ4 || codec == CODEC_LZ4HC || codec == CODEC_ZSTD;
}

// Codec and uncompressed size of each block; 0 for a block that cannot be decompressed here.
struct MeasureRaw {
  const u8* arena;
  BlockRef* blocks;
  u64* sizes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i) const {
    BlockRef& block = blocks[i];
    const u8* at = arena + block.at;
    const u8* end = at + block.stored_size;
    block.codec = *end;
    block.raw_size = block.stored_size;
    if (block.codec != CODEC_NONE) {
      u32 size = 0;
      const bool is_sound = is_decompressed_here(block.codec) && read_varint(at, end, size) &&
                            size <= COMPRESSION_SIZE_LIMIT && size <= max_growth(block.codec) * (u64(end - at) + 1);
      block.raw_size = is_sound ? size : 0;
      if (!is_sound) report(errors, i, ERROR_COMPRESSED);
    }
    sizes[i] = (block.raw_size + RAW_ALIGNMENT - 1) / RAW_ALIGNMENT * RAW_ALIGNMENT;
  }
};

// Source and target of decompression. Afterwards, the blocks name the bytes in `to`.
struct Decompression {
  const u8* from;
  BlockRef* blocks;
  // Offsets of the blocks in `to`, counted from behind its padding; one more than blocks.
  const u64* offsets;
  u8* to;
  u64* errors;

  ROCKMILL_HD u8* target(u64 i) const { return to + ARENA_PADDING + offsets[i]; }

  // Payload behind the size, which Snappy has inside; null if the size differs from the block's.
  ROCKMILL_HD const u8* payload(const BlockRef& block) const {
    const u8 *at = from + block.at, *end = at + block.stored_size;
    u32 size = block.raw_size;
    if (block.codec == CODEC_NONE) size = block.stored_size;
    else if (block.codec != CODEC_SNAPPY && !read_varint(at, end, size)) return nullptr;
    return size == block.raw_size && size > 0 ? at : nullptr;
  }

  // Words at a block's end are read whole.
  template <class G>
  ROCKMILL_HD void finish(const G& g, u64 i, bool is_sound) const {
    g.sync();
    const u64 size = is_sound ? blocks[i].raw_size : 0, room = offsets[i + 1] - offsets[i];
    for (u64 k = size + g.rank(); k < room; k += g.width) target(i)[k] = 0;
    g.sync();
    if (g.rank() != 0) return;
    blocks[i].at = ARENA_PADDING + offsets[i];
    if (is_sound) return;
    blocks[i].raw_size = 0;
    report(errors, i, ERROR_COMPRESSED);
  }
};

// Uncompressed blocks, and those of LZ4 and Snappy.
struct DecompressBlocks {
  Decompression work;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const BlockRef block = work.blocks[i];
    if (block.codec == CODEC_ZSTD) return;
    const u8* payload = work.payload(block);
    const u32 size = payload != nullptr ? u32(work.from + block.at + block.stored_size - payload) : 0;
    u8* target = work.target(i);
    u32 status = CODEC_OK;
    if (payload == nullptr) status = CODEC_MALFORMED;
    else if (block.codec == CODEC_NONE) copy_bytes(g, target, payload, size);
    else if (block.codec == CODEC_SNAPPY) status = snappy_decode(g, payload, size, target, block.raw_size);
    else status = lz4_decode(g, payload, size, target, block.raw_size);
    work.finish(g, i, status == CODEC_OK);
  }
};

struct DecompressZstd {
  Decompression work;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i, ZstdTables& tables) const {
    const BlockRef block = work.blocks[i];
    if (block.codec != CODEC_ZSTD) return;
    const u8* payload = work.payload(block);
    const u32 size = payload != nullptr ? u32(work.from + block.at + block.stored_size - payload) : 0;
    const u32 status = payload == nullptr
                           ? u32(CODEC_MALFORMED)
                           : zstd_decode(g, payload, size, work.target(i), block.raw_size, tables);
    work.finish(g, i, status == CODEC_OK);
  }
};

inline int decompress_all(const Exec& exec, const Decompression& work, u64 n) {
  if (int error = for_each_tile<DECOMPRESS_LANES>(exec, n, DecompressBlocks{work})) return error;
  return for_each_group_with_shared<ZstdTables>(exec, n, DecompressZstd{work});
}

}  // namespace rockmill::ROCKMILL_TARGET

// Writing data blocks into the images: each value moves once, from where it was decoded.
#pragma once

#include "layout.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct WriteBlocks {
  const u8* arena;
  const Key* survivors;
  const ValueRef* values;
  Layout layout;
  const u8* shared;
  // Prefix sums of the stored entries.
  const u64* prefix;
  const OutBlock* blocks;
  u8* images;

  // Byte `i` of an internal key.
  ROCKMILL_HD u8 key_byte(const Key& key, u32 i) const {
    if (i >= layout.key_bytes) return u8(key.tag >> 8 * (i - layout.key_bytes));
    return i < 8 ? u8(key.hi >> (56 - 8 * i)) : u8(key.lo >> (120 - 8 * i));
  }

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock block = blocks[b];
    u8* payload = images + block.at;
    const u64 base = prefix[block.first];
    const u32 restarts = num_restarts(block.count, layout.restart_interval);
    for (u32 j = 0; j < block.count; ++j) {
      const u64 i = block.first + j;
      const Key key = survivors[i];
      const ValueRef value = values[key.entry];
      const u32 kept = j % layout.restart_interval == 0 ? 0 : shared[i];
      const u32 non_shared = layout.key_bytes + TAG_BYTES - kept;
      u64 header = 0;
      u32 header_len = 0;
      pack_varint(header, header_len, kept);
      pack_varint(header, header_len, non_shared);
      pack_varint(header, header_len, value.len);
      u8* out = payload + (prefix[i] - base);
      for (u32 k = g.rank(); k < header_len + non_shared; k += g.width)
        out[k] = k < header_len ? u8(header >> 8 * k) : key_byte(key, kept + k - header_len);
      copy_bytes(g, out + header_len + non_shared, arena + value.at, value.len);
    }
    u8* table = payload + (prefix[block.first + block.count] - base);
    for (u32 r = g.rank(); r < restarts; r += g.width)
      store32(table + 4 * r, u32(prefix[block.first + r * layout.restart_interval] - base));
    if (g.rank() == 0) store32(table + 4 * restarts, restarts);
    // The trailer's bytes share words with the payload's last ones, which are read to seal it.
    for (u32 k = g.rank(); k < TRAILER_BYTES; k += g.width) table[4 * restarts + 4 + k] = 0;
  }
};

// Writes trailers. `bases` holds each file's base context checksum.
struct SealBlocks {
  const OutBlock* blocks;
  const u32* bases;
  u8* images;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock& block = blocks[b];
    u8* payload = images + block.at;
    const u32 sum = block_checksum(g, payload, block.size, bases[block.file], block.file_offset);
    if (g.rank() != 0) return;
    payload[block.size] = 0;
    store32(payload + block.size + 1, sum);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

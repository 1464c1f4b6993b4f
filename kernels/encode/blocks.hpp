// Writes data blocks into the images: each value moves once, from its decoded place.
#pragma once

#include "../common/checksum.hpp"
#include "layout.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Up to three varints, packed.
struct PackedHeader {
  u64 words[2] = {0, 0};
  u32 len = 0;

  ROCKMILL_HD void push(u8 byte) {
    if (len < 8) words[0] |= u64(byte) << 8 * len;
    else words[1] |= u64(byte) << 8 * (len - 8);
    ++len;
  }
  ROCKMILL_HD void varint(u64 value) {
    for (; value >= 0x80; value >>= 7) push(u8(value) | 0x80);
    push(u8(value));
  }
  ROCKMILL_HD u8 byte(u32 i) const { return u8(i < 8 ? words[0] >> 8 * i : words[1] >> 8 * (i - 8)); }
};

struct WriteBlocks {
  const u8* arena;
  const Key* selected_rows;
  KeyBytes bytes;
  const ValueRef* values;
  Layout layout;
  const u32* shared;
  // Prefix sums of the stored entries.
  const u64* prefix;
  const u32* prefix_lens;
  // Null if no block has a hash index.
  const u32* hash_buckets;
  const OutBlock* blocks;
  u8* images;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock block = blocks[b];
    u8* payload = images + block.at;
    const u32 prefix_len = prefix_lens[b];
    const Key first = selected_rows[block.first];
    for (u32 k = g.rank(); k < prefix_len; k += g.width) payload[k] = bytes.byte(first, k);
    // Base of the entries' prefix sums.
    const u64 base = prefix[block.first] - prefix_len;
    const u32 restarts = num_restarts(block.count, layout.restart_interval);
    for (u32 j = 0; j < block.count; ++j) {
      const u64 i = block.first + j;
      const Key key = selected_rows[i];
      const ValueRef value = values[key.entry];
      const bool at_restart = j % layout.restart_interval == 0;
      const u32 kept = at_restart ? 0 : shared[i];
      const u32 from = at_restart ? prefix_len : kept;
      const u32 non_shared = key.len + TAG_BYTES - from;
      PackedHeader header;
      header.varint(kept);
      header.varint(non_shared);
      header.varint(value.len);
      u8* out = payload + (prefix[i] - base);
      for (u32 k = g.rank(); k < header.len + non_shared; k += g.width)
        out[k] = k < header.len ? header.byte(k) : bytes.byte(key, from + k - header.len);
      copy_bytes(g, out + header.len + non_shared, arena + value.at, value.len);
    }
    u8* table = payload + (prefix[block.first + block.count] - base);
    for (u32 r = g.rank(); r < restarts; r += g.width)
      store32(table + 4 * r, u32(prefix[block.first + r * layout.restart_interval] - base));
    u8* end = table + 4 * restarts;
    const u32 buckets = hash_buckets != nullptr ? hash_buckets[b] : 0;
    if (buckets > 0) {
      write_hash_index(g, block, buckets, end);
      end += buckets + HASH_COUNT_BYTES;
    }
    if (g.rank() == 0) store32(end, restarts | (buckets > 0 ? HASH_INDEX_BIT : 0));
    // The trailer's bytes share words with the payload's last ones, which are read to seal it.
    for (u32 k = g.rank(); k < TRAILER_BYTES; k += g.width) end[4 + k] = 0;
  }

 private:
  // Each lane has every width-th bucket, and reads all entries.
  template <class G>
  ROCKMILL_HD void write_hash_index(const G& g, const OutBlock& block, u32 buckets, u8* to) const {
    for (u32 k = g.rank(); k < buckets; k += g.width) to[k] = NO_RESTART;
    for (u32 first = 0; first < block.count; first += g.width) {
      const u32 own = first + g.rank();
      const u32 own_bucket = own < block.count ? bucket_of(bytes, selected_rows[block.first + own], buckets) : 0;
      const u32 lanes = min_of(g.width, block.count - first);
      for (u32 lane = 0; lane < lanes; ++lane) {
        const u32 bucket = g.shuffle(own_bucket, lane);
        if (bucket % g.width != g.rank()) continue;
        const u8 restart = u8((first + lane) / layout.restart_interval);
        if (to[bucket] == NO_RESTART) to[bucket] = restart;
        else if (to[bucket] != restart) to[bucket] = SEVERAL_RESTARTS;
      }
    }
    if (g.rank() != 0) return;
    to[buckets] = u8(buckets);
    to[buckets + 1] = u8(buckets >> 8);
  }
};

// Writes trailers. `bases` holds each file's base context checksum.
struct SealBlocks {
  const OutBlock* blocks;
  const u32* bases;
  u32 checksum;
  u8* images;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 b) const {
    const OutBlock& block = blocks[b];
    u8* payload = images + block.at;
    const u32 sum = block_checksum(g, checksum, payload, block.size, u8(block.codec), bases[block.file],
                                   block.file_offset);
    if (g.rank() != 0) return;
    payload[block.size] = u8(block.codec);
    store32(payload + block.size + 1, sum);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Blocks to ZSTD frames (RFC 8878), as libzstd writes them at a low level: one frame with the content's size, without
// a checksum or dictionary. The bytes are a function of the input alone, whatever the width of the group; a change of
// them is a new number of the identity (zstd/rockmill-1).
#pragma once

#include "zstd.hpp"
#include "zstd/encode_literals.hpp"
#include "zstd/encode_matches.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Tables of one group; shared memory on the device.
union ZstdEncodeTables {
  ZstdMatchTables matches;
  HuffmanEncodeTables literals;
  ZstdSequenceTables sequences;
};

// What encoding n bytes takes of global memory, on a multiple of 8: literals from the beginning and sequences from the
// end. A sequence is 8 bytes and stands for 4 or more.
ROCKMILL_HD constexpr u64 zstd_scratch_bytes(u64 n) {
  const u64 block = n < ZSTD_MAX_BLOCK ? n : ZSTD_MAX_BLOCK;
  return (2 * block + 7) / 8 * 8 + 8;
}

template <class G>
struct ZstdEncoder {
  const G& g;
  const u8* src;
  u32 n;
  u8* dst;
  u32 capacity;
  ZstdEncodeTables& t;
  u8* scratch;
  u32 at = 0;
  ZstdRecent recent{};

  ROCKMILL_HD u32 encode() {
    write_header();
    u32 done = 0;
    do {
      const u32 size = n - done < ZSTD_MAX_BLOCK ? n - done : ZSTD_MAX_BLOCK;
      if (!write_block(src + done, size, done + size == n)) return 0;
      done += size;
    } while (done < n);
    return at;
  }

 private:
  ROCKMILL_HD void put(u64 value, u32 bytes) {
    for (u32 i = g.rank(); i < bytes; i += g.width)
      if (at + i < capacity) dst[at + i] = u8(value >> 8 * i);
    at += bytes;
  }

  ROCKMILL_HD void write_header() {
    constexpr u32 SINGLE_SEGMENT = 1 << 5;
    const u32 form = n < 256 ? 0 : n < 256 + (u32{1} << 16) ? 1 : 2;
    put(ZSTD_MAGIC, 4);
    put(form << 6 | SINGLE_SEGMENT, 1);
    put(form == 1 ? n - 256 : n, u32{1} << form);
  }

  // False if there is no room.
  ROCKMILL_HD bool write_block(const u8* block, u32 size, bool is_last) {
    constexpr u32 RAW = 0, PACKED = 2, HEAD_BYTES = 3;
    const ZstdRecent before = recent;
    const u32 head = at;
    at += HEAD_BYTES;
    const u32 room = capacity > at ? capacity - at : 0;
    u32 packed = pack(block, size, dst + at, room);
    const u32 kind = packed < size ? PACKED : RAW;
    if (kind == RAW) {
      recent = before;
      packed = size;
    }
    if (at > capacity || packed > room) return false;
    g.sync();
    at = head;
    put(is_last | kind << 1 | packed << 3, HEAD_BYTES);
    if (kind == RAW) copy_apart(g, dst + at, block, size);
    at += packed;
    return true;
  }

  ROCKMILL_HD u32 pack(const u8* block, u32 size, u8* to, u32 limit) {
    u8* const end = scratch + zstd_scratch_bytes(size);
    ZstdSequence* const last = reinterpret_cast<ZstdSequence*>(end) - 1;
    ZstdMatcher<G> matcher{g, block, size, t.matches, recent, scratch, last, 0, 0, 0, {}, {}};
    matcher.run();
    const u32 literals = encode_literals(g, scratch, matcher.num_literals, to, limit, t.literals);
    g.sync();
    ZstdSequenceWriter<G> writer{g,           matcher.last, matcher.num_sequences,
                                 to + literals, limit > literals ? limit - literals : 0, t.sequences};
    const u32 sequences = writer.write();
    g.sync();
    return literals + sequences;
  }
};

// The size of the frame, or 0 if it would exceed the capacity. `scratch` has zstd_scratch_bytes(n).
template <class G>
ROCKMILL_HD u32 zstd_encode(const G& g, const u8* src, u32 n, u8* dst, u32 capacity, ZstdEncodeTables& tables,
                            u8* scratch) {
  if (n > MAX_BLOCK_BYTES) return 0;
  return ZstdEncoder<G>{g, src, n, dst, capacity, tables, scratch}.encode();
}

}  // namespace rockmill::ROCKMILL_TARGET

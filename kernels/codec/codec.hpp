// Shared by the codecs. A codec is code over a Group: on the device a warp or a tile processes a block, on the host one
// thread.
//
// Every decoder and encoder is total. On any input it ends, writes only bytes of the target, and reads only bytes of
// the source. On the device it reads the aligned words of four bytes that contain these. Sizes are at most
// MAX_BLOCK_BYTES, except that a compressed source may have any size.
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

// What a decoder returns, the same on all lanes. If it is not CODEC_OK, the target's content is undefined.
enum CodecStatus : u32 {
  CODEC_OK = 0,
  CODEC_MALFORMED = 1,
  // The bytes read are valid, but a part of the format is not implemented.
  CODEC_UNSUPPORTED = 2,
};

// Maximum size of a block before it is compressed. Positions and lengths may be added in 32 bits.
constexpr u32 MAX_BLOCK_BYTES = u32{1} << 31;

// Copies between ranges that do not overlap. They are usually short, so they are not aligned first.
template <class G>
ROCKMILL_HD void copy_apart(const G& g, u8* to, const u8* from, u32 n) {
  if constexpr (G::width == 1) {
    std::memcpy(to, from, n);
  } else {
    for (u32 i = g.rank(); i < n; i += G::width) to[i] = from[i];
  }
}

// Copies from `offset` bytes back, at least 1; bytes that the group has written before may be read. With n > offset the
// bytes repeat.
template <class G>
ROCKMILL_HD void copy_match(const G& g, u8* to, u32 offset, u32 n) {
  const u8* from = to - offset;
  g.sync();
  if constexpr (G::width == 1) {
    // Each copy doubles the repeated bytes.
    for (u32 have = offset, done = 0; done < n; have = offset + done) {
      const u32 part = n - done < have ? n - done : have;
      std::memcpy(to + done, from, part);
      done += part;
    }
  } else if (offset >= n) {
    for (u32 i = g.rank(); i < n; i += G::width) to[i] = from[i];
  } else {
    for (u32 i = g.rank(); i < n; i += G::width) to[i] = from[i % offset];
  }
}

}  // namespace rockmill::ROCKMILL_TARGET

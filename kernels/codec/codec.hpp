// What the codecs share. A codec is code over a Group: a warp or a tile takes a block on the device, one thread on the
// host.
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
  // Sound for all that was seen, but a part of the format that the decoder does not have.
  CODEC_UNSUPPORTED = 2,
};

// A block's size before it is compressed. Positions and lengths may be added up in 32 bits.
constexpr u32 MAX_BLOCK_BYTES = u32{1} << 31;

// Copies between ranges that do not overlap. They are short as a rule: no time goes into aligning them.
template <class G>
ROCKMILL_HD void copy_apart(const G& g, u8* to, const u8* from, u32 n) {
  if constexpr (G::width == 1) {
    std::memcpy(to, from, n);
  } else {
    for (u32 i = g.rank(); i < n; i += G::width) to[i] = from[i];
  }
}

// Copies from `offset` bytes back, at least 1; what the group has written so far may be read. With n > offset the
// bytes repeat.
template <class G>
ROCKMILL_HD void copy_match(const G& g, u8* to, u32 offset, u32 n) {
  const u8* from = to - offset;
  g.sync();
  if constexpr (G::width == 1) {
    // Each copy doubles what repeats.
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

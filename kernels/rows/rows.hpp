// Contiguous rows, to be copied back in parts: the user key and the value of each.
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct MeasureRows {
  const Key* rows;
  const ValueRef* values;
  u64* sizes;

  ROCKMILL_HD void operator()(u64 i) const { sizes[i] = rows[i].len + values[rows[i].entry].len; }
};

// Row first + j goes behind the bytes of the rows from the first one on.
struct CopyRows {
  const u8* arena;
  const Key* rows;
  KeyBytes bytes;
  const ValueRef* values;
  const u64* offsets;
  u64 first;
  u8* out;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 j) const {
    const u64 i = first + j;
    const Key key = rows[i];
    const ValueRef value = values[key.entry];
    u8* to = out + (offsets[i] - offsets[first]);
    if (key.len > WORD_KEY_BYTES) copy_bytes(g, to, bytes.of(key), key.len);
    else
      for (u32 k = g.rank(); k < key.len; k += g.width) to[k] = bytes.byte(key, k);
    copy_bytes(g, to + key.len, arena + value.at, value.len);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

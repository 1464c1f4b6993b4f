// FastLocalBloom (`util/bloom_impl.h`): all probes of a key fall into one line of 64 bytes.
#pragma once

#include "../common/hash.hpp"
#include "../decode/decode.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 LINE_BYTES = 64, LINE_BITS_LOG2 = 9;
constexpr u32 PROBE_MULTIPLIER = 0x9e3779b9;

// Calls f(word of the filter, mask) for each probe of a hash.
template <class F>
ROCKMILL_HD void for_each_probe(u64 hash, u32 num_lines, u32 num_probes, F f) {
  const u64 line = u64(u32(hash)) * num_lines >> 32;
  u32 state = u32(hash >> 32);
  for (u32 p = 0; p < num_probes; ++p, state *= PROBE_MULTIPLIER) {
    const u32 bit = state >> (32 - LINE_BITS_LOG2);
    f(line * (LINE_BYTES / 4) + bit / 32, u32{1} << bit % 32);
  }
}

// Sets the bits of a file's keys in lines that were cleared.
struct SetFilterBits {
  const Key* survivors;
  u64 start;
  u32 key_bytes;
  u32 num_lines;
  u32 num_probes;
  u32* lines;

  ROCKMILL_HD void operator()(u64 i) const {
    const Key& key = survivors[start + i];
    if (i > 0 && same_user_key(survivors[start + i - 1], key)) return;
    u32* words = lines;
    for_each_probe(xxph3_key(key.hi, key.lo, key_bytes), num_lines, num_probes,
                   [words](u64 word, u32 mask) { atomic_or(words + word, mask); });
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

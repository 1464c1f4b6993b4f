// Bloom filters' bits. FastLocalBloom (`util/bloom_impl.h`) has all probes of a hash in one line of 64 bytes, and so
// has the legacy filter as written here.
#pragma once

#include "filter_keys.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 LINE_BYTES = 64, LINE_BITS_LOG2 = 9;
constexpr u32 PROBE_MULTIPLIER = 0x9e3779b9;
constexpr u32 LEGACY_STEP_ROTATION = 17;

// A filter's shape.
struct FilterShape {
  u32 format;
  u32 num_lines;
  u32 num_probes;
};

// Calls f(word of the filter, mask) for each probe of a hash.
template <class F>
ROCKMILL_HD void for_each_probe(u64 hash, const FilterShape& shape, F f) {
  const bool legacy = shape.format == FILTER_LEGACY;
  const u32 low = u32(hash);
  const u64 line = legacy ? low % shape.num_lines : u64(low) * shape.num_lines >> 32;
  const u32 step = low >> LEGACY_STEP_ROTATION | low << (32 - LEGACY_STEP_ROTATION);
  u32 state = legacy ? low : u32(hash >> 32);
  for (u32 p = 0; p < shape.num_probes; ++p) {
    const u32 bit = legacy ? state % (LINE_BYTES * 8) : state >> (32 - LINE_BITS_LOG2);
    f(line * (LINE_BYTES / 4) + bit / 32, u32{1} << bit % 32);
    state = legacy ? state + step : state * PROBE_MULTIPLIER;
  }
}

// Sets the bits of a file's keys in lines that were cleared.
struct SetFilterBits {
  FilterKeys filter;
  u64 start;
  FilterShape shape;
  u32* lines;

  ROCKMILL_HD void operator()(u64 i) const {
    u32* words = lines;
    const FilterShape own = shape;
    filter.for_each_hash(start, i, [words, own](u64 hash) {
      for_each_probe(hash, own, [words](u64 word, u32 mask) { atomic_or(words + word, mask); });
    });
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

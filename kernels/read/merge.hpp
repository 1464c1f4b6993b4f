// One order over k sorted runs: pairs of adjacent runs are merged, round after round. Equal keys keep the runs' order.
#pragma once

#include <vector>

#include "../common/memory.hpp"
#include "decode.hpp"

namespace rockmill::ROCKMILL_TARGET {

// User key ascending, newest first, then the first input first: entries are decoded input by input. No two keys are
// equal in this order, so a merge need not be stable.
struct MergeLess {
  KeyBytes bytes;

  ROCKMILL_HD bool operator()(const Key& a, const Key& b) const {
    const int order = compare_user(bytes, a, b);
    if (order != 0) return order < 0;
    return a.tag != b.tag ? a.tag > b.tag : a.entry < b.entry;
  }
};

// Merges the runs [trimmed[2r], trimmed[2r + 1]) of `a`; `b` has room for as many keys. Both are overwritten. `*merged`
// is set to the one with the result, from its start.
inline int merge_runs(const Exec& exec, const KeyBytes& key_bytes, Key* a, Key* b, const u32* trimmed,
                      u32 num_runs, Key** merged) {
  struct Run {
    const Key* keys;
    u64 len;
  };
  std::vector<Run> runs;
  for (u32 r = 0; r < num_runs; ++r)
    if (trimmed[2 * r] < trimmed[2 * r + 1])
      runs.push_back({a + trimmed[2 * r], trimmed[2 * r + 1] - trimmed[2 * r]});
  Key *from = a, *to = b;
  // The first round also moves the runs together, so that there is at least one.
  do {
    std::vector<Run> longer;
    Key* out = to;
    for (size_t r = 0; r < runs.size(); r += 2) {
      const Run &x = runs[r], y = r + 1 < runs.size() ? runs[r + 1] : Run{nullptr, 0};
      const int error = y.len == 0 ? copy_inside(exec, out, x.keys, x.len * sizeof(Key))
                                   : merge_two(exec, x.keys, x.len, y.keys, y.len, out,
                                               MergeLess{key_bytes});
      if (error != 0) return error;
      longer.push_back({out, x.len + y.len});
      out += x.len + y.len;
    }
    runs.swap(longer);
    std::swap(from, to);
  } while (runs.size() > 1);
  *merged = from;
  return 0;
}

}  // namespace rockmill::ROCKMILL_TARGET

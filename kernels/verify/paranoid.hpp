// The hash over all that a file holds, which RocksDB compares when it is asked for paranoid file checks
// (`db/output_validator.cc`): of each key and value in turn, seeded with that of all before. So a file has one thread.
#pragma once

#include "../common/content.hpp"
#include "../common/xxph3.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct ChainFile {
  const u8* arena;
  const Key* keys;
  KeyBytes bytes;
  const ValueRef* values;
  const u32* file_starts;
  FoundFile* found;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 f) const {
    if (g.rank() != 0) return;
    u64 hash = 0;
    for (u64 i = file_starts[f]; i < file_starts[f + 1]; ++i) {
      hash = chain_key(keys[i], hash);
      hash = xxph3_bytes(arena + values[i].at, values[i].len, hash);
    }
    found[f].paranoid_hash = hash;
    found[f].paranoid_check = entry_hash(0, hash);
  }

 private:
  ROCKMILL_HD u64 chain_key(const Key& key, u64 hash) const {
    const u32 len = key.len + TAG_BYTES;
    if (bytes.wide()) return xxph3_bytes(bytes.of(key), len, hash);
    // Words are read whole, and one more.
    alignas(8) u8 spelt[WORD_KEY_BYTES + 2 * TAG_BYTES] = {};
    for (u32 i = 0; i < len; ++i) spelt[i] = bytes.byte(key, i);
    return xxph3_bytes(spelt, len, hash);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Resident tables for the tests. All hashes are 0 unless a test says otherwise, so that slots are addresses of records,
// from the first slot on.
#pragma once

#include "../view/record.hpp"
#include "../view/slots.hpp"
#include "data.hpp"

inline std::string padded(const std::string& bytes) { return bytes + std::string(-bytes.size() % RECORD_UNIT, 0); }
inline std::string record(const std::string& key, const std::string& value) {
  return padded(little(key.size(), 4) + little(value.size(), 4) + key) + padded(value);
}
// A record of a key for which RocksDB must be asked.
inline std::string record_of_host(const std::string& key) {
  return padded(little(key.size(), 4) + little(NEEDS_HOST_VALUE, 4) + key);
}

// Records in memory, and the address of each in units of 16 bytes.
struct Records {
  u8* bytes;
  std::vector<u64> slots;

  explicit Records(const std::vector<std::string>& records) {
    std::string all;
    for (const std::string& record : records) {
      slots.push_back(all.size() / RECORD_UNIT);
      all += record;
    }
    bytes = memory(all + std::string(ARENA_PADDING, 0));
    for (u64& slot : slots) slot += reinterpret_cast<u64>(bytes) / RECORD_UNIT;
  }
};

constexpr u64 SEED = 7;
// A table of whole buckets.
inline ResidentTable table_of(std::vector<u64> slots, u64 hash_mask = 0) {
  slots.resize((slots.size() + BUCKET_SLOTS - 1) / BUCKET_SLOTS * BUCKET_SLOTS);
  return {memory(slots), slots.size() / BUCKET_SLOTS, SEED, hash_mask, {}};
}
// Ranges of keys, each from an even bound to before the next one.
inline KeyRanges ranges_of(const std::vector<std::string>& bounds) {
  std::vector<u64> ends;
  std::string bytes;
  for (const std::string& bound : bounds) ends.push_back((bytes += bound).size());
  return {memory(ends), memory(bytes), bounds.size()};
}

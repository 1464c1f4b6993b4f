// Shared by the programs in C++.
#pragma once

#include <rocksdb/db.h>
#include <rocksdb/listener.h>
#include <rockmill/rocksdb.hpp>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

inline void Check(bool holds, const std::string& what) {
  if (!holds) {
    std::cerr << what << std::endl;
    std::_Exit(1);  // It may be a thread of RocksDB, which an exit would wait for.
  }
}

inline void Check(const rocksdb::Status& status) { Check(status.ok(), status.ToString()); }

class NoBackgroundError : public rocksdb::EventListener {
  void OnBackgroundError(rocksdb::BackgroundErrorReason, rocksdb::Status* status) override {
    Check(false, "background error: " + status->ToString());
  }
};

// Opens a database. `families` are nothing, or the descriptors and the vector for handles.
template <class Options, class... Families>
std::unique_ptr<rocksdb::DB> Open(const Options& options, const std::string& path, const Families&... families) {
#if ROCKMILL_ROCKSDB_SINCE(10, 0)
  std::unique_ptr<rocksdb::DB> db;
  Check(rocksdb::DB::Open(options, path, families..., &db));
  return db;
#else
  rocksdb::DB* db = nullptr;
  Check(rocksdb::DB::Open(options, path, families..., &db));
  return std::unique_ptr<rocksdb::DB>(db);
#endif
}

inline void Compact(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family) {
  rocksdb::CompactRangeOptions all;
  all.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
  Check(db->CompactRange(all, family, nullptr, nullptr));
}

inline void Compact(rocksdb::DB* db) { Compact(db, db->DefaultColumnFamily()); }

// Compacts the files of level 0 into a level, by one job.
inline rocksdb::Status CompactFiles(rocksdb::DB* db, rocksdb::ColumnFamilyHandle* family, int level,
                                    const rocksdb::CompactionOptions& options) {
  rocksdb::ColumnFamilyMetaData tree;
  db->GetColumnFamilyMetaData(family, &tree);
  std::vector<std::string> files;
  for (const auto& file : tree.levels[0].files) files.push_back(file.name);
  return files.empty() ? rocksdb::Status::OK() : db->CompactFiles(options, family, files, level);
}

inline std::vector<std::pair<std::string, std::string>> Content(rocksdb::DB* db,
                                                                const rocksdb::ReadOptions& options = {},
                                                                rocksdb::ColumnFamilyHandle* family = nullptr) {
  std::vector<std::pair<std::string, std::string>> content;
  std::unique_ptr<rocksdb::Iterator> it(
      db->NewIterator(options, family != nullptr ? family : db->DefaultColumnFamily()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) content.emplace_back(it->key().ToString(), it->value().ToString());
  Check(it->status());
  return content;
}

inline std::string FromEnvironment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

// The device of a seed's databases.
inline std::string DeviceOf(uint64_t seed) {
  return FromEnvironment("ROCKMILL_TEST_DEVICE", seed % 3 == 0 ? "cpu" : "cuda-on-host");
}

// A number in a service's statistics.
inline uint64_t Count(const std::string& stats, const std::string& name) {
  const auto at = stats.find("\"" + name + "\":");
  Check(at != std::string::npos, name + " is not in " + stats);
  return std::strtoull(stats.c_str() + at + name.size() + 3, nullptr, 10);
}

// Subcompactions of jobs done on a device.
inline uint64_t Subcompactions(const std::string& stats, const std::string& device) {
  const auto at = stats.find("\"" + device + "\":{\"subcompactions\":");
  return at != std::string::npos ? Count(stats.substr(at), "subcompactions") : 0;
}

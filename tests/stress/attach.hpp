// Attaches Rockmill to the database of RocksDB's db_stress, with the objects of its options: scripts/db-stress.sh includes
// it. Without the environment variable ROCKMILL_STATISTICS, RocksDB compacts by itself.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>

#include "rockmill/rocksdb.hpp"

// `write_policy` is that of a transaction database, or below 0 for another one.
//
// Writes the service's statistics into the folder ROCKMILL_STATISTICS twice a second, since the process may be killed.
inline void AttachRockmill(rocksdb::Options* options, int write_policy) {
  const char* folder = std::getenv("ROCKMILL_STATISTICS");
  if (folder == nullptr) {
    return;
  }
  static int attached = 0;
  const std::string path = std::string(folder) + "/" + std::to_string(getpid()) + "." + std::to_string(++attached);
  std::map<std::string, std::string> settings = {{"threads", "2"}, {"min_job_bytes", "0"}};
  if (write_policy == rocksdb::WRITE_COMMITTED) {
    settings["write_committed"] = "true";
  }
  rocksdb::Status status;
  // The test's Env leaves files as they are.
  rocksdb::Env* const env = options->env;
  options->env = rocksdb::Env::Default();
  const auto service = rockmill::Attach(options, settings, &status, rockmill::Families::kAll);
  options->env = env;
  if (!status.ok()) {
    std::fprintf(stderr, "rockmill: %s\n", status.ToString().c_str());
    std::ofstream(path) << "{\"refused\":1}\n";
    return;
  }
  std::thread([service, path] {
    for (;;) {
      const std::string next = path + ".next";
      std::ofstream(next) << service->Stats() << "\n";
      std::rename(next.c_str(), path.c_str());
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
  }).detach();
}

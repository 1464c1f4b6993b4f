// Databases with the options and the mix of operations of twelve programs, and the share of the bytes of their compactions that
// Rockmill does. Arguments: an empty folder, the MiB that are written to each database, settings of Rockmill, and names of
// profiles, all by default.
//
//   profiles /tmp/profiles 2048 "" kvrocks flink
#include "programs.hpp"

namespace {

using profiles::Load;
using profiles::Outcome;

uint64_t Fails(const std::string& stats) {
  const std::string key = "\"jobs_failed\":";
  return std::strtoull(stats.c_str() + stats.find(key) + key.size(), nullptr, 10);
}

}  // namespace

int main(int count, char** arguments) {
  profiles::Check(count >= 3, "name a folder, and the MiB that are written to each database");
  const std::string folder = arguments[1];
  const uint64_t bytes = std::strtoull(arguments[2], nullptr, 10) << 20;
  std::map<std::string, std::string> settings;
  std::unordered_map<std::string, std::string> given;
  profiles::Check(rocksdb::StringToMap(count > 3 ? arguments[3] : "", &given));
  settings.insert(given.begin(), given.end());
  const std::vector<std::string> wanted(arguments + std::min(count, 4), arguments + count);
  std::cout << "| profile | follows | input MiB | done | left to RocksDB, jobs |\n|---|---|---|---|---|\n";
  for (const auto make : profiles::kAll) {
    auto profile = make();
    const bool is_wanted = std::find(wanted.begin(), wanted.end(), profile.name) != wanted.end();
    if (!wanted.empty() && !is_wanted) continue;
    const std::string own = folder + "/" + profile.name;
    const Outcome outcome = Load(std::move(profile), own, bytes, settings).Run();
    std::cout << "| " << outcome.name << " | " << outcome.follows << " | " << (outcome.input >> 20) << " | "
              << outcome.Percent() << " % | " << outcome.Declines() << " |" << std::endl;
    profiles::Check(Fails(outcome.stats) == 0, outcome.name + ": a job has failed: " + outcome.stats);
    profiles::Check(outcome.input > 0, outcome.name + ": there was no compaction");
  }
}

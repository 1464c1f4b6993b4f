// A database with Rockmill has the content of one without it, with any writers and after any close. The argument is an
// empty folder.
#include "common.hpp"

#include <rocksdb/compaction_filter.h>
#include <rocksdb/convenience.h>
#include <rocksdb/merge_operator.h>
#include <rocksdb/sst_file_writer.h>
#include <rocksdb/utilities/table_properties_collectors.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <random>
#include <thread>

namespace {

constexpr int kWriters = 4;
constexpr int kWritesEach = 30000;
constexpr int kKeysEach = 8000;

rocksdb::Options Options(std::shared_ptr<rocksdb::CompactionService> service) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 256 << 10;
  options.target_file_size_base = 512 << 10;
  options.max_bytes_for_level_base = 1 << 20;
  options.max_background_jobs = 4;
  options.compression = rocksdb::kZSTD;
  options.compaction_service = std::move(service);
  return options;
}

std::unique_ptr<rocksdb::DB> Open(const std::string& path, std::shared_ptr<rocksdb::CompactionService> service) {
  return ::Open(Options(std::move(service)), path);
}

// Each writer has its own keys, so the content does not depend on their order.
void Write(rocksdb::DB* db) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([db, writer] {
      std::mt19937 random(writer);
      for (int i = 0; i < kWritesEach; ++i) {
        const std::string key = "key" + std::to_string(random() % kKeysEach) + "." + std::to_string(writer);
        const std::string value = std::to_string(random()) + std::string(60 + random() % 80, 'v');
        Check(random() % 5 == 0 ? db->Delete({}, key) : db->Put({}, key, value));
      }
    });
  }
  for (auto& writer : writers) writer.join();
}

void RefusesSettings() {
  rocksdb::Status status;
  Check(rockmill::NewCompactionService({{"thread", "8"}}, &status) == nullptr, "an unknown setting is accepted");
  Check(status.ToString().find("there is no setting \"thread\"") != std::string::npos, status.ToString());
  Check(rockmill::NewCompactionService({{"device", "cpu;threads=1"}}, &status) == nullptr, "two settings in one");
  Check(status.ToString().find("device contains ';'") != std::string::npos, status.ToString());
  Check(rockmill::NewCompactionService({{"threads", "0"}}) == nullptr, "no threads");
  auto service = rockmill::NewCompactionService({}, &status);
  Check(status);
  Check(service->ChangeSettings({{"nice", "3"}, {"threads", "1"}}));
  Check(!service->ChangeSettings({{"nice", "30"}}).ok(), "a niceness of 30");
  Check(service->WaitForDevice());
  Check(service->LastError().empty(), service->LastError());
}

// Receives the messages of a service, and fails if any come after its end.
class Messages {
 public:
  rockmill::LogFunction Function() {
    return [heard = heard_](rockmill::LogLevel level, const std::string& message) {
      const std::lock_guard<std::mutex> lock(heard->mutex);
      Check(!heard->is_over, "called after the end: " + message);
      Check(level == rockmill::LogLevel::kInfo, message);
      heard->all.push_back(message);
      throw 1;
    };
  }

  bool Contain(const std::string& part) const {
    const std::lock_guard<std::mutex> lock(heard_->mutex);
    const auto contains = [&](const std::string& message) { return message.find(part) != std::string::npos; };
    return std::any_of(heard_->all.begin(), heard_->all.end(), contains);
  }

  void End() {
    const std::lock_guard<std::mutex> lock(heard_->mutex);
    heard_->is_over = true;
  }

 private:
  struct Heard {
    std::mutex mutex;
    std::vector<std::string> all;
    bool is_over = false;
  };
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
};

void Contains(const std::string& text, const std::string& line) {
  Check(text.find("\n" + line + "\n") != std::string::npos, line + " is not in\n" + text);
}

// A switch without a restart.
void TakesNoJobsWhilePaused(rocksdb::DB* db, rockmill::Service* service) {
  const auto done = Count(service->Stats(), "jobs_done");
  Check(service->ChangeSettings({{"paused", "true"}}));
  Compact(db);
  Check(Count(service->Stats(), "jobs_done") == done, "a job was taken");
  const std::string metrics = service->MetricsPrometheus();
  const std::string paused = "rockmill_jobs_declined_total{reason=\"paused\"} ";
  Check(metrics.find(paused) != std::string::npos && metrics.find(paused + "0\n") == std::string::npos, metrics);
  Check(service->ChangeSettings({{"paused", "false"}}));
  Compact(db);
  Check(Count(service->Stats(), "jobs_done") > done, "no job was taken");
}

// Closes a handle while a job runs that would take half a minute.
void ClosesWhileAJobRuns(const std::string& path) {
  rm_service* handle = rm_service_open("min_job_bytes=0;io_bytes_per_second=50000", nullptr);
  const rockmill::Service watch(rm_service_clone(handle, nullptr));
  auto db = Open(path, std::make_shared<rockmill::Service>(handle));
  const auto before = Content(db.get());
  std::atomic<bool> has_ended = false;
  std::thread compaction([&] {
    Compact(db.get());
    has_ended = true;
  });
  while (Count(watch.Stats(), "jobs_running") == 0) {
    Check(!has_ended, "no job ran: " + watch.LastError());
    std::this_thread::yield();
  }
  Check(rm_service_close(handle, nullptr) == RM_SUCCESS, "it was open");
  // If the close had waited for the job's end, the job would be done.
  const std::string stats = watch.Stats();
  Check(Count(stats, "jobs_running") == 0 && Count(stats, "jobs_done") == 0, stats);
  // RocksDB does it, and offers further jobs to a closed handle.
  compaction.join();
  Check(Content(db.get()) == before, "the content differs after a close");
}

// Closes its handle when RocksDB has received a job's files and not yet taken them.
class ClosesEarly : public rocksdb::CompactionService {
 public:
  explicit ClosesEarly(rm_service* handle) : handle_(handle), service_(handle) {}

  const char* Name() const override { return "ClosesEarly"; }

  rocksdb::CompactionServiceScheduleResponse Schedule(const rocksdb::CompactionServiceJobInfo& info,
                                                      const std::string& input) override {
    return service_.Schedule(info, input);
  }

  rocksdb::CompactionServiceJobStatus Wait(const std::string& id, std::string* result) override {
    const auto status = service_.Wait(id, result);
    if (status == rocksdb::CompactionServiceJobStatus::kSuccess) {
      std::string again;
      Check(service_.Wait(id, &again) == rocksdb::CompactionServiceJobStatus::kUseLocal, "the job can be waited for twice");
      Check(rm_service_close(handle_, nullptr) == RM_SUCCESS, "it was open");
      Check(rm_service_close(handle_, nullptr) == RM_INVALID, "it is closed");
      has_closed = true;
    }
    return status;
  }

  void OnInstallation(const std::string& id, rocksdb::CompactionServiceJobStatus status) override {
    Check(rm_service_on_installation(handle_, id.c_str(), static_cast<rm_status>(status), nullptr) == RM_SUCCESS,
          "the job is forgotten");
    Check(rm_service_on_installation(handle_, id.c_str(), RM_SUCCESS, nullptr) == RM_INVALID, "nothing is left");
  }

  bool has_closed = false;

 private:
  rm_service* const handle_;
  rockmill::Service service_;
};

void ClosesBeforeTheInstallation(const std::string& path) {
  auto service = std::make_shared<ClosesEarly>(rm_service_open("min_job_bytes=0", nullptr));
  auto db = Open(path, service);
  const auto before = Content(db.get());
  Compact(db.get());
  Check(service->has_closed, "no job was done");
  Check(Content(db.get()) == before, "the content differs after a close");
  Check(!std::filesystem::exists(path + "/rockmill.staging"), "the staging folder is still there");
}

// Drops some keys, whenever it meets them.
class Drops : public rocksdb::CompactionFilter {
 public:
  static bool Has(const rocksdb::Slice& key) { return key[key.size() - 1] == '7'; }
  const char* Name() const override { return "Drops"; }
  Decision FilterV2(int, const rocksdb::Slice& key, ValueType, const rocksdb::Slice&, std::string*,
                    std::string*) const override {
    return Has(key) ? Decision::kRemove : Decision::kKeep;
  }
};

// Writes entries of all kinds with keys of one writer. A GPU's kernels merge no operands beside SingleDeletes, so there are
// such only with a filter.
void WriteAllKinds(rocksdb::DB* db, const rocksdb::Options& options, uint64_t seed, int writer, const std::string& folder) {
  constexpr int kWrites = 6000, kSingles = 50, kKeys = 500;
  std::mt19937_64 random(seed * kWriters + writer);
  const auto key = [&](uint64_t number) { return std::to_string(writer) + "/" + std::to_string(1000 + number); };
  std::vector<bool> is_there(kSingles);
  for (int write = 0; write < kWrites; ++write) {
    const auto number = random() % kKeys, kind = random() % 1000;
    const std::string value = std::to_string(write) + std::string(random() % 60, 'v');
    if (kind < 400) {
      Check(db->Put({}, key(number), value));
    } else if (kind < 500) {
      Check(db->Delete({}, key(number)));
    } else if (kind < 600 && options.compaction_filter != nullptr) {
      const size_t single = number % kSingles;
      const std::string name = key(single) + "single";
      Check(is_there[single] ? db->SingleDelete({}, name) : db->Put({}, name, value));
      is_there[single] = !is_there[single];
    } else if (kind < 605) {
      const std::string end = key(number + (kind < 602 ? 1 : random() % kKeys));
      // It would delete single-deleted keys in another way.
      if (number < kSingles) continue;
      Check(db->DeleteRange({}, db->DefaultColumnFamily(), key(number), end));
    } else if (kind < 607) {
      rocksdb::SstFileWriter file({}, options);
      const std::string path = folder + "/ingested" + std::to_string(writer);
      Check(file.Open(path));
      for (auto at = number; at < kKeys; at += 1 + random() % 50) Check(file.Put(key(at), value));
      Check(file.Finish());
      Check(db->IngestExternalFile({path}, {}));
    } else {
      Check(db->Merge({}, key(number), value));
    }
  }
}

std::vector<std::pair<std::string, std::string>> WithoutDropped(rocksdb::DB* db, const rocksdb::Snapshot* snapshot) {
  rocksdb::ReadOptions options;
  options.snapshot = snapshot;
  auto content = Content(db, options);
  const auto is_dropped = [](const auto& pair) { return Drops::Has(pair.first); };
  content.erase(std::remove_if(content.begin(), content.end(), is_dropped), content.end());
  return content;
}

// The content after several threads have written entries of all kinds. A snapshot reads the same before and after
// compactions.
std::vector<std::pair<std::string, std::string>> AllKinds(const rocksdb::Options& options, uint64_t seed,
                                                          const std::string& folder, const std::string& name) {
  auto db = ::Open(options, folder + name);
  std::atomic<int> writing{kWriters};
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      WriteAllKinds(db.get(), options, seed, writer, folder);
      --writing;
    });
  }
  while (writing > 0) {
    const auto* snapshot = db->GetSnapshot();
    const auto before = WithoutDropped(db.get(), snapshot);
    Check(db->CompactRange({}, nullptr, nullptr));
    Check(WithoutDropped(db.get(), snapshot) == before, "a snapshot reads something else after a compaction");
    db->ReleaseSnapshot(snapshot);
  }
  for (auto& writer : writers) writer.join();
  Check(db->Flush({}));
  Compact(db.get());
  return Content(db.get());
}

// Databases of several writers with tombstones, operands, ingested files and a filter. ROCKMILL_SEED is the seed of the first
// one, and ROCKMILL_CASES their number.
void WritersOfAllKinds(const std::string& folder) {
  static const Drops drops;
  const uint64_t first = std::stoull(FromEnvironment("ROCKMILL_SEED", "1"));
  const uint64_t cases = std::stoull(FromEnvironment("ROCKMILL_CASES", "2"));
  for (uint64_t seed = first; seed < first + cases; ++seed) {
    const std::string name = "/kinds" + std::to_string(seed), device = DeviceOf(seed);
    const bool has_filter = seed % 2 == 0;
    auto options = Options(nullptr);
    options.write_buffer_size = 64 << 10;
    options.target_file_size_base = 32 << 10;
    options.max_bytes_for_level_base = 128 << 10;
    options.max_subcompactions = 2;
    Check(rocksdb::MergeOperator::CreateFromString({}, "stringappend", &options.merge_operator));
    options.table_properties_collector_factories.push_back(rocksdb::NewCompactOnDeletionCollectorFactory(64, 40));
    if (has_filter) options.compaction_filter = &drops;
    const auto expected = AllKinds(options, seed, folder, name + "without");
    rocksdb::Status status;
    // Kernels count some 35 MB for each input.
    const std::map<std::string, std::string> settings = {
        {"min_job_bytes", "0"}, {"threads", "2"}, {"device", device}, {"memory_budget_bytes", "4294967296"}};
    const auto service = rockmill::Attach(&options, settings, &status);
    Check(status);
    Check(service->WaitForDevice());
    const auto content = AllKinds(options, seed, folder, name + "with");
    const std::string stats = service->Stats(), place = "ROCKMILL_SEED=" + std::to_string(seed) + ": ";
    Check(content.size() > 100 && content == expected, place + "the content differs");
    // The filter is called on the CPU.
    Check(Subcompactions(stats, has_filter ? "cpu" : device) > 0, place + stats);
    Check(has_filter || device == "cpu" || Subcompactions(stats, "cpu") == 0, place + stats);
    Check(Count(stats, "jobs_failed") == 0 && Count(stats, "verification_failures") == 0, place + stats);
  }
}

}  // namespace

int main(int count, char** arguments) {
  Check(count == 2, "name a folder");
  const std::string folder = arguments[1];
  RefusesSettings();

  rocksdb::Status status;
  Messages messages;
  auto rockmill =
      rockmill::NewCompactionService({{"threads", "2"}, {"min_job_bytes", "0"}}, &status, messages.Function());
  Check(status);
  auto with = Open(folder + "/with", rockmill->Clone());
  auto without = Open(folder + "/without", nullptr);
  Write(with.get());
  Write(without.get());
  Compact(with.get());
  Compact(without.get());
  const auto content = Content(without.get());
  Check(content.size() > kWriters * kKeysEach / 2, "too few keys");
  Check(Content(with.get()) == content, "the content differs");
  const std::string stats = rockmill->Stats();
  Check(Count(stats, "jobs_done") > 0 && Count(stats, "jobs_failed") == 0, stats);
  std::cout << Count(stats, "jobs_done") << " of " << Count(stats, "jobs_offered") << " jobs done\n";
  const std::string metrics = rockmill->MetricsPrometheus();
  Contains(metrics, "rockmill_jobs_done_total " + std::to_string(Count(stats, "jobs_done")));
  Contains(metrics, "rockmill_entries_read_total " + std::to_string(Count(stats, "entries_read")));
  Contains(metrics, "rockmill_job_seconds_count{device=\"cpu\"} " + std::to_string(Count(stats, "jobs_done")));
  std::ofstream(folder + "/metrics.txt") << metrics;
  Check(messages.Contain("database=" + folder + "/with") && messages.Contain("job done"), "no message of a job");
  TakesNoJobsWhilePaused(with.get(), rockmill.get());

  // A closed database is an ordinary one.
  with.reset();
  rockmill.reset();
  messages.End();
  with = Open(folder + "/with", nullptr);
  Check(with->VerifyChecksum());
  Check(Content(with.get()) == content, "the content differs without Rockmill");
  with.reset();
  ClosesWhileAJobRuns(folder + "/with");
  ClosesBeforeTheInstallation(folder + "/with");
  WritersOfAllKinds(folder);
  std::cout << "done\n";
}

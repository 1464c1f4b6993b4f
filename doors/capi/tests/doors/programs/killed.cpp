// Processes that write to a database with Rockmill are killed with SIGKILL, and every acknowledged write is there
// afterwards. The first argument is an empty folder; with a second one, the program is such a process.
#include "common.hpp"
#include "shared.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>
#include <thread>

namespace {

constexpr int kWriters = 4;
constexpr int kKeysEach = 3000;
constexpr int kKills = 6;

// State that outlives the processes.
struct Shared {
  // Writes that RocksDB has acknowledged, by writer, over all processes.
  std::atomic<uint64_t> acknowledged[kWriters];
  std::atomic<uint64_t> jobs_done;
  // Counter of the process that writes.
  std::atomic<uint64_t> jobs_running;
};

std::unique_ptr<rocksdb::DB> Open(const std::string& folder, std::shared_ptr<rocksdb::CompactionService> service) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 128 << 10;
  options.target_file_size_base = 256 << 10;
  options.max_bytes_for_level_base = 512 << 10;
  options.max_background_jobs = 4;
  options.compaction_service = std::move(service);
  return ::Open(options, folder + "/database");
}

std::shared_ptr<rockmill::Service> NewService(const std::string& io_bytes_per_second) {
  rocksdb::Status status;
  auto service = rockmill::NewCompactionService(
      {{"min_job_bytes", "0"}, {"threads", "2"}, {"io_bytes_per_second", io_bytes_per_second}}, &status);
  Check(status);
  return service;
}

std::string Key(int writer, uint64_t write) {
  return "key" + std::to_string(write * 7919 % kKeysEach) + "." + std::to_string(writer);
}

// Writes until it is killed.
[[noreturn]] void Write(const std::string& folder) {
  Shared* shared = MapShared<Shared>(folder);
  // Jobs take some time, so that processes are killed while one runs.
  auto service = NewService("4000000");
  auto db = Open(folder, service);
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriters; ++writer) {
    writers.emplace_back([&, writer] {
      for (;;) {
        const uint64_t write = shared->acknowledged[writer];
        Check(db->Put({}, Key(writer, write), std::to_string(write) + std::string(80, 'v')));
        ++shared->acknowledged[writer];
      }
    });
  }
  const uint64_t before = shared->jobs_done;
  for (;;) {
    const std::string stats = service->Stats();
    shared->jobs_done = before + Count(stats, "jobs_done");
    shared->jobs_running = Count(stats, "jobs_running");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Looks for the last write of each key. The write after the acknowledged ones may be there or not.
void Verify(rocksdb::DB* db, const Shared& shared) {
  for (int writer = 0; writer < kWriters; ++writer) {
    const uint64_t end = shared.acknowledged[writer];
    for (uint64_t write = end > kKeysEach ? end - kKeysEach : 0; write < end; ++write) {
      std::string value;
      Check(db->Get({}, Key(writer, write), &value));
      const uint64_t found = std::strtoull(value.c_str(), nullptr, 10);
      const bool is_next = found == end && Key(writer, end) == Key(writer, write);
      Check(found == write || is_next, Key(writer, write) + " has write " + std::to_string(found) + " and not " +
                                           std::to_string(write));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Check(argc > 1, "usage: killed FOLDER");
  const std::string folder = argv[1];
  if (argc > 2) Write(folder);
  Shared* shared = MapShared<Shared>(folder);
  std::mt19937 random(1);
  uint64_t killed_under_jobs = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const pid_t child = fork();
    Check(child >= 0, "fork");
    if (child == 0) {
      execl(argv[0], argv[0], argv[1], "write", nullptr);
      _exit(127);
    }
    const uint64_t enough = shared->acknowledged[0] + 2000 + random() % 8000;
    while (shared->acknowledged[0] < enough) usleep(1000);
    // Every second process is certainly killed while a job runs.
    for (int look = 0; kill_number % 2 == 0 && shared->jobs_running == 0; ++look) {
      Check(look < 60000, "no job ran for a minute");
      usleep(1000);
    }
    Check(kill(child, SIGKILL) == 0, "kill");
    int status = 0;
    waitpid(child, &status, 0);
    Check(WIFSIGNALED(status), "the process ended before it was killed");
    killed_under_jobs += shared->jobs_running > 0;
    shared->jobs_running = 0;
    // The service of this process is closed before the next fork.
    auto service = NewService("0");
    auto db = Open(folder, service);
    Verify(db.get(), *shared);
    Compact(db.get());
    Verify(db.get(), *shared);
    Check(Count(service->Stats(), "jobs_done") > 0, "no job was done: " + service->LastError());
    db.reset();
  }
  Check(killed_under_jobs > 0, "no process was killed under a job");
  std::cout << "killed " << kKills << ", " << killed_under_jobs << " of them under jobs, which had done "
            << shared->jobs_done << "\ndone" << std::endl;
}

// Processes that write to databases with the options and the mix of operations of programs, with Rockmill attached, are
// killed with SIGKILL. RocksDB alone opens what they leave, which equals what it makes of the same calls itself. Arguments:
// an empty folder, the number of kills of each profile, and names of profiles, all by default. With a name and "write", the
// program is such a process.
//
//   killed /tmp/killed 4 flink
#include "../../doors/capi/tests/doors/programs/shared.hpp"
#include "programs.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <tuple>

namespace {

using profiles::Check;
using profiles::Load;
using profiles::Profile;

// Memtables of some 400 KiB, and levels that suit them.
constexpr uint64_t kBytes = 12 << 20;
// Profiles with merge operators, filters and range tombstones. Their calls are atomic: no files are ingested.
constexpr Profile (*kKilled[])() = {profiles::Kvrocks, profiles::FoundationDb, profiles::Stalwart, profiles::Restate,
                                    profiles::Flink};

// State that outlives the processes.
struct Shared {
  // The number of the last acknowledged call.
  std::atomic<uint64_t> acknowledged, jobs_done, jobs_running;
};

uint64_t Count(const std::string& stats, const std::string& name) {
  const auto at = stats.find("\"" + name + "\":");
  Check(at != std::string::npos, name + " is not in " + stats);
  return std::strtoull(stats.c_str() + at + name.size() + 3, nullptr, 10);
}

// Writes until it is killed.
[[noreturn]] void Write(Profile profile, const std::string& folder) {
  Shared* shared = MapShared<Shared>(folder);
  // Jobs take some time, so that processes are killed while one runs.
  const Load::Settings settings = {{"min_job_bytes", "0"}, {"threads", "2"}, {"io_bytes_per_second", "8000000"}};
  Load load(std::move(profile), folder + "/database", kBytes, settings, &shared->acknowledged);
  load.Open();
  std::thread([&, before = shared->jobs_done.load()] {
    for (;;) {
      const std::string stats = load.Service().Stats();
      Check(Count(stats, "jobs_failed") == 0, stats);
      shared->jobs_done = before + Count(stats, "jobs_done");
      shared->jobs_running = Count(stats, "jobs_running");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }).detach();
  load.Reach(UINT64_MAX);
  std::abort();
}

// Compares the database with one of the same calls that Rockmill has never seen.
void Verify(Profile (*make)(), const std::string& folder, uint64_t acknowledged) {
  std::atomic<uint64_t> own{0};
  Load left(make(), folder + "/database", kBytes, std::nullopt, &own);
  left.Open();
  const uint64_t calls = left.Calls();
  Check(calls == acknowledged || calls == acknowledged + 1,
        std::to_string(calls) + " calls are there, of " + std::to_string(acknowledged));
  Load alone(make(), folder + "/alone", kBytes, std::nullopt, &own);
  alone.Open();
  alone.Reach(calls);
  const auto found = left.Compacted(), expected = alone.Compacted();
  for (size_t family = 0; family < expected.size(); ++family) {
    const auto& [a, b] = std::tie(found[family], expected[family]);
    const auto at = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    Check(at.first == a.end() && at.second == b.end(),
          "column family " + std::to_string(family) + " differs at entry " + std::to_string(at.first - a.begin()) + " of " +
              std::to_string(a.size()) + " and " + std::to_string(b.size()));
  }
  left.Close();
  alone.Close();
}

void Kill(char* program, Profile (*make)(), const std::string& folder, int kills) {
  const std::string name = make().name, own = folder + "/" + name;
  std::filesystem::create_directories(own);
  Shared* shared = MapShared<Shared>(own);
  std::mt19937 random(1);
  int under_jobs = 0;
  int number = 0;
  for (; number < kills || under_jobs == 0; ++number) {
    const pid_t parent = getpid(), child = fork();
    Check(child >= 0, "fork");
    if (child == 0) {
      // It would write for ever.
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      execl(program, program, folder.c_str(), "0", name.c_str(), "write", nullptr);
      _exit(127);
    }
    const uint64_t enough = shared->acknowledged + 100 + random() % 400, done = shared->jobs_done;
    // Every process has done a job, and every second one is certainly killed while another runs.
    const auto is_due = [&] {
      return shared->acknowledged >= enough && shared->jobs_done > done && (number % 2 == 1 || shared->jobs_running > 0);
    };
    for (int look = 0; !is_due(); ++look) {
      Check(look < 120000, name + ": no job was done in two minutes");
      Check(waitpid(child, nullptr, WNOHANG) == 0, name + ": the process ended before it was killed");
      usleep(1000);
    }
    Check(kill(child, SIGKILL) == 0, "kill");
    int status = 0;
    waitpid(child, &status, 0);
    Check(WIFSIGNALED(status), name + ": the process ended before it was killed");
    under_jobs += shared->jobs_running > 0;
    shared->jobs_running = 0;
    Verify(make, own, shared->acknowledged);
  }
  std::cout << name << ": killed " << number << " times, " << under_jobs << " of them under a job, after "
            << shared->acknowledged << " calls and " << shared->jobs_done << " jobs" << std::endl;
}

}  // namespace

int main(int count, char** arguments) {
  Check(count >= 3, "name a folder, and the number of kills");
  const std::string folder = arguments[1];
  const std::vector<std::string> wanted(arguments + 3, arguments + count);
  size_t killed = 0;
  for (const auto make : kKilled) {
    const auto profile = make();
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), profile.name) == wanted.end()) continue;
    if (wanted.size() > 1 && wanted.back() == "write") Write(profile, folder + "/" + profile.name);
    Kill(arguments[0], make, folder, std::atoi(arguments[2]));
    ++killed;
  }
  Check(wanted.empty() || killed == wanted.size(), "a name is that of no profile");
  std::cout << "done" << std::endl;
}

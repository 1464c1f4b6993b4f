// If memory runs out after a job has finished, RocksDB does the job, and its files are removed at once. The argument is
// an empty folder.
#include "common.hpp"

#include <filesystem>
#include <new>

// From glibc: the malloc that is replaced below.
extern "C" void* __libc_malloc(size_t size);

namespace {

// The last memory that this thread got from malloc, and the place of that call.
thread_local void* last_memory = nullptr;
thread_local void* last_caller = nullptr;
// The place whose calls of malloc fail on this thread.
thread_local void* starved_caller = nullptr;
thread_local bool starves_new = false;

}  // namespace

extern "C" void* malloc(size_t size) {
  last_caller = __builtin_return_address(0);
  last_memory = starved_caller == last_caller ? nullptr : __libc_malloc(size);
  return last_memory;
}

void* operator new(size_t size) {
  void* memory = starves_new ? nullptr : __libc_malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

namespace {

// Accepts a first job, has no memory for the C function in a second, and none for the header's string in a third.
class Starving : public rocksdb::CompactionService {
 public:
  Starving(rm_service* handle, std::string staging)
      : handle_(handle), service_(handle), staging_(std::move(staging)) {}

  const char* Name() const override { return "Starving"; }

  rocksdb::CompactionServiceScheduleResponse Schedule(const rocksdb::CompactionServiceJobInfo& info,
                                                      const std::string& input) override {
    return service_.Schedule(info, input);
  }

  rocksdb::CompactionServiceJobStatus Wait(const std::string& id, std::string* result) override {
    rm_result answer = {};
    answer.struct_size = sizeof(answer);
    switch (jobs++) {
      case 0:
        Check(rm_service_wait(handle_, id.c_str(), &answer, nullptr) == RM_SUCCESS, service_.LastError());
        Check(last_memory == answer.message, "the message is not the last memory that the call asked for");
        message_caller_ = last_caller;
        result->assign(answer.message, answer.message_size);
        rm_free(answer.message);
        return rocksdb::CompactionServiceJobStatus::kSuccess;
      case 1: {
        starved_caller = message_caller_;
        const rm_status status = rm_service_wait(handle_, id.c_str(), &answer, nullptr);
        starved_caller = nullptr;
        Check(status == RM_USE_LOCAL && answer.message == nullptr, "status " + std::to_string(status));
        break;
      }
      default: {
        starves_new = true;
        const auto status = service_.Wait(id, result);
        starves_new = false;
        Check(status == rocksdb::CompactionServiceJobStatus::kUseLocal, "the header had memory");
      }
    }
    Check(!std::filesystem::exists(staging_), "job " + std::to_string(jobs) + " has left its files");
    return rocksdb::CompactionServiceJobStatus::kUseLocal;
  }

  void OnInstallation(const std::string& id, rocksdb::CompactionServiceJobStatus status) override {
    service_.OnInstallation(id, status);
  }

  int jobs = 0;

 private:
  rm_service* const handle_;
  rockmill::Service service_;
  const std::string staging_;
  void* message_caller_ = nullptr;
};

}  // namespace

int main(int count, char** arguments) {
  Check(count == 2, "name a folder");
  const std::string path = arguments[1];
  auto service = std::make_shared<Starving>(rm_service_open("min_job_bytes=0", nullptr), path + "/rockmill.staging");
  rocksdb::Options options;
  options.create_if_missing = true;
  options.disable_auto_compactions = true;
  options.compaction_service = service;
  auto db = Open(options, path);
  for (const char* value : {"1", "2", "3"}) {
    for (int key = 0; key < 1000; ++key) Check(db->Put({}, std::to_string(key), value));
    Check(db->Flush({}));
    Compact(db.get());
    const auto content = Content(db.get());
    Check(content.size() == 1000 && content[0].second == value, "the content differs");
  }
  Check(service->jobs >= 3, std::to_string(service->jobs) + " jobs");
  std::cout << "done\n";
}

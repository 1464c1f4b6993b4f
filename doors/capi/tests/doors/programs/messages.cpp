// Captures the messages that this RocksDB exchanges with a CompactionService over one job: the input, the OPTIONS file
// beside it, and the result of its own DB::OpenAndCompact. The argument is an empty folder, in which input.bin,
// options.ini and result.bin are created. They do not contain the machine's name.
#include "common.hpp"

#include <rocksdb/table.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace {

constexpr const char* kDatabase = "db";

void Save(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  Check(file.good(), path);
}

class Capturing : public rocksdb::CompactionService {
 public:
  const char* Name() const override { return "Capturing"; }

#if ROCKMILL_ROCKSDB_SINCE(9, 1)
  rocksdb::CompactionServiceScheduleResponse Schedule(const rocksdb::CompactionServiceJobInfo&,
                                                      const std::string& input) override {
    input_ = input;
    return {"job", rocksdb::CompactionServiceJobStatus::kSuccess};
  }

  rocksdb::CompactionServiceJobStatus Wait(const std::string&, std::string*) override { return Capture(); }
#else
  rocksdb::CompactionServiceJobStatus StartV2(const rocksdb::CompactionServiceJobInfo&,
                                              const std::string& input) override {
    input_ = input;
    return rocksdb::CompactionServiceJobStatus::kSuccess;
  }

  rocksdb::CompactionServiceJobStatus WaitForCompleteV2(const rocksdb::CompactionServiceJobInfo&,
                                                        std::string*) override {
    return Capture();
  }
#endif

 private:
  rocksdb::CompactionServiceJobStatus Capture() {
    std::string newest;
    for (const auto& entry : std::filesystem::directory_iterator(kDatabase)) {
      const std::string name = entry.path().filename();
      if (name.compare(0, 8, "OPTIONS-") == 0) newest = std::max(newest, name);
    }
    std::filesystem::copy_file(kDatabase + ("/" + newest), "options.ini");
    rocksdb::CompactionServiceOptionsOverride same;
    same.table_factory.reset(rocksdb::NewBlockBasedTableFactory());
    std::string result;
    Check(rocksdb::DB::OpenAndCompact(kDatabase, "out", input_, &result, same));
    Save("input.bin", input_);
    Save("result.bin", result);
    return rocksdb::CompactionServiceJobStatus::kUseLocal;
  }

  std::string input_;
};

}  // namespace

int main(int count, char** arguments) {
  Check(count == 2 && chdir(arguments[1]) == 0, "name a folder");
  rocksdb::Options options;
  options.create_if_missing = true;
  options.disable_auto_compactions = true;
  options.db_host_id = "host";
  options.compaction_service = std::make_shared<Capturing>();
  auto db = Open(options, kDatabase);
  const auto* snapshot = db->GetSnapshot();
  for (int file = 0; file < 3; ++file) {
    for (int key = 0; key < 1000; ++key) {
      Check(db->Put({}, "key" + std::to_string(10000 + key), std::to_string(file * key)));
      if (key == 500) Check(db->Delete({}, "key10499"));
    }
    Check(db->Flush({}));
    if (file == 1) {
      db->ReleaseSnapshot(snapshot);
      snapshot = db->GetSnapshot();
    }
  }
  // The files of level 0 as one job.
  rocksdb::CompactRangeOptions to_bottom;
  to_bottom.change_level = true;
  to_bottom.target_level = 6;
  Check(db->CompactRange(to_bottom, nullptr, nullptr));
  db->ReleaseSnapshot(snapshot);
  db.reset();
  for (const char* folder : {kDatabase, "out"}) std::filesystem::remove_all(folder);
  std::cout << "done\n";
}

// Compacts a database with Rockmill. The argument is the folder of a new database.
#include <rocksdb/db.h>
#include <rockmill/rocksdb.hpp>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

namespace {

constexpr int kKeys = 100000;

void Check(const rocksdb::Status& status) {
  if (!status.ok()) {
    std::cerr << status.ToString() << std::endl;
    std::exit(1);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: example FOLDER" << std::endl;
    return 2;
  }
  rocksdb::Status status;
  const auto rockmill = rockmill::NewCompactionService({{"threads", "2"}, {"min_job_bytes", "0"}}, &status);
  Check(status);

  rocksdb::Options options;
  options.create_if_missing = true;
  options.write_buffer_size = 1 << 20;
  options.compaction_service = rockmill->Clone();

  std::unique_ptr<rocksdb::DB> db;
  Check(rocksdb::DB::Open(options, arguments[1], &db));
  for (int i = 0; i < kKeys; ++i) {
    const std::string key = "key" + std::to_string((i * 7919) % kKeys);
    Check(db->Put({}, key, key));
  }
  Check(db->CompactRange({}, nullptr, nullptr));
  db.reset();
  std::cout << rockmill->Stats() << std::endl;
}

// Opens a service with a library of another version.
#include <rockmill/rocksdb.hpp>

#include <iostream>

int main() {
  rocksdb::Status status;
  if (rockmill::NewCompactionService({}, &status) != nullptr) return 1;
  std::cout << status.ToString() << std::endl;
}

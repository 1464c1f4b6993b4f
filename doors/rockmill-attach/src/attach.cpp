// Calls Rockmill's C++ header for attach.rs. Its pointers are those of RocksDB's C API: to structs that begin with an object
// of C++, or with a pointer to one (db/c.cc).
#include <rockmill/rocksdb.hpp>

#include <cstring>

namespace {

using ROCKSDB_NAMESPACE::Options;
using Attached = std::shared_ptr<rockmill::Service>;

// Options that attach.rs keeps for a service. A service that they held would keep itself alive.
const Options& Kept(void* copy) {
  auto& options = *static_cast<Options*>(copy);
  options.compaction_service.reset();
  options.listeners.clear();
  return options;
}

}  // namespace

extern "C" {

struct rockmill_family {
  rm_bytes name;
  void* options;
};

// Takes `handle` and `kept` over. `release` is called with `kept` when the service does no job any more. Returns null if the
// options are unchanged: then *error says why, and is freed with rm_free.
Attached* rockmill_attach(void* options, const rockmill_family* families, size_t num_families, rm_service* handle,
                          void* kept, void (*release)(void*), char** error) {
  std::vector<ROCKSDB_NAMESPACE::ColumnFamilyDescriptor> all;
  for (const auto* family = families; family != families + num_families; ++family) {
    all.emplace_back(std::string(family->name.data, family->name.size), Kept(family->options));
  }
  auto* const database = static_cast<Options*>(options);
  ROCKSDB_NAMESPACE::Status status;
  Attached service = rockmill::Service(handle).Attach(database, &all, &status);
  if (service == nullptr) {
    *error = strdup(status.getState());
    release(kept);
    return nullptr;
  }
  auto* const address = service.get();
  auto end = [service = std::move(service), kept, release](rockmill::Service*) mutable {
    service.reset();
    release(kept);
  };
  auto* const attached = new Attached(address, std::move(end));
  database->compaction_service = *attached;
  return attached;
}

void rockmill_add_column_family(const Attached* attached, void* database, void* family, void* options) {
  (*attached)->AddColumnFamily(*static_cast<ROCKSDB_NAMESPACE::DB**>(database),
                               *static_cast<ROCKSDB_NAMESPACE::ColumnFamilyHandle**>(family), Kept(options));
}

void rockmill_detach(Attached* attached) { delete attached; }

}  // extern "C"

// Attaches Rockmill to options of one version of RocksDB before 10.10, inside of the library of a Java program. It is
// compiled for each version with its headers and its ABI, and calls the functions of the library that Loader.java names.
#include <link.h>
#include <rocksdb/env.h>
#include <rockmill/rocksdb.hpp>

namespace {

struct Search {
  ElfW(Addr) address;
  // Program headers of the library that has the address; null if none has.
  const ElfW(Phdr) * headers;
};

int Compare(dl_phdr_info* library, size_t, void* given) {
  auto* search = static_cast<Search*>(given);
  for (int at = 0; at < library->dlpi_phnum; ++at) {
    const auto& segment = library->dlpi_phdr[at];
    const ElfW(Addr) begin = library->dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && search->address >= begin && search->address - begin < segment.p_memsz) {
      search->headers = library->dlpi_phdr;
      return 1;
    }
  }
  return 0;
}

// Names the library that has an address. dladdr would look through all of its symbols, which takes half a millisecond.
const ElfW(Phdr) * LibraryOf(const void* address) {
  Search search = {reinterpret_cast<ElfW(Addr)>(address), nullptr};
  dl_iterate_phdr(Compare, &search);
  return search.headers;
}

}  // namespace

extern "C" {

// Sets `service` on DBOptions, or on Options, which begin with them. `place` is an address in the library of the options.
// Returns null, or why not; then the options are as they were and the service is the caller's.
__attribute__((visibility("default"))) const char* rockmill_shim_attach(void* native, rm_service* service,
                                                                        const void* place) {
  auto* options = static_cast<ROCKSDB_NAMESPACE::DBOptions*>(native);
  const auto* library = LibraryOf(place);
  if (library == nullptr || LibraryOf(reinterpret_cast<const void*>(&ROCKSDB_NAMESPACE::Env::Default)) != library) {
    return "another RocksDB comes before that of the program (LD_PRELOAD?)";
  }
  // Each object of C++ begins with an address in the library that made it.
  if (options->env == nullptr || LibraryOf(*reinterpret_cast<void**>(options->env)) != library) {
    return "the options are of another RocksDB of this process";
  }
  if (options->compaction_service != nullptr) return "the options have a compaction service already";
  try {
    options->compaction_service = std::make_shared<rockmill::Service>(service);
  } catch (...) {
    return "there is no memory";
  }
  return nullptr;
}

}  // extern "C"

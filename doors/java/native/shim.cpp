// Attaches Rockmill to options of one version of RocksDB before 10.10, inside of the library of a Java program. It is
// compiled for each version with its headers and its ABI, and calls the functions of the library that Loader.java names.
#include <jni.h>
#include <link.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rockmill/rocksdb.hpp>

#include <cstring>

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

// Finds the library with an address. dladdr would search all of its symbols, which takes half a millisecond.
const ElfW(Phdr) * LibraryOf(const void* address) {
  Search search = {reinterpret_cast<ElfW(Addr)>(address), nullptr};
  dl_iterate_phdr(Compare, &search);
  return search.headers;
}

}  // namespace

#if !ROCKMILL_ROCKSDB_SINCE(9, 11)
// RocksDB before 9.11 does not report that it closes a database, and would wait for its jobs. So RocksJava's functions
// that close one return the jobs first.
extern "C" {
void Java_org_rocksdb_RocksDB_closeDatabase(JNIEnv*, jclass, jlong);
void Java_org_rocksdb_TransactionDB_closeDatabase(JNIEnv*, jclass, jlong);
void Java_org_rocksdb_OptimisticTransactionDB_closeDatabase(JNIEnv*, jclass, jlong);
void Java_org_rocksdb_TtlDB_closeDatabase(JNIEnv*, jclass, jlong);
}

// GetDbSessionId of DBImpl and of StackableDB in the library.
static const void* session_functions[2];

// Calls GetDbSessionId. The headers may be those of a version nearby, whose class DB has a few more or fewer virtual
// functions before it. So the function is recognised by its address.
static bool GetSession(const void* database, std::string* session) {
  using ROCKSDB_NAMESPACE::DB;
  using ROCKSDB_NAMESPACE::Status;
  constexpr size_t kNearby = 8;
  Status (DB::*const function)(std::string&) const = &DB::GetDbSessionId;
  // A pointer to a virtual function begins with one more than its offset in the class's table.
  size_t offset = 0;
  std::memcpy(&offset, &function, sizeof(offset));
  const size_t expected = (offset - 1) / sizeof(void*);
  const auto* table = *static_cast<const void* const* const*>(database);
  for (size_t at = expected - kNearby; at <= expected + kNearby; ++at) {
    if (table[at] != session_functions[0] && table[at] != session_functions[1]) continue;
    // A function of a class gets the object as its first argument.
    const auto get = reinterpret_cast<Status (*)(const void*, std::string&)>(const_cast<void*>(table[at]));
    return get(database, *session).ok();
  }
  return false;
}

template <void (*close)(JNIEnv*, jclass, jlong)>
static void Close(JNIEnv* env, jclass type, jlong database) {
  const auto return_jobs = [=] {
    std::string session;
    return GetSession(reinterpret_cast<const void*>(database), &session) &&
           rm_database_closes(session.c_str(), nullptr) == RM_SUCCESS;
  };
  rockmill::internal::WithoutExceptions(return_jobs, false);
  close(env, type, database);
}

extern "C" {
// Returns functions that replace closeDatabase of the classes in Loader.DATABASES, in this order. The arguments are
// GetDbSessionId of DBImpl and of StackableDB.
__attribute__((visibility("default"))) void (*const* rockmill_shim_close(const void* of_database,
                                                                        const void* of_stackable))(JNIEnv*, jclass, jlong) {
  static void (*const functions[])(JNIEnv*, jclass, jlong) = {
      Close<Java_org_rocksdb_RocksDB_closeDatabase>, Close<Java_org_rocksdb_TransactionDB_closeDatabase>,
      Close<Java_org_rocksdb_OptimisticTransactionDB_closeDatabase>, Close<Java_org_rocksdb_TtlDB_closeDatabase>};
  session_functions[0] = of_database;
  session_functions[1] = of_stackable;
  return functions;
}
}
#endif

extern "C" {

// Sets `service` on DBOptions, or on Options, which begin with them. `place` is an address in the library of the
// options. Returns null, or the reason of a failure; then the options are unchanged and the caller owns the service.
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
  if (options->env != ROCKSDB_NAMESPACE::Env::Default()) {
    return "the options have an Env of the program; Rockmill serves only RocksDB's default one";
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

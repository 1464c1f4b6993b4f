// A database that is open through RocksDB's C API, and a view of it.
#pragma once

#include <rockmill/gpukv.cuh>
#include <rockmill/gpukv_rocksdb_c.h>

#include <cstdio>
#include <cstdlib>
#include <string>

inline void check(bool is_true, const std::string& what) {
  if (is_true) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

inline void check(char* error) {
  if (error != nullptr) check(false, error);
}

struct Database {
  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_readoptions_t* read = rocksdb_readoptions_create();
  rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
  rocksdb_t* db;
  rocksdb_column_family_handle_t* family;
  rm_rocksdb_store of;
  std::string path;

  explicit Database(const std::string& folder) : path(folder) {
    char* error = nullptr;
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_uint64add_merge_operator(options);
    // A secondary instance requires it.
    rocksdb_options_set_max_open_files(options, -1);
    db = rocksdb_open(options, path.c_str(), &error);
    check(error);
    family = rocksdb_get_default_column_family_handle(db);
    of = {db, family, read, write};
  }
  ~Database() {
    rocksdb_column_family_handle_destroy(family);
    rocksdb_close(db);
    rocksdb_options_destroy(options);
    rocksdb_readoptions_destroy(read);
    rocksdb_writeoptions_destroy(write);
  }
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;
};

inline rm_view* open_view(const rm_view_options& options) {
  char* error = nullptr;
  rm_view* view = rm_view_open(&options, &error);
  check(error);
  return view;
}

inline void close_view(rm_view* view) {
  char* error = nullptr;
  rm_view_close(view, &error);
  check(error);
}

/* Compacts a database with Rockmill, through RocksDB's C API. The argument is the folder of a new database. */
#include <rockmill/rocksdb_c.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS 100000

static void check(char* error) {
  if (error != NULL) {
    fprintf(stderr, "%s\n", error);
    exit(1);
  }
}

static void fill(rocksdb_t* db) {
  rocksdb_writeoptions_t* options = rocksdb_writeoptions_create();
  char key[32];
  char* error = NULL;
  for (int i = 0; i < KEYS; ++i) {
    const int size = snprintf(key, sizeof key, "key%08d", (i * 7919) % KEYS);
    rocksdb_put(db, options, key, (size_t)size, key, (size_t)size, &error);
    check(error);
  }
  rocksdb_writeoptions_destroy(options);
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: example FOLDER\n");
    return 2;
  }
  char* error = NULL;
  if (rm_abi_version() != RM_ABI_VERSION) {
    fprintf(stderr, "rockmill.h and librockmill are of different versions\n");
    return 3;
  }
  rm_service* rockmill = rm_service_open("threads=2;min_job_bytes=0", &error);
  check(error);

  rocksdb_options_t* options = rocksdb_options_create();
  rocksdb_options_set_create_if_missing(options, 1);
  rocksdb_options_set_write_buffer_size(options, 1 << 20);
  rocksdb_options_set_compaction_service(options, rm_rocksdb_compaction_service(rockmill, &error));
  check(error);

  rocksdb_t* db = rocksdb_open(options, arguments[1], &error);
  check(error);
  fill(db);
  rocksdb_compact_range(db, NULL, 0, NULL, 0);
  rocksdb_close(db);
  rocksdb_options_destroy(options);

  char* stats = rm_service_stats_json(rockmill, &error);
  check(error);
  puts(stats);
  rm_free(stats);
  rm_service_close(rockmill, NULL);
  return 0;
}

/* Allows kernels to read from a rocksdb_t and write to it: the store of a view (rm_view_open) over RocksDB's C API, 7.0
 * or newer.
 *
 *   rm_rocksdb_store of = {db, family, read_options, write_options};
 *   rm_store store = rm_store_of_rocksdb(&of);
 *   rm_view_options options = {sizeof(options)};
 *   options.path = "./db";
 *   options.store = &store;
 *
 * `of` and the objects that it names must live as long as the view. With rocksdb_writeoptions_set_no_slowdown, a kernel
 * gets a status for a stall instead of waiting for its end.
 *
 * A database that another process writes to is opened with rocksdb_open_as_secondary, and with
 * rocksdb_options_set_max_open_files(options, -1). Gets then find the contents of its files and its log; writes have
 * the status RM_KV_READ_ONLY. */
#ifndef ROCKMILL_GPUKV_ROCKSDB_C_H
#define ROCKMILL_GPUKV_ROCKSDB_C_H

#include <rockmill.h>
#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rm_rocksdb_store {
  rocksdb_t* db;
  rocksdb_column_family_handle_t* family;
  const rocksdb_readoptions_t* read_options;
  const rocksdb_writeoptions_t* write_options; /* null if kernels may not write */
} rm_rocksdb_store;

/* Frees the text of an error. */
static inline int rm_rocksdb_status(char* error) {
  int status = RM_KV_IO_ERROR;
  if (strncmp(error, "Corruption", 10) == 0) status = RM_KV_CORRUPT;
  /* RocksDB's errors for a stall with no_slowdown, and for a database that was opened read-only or as a secondary one. */
  if (strncmp(error, "Result incomplete", 17) == 0) status = RM_KV_BUSY;
  if (strncmp(error, "Not implemented", 15) == 0) status = RM_KV_READ_ONLY;
  rocksdb_free(error);
  return status;
}

/* Makes a secondary instance read the latest writes. Any other database returns RM_KV_READ_ONLY. */
static inline int rm_rocksdb_catch_up(const rm_rocksdb_store* store) {
  char* error = NULL;
  rocksdb_try_catch_up_with_primary(store->db, &error);
  return error == NULL ? RM_KV_FOUND : rm_rocksdb_status(error);
}

static inline void rm_rocksdb_get(void* state, const rm_bytes* keys, size_t num_keys, rm_tell_value tell,
                                  void* context) {
  const rm_rocksdb_store* store = (const rm_rocksdb_store*)state;
  const char** data = (const char**)calloc(num_keys, sizeof(*data));
  size_t* sizes = (size_t*)calloc(num_keys, sizeof(*sizes));
  rocksdb_pinnableslice_t** values = (rocksdb_pinnableslice_t**)calloc(num_keys, sizeof(*values));
  char** errors = (char**)calloc(num_keys, sizeof(*errors));
  const int has_memory = data != NULL && sizes != NULL && values != NULL && errors != NULL;
  int status = has_memory ? rm_rocksdb_catch_up(store) : RM_KV_IO_ERROR;
  if (status == RM_KV_READ_ONLY) status = RM_KV_FOUND;
  if (status == RM_KV_FOUND) {
    for (size_t i = 0; i < num_keys; ++i) {
      data[i] = keys[i].data;
      sizes[i] = keys[i].size;
    }
    rocksdb_batched_multi_get_cf(store->db, store->read_options, store->family, num_keys, data, sizes, values, errors,
                                 0);
  }
  for (size_t i = 0; i < num_keys; ++i) {
    size_t size = 0;
    if (status != RM_KV_FOUND) {
      tell(context, i, status, NULL, 0);
    } else if (errors[i] != NULL) {
      tell(context, i, rm_rocksdb_status(errors[i]), NULL, 0);
    } else if (values[i] == NULL) {
      tell(context, i, RM_KV_NOT_FOUND, NULL, 0);
    } else {
      const char* value = rocksdb_pinnableslice_value(values[i], &size);
      tell(context, i, RM_KV_FOUND, value, size);
      rocksdb_pinnableslice_destroy(values[i]);
    }
  }
  free(data);
  free(sizes);
  free(values);
  free(errors);
}

static inline int rm_rocksdb_write(void* state, const rm_write* writes, size_t num_writes) {
  const rm_rocksdb_store* store = (const rm_rocksdb_store*)state;
  rocksdb_writebatch_t* batch = rocksdb_writebatch_create();
  char* error = NULL;
  for (size_t i = 0; i < num_writes; ++i) {
    const rm_bytes key = writes[i].key, value = writes[i].value;
    if (writes[i].is_delete) {
      rocksdb_writebatch_delete_cf(batch, store->family, key.data, key.size);
    } else {
      rocksdb_writebatch_put_cf(batch, store->family, key.data, key.size, value.data, value.size);
    }
  }
  rocksdb_write(store->db, store->write_options, batch, &error);
  rocksdb_writebatch_destroy(batch);
  return error == NULL ? RM_KV_WRITTEN : rm_rocksdb_status(error);
}

static inline rm_store rm_store_of_rocksdb(rm_rocksdb_store* of) {
  rm_store store;
  memset(&store, 0, sizeof(store));
  store.struct_size = sizeof(store);
  store.state = of;
  store.get = rm_rocksdb_get;
  if (of->write_options != NULL) store.write = rm_rocksdb_write;
  return store;
}

#ifdef __cplusplus
}
#endif

#endif

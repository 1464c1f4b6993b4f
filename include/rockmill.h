/* Rockmill's C interface: compaction for stock RocksDB, and views of its databases in GPU memory.
 *
 * RocksDB calls a CompactionService, and the service calls the functions below. C++ programs use rockmill/rocksdb.hpp
 * and programs with RocksDB's C API use rockmill/rocksdb_c.h; both contain such a service. The library contains no
 * RocksDB, so it works with any build of RocksDB that the headers support.
 *
 * Errors. No function crashes on a null, unknown or closed handle. Such a call returns RM_INVALID or a null pointer. A
 * function that does not succeed sets *error to one sentence, which the caller frees with rm_free. On success *error is
 * null. `error` itself may be null. No panic and no exception leaves the library.
 *
 * Threads. Every function may be called from any thread, at any time, with the same handle.
 *
 * Fork. A process that was forked after rm_service_open must not use the library, because the library's threads do not
 * exist in it. Every call with a handle, and rm_service_open, returns an error there. A call of exec ends this.
 *
 * Versions. RM_ABI_VERSION changes when a program has to be compiled again. Compare it with rm_abi_version() before the
 * first call. A struct begins with its size, so later versions can add fields to its end. */
#ifndef ROCKMILL_H
#define ROCKMILL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RM_ABI_VERSION 2

/* The first four are the values of RocksDB's CompactionServiceJobStatus. */
typedef enum rm_status {
  RM_SUCCESS = 0,
  RM_FAILURE = 1,
  RM_ABORTED = 2,
  /* RocksDB does the job itself. *error says why. */
  RM_USE_LOCAL = 3,
  /* The call was wrong, for instance its handle. For RocksDB this means RM_USE_LOCAL. */
  RM_INVALID = 4
} rm_status;

/* A service, or a clone of one. It is a name and not an address. */
typedef struct rm_service rm_service;

/* What RocksDB does not say of a job: the column family before 10.4, the levels before 10.2, and before 9.7 the reason.
 * Without a reason, the library finds out by itself whether the compaction is a full one and whether its level is the
 * bottommost, so these fields do not count. */
#define RM_UNKNOWN_CF_ID UINT32_MAX
#define RM_UNKNOWN_LEVEL (-1)
#define RM_UNKNOWN_REASON (-1)

/* RocksDB's CompactionServiceJobInfo. */
typedef struct rm_job_info {
  size_t struct_size; /* sizeof(rm_job_info) */
  const char* db_name;
  const char* db_session_id;
  uint64_t job_id;
  uint32_t cf_id;
  int32_t compaction_reason;
  int32_t base_input_level;
  int32_t output_level;
  uint8_t is_full_compaction;
  uint8_t is_manual_compaction;
  uint8_t is_bottommost_level;
  uint8_t is_bottom_priority; /* priority == Env::Priority::BOTTOM */
  uint32_t rocksdb_version;   /* major << 16 | minor << 8 | patch; 0 if the caller does not know it */
} rm_job_info;

typedef struct rm_result {
  size_t struct_size; /* sizeof(rm_result) */
  char* message;      /* the serialised CompactionServiceResult; free it with rm_free */
  size_t message_size;
} rm_result;

/* Returns the library's RM_ABI_VERSION. */
uint32_t rm_abi_version(void);

/* Frees what the library has allocated: errors, job ids, messages and statistics. Null is allowed. */
void rm_free(void* memory);

/* Opens a service. `settings` is a list of key=value with ';' between them, such as "device=auto;threads=8". Null and
 * "" mean the defaults. docs/guide/settings.md lists the settings; a value cannot contain ';'. */
rm_service* rm_service_open(const char* settings, char** error);

typedef enum rm_log_level {
  RM_LOG_ERROR = 1,
  RM_LOG_WARN = 2,
  RM_LOG_INFO = 3
} rm_log_level;

/* Takes one message: a line without a newline, in UTF-8, which is valid during the call. `level` is an rm_log_level.
 *
 * Threads of RocksDB and of the service call it, several at once. It may call the other functions of this header, but
 * not rm_service_close. No C++ exception may leave it. */
typedef void (*rm_log_function)(void* state, int level, const char* message);

/* Fields that are null or 0 have their defaults. */
typedef struct rm_service_options {
  size_t struct_size;   /* sizeof(rm_service_options) */
  const char* settings; /* as for rm_service_open */
  rm_log_function log;  /* none by default */
  void* log_state;      /* passed to `log` */
  int log_level;        /* the least severe rm_log_level that is passed on; RM_LOG_INFO */
} rm_service_options;

/* Opens a service as rm_service_open does, with a log function for it and all its clones. The function is called no more
 * when rm_service_close has returned for the last handle, or if no service could be opened. */
rm_service* rm_service_open_with(const rm_service_options* options, char** error);

/* Returns a handle of its own to the same service. Clones share threads, memory, devices and counters. Give each
 * database its own clone: when a database closes, only the jobs that came through its clone stop. Every handle is
 * closed with rm_service_close. */
rm_service* rm_service_clone(rm_service* service, char** error);

/* Closes a handle. Its jobs are cancelled, and the call returns when no other call with this handle is running. Files
 * that rm_service_wait has reported stay until rm_service_on_installation, which is the one function that still accepts
 * the handle then. The last handle stops the service's threads. */
rm_status rm_service_close(rm_service* service, char** error);

/* Offers a job; `input` is the serialised CompactionServiceInput. RM_SUCCESS sets *job_id, which is freed with rm_free.
 * RM_USE_LOCAL means that the job is declined. */
rm_status rm_service_schedule(rm_service* service, const rm_job_info* info, const char* input, size_t input_size,
                              char** job_id, char** error);

/* Runs a scheduled job on this thread and the service's. The files that it reports stay in the staging folder until
 * rm_service_on_installation is called. RM_USE_LOCAL leaves no files. */
rm_status rm_service_wait(rm_service* service, const char* job_id, rm_result* result, char** error);

/* Cancels all jobs of this handle, because RocksDB announces that a database closes. Running calls of rm_service_wait
 * return RM_USE_LOCAL soon. Jobs of the same databases are accepted again after 250 ms. */
rm_status rm_service_cancel_awaiting_jobs(rm_service* service, char** error);

/* Cancels all jobs of all clones that run or wait. RocksDB does them itself, and they count as declined with the reason
 * "cancelled". Later jobs are taken, unless the setting `paused` is true. DisableManualCompaction waits for a running job:
 * call this before it. */
rm_status rm_service_cancel_jobs(rm_service* service, char** error);

/* Tells what became of a job's files: RM_SUCCESS, RM_FAILURE, RM_ABORTED or RM_USE_LOCAL. */
rm_status rm_service_on_installation(rm_service* service, const char* job_id, rm_status status, char** error);

/* Changes settings for all clones, written as for rm_service_open. If one is invalid or cannot change, none changes. */
rm_status rm_service_change_settings(rm_service* service, const char* settings, char** error);

/* Waits until the configured devices are open. Before that the CPU does all jobs. RM_FAILURE says what is missing, if a
 * device that was named cannot be used. */
rm_status rm_service_wait_for_device(rm_service* service, char** error);

/* Returns the work done so far through all clones, as JSON; free it with rm_free. docs/reference/metrics.md has its fields. */
char* rm_service_stats_json(rm_service* service, char** error);

/* Returns the metrics of this service and its clones in Prometheus' text format; free it with rm_free. Serve it with the
 * content type "text/plain; version=0.0.4". docs/reference/metrics.md lists the metrics. */
char* rm_service_metrics_prometheus(rm_service* service, char** error);

/* Returns the last error or decline of any clone in one sentence, or null if there was none; free it with rm_free. */
char* rm_service_last_error(rm_service* service, char** error);

/* Views. A view is one version of a column family in the memory of a GPU. Kernels look keys up there: by the batch with
 * rm_view_lookup, or one by one with rockmill/gpukv.cuh, which also puts and deletes. docs/guide/gpukv.md explains it.
 *
 * A view is a name and not an address, as a service is. Streams are values of cudaStream_t or CUstream, of the device of
 * the view; null is CUDA's default stream. */
typedef struct rm_view rm_view;

/* What became of a key. */
typedef enum rm_kv_status {
  RM_KV_NOT_FOUND = 0,
  RM_KV_FOUND = 1,
  RM_KV_ASK = 2,       /* the GPU does not have the value, and nobody can be asked for it */
  RM_KV_TOO_SMALL = 3, /* there is too little room for the value, whose length is told */
  RM_KV_WRITTEN = 4,
  RM_KV_BUSY = 5,      /* nothing was done: wait for a ticket, or RocksDB stalls writes */
  RM_KV_READ_ONLY = 6, /* nothing was done */
  RM_KV_ABORTED = 7,   /* the view is being closed; a write may have happened */
  RM_KV_TIMED_OUT = 8, /* a write may have happened */
  RM_KV_IO_ERROR = 9,  /* rm_view_stats_json says why */
  RM_KV_CORRUPT = 10   /* as above */
} rm_kv_status;

typedef struct rm_bytes {
  const char* data;
  size_t size;
} rm_bytes;

typedef struct rm_write {
  rm_bytes key;
  rm_bytes value;
  uint8_t is_delete;
} rm_write;

/* Tells the value of key `number`: RM_KV_FOUND with its bytes, RM_KV_NOT_FOUND, RM_KV_IO_ERROR or RM_KV_CORRUPT. */
typedef void (*rm_tell_value)(void* context, size_t number, int status, const char* data, size_t size);

/* A database that the program has open, for what the GPU does not have. Threads of the view call both functions, several
 * at once. rockmill/gpukv_rocksdb_c.h makes one of a rocksdb_t. */
typedef struct rm_store {
  size_t struct_size; /* sizeof(rm_store) */
  void* state;
  /* Calls `tell` once for each key. */
  void (*get)(void* state, const rm_bytes* keys, size_t num_keys, rm_tell_value tell, void* context);
  /* Does all writes or none, in this order. Returns RM_KV_WRITTEN, RM_KV_BUSY, RM_KV_READ_ONLY, RM_KV_IO_ERROR or
   * RM_KV_CORRUPT. Null if the database takes no writes. */
  int (*write)(void* state, const rm_write* writes, size_t num_writes);
} rm_store;

/* Fields that are null or 0 have their defaults. */
typedef struct rm_view_options {
  size_t struct_size;    /* sizeof(rm_view_options) */
  const char* path;      /* the directory of the database */
  const char* family;    /* the column family; "default" */
  const char* device;    /* "cuda:0", or "cpu" for host memory */
  uint64_t memory_bytes; /* device memory at most; four fifths of what is free */
  const rm_store* store; /* copied; `state` lives as long as the view. Without it, kernels can only read. */
  uint32_t threads;      /* that answer kernels; 1 */
  uint32_t mailboxes;    /* requests of kernels that may be on their way; 4096 */
  uint32_t mailbox_bytes; /* of a request or an answer that go at once; 4096. Longer ones take several turns. */
  uint32_t timeout_ms;    /* after which a kernel waits no longer; 10000 */
  const char* wal_dir;    /* folder of the write-ahead logs; that of the database, or the wal_dir of its OPTIONS */
} rm_view_options;

/* Keys, and where their values go: memory of the view's device, pinned or managed memory. */
typedef struct rm_lookup {
  size_t struct_size;          /* sizeof(rm_lookup) */
  const void* keys;            /* one behind another */
  const uint64_t* key_offsets; /* num_keys + 1; null if all keys have key_size bytes */
  uint64_t key_size;
  uint64_t num_keys;
  void* rows;              /* one each row_size bytes; bytes behind a value stay as they are */
  uint64_t row_size;
  const void* default_row; /* for keys that are not found; may be null */
  uint8_t* statuses;       /* rm_kv_status of each key */
  uint32_t* sizes;         /* of the values; may be null */
} rm_lookup;

/* Loads a view of the database as it is now: its files and its log. Unflushed writes without log are not seen. */
rm_view* rm_view_open(const rm_view_options* options, char** error);

/* Closes a view. What kernels wait for ends with RM_KV_ABORTED, and the call waits until they are done. With device
 * "cpu", it waits until all holds are released. It also waits for calls of other threads: the store is not called
 * afterwards. */
rm_status rm_view_close(rm_view* view, char** error);

/* Looks keys up. It only queues a kernel: it waits for nothing. RM_INVALID if the device does not reach one of the pointers,
 * or offsets or sizes are not aligned: then nothing is queued. */
rm_status rm_view_lookup(rm_view* view, const rm_lookup* lookup, void* stream, char** error);

/* Begins a hold for kernels of a stream: fills in what they are given. The version stays until the hold has ended.
 * rockmill::hold of rockmill/gpukv.cuh calls this with the size and the number of its own layout, which have to be the
 * library's. */
rm_status rm_view_hold(rm_view* view, void* stream, void* kv, size_t kv_size, uint32_t kv_abi, uint64_t* hold,
                       char** error);

/* Ends a hold once its stream has come so far. It waits for nothing. */
rm_status rm_view_release(rm_view* view, uint64_t hold, char** error);

/* Brings the view to what the database is now. Kernels that run keep their version. Frees the memory of unused
 * versions, which waits for kernels that run. After an error, the view is what it was. */
rm_status rm_view_refresh(rm_view* view, char** error);

/* Returns what the view has, what it has answered and its last error as JSON; free it with rm_free. */
char* rm_view_stats_json(rm_view* view, char** error);

#ifdef __cplusplus
}
#endif

#endif

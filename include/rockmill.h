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

/* A service, or a clone of one. The pointer is a name and not an address. */
typedef struct rm_service rm_service;

/* Values for facts of a job that RocksDB does not pass: the column family before 10.4, the levels before 10.2, and
 * before 9.7 the reason. Without a reason, the library finds out by itself whether the compaction is a full one and
 * whether its level is the bottommost, so these fields are ignored. */
#define RM_UNKNOWN_CF_ID UINT32_MAX
#define RM_UNKNOWN_LEVEL (-1)
#define RM_UNKNOWN_REASON (-1)

typedef struct rm_bytes {
  const char* data;
  size_t size;
} rm_bytes;

/* Takes bytes that a function of rm_plugins makes. The library copies them during the call. */
typedef void (*rm_take_bytes)(void* context, const char* data, size_t size);

/* What a merge operator did. */
typedef enum rm_merge_status {
  RM_MERGED = 0,     /* it has called `take` once */
  RM_MERGE_KEEP = 1, /* the operands stay operands */
  RM_MERGE_FAILED = 2 /* the job is declined, and RocksDB calls the operator itself */
} rm_merge_status;

/* What a compaction filter makes of an entry: its Decision. */
typedef enum rm_decision {
  RM_FILTER_KEEP = 0,
  RM_FILTER_REMOVE = 1,
  RM_FILTER_PURGE = 2,
  RM_FILTER_CHANGE_VALUE = 3, /* it has called `take` with the value */
  RM_FILTER_SKIP_UNTIL = 4,   /* it has called `take` with the key */
  RM_FILTER_FAILED = 5        /* the job is declined, and RocksDB calls a filter itself */
} rm_decision;

/* Kinds of entries: the filter's ValueType. */
typedef enum rm_filtered_kind {
  RM_FILTERED_VALUE = 0,
  RM_FILTERED_MERGE_OPERAND = 1
} rm_filtered_kind;

/* Whether there is a filter for a job. */
typedef enum rm_filter_made {
  RM_FILTER_MADE = 0,
  RM_FILTER_NONE = 1, /* the job needs none */
  RM_FILTER_NOT_MADE = 2 /* the job is declined */
} rm_filter_made;

/* Kinds of entries that a collector is shown: RocksDB's EntryType. */
typedef enum rm_entry_kind {
  RM_ENTRY_PUT = 0,
  RM_ENTRY_DELETE = 1,
  RM_ENTRY_SINGLE_DELETE = 2,
  RM_ENTRY_MERGE = 3,
  RM_ENTRY_RANGE_DELETION = 4, /* its value is the end */
  RM_ENTRY_WIDE_COLUMNS = 5,
  RM_ENTRY_TIMED_PUT = 6,
  RM_ENTRY_OTHER = 7
} rm_entry_kind;

/* Takes a property that a collector has made, which the library copies. A readable one goes into no file. */
typedef void (*rm_take_property)(void* context, int is_readable, rm_bytes name, rm_bytes value);

/* What a collector says at the end of a file. */
typedef enum rm_collected {
  RM_COLLECTED = 0,
  RM_COLLECTED_NEEDS_COMPACTION = 1, /* NeedCompact() */
  RM_COLLECT_FAILED = 2              /* the job is declined */
} rm_collected;

/* Objects of the program that a job calls: those of its column family. Threads of the library and the thread of
 * rm_service_wait call the functions, with no lock held. They may call the database, and not rm_service_close. No C++
 * exception may leave them. None is called any more when rm_service_wait has returned. Pointers that are null stand for
 * objects that there are not. The job is declined unless each name is the one in OPTIONS. */
typedef struct rm_plugins {
  size_t struct_size; /* sizeof(rm_plugins) */
  void* state;        /* passed to the functions */
  /* Called once when the library needs `state` no more, from any thread, also for jobs that are declined. */
  void (*release)(void* state);
  /* Why the objects are not known, in a sentence. A job that needs one of them is declined for it. */
  const char* missing;
  const char* merge_operator; /* its GetId() */
  /* The name of RocksDB's own operator, if `merge_operator` is known to be of its class: the functions are not needed
   * then. Lists also need their delimiter. */
  const char* builtin_merge_operator;
  const rm_bytes* merge_delimiter;
  uint8_t merges_single_operand; /* AllowSingleOperand() */
  /* FullMergeV3: `base` is null if there is none; the oldest operand is the first. Returns an rm_merge_status. */
  int (*full_merge)(void* state, rm_bytes key, const rm_bytes* base, const rm_bytes* operands, size_t num_operands,
                    rm_take_bytes take, void* context);
  /* PartialMergeMulti */
  int (*partial_merge)(void* state, rm_bytes key, const rm_bytes* operands, size_t num_operands, rm_take_bytes take,
                       void* context);
  const char* compaction_filter;         /* its GetId() */
  const char* compaction_filter_factory; /* its GetId() */
  /* Makes the filter of the job: called at most once, before `filter`, when nothing is left for which the library declines
   * a job without having read its entries. Returns an rm_filter_made. */
  int (*create_filter)(void* state);
  /* FilterV2 and later ones: one thread calls it, in the order of keys. Returns an rm_decision. */
  int (*filter)(void* state, rm_bytes key, int kind, rm_bytes value, rm_take_bytes take, void* context);
  /* The factories of collectors of table properties, in order: their GetId(). */
  const char* const* collector_factories;
  size_t num_collector_factories;
  /* Makes a collector of factory number `factory` for a new file. Returns 0 and sets *collector, which may be null for none. */
  int (*create_collector)(void* state, size_t factory, int output_level, void** collector);
  /* AddUserKey: one thread shows a collector all entries of its file. Returns 0, or the job is declined. */
  int (*collect_entry)(void* state, void* collector, rm_bytes key, rm_bytes value, int kind, uint64_t sequence,
                       uint64_t file_size);
  /* BlockAdd */
  int (*collect_block)(void* state, void* collector, uint64_t uncompressed_bytes);
  /* Finish, GetReadableProperties and NeedCompact. Returns an rm_collected. */
  int (*finish_collector)(void* state, void* collector, rm_take_property take, void* context);
  /* Called once for each collector, at the end. */
  void (*destroy_collector)(void* state, void* collector);
  /* For each factory 1 if it is known to be of RocksDB's class CompactOnDeletionCollectorFactory, else 0. Null: none is. */
  const uint8_t* builtin_collector_factories;
  /* The one of db_paths or cf_paths, or one of several. Null if there is none: all files are in db_name. */
  const char* path;
  const char* prefix_extractor; /* its GetId() */
  /* InDomain and Transform: several threads call it at once. Returns the bytes of the prefix with which the key begins, -1 if
   * the key is outside of the domain, or another negative number, and the job is declined. */
  int64_t (*prefix_len)(void* state, rm_bytes key);
  /* The comparator's Name(). It may be null, and must be for a comparator of keys with timestamps. A job asks it if it is
   * none of RocksDB's and its order is not stated in the settings. */
  const char* comparator;
  /* Compare: several threads call it at once. Sets *order to what Compare returns, and returns 0, or the job is declined. */
  int (*compare)(void* state, rm_bytes a, rm_bytes b, int* order);
} rm_plugins;

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
  const rm_plugins* plugins;  /* null if the program attaches none; copied */
  uint32_t picked_compression; /* CompactionJobInfo::compression + 1; 0 if it is not known */
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

/* Receives one message: a line without a newline, in UTF-8, which is valid during the call. `level` is an rm_log_level.
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

/* Opens a service as rm_service_open does, with a log function for it and all its clones. The function is not called
 * any more once rm_service_close has returned for the last handle, or if no service could be opened. */
rm_service* rm_service_open_with(const rm_service_options* options, char** error);

/* Returns another handle of the same service. Clones share threads, memory, devices and counters. Give each database
 * its own clone: when a database closes, only the jobs that came through its clone stop. Every handle is closed with
 * rm_service_close. */
rm_service* rm_service_clone(rm_service* service, char** error);

/* Closes a handle. Its jobs are cancelled, and the call returns when no other call with this handle is running. Files
 * that rm_service_wait has reported stay until rm_service_on_installation, which is the one function that still accepts
 * the handle then. The last handle stops the service's threads. */
rm_status rm_service_close(rm_service* service, char** error);

/* Offers a job; `input` is the serialised CompactionServiceInput. RM_SUCCESS sets *job_id, which is freed with rm_free.
 * RM_USE_LOCAL means that the job is declined. The library releases info->plugins in any case but an invalid `info`. */
rm_status rm_service_schedule(rm_service* service, const rm_job_info* info, const char* input, size_t input_size,
                              char** job_id, char** error);

/* Runs a scheduled job on this thread and the service's. The files that it reports stay in the staging folder until
 * rm_service_on_installation is called. RM_USE_LOCAL leaves no files. */
rm_status rm_service_wait(rm_service* service, const char* job_id, rm_result* result, char** error);

/* Cancels all jobs of this handle, because RocksDB announces that a database closes. Running calls of rm_service_wait
 * return RM_USE_LOCAL soon. Jobs of the same databases are accepted again after 250 ms. */
rm_status rm_service_cancel_awaiting_jobs(rm_service* service, char** error);

/* Cancels all jobs of the database with this session id, through all handles of all services, and leaves its later jobs to
 * RocksDB. RocksDB before 9.11 does not announce that a database closes, and waits for its jobs: call this before it is
 * closed. */
rm_status rm_database_closes(const char* db_session_id, char** error);

/* Cancels all running and waiting jobs of all clones. RocksDB does them itself, and they count as declined with the
 * reason "cancelled". Later jobs are accepted, unless the setting `paused` is true. DisableManualCompaction waits for a
 * running job: call this before it. */
rm_status rm_service_cancel_jobs(rm_service* service, char** error);

/* Reports whether RocksDB took a job's files: RM_SUCCESS, RM_FAILURE, RM_ABORTED or RM_USE_LOCAL. */
rm_status rm_service_on_installation(rm_service* service, const char* job_id, rm_status status, char** error);

/* Changes settings for all clones, written as for rm_service_open. If one is invalid or cannot change, none changes. */
rm_status rm_service_change_settings(rm_service* service, const char* settings, char** error);

/* Waits until the configured devices are open. Before that the CPU does all jobs. RM_FAILURE if a named device cannot
 * be used; *error then names what is missing. */
rm_status rm_service_wait_for_device(rm_service* service, char** error);

/* Returns the work done so far through all clones, as JSON; free it with rm_free. docs/reference/metrics.md has its fields. */
char* rm_service_stats_json(rm_service* service, char** error);

/* Returns the metrics of this service and its clones in Prometheus' text format; free it with rm_free. Serve it with the
 * content type "text/plain; version=0.0.4". docs/reference/metrics.md lists the metrics. */
char* rm_service_metrics_prometheus(rm_service* service, char** error);

/* Returns the last error or decline of any clone in one sentence, or null if there was none; free it with rm_free. */
char* rm_service_last_error(rm_service* service, char** error);

/* Views. A view is one version of a column family in the memory of a GPU. Kernels look keys up there: in batches with
 * rm_view_lookup, or one by one with rockmill/gpukv.cuh, which also puts and deletes. docs/guide/gpukv.md explains it.
 *
 * The pointer to a view is a name and not an address, like that of a service. Streams are values of cudaStream_t or
 * CUstream, of the device of the view; null is CUDA's default stream. */
typedef struct rm_view rm_view;

/* Result for a key. */
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

typedef struct rm_write {
  rm_bytes key;
  rm_bytes value;
  uint8_t is_delete;
} rm_write;

/* Passes the value of key `number`: RM_KV_FOUND with its bytes, RM_KV_NOT_FOUND, RM_KV_IO_ERROR or RM_KV_CORRUPT. */
typedef void (*rm_tell_value)(void* context, size_t number, int status, const char* data, size_t size);

/* A database that the program has open, for requests that the GPU cannot answer. Threads of the view call both
 * functions, several at once. rockmill/gpukv_rocksdb_c.h makes one from a rocksdb_t. */
typedef struct rm_store {
  size_t struct_size; /* sizeof(rm_store) */
  void* state;
  /* Calls `tell` once for each key. */
  void (*get)(void* state, const rm_bytes* keys, size_t num_keys, rm_tell_value tell, void* context);
  /* Does all writes or none, in this order. Returns RM_KV_WRITTEN, RM_KV_BUSY, RM_KV_READ_ONLY, RM_KV_IO_ERROR or
   * RM_KV_CORRUPT. Null if the database accepts no writes. */
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
  uint32_t request_slots;    /* requests of kernels that may be on their way; 4096 */
  uint32_t request_slot_bytes; /* of a request or an answer that go at once; 4096. Longer ones take several turns. */
  uint32_t timeout_ms;    /* after which a kernel waits no longer; 10000 */
  const char* wal_dir;    /* folder of the write-ahead logs; that of the database, or the wal_dir of its OPTIONS */
} rm_view_options;

/* Keys, and the places of their values: memory of the view's device, pinned or managed memory. */
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

/* Loads a view of the current state of the database: its files and its log. It lacks unflushed writes without log. */
rm_view* rm_view_open(const rm_view_options* options, char** error);

/* Closes a view. Waiting requests of kernels end with RM_KV_ABORTED, and the call waits until the kernels are done.
 * With device "cpu", it waits until all holds are released. It also waits for calls of other threads: the store is not
 * called afterwards. */
rm_status rm_view_close(rm_view* view, char** error);

/* Looks keys up. It only queues a kernel and does not wait. RM_INVALID if the device cannot access one of the pointers,
 * or offsets or sizes are not aligned: then nothing is queued. */
rm_status rm_view_lookup(rm_view* view, const rm_lookup* lookup, void* stream, char** error);

/* Begins a hold for kernels of a stream: fills in their parameter `kv`. The version stays until the hold has ended.
 * rockmill::hold of rockmill/gpukv.cuh calls this with the size and the number of its own layout, which must be the
 * library's. */
rm_status rm_view_hold(rm_view* view, void* stream, void* kv, size_t kv_size, uint32_t kv_abi, uint64_t* hold,
                       char** error);

/* Ends a hold once its stream has reached this point. It does not wait. */
rm_status rm_view_release(rm_view* view, uint64_t hold, char** error);

/* Refreshes the view to the current state of the database. Running kernels keep their version. Frees the memory of
 * unused versions, which waits for running kernels. After an error, the view is unchanged. */
rm_status rm_view_refresh(rm_view* view, char** error);

/* Returns the contents of the view, counts of answers and its last error as JSON; free it with rm_free. */
char* rm_view_stats_json(rm_view* view, char** error);

#ifdef __cplusplus
}
#endif

#endif

/* Rockmill's C interface: compaction for stock RocksDB.
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

#define RM_ABI_VERSION 1

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

/* What RocksDB before 10.4, and of levels before 10.2, does not say of a job. */
#define RM_UNKNOWN_CF_ID UINT32_MAX
#define RM_UNKNOWN_LEVEL (-1)

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

/* Tells what became of a job's files: RM_SUCCESS, RM_FAILURE, RM_ABORTED or RM_USE_LOCAL. */
rm_status rm_service_on_installation(rm_service* service, const char* job_id, rm_status status, char** error);

/* Changes settings for all clones, written as for rm_service_open. If one is invalid or cannot change, none changes. */
rm_status rm_service_change_settings(rm_service* service, const char* settings, char** error);

/* Waits until the configured devices are open. Before that the CPU does all jobs. RM_FAILURE says what is missing, if a
 * device that was named cannot be used. */
rm_status rm_service_wait_for_device(rm_service* service, char** error);

/* Returns the work done so far through all clones, as JSON; free it with rm_free. */
char* rm_service_stats_json(rm_service* service, char** error);

/* Returns the last error or decline of any clone in one sentence, or null if there was none; free it with rm_free. */
char* rm_service_last_error(rm_service* service, char** error);

#ifdef __cplusplus
}
#endif

#endif

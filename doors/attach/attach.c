/* Implements rockmill/attach.h: RocksDB's C functions are looked up in the process, so that it depends on no version's
 * header or ABI. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <rockmill/attach.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The declarations of rocksdb/c.h from 10.10 on. */
typedef struct rocksdb_options_t rocksdb_options_t;
typedef struct rocksdb_compactionservice_t rocksdb_compactionservice_t;
typedef struct rocksdb_compactionservice_jobinfo_t rocksdb_compactionservice_jobinfo_t;
typedef struct rocksdb_compactionservice_scheduleresponse_t rocksdb_compactionservice_scheduleresponse_t;

typedef const rocksdb_compactionservice_jobinfo_t* Info;
typedef rocksdb_compactionservice_scheduleresponse_t* (*ScheduleCallback)(void*, Info, const char*, size_t);
typedef int (*WaitCallback)(void*, const char*, char**, size_t*);
typedef void (*InstallationCallback)(void*, const char*, int);

#define FUNCTIONS(X)                                                                                                  \
  X(const char*, rocksdb_compactionservice_jobinfo_t_get_db_name, (Info, size_t*))                                    \
  X(const char*, rocksdb_compactionservice_jobinfo_t_get_db_session_id, (Info, size_t*))                              \
  X(uint32_t, rocksdb_compactionservice_jobinfo_t_get_cf_id, (Info))                                                  \
  X(uint64_t, rocksdb_compactionservice_jobinfo_t_get_job_id, (Info))                                                 \
  X(int, rocksdb_compactionservice_jobinfo_t_get_priority, (Info))                                                    \
  X(int, rocksdb_compactionservice_jobinfo_t_get_compaction_reason, (Info))                                           \
  X(int, rocksdb_compactionservice_jobinfo_t_get_base_input_level, (Info))                                            \
  X(int, rocksdb_compactionservice_jobinfo_t_get_output_level, (Info))                                                \
  X(unsigned char, rocksdb_compactionservice_jobinfo_t_is_full_compaction, (Info))                                    \
  X(unsigned char, rocksdb_compactionservice_jobinfo_t_is_manual_compaction, (Info))                                  \
  X(unsigned char, rocksdb_compactionservice_jobinfo_t_is_bottommost_level, (Info))                                   \
  X(rocksdb_compactionservice_scheduleresponse_t*, rocksdb_compactionservice_scheduleresponse_create,                 \
    (const char*, int, char**))                                                                                       \
  X(rocksdb_compactionservice_t*, rocksdb_compactionservice_create,                                                   \
    (void*, void (*)(void*), ScheduleCallback, const char*, WaitCallback, void (*)(void*), InstallationCallback))     \
  X(void, rocksdb_options_set_compaction_service, (rocksdb_options_t*, rocksdb_compactionservice_t*))

/* Pointers with the names of the functions, so that rocksdb_c.h calls them. */
#define POINTER(type, name, parameters) static type(*name) parameters;
FUNCTIONS(POINTER)

#define ROCKMILL_ROCKSDB_C_DECLARED
#include <rockmill/rocksdb_c.h>

/* Address of the library that has the functions; null before the first call that finds them. */
static void* rocksdb_base;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void say(char** error, const char* what) {
  /* rm_free calls free. */
  if (error != NULL) *error = strdup(what);
}

/* Looks up the functions. The callbacks have one set of them, so only one RocksDB of the process can be used. */
static rm_status find(void* library, char** error) {
  if (rm_abi_version() != RM_ABI_VERSION) {
    say(error, "librockmill_attach and librockmill are of different versions; install both from one version");
    return RM_FAILURE;
  }
  void* from = library != NULL ? library : RTLD_DEFAULT;
  Dl_info place;
  void* last = dlsym(from, "rocksdb_options_set_compaction_service");
  if (last == NULL || dladdr(last, &place) == 0) {
    say(error,
        "no RocksDB of this process exports rocksdb_options_set_compaction_service: it needs the C API of RocksDB 10.10 "
        "or newer, and a program that links RocksDB statically needs -rdynamic");
    return RM_FAILURE;
  }
  if (rocksdb_base == place.dli_fbase) return RM_SUCCESS;
  if (rocksdb_base != NULL) {
    say(error, "this process has a second RocksDB with the C API, and Rockmill serves one of them; load only one");
    return RM_FAILURE;
  }
#define LOOK_UP(type, name, parameters)                                             \
  *(void**)&name = dlsym(from, #name);                                              \
  if (name == NULL) {                                                               \
    say(error, "RocksDB's C API lacks " #name ": it needs RocksDB 10.10 or newer"); \
    return RM_FAILURE;                                                              \
  }
  FUNCTIONS(LOOK_UP)
  rocksdb_base = place.dli_fbase;
  return RM_SUCCESS;
}

rm_status rm_attach_service(void* options, rm_service* service, void* library, char** error) {
  if (error != NULL) *error = NULL;
  if (options == NULL) {
    say(error, "options is null");
    return RM_INVALID;
  }
  pthread_mutex_lock(&mutex);
  const rm_status found = find(library, error);
  pthread_mutex_unlock(&mutex);
  if (found != RM_SUCCESS) return found;
  rocksdb_compactionservice_t* made = rm_rocksdb_compaction_service(service, error);
  if (made == NULL) return RM_INVALID;
  rocksdb_options_set_compaction_service((rocksdb_options_t*)options, made);
  return RM_SUCCESS;
}

/* The services of this process, by their settings. They are never closed: databases have clones of them. */
struct Known {
  struct Known* next;
  rm_service* service;
  char settings[];
};
static struct Known* all;

/* Returns the service of these settings, and opens one if there is none. With `opens` of 0, it returns null instead. */
static rm_service* service_of(const char* settings, int opens, char** error) {
  const char* text = settings != NULL ? settings : "";
  struct Known* known;
  rm_service* service = NULL;
  pthread_mutex_lock(&mutex);
  for (known = all; known != NULL; known = known->next) {
    if (strcmp(known->settings, text) == 0) service = known->service;
  }
  if (service == NULL && opens) {
    known = (struct Known*)malloc(sizeof(struct Known) + strlen(text) + 1);
    if (known == NULL) {
      say(error, "there is no memory");
    } else if ((service = rm_service_open(text, error)) == NULL) {
      free(known);
    } else {
      strcpy(known->settings, text);
      known->service = service;
      known->next = all;
      all = known;
    }
  }
  pthread_mutex_unlock(&mutex);
  return service;
}

rm_status rm_attach(void* options, const char* settings, char** error) {
  if (error != NULL) *error = NULL;
  rm_service* service = service_of(settings, 1, error);
  return service != NULL ? rm_attach_service(options, service, NULL, error) : RM_INVALID;
}

char* rm_attach_stats_json(const char* settings, char** error) {
  if (error != NULL) *error = NULL;
  rm_service* service = service_of(settings, 0, error);
  if (service == NULL) {
    say(error, "nothing was attached with these settings");
    return NULL;
  }
  return rm_service_stats_json(service, error);
}

/* Calls every function of rockmill.h, mostly with wrong arguments. The argument is an empty folder. */
#include <assert.h>
#include <pthread.h>
#include <rockmill.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void contains(const char* text, const char* part) {
  if (text == NULL || strstr(text, part) == NULL) {
    fprintf(stderr, "%s is not in: %s\n", part, text != NULL ? text : "(null)");
    abort();
  }
}

/* Checks that a call's error contains `part`, and frees it. */
static void said(char* error, const char* part) {
  contains(error, part);
  rm_free(error);
}

static rm_service* opened(const char* settings) {
  char* error = (char*)"not set";
  rm_service* service = rm_service_open(settings, &error);
  if (error != NULL) fprintf(stderr, "%s\n", error);
  assert(service != NULL && error == NULL);
  return service;
}

static void closed(rm_service* service) {
  char* error = (char*)"not set";
  assert(rm_service_close(service, &error) == RM_SUCCESS && error == NULL);
}

static rm_job_info some_job(const char* folder) {
  rm_job_info info;
  memset(&info, 0, sizeof info);
  info.struct_size = sizeof info;
  info.db_name = folder;
  info.db_session_id = "SESSION";
  info.output_level = 1;
  return info;
}

static void released(void* state) { ++*(int*)state; }

static void layout(void) {
#define FIELD(type, field) printf("%s.%s %zu\n", #type, #field, offsetof(type, field))
  printf("rm_status %zu\n", sizeof(rm_status));
  printf("rm_job_info %zu\n", sizeof(rm_job_info));
  FIELD(rm_job_info, struct_size);
  FIELD(rm_job_info, db_name);
  FIELD(rm_job_info, db_session_id);
  FIELD(rm_job_info, job_id);
  FIELD(rm_job_info, cf_id);
  FIELD(rm_job_info, compaction_reason);
  FIELD(rm_job_info, base_input_level);
  FIELD(rm_job_info, output_level);
  FIELD(rm_job_info, is_full_compaction);
  FIELD(rm_job_info, is_manual_compaction);
  FIELD(rm_job_info, is_bottommost_level);
  FIELD(rm_job_info, is_bottom_priority);
  FIELD(rm_job_info, rocksdb_version);
  FIELD(rm_job_info, plugins);
  FIELD(rm_job_info, picked_compression);
  printf("rm_plugins %zu\n", sizeof(rm_plugins));
  FIELD(rm_plugins, struct_size);
  FIELD(rm_plugins, state);
  FIELD(rm_plugins, release);
  FIELD(rm_plugins, missing);
  FIELD(rm_plugins, merge_operator);
  FIELD(rm_plugins, builtin_merge_operator);
  FIELD(rm_plugins, merge_delimiter);
  FIELD(rm_plugins, merges_single_operand);
  FIELD(rm_plugins, full_merge);
  FIELD(rm_plugins, partial_merge);
  FIELD(rm_plugins, compaction_filter);
  FIELD(rm_plugins, compaction_filter_factory);
  FIELD(rm_plugins, create_filter);
  FIELD(rm_plugins, filter);
  FIELD(rm_plugins, collector_factories);
  FIELD(rm_plugins, num_collector_factories);
  FIELD(rm_plugins, create_collector);
  FIELD(rm_plugins, collect_entry);
  FIELD(rm_plugins, collect_block);
  FIELD(rm_plugins, finish_collector);
  FIELD(rm_plugins, destroy_collector);
  FIELD(rm_plugins, builtin_collector_factories);
  FIELD(rm_plugins, path);
  FIELD(rm_plugins, prefix_extractor);
  FIELD(rm_plugins, prefix_len);
  FIELD(rm_plugins, comparator);
  FIELD(rm_plugins, compare);
  printf("rm_result %zu\n", sizeof(rm_result));
  FIELD(rm_result, struct_size);
  FIELD(rm_result, message);
  FIELD(rm_result, message_size);
  printf("rm_service_options %zu\n", sizeof(rm_service_options));
  FIELD(rm_service_options, struct_size);
  FIELD(rm_service_options, settings);
  FIELD(rm_service_options, log);
  FIELD(rm_service_options, log_state);
  FIELD(rm_service_options, log_level);
#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
  STRUCT(rm_bytes);
  FIELD(rm_bytes, data);
  FIELD(rm_bytes, size);
  STRUCT(rm_write);
  FIELD(rm_write, key);
  FIELD(rm_write, value);
  FIELD(rm_write, is_delete);
  STRUCT(rm_store);
  FIELD(rm_store, struct_size);
  FIELD(rm_store, state);
  FIELD(rm_store, get);
  FIELD(rm_store, write);
  STRUCT(rm_view_options);
  FIELD(rm_view_options, struct_size);
  FIELD(rm_view_options, path);
  FIELD(rm_view_options, family);
  FIELD(rm_view_options, device);
  FIELD(rm_view_options, memory_bytes);
  FIELD(rm_view_options, store);
  FIELD(rm_view_options, threads);
  FIELD(rm_view_options, request_slots);
  FIELD(rm_view_options, request_slot_bytes);
  FIELD(rm_view_options, timeout_ms);
  FIELD(rm_view_options, wal_dir);
  STRUCT(rm_lookup);
  FIELD(rm_lookup, struct_size);
  FIELD(rm_lookup, keys);
  FIELD(rm_lookup, key_offsets);
  FIELD(rm_lookup, key_size);
  FIELD(rm_lookup, num_keys);
  FIELD(rm_lookup, rows);
  FIELD(rm_lookup, row_size);
  FIELD(rm_lookup, default_row);
  FIELD(rm_lookup, statuses);
  FIELD(rm_lookup, sizes);
  printf("statuses %d%d%d%d%d\n", RM_SUCCESS, RM_FAILURE, RM_ABORTED, RM_USE_LOCAL, RM_INVALID);
}

static void settings(void) {
  char* error = NULL;
  assert(rm_service_open("thread=8", &error) == NULL);
  said(error, "there is no setting \"thread\"; the settings are comparator, device,");
  assert(rm_service_open("threads=0", &error) == NULL);
  said(error, "threads is 0; it must be from 1 to 1024");
  assert(rm_service_open("threads=1;threads=2", &error) == NULL);
  said(error, "threads is given twice");
  assert(rm_service_open("\xff=1", &error) == NULL);
  said(error, "settings is not UTF-8");
  assert(rm_service_open("nice=20", NULL) == NULL);
  closed(opened(NULL));
  closed(opened(""));

  rm_service* service = opened("threads=2;min_job_bytes=0");
  assert(rm_service_change_settings(service, "threads=3; nice=1", &error) == RM_SUCCESS && error == NULL);
  assert(rm_service_change_settings(service, "device=cpu", &error) == RM_INVALID);
  said(error, "device cannot change");
  assert(rm_service_change_settings(service, NULL, &error) == RM_INVALID);
  said(error, "settings is null");
  assert(rm_service_change_settings(service, "nice=x", NULL) == RM_INVALID);
  assert(rm_service_wait_for_device(service, &error) == RM_SUCCESS && error == NULL);
  closed(service);

  service = opened("device=cuda:99");
  assert(rm_service_wait_for_device(service, &error) == RM_FAILURE);
  said(error, "");
  closed(service);
}

/* Checks that every function refuses this handle. */
static void refused(rm_service* handle, const char* part) {
  char* error = NULL;
  char* id = NULL;
  rm_result result = {sizeof result, NULL, 0};
  rm_job_info info = some_job("/nowhere");
  assert(rm_service_clone(handle, &error) == NULL);
  said(error, part);
  assert(rm_service_close(handle, &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_schedule(handle, &info, "", 0, &id, &error) == RM_INVALID && id == NULL);
  said(error, part);
  assert(rm_service_wait(handle, "job", &result, &error) == RM_INVALID && result.message == NULL);
  said(error, part);
  assert(rm_service_cancel_awaiting_jobs(handle, &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_on_installation(handle, "job", RM_SUCCESS, &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_change_settings(handle, "nice=1", &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_wait_for_device(handle, &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_stats_json(handle, &error) == NULL);
  said(error, part);
  assert(rm_service_last_error(handle, &error) == NULL);
  said(error, part);
  assert(rm_service_metrics_prometheus(handle, &error) == NULL);
  said(error, part);
  assert(rm_service_cancel_jobs(handle, &error) == RM_INVALID);
  said(error, part);
  assert(rm_service_close(handle, NULL) == RM_INVALID);
}

static void handles(void) {
  refused(NULL, "handle is null");
  int on_the_stack = 0;
  refused((rm_service*)&on_the_stack, "never was one");
  refused((rm_service*)UINTPTR_MAX, "never was one");

  rm_service* service = opened("threads=1");
  rm_service* clone = rm_service_clone(service, NULL);
  assert(clone != NULL && clone != service);
  closed(service);
  refused(service, "is closed");
  char* stats = rm_service_stats_json(clone, NULL);
  contains(stats, "\"jobs_offered\":0");
  rm_free(stats);
  rm_service* another = opened("threads=1");
  assert(another != service && another != clone);
  refused(service, "is closed");
  closed(clone);
  closed(another);
  rm_free(NULL);
}

static void jobs(const char* folder) {
  rm_service* service = opened("threads=1;min_job_bytes=0");
  char* error = NULL;
  char* id = (char*)"not set";
  rm_job_info info = some_job(folder);
  assert(rm_service_last_error(service, &error) == NULL && error == NULL);
  assert(rm_service_schedule(service, NULL, "", 0, &id, &error) == RM_INVALID && id == NULL);
  said(error, "rm_job_info is null");
  assert(rm_service_schedule(service, &info, "", 0, NULL, &error) == RM_INVALID);
  said(error, "job_id is null");
  assert(rm_service_schedule(service, &info, NULL, 0, &id, &error) == RM_INVALID);
  said(error, "input is null");
  info.struct_size = offsetof(rm_job_info, plugins) - 1;
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "rm_job_info.struct_size is ");
  /* Plug-ins are released whatever becomes of the job. */
  int releases = 0;
  rm_plugins plugins;
  memset(&plugins, 0, sizeof plugins);
  plugins.struct_size = offsetof(rm_plugins, builtin_collector_factories) - 1;
  plugins.state = &releases;
  plugins.release = released;
  info = some_job(folder);
  info.plugins = &plugins;
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID && releases == 0);
  said(error, "rm_plugins.struct_size is ");
  plugins.struct_size = sizeof plugins;
  assert(rm_service_schedule(service, &info, NULL, 0, &id, &error) == RM_INVALID && releases == 1);
  said(error, "input is null");
  plugins.merge_operator = "Mine";
  assert(rm_service_schedule(NULL, &info, "", 0, &id, &error) == RM_INVALID && releases == 2);
  said(error, "the service's handle is null");
  info = some_job(NULL);
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "db_name is null");
  info = some_job(folder);
  info.db_session_id = NULL;
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "db_session_id is null");

  /* From here on the calls are right, but the message is invalid. */
  info = some_job(folder);
  const char noise[] = {1, 0, 0, 0, '\xff', 0};
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_USE_LOCAL && id == NULL);
  said(error, "");
  assert(rm_service_schedule(service, &info, noise, sizeof noise, &id, &error) == RM_USE_LOCAL && id == NULL);
  said(error, "");
  char* stats = rm_service_stats_json(service, &error);
  contains(stats, "\"jobs_offered\":2,");
  contains(stats, "\"jobs_declined\":2,");
  rm_free(stats);
  char* last = rm_service_last_error(service, &error);
  assert(last != NULL && error == NULL);
  rm_free(last);

  rm_result result = {0, (char*)"not set", 9};
  assert(rm_service_wait(service, "no job", &result, &error) == RM_INVALID);
  said(error, "rm_result.struct_size is 0");
  result.struct_size = sizeof result;
  assert(rm_service_wait(service, "no job", &result, &error) == RM_USE_LOCAL);
  said(error, "no such job");
  assert(result.message == NULL && result.message_size == 0);
  assert(rm_service_wait(service, NULL, &result, &error) == RM_INVALID);
  said(error, "job_id is null");
  assert(rm_service_wait(service, "no job", NULL, &error) == RM_INVALID);
  said(error, "rm_result is null");

  assert(rm_service_on_installation(service, "no job", RM_FAILURE, &error) == RM_SUCCESS && error == NULL);
  assert(rm_service_on_installation(service, "no job", RM_INVALID, &error) == RM_INVALID);
  said(error, "status is 4");
  assert(rm_service_on_installation(service, NULL, RM_SUCCESS, &error) == RM_INVALID);
  said(error, "job_id is null");
  assert(rm_service_cancel_awaiting_jobs(service, &error) == RM_SUCCESS && error == NULL);
  assert(rm_database_closes("no session", &error) == RM_SUCCESS && error == NULL);
  assert(rm_database_closes(NULL, &error) == RM_INVALID);
  said(error, "db_session_id is null");
  /* No job of a database that closes is taken, also if it is the first one. Others go on. */
  const char* sessions[] = {"OPEN", "ENDED"};
  for (int at = 0; at < 2; ++at) {
    assert(rm_database_closes("ENDED", &error) == RM_SUCCESS && error == NULL);
    info.db_session_id = sessions[at];
    assert(rm_service_schedule(service, &info, noise, sizeof noise, &id, &error) == RM_USE_LOCAL && id == NULL);
    assert((strstr(error, "cancelled") != NULL) == (at == 1));
    rm_free(error);
  }
  closed(service);
}

/* Writes the metrics, which the test gives to promtool. */
static void metrics(const char* folder) {
  rm_service* service = opened("threads=1;min_job_bytes=0");
  rm_job_info info = some_job(folder);
  char* id = NULL;
  assert(rm_service_schedule(service, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
  char* error = (char*)"not set";
  char* text = rm_service_metrics_prometheus(service, &error);
  assert(error == NULL);
  contains(text, "# TYPE rockmill_jobs_offered_total counter\nrockmill_jobs_offered_total 1\n");
  contains(text, "\nrockmill_jobs_declined_total{reason=\"input-message\"} 1\n");
  contains(text, "\nrockmill_jobs_failed_total{error=\"corruption\"} 0\n");
  contains(text, "\nrockmill_jobs_running 0\n");
  char path[4096];
  snprintf(path, sizeof path, "%s/metrics.txt", folder);
  FILE* file = fopen(path, "w");
  assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
  rm_free(text);
  /* The switch. */
  assert(rm_service_change_settings(service, "paused=true", NULL) == RM_SUCCESS);
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_USE_LOCAL);
  said(error, "its setting paused is on");
  assert(rm_service_cancel_jobs(service, &error) == RM_SUCCESS && error == NULL);
  assert(rm_service_change_settings(service, "paused=false", NULL) == RM_SUCCESS);
  assert(rm_service_schedule(service, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
  text = rm_service_metrics_prometheus(service, NULL);
  contains(text, "\nrockmill_jobs_declined_total{reason=\"paused\"} 1\n");
  contains(text, "\nrockmill_jobs_declined_total{reason=\"input-message\"} 2\n");
  rm_free(text);
  closed(service);
}

typedef struct heard {
  pthread_mutex_t mutex;
  int messages;
  int level;
  int is_closed;
  char last[4096];
  rm_service* service;
} heard;

static void hear(void* state, int level, const char* message) {
  heard* heard = state;
  assert(pthread_mutex_lock(&heard->mutex) == 0);
  assert(!heard->is_closed);
  assert(strchr(message, '\n') == NULL);
  ++heard->messages;
  heard->level = level;
  snprintf(heard->last, sizeof heard->last, "%s", message);
  if (heard->service != NULL) {
    char* error = NULL;
    char* stats = rm_service_stats_json(heard->service, &error);
    assert(stats != NULL && error == NULL);
    rm_free(stats);
    rm_job_info info = some_job("/nowhere");
    char* id = NULL;
    assert(rm_service_schedule(heard->service, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
    assert(rm_service_close(heard->service, &error) == RM_INVALID);
    said(error, "the log function cannot close a service");
  }
  assert(pthread_mutex_unlock(&heard->mutex) == 0);
}

static void* offer(void* service) {
  rm_job_info info = some_job("/nowhere");
  char* id = NULL;
  for (int i = 0; i < 100; ++i) rm_service_schedule(service, &info, "", 0, &id, NULL);
  return NULL;
}

static void logs(const char* folder) {
  heard heard = {PTHREAD_MUTEX_INITIALIZER, 0, 0, 0, "", NULL};
  char* error = NULL;
  assert(rm_service_open_with(NULL, &error) == NULL);
  said(error, "rm_service_options is null");
  rm_service_options options = {0, "threads=1;min_job_bytes=0", hear, &heard, 9};
  assert(rm_service_open_with(&options, &error) == NULL);
  said(error, "rm_service_options.struct_size is 0");
  options.struct_size = sizeof options;
  assert(rm_service_open_with(&options, &error) == NULL);
  said(error, "log_level is 9");
  options.log_level = 0;
  options.settings = "threads=0";
  assert(rm_service_open_with(&options, &error) == NULL);
  said(error, "threads is 0");
  options.settings = "threads=1;min_job_bytes=0";

  rm_service* service = rm_service_open_with(&options, &error);
  assert(service != NULL && error == NULL);
  rm_service* without = opened("threads=1;min_job_bytes=0");
  rm_job_info info = some_job(folder);
  char* id = NULL;
  assert(rm_service_schedule(without, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
  assert(heard.messages == 0);
  heard.service = service;
  assert(rm_service_schedule(service, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
  assert(heard.messages == 1 && heard.level == RM_LOG_INFO);
  contains(heard.last, "job left to RocksDB");
  contains(heard.last, folder);
  contains(heard.last, "reason=\"input-message\"");
  heard.service = NULL;

  /* A clone has the same function. Several threads call it until the last handle is closed. */
  rm_service* clone = rm_service_clone(service, NULL);
  closed(service);
  pthread_t running[2];
  for (int i = 0; i < 2; ++i) assert(pthread_create(&running[i], NULL, offer, clone) == 0);
  usleep(2000);
  closed(clone);
  assert(pthread_mutex_lock(&heard.mutex) == 0);
  heard.is_closed = 1;
  assert(pthread_mutex_unlock(&heard.mutex) == 0);
  for (int i = 0; i < 2; ++i) assert(pthread_join(running[i], NULL) == 0);

  /* Declines are no warnings. */
  heard.is_closed = heard.messages = 0;
  options.log_level = RM_LOG_WARN;
  service = rm_service_open_with(&options, NULL);
  assert(rm_service_schedule(service, &info, "", 0, &id, NULL) == RM_USE_LOCAL);
  assert(heard.messages == 0);
  closed(service);
  closed(without);
}

static void a_child_is_refused(void) {
  rm_service* service = opened("threads=1");
  const pid_t child = fork();
  if (child == 0) {
    refused(service, "forked");
    char* error = NULL;
    assert(rm_service_open("", &error) == NULL);
    said(error, "forked");
    assert(rm_abi_version() == RM_ABI_VERSION);
    _exit(0);
  }
  int status = 0;
  assert(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  closed(service);
}

enum { THREADS = 4, CALLS = 200 };

/* Uses a handle that another thread closes meanwhile. */
static void* use(void* handle) {
  rm_service* service = handle;
  rm_job_info info = some_job("/nowhere");
  for (int i = 0; i < CALLS; ++i) {
    char* id = NULL;
    char* error = NULL;
    const rm_status status = rm_service_schedule(service, &info, "", 0, &id, &error);
    assert(status == RM_USE_LOCAL || status == RM_INVALID);
    said(error, "");
    rm_free(rm_service_stats_json(service, NULL));
    rm_service* clone = rm_service_clone(service, NULL);
    if (clone != NULL) closed(clone);
  }
  return NULL;
}

static void threads(void) {
  rm_service* service = opened("threads=1");
  pthread_t running[THREADS];
  for (int i = 0; i < THREADS; ++i) assert(pthread_create(&running[i], NULL, use, service) == 0);
  usleep(2000);
  closed(service);
  for (int i = 0; i < THREADS; ++i) assert(pthread_join(running[i], NULL) == 0);
  refused(service, "is closed");
}

int main(int count, char** arguments) {
  assert(count == 2);
  assert(rm_abi_version() == RM_ABI_VERSION);
  layout();
  settings();
  handles();
  jobs(arguments[1]);
  metrics(arguments[1]);
  logs(arguments[1]);
  a_child_is_refused();
  threads();
  puts("done");
  return 0;
}

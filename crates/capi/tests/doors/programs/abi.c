/* Calls every function of rockmill.h, with wrong arguments above all. The argument is an empty folder. */
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
  printf("rm_result %zu\n", sizeof(rm_result));
  FIELD(rm_result, struct_size);
  FIELD(rm_result, message);
  FIELD(rm_result, message_size);
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
  FIELD(rm_view_options, mailboxes);
  FIELD(rm_view_options, mailbox_bytes);
  FIELD(rm_view_options, timeout_ms);
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
  said(error, "there is no setting \"thread\"; the settings are device,");
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

/* No function does anything but complain about this handle. */
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
  contains(stats, "\"jobs_scheduled\":0");
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
  info.struct_size -= 1;
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "rm_job_info.struct_size is ");
  info = some_job(NULL);
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "db_name is null");
  info = some_job(folder);
  info.db_session_id = NULL;
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_INVALID);
  said(error, "db_session_id is null");

  /* From here on the calls are right, but the message is none. */
  info = some_job(folder);
  const char noise[] = {1, 0, 0, 0, '\xff', 0};
  assert(rm_service_schedule(service, &info, "", 0, &id, &error) == RM_USE_LOCAL && id == NULL);
  said(error, "");
  assert(rm_service_schedule(service, &info, noise, sizeof noise, &id, &error) == RM_USE_LOCAL && id == NULL);
  said(error, "");
  char* stats = rm_service_stats_json(service, &error);
  contains(stats, "\"jobs_scheduled\":2,");
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
  closed(service);
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

/* Uses a handle that another thread closes at some time. */
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
  a_child_is_refused();
  threads();
  puts("done");
  return 0;
}

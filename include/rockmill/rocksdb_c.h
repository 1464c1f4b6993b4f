/* Rockmill for programs with the C API of RocksDB 10.10 to 11.12, which can attach a CompactionService.
 *
 *   rm_service* rockmill = rm_service_open("device=auto;threads=8", &error);
 *   rocksdb_compactionservice_t* service = rm_rocksdb_compaction_service(rockmill, &error);
 *   if (service != NULL) rocksdb_options_set_compaction_service(options, service);
 */
#ifndef ROCKMILL_ROCKSDB_C_H
#define ROCKMILL_ROCKSDB_C_H

#include <rockmill.h>
#include <string.h>
/* doors/attach declares the few functions itself, and looks them up in the process. */
#ifndef ROCKMILL_ROCKSDB_C_DECLARED
#include <rocksdb/c.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

static inline rocksdb_compactionservice_scheduleresponse_t* rm_rocksdb_schedule(
    void* service, const rocksdb_compactionservice_jobinfo_t* info, const char* input, size_t input_size) {
  size_t size = 0;
  rm_job_info job;
  memset(&job, 0, sizeof(job));
  job.struct_size = sizeof(job);
  /* The texts end with a zero, like those of std::string. */
  job.db_name = rocksdb_compactionservice_jobinfo_t_get_db_name(info, &size);
  job.db_session_id = rocksdb_compactionservice_jobinfo_t_get_db_session_id(info, &size);
  job.job_id = rocksdb_compactionservice_jobinfo_t_get_job_id(info);
  job.cf_id = rocksdb_compactionservice_jobinfo_t_get_cf_id(info);
  job.compaction_reason = rocksdb_compactionservice_jobinfo_t_get_compaction_reason(info);
  job.base_input_level = rocksdb_compactionservice_jobinfo_t_get_base_input_level(info);
  job.output_level = rocksdb_compactionservice_jobinfo_t_get_output_level(info);
  job.is_full_compaction = rocksdb_compactionservice_jobinfo_t_is_full_compaction(info);
  job.is_manual_compaction = rocksdb_compactionservice_jobinfo_t_is_manual_compaction(info);
  job.is_bottommost_level = rocksdb_compactionservice_jobinfo_t_is_bottommost_level(info);
  /* 0 is Env::Priority::BOTTOM. */
  job.is_bottom_priority = rocksdb_compactionservice_jobinfo_t_get_priority(info) == 0;
  char* id = NULL;
  const rm_status status = rm_service_schedule((rm_service*)service, &job, input, input_size, &id, NULL);
  rocksdb_compactionservice_scheduleresponse_t* response = rocksdb_compactionservice_scheduleresponse_create(
      id, status == RM_SUCCESS ? RM_SUCCESS : RM_USE_LOCAL, NULL);
  rm_free(id);
  return response;
}

static inline int rm_rocksdb_wait(void* service, const char* job_id, char** result, size_t* result_size) {
  rm_result answer;
  memset(&answer, 0, sizeof(answer));
  answer.struct_size = sizeof(answer);
  /* RocksDB treats every answer except success and use-local as fatal. */
  if (rm_service_wait((rm_service*)service, job_id, &answer, NULL) != RM_SUCCESS) return RM_USE_LOCAL;
  /* RocksDB calls free, as rm_free does. */
  *result = answer.message;
  *result_size = answer.message_size;
  return RM_SUCCESS;
}

static inline void rm_rocksdb_cancel_awaiting_jobs(void* service) {
  rm_service_cancel_awaiting_jobs((rm_service*)service, NULL);
}

static inline void rm_rocksdb_on_installation(void* service, const char* job_id, int status) {
  rm_service_on_installation((rm_service*)service, job_id, (rm_status)status, NULL);
}

static inline void rm_rocksdb_close(void* service) { rm_service_close((rm_service*)service, NULL); }

/* Returns a service for one database, with a clone of `service`. Null if *error is set. Pass it to
 * rocksdb_options_set_compaction_service exactly once: RocksDB then owns it, and destroys it with the last of these
 * options, their copies and their databases. The caller may close `service` at any time. */
static inline rocksdb_compactionservice_t* rm_rocksdb_compaction_service(rm_service* service, char** error) {
  rm_service* clone = rm_service_clone(service, error);
  if (clone == NULL) return NULL;
  return rocksdb_compactionservice_create(clone, rm_rocksdb_close, rm_rocksdb_schedule, "Rockmill", rm_rocksdb_wait,
                                          rm_rocksdb_cancel_awaiting_jobs, rm_rocksdb_on_installation);
}

#ifdef __cplusplus
}
#endif

#endif

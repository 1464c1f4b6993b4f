/* One function for programs in any language whose RocksDB exports its C API: RocksDB 10.10 to 11.12. It is in the
 * library librockmill_attach.so, which contains no RocksDB and looks up the functions of the process's own.
 *
 *   rm_attach(options, "device=auto", &error);      before the database is opened
 *
 * A RocksDB that is linked statically exports its functions only if the program is linked with -rdynamic.
 *
 * Do not attach options with db_paths or cf_paths on other file systems, or with an Env of the program: RocksDB could not
 * move a job's files there, and would stop writes. Its C API does not return these options, so they are not refused. */
#ifndef ROCKMILL_ATTACH_H
#define ROCKMILL_ATTACH_H

#include <rockmill.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets a service on options, a rocksdb_options_t*. Calls with the same settings share one service, which stays open
 * until the process ends; each call attaches a new clone. RM_FAILURE if the process has no such RocksDB, or several;
 * RM_INVALID if the settings are invalid. Then *error has the reason, and the options are unchanged. */
rm_status rm_attach(void* options, const char* settings, char** error);

/* The same with a service that the caller has opened. `library` is a handle of dlopen in which RocksDB's functions are
 * looked up, or null for the whole process. It must stay open. */
rm_status rm_attach_service(void* options, rm_service* service, void* library, char** error);

/* Returns the work done so far by the service of these settings, as rm_service_stats_json does. Null if there is none. */
char* rm_attach_stats_json(const char* settings, char** error);

#ifdef __cplusplus
}
#endif

#endif

/* The native methods of org.rockmill.Native. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <jni.h>
#include <link.h>
#include <pthread.h>
#include <rockmill/attach.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes a string of UTF-8; null after an exception. JNI's own functions take another encoding, which differs from it
 * beyond U+FFFF. */
static jstring string(JNIEnv* env, const char* from) {
  const jsize length = (jsize)strlen(from);
  jbyteArray bytes = (*env)->NewByteArray(env, length);
  jclass type = bytes != NULL ? (*env)->FindClass(env, "java/lang/String") : NULL;
  jmethodID make = type != NULL ? (*env)->GetMethodID(env, type, "<init>", "([BLjava/lang/String;)V") : NULL;
  jstring encoding = make != NULL ? (*env)->NewStringUTF(env, "UTF-8") : NULL;
  if (encoding == NULL) return NULL;
  (*env)->SetByteArrayRegion(env, bytes, 0, length, (const jbyte*)from);
  return (jstring)(*env)->NewObject(env, type, make, bytes, encoding);
}

static void fail(JNIEnv* env, const char* what) {
  jstring message = string(env, what);
  jclass type = message != NULL ? (*env)->FindClass(env, "org/rockmill/RockmillException") : NULL;
  jmethodID make = type != NULL ? (*env)->GetMethodID(env, type, "<init>", "(Ljava/lang/String;)V") : NULL;
  jthrowable made = make != NULL ? (jthrowable)(*env)->NewObject(env, type, make, message) : NULL;
  if (made != NULL) (*env)->Throw(env, made);
}

/* Throws the error and frees it. */
static void fail_with(JNIEnv* env, char* error) {
  fail(env, error != NULL ? error : "Rockmill has failed and does not say why");
  rm_free(error);
}

/* Copies a string as UTF-8; null after an exception. Freed with free. */
static char* text(JNIEnv* env, jstring from) {
  if (from == NULL) return strdup("");
  jclass type = (*env)->FindClass(env, "java/lang/String");
  jmethodID get = type != NULL ? (*env)->GetMethodID(env, type, "getBytes", "(Ljava/lang/String;)[B") : NULL;
  jstring encoding = get != NULL ? (*env)->NewStringUTF(env, "UTF-8") : NULL;
  if (encoding == NULL) return NULL;
  jbyteArray bytes = (jbyteArray)(*env)->CallObjectMethod(env, from, get, encoding);
  if ((*env)->ExceptionCheck(env)) return NULL;
  const jsize length = (*env)->GetArrayLength(env, bytes);
  char* copy = (char*)calloc((size_t)length + 1, 1);
  if (copy != NULL) {
    (*env)->GetByteArrayRegion(env, bytes, 0, length, (jbyte*)copy);
  } else {
    fail(env, "there is no memory");
  }
  return copy;
}

/* Makes a Java string of one that the library has allocated; null stays null. */
static jstring taken(JNIEnv* env, char* from) {
  jstring made = from != NULL ? string(env, from) : NULL;
  rm_free(from);
  return made;
}

static rm_service* handle(jlong service) { return (rm_service*)(intptr_t)service; }

/* The services that are open. */
struct Kept {
  struct Kept* next;
  rm_service* service;
};
static struct Kept* all;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Returns 0 if there is no memory. */
static int keep(rm_service* service) {
  struct Kept* kept = (struct Kept*)malloc(sizeof(struct Kept));
  if (kept == NULL) return 0;
  pthread_mutex_lock(&mutex);
  *kept = (struct Kept){all, service};
  all = kept;
  pthread_mutex_unlock(&mutex);
  return 1;
}

static void forget(const rm_service* service) {
  pthread_mutex_lock(&mutex);
  for (struct Kept** at = &all; *at != NULL; at = &(*at)->next) {
    if ((*at)->service != service) continue;
    struct Kept* kept = *at;
    *at = kept->next;
    free(kept);
    break;
  }
  pthread_mutex_unlock(&mutex);
}

JNIEXPORT jlong JNICALL Java_org_rockmill_Native_open(JNIEnv* env, jclass type, jstring settings) {
  (void)type;
  if (rm_abi_version() != RM_ABI_VERSION) {
    fail(env, "the process has a librockmill of another version; use one version of Rockmill");
    return 0;
  }
  char* given = text(env, settings);
  if (given == NULL) return 0;
  char* error = NULL;
  rm_service* service = rm_service_open(given, &error);
  free(given);
  if (service == NULL) {
    fail_with(env, error);
  } else if (!keep(service)) {
    rm_service_close(service, NULL);
    fail(env, "there is no memory");
    return 0;
  }
  return (jlong)(intptr_t)service;
}

JNIEXPORT void JNICALL Java_org_rockmill_Native_close(JNIEnv* env, jclass type, jlong service) {
  (void)env, (void)type;
  forget(handle(service));
  rm_service_close(handle(service), NULL);
}

/* Each class loader has a copy of this library. The JVM calls it when the class loader has gone. Databases have clones. */
JNIEXPORT void JNICALL JNI_OnUnload(JavaVM* machine, void* reserved) {
  (void)machine, (void)reserved;
  while (all != NULL) {
    rm_service* service = all->service;
    forget(service);
    rm_service_close(service, NULL);
  }
}

JNIEXPORT jstring JNICALL Java_org_rockmill_Native_stats(JNIEnv* env, jclass type, jlong service) {
  (void)type;
  char* error = NULL;
  char* json = rm_service_stats_json(handle(service), &error);
  if (json == NULL) fail_with(env, error);
  return json != NULL ? taken(env, json) : NULL;
}

JNIEXPORT jstring JNICALL Java_org_rockmill_Native_lastError(JNIEnv* env, jclass type, jlong service) {
  (void)type;
  return taken(env, rm_service_last_error(handle(service), NULL));
}

JNIEXPORT void JNICALL Java_org_rockmill_Native_changeSettings(JNIEnv* env, jclass type, jlong service,
                                                               jstring settings) {
  (void)type;
  char* given = text(env, settings);
  if (given == NULL) return;
  char* error = NULL;
  const rm_status changed = rm_service_change_settings(handle(service), given, &error);
  free(given);
  if (changed != RM_SUCCESS) fail_with(env, error);
}

JNIEXPORT void JNICALL Java_org_rockmill_Native_waitForDevice(JNIEnv* env, jclass type, jlong service) {
  (void)type;
  char* error = NULL;
  if (rm_service_wait_for_device(handle(service), &error) != RM_SUCCESS) fail_with(env, error);
}

struct Paths {
  char* text;
  size_t size;
};

/* Appends a line for a library of RocksJava: its path. */
static int note_library(struct dl_phdr_info* info, size_t size, void* given) {
  (void)size;
  struct Paths* paths = (struct Paths*)given;
  const char* name = info->dlpi_name;
  if (name == NULL || strstr(name, "rocksdbjni") == NULL) return 0;
  const size_t length = strlen(name);
  char* grown = (char*)realloc(paths->text, paths->size + length + 2);
  if (grown == NULL) return 1;
  memcpy(grown + paths->size, name, length);
  paths->size += length + 1;
  grown[paths->size - 1] = '\n';
  grown[paths->size] = 0;
  paths->text = grown;
  return 0;
}

/* Returns the paths of the libraries of RocksJava that are mapped, one a line. */
JNIEXPORT jstring JNICALL Java_org_rockmill_Native_libraries(JNIEnv* env, jclass type) {
  (void)type;
  struct Paths paths = {NULL, 0};
  dl_iterate_phdr(note_library, &paths);
  jstring made = string(env, paths.text != NULL ? paths.text : "");
  free(paths.text);
  return made;
}

/* Opens a library that is mapped already. It is closed with dlclose. */
static void* opened(JNIEnv* env, jstring library) {
  char* path = text(env, library);
  void* mapped = path != NULL ? dlopen(path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
  free(path);
  return mapped;
}

/* Returns the version of a mapped library of RocksJava like RocksDB.version(), or 0 if the library does not contain it. */
JNIEXPORT jint JNICALL Java_org_rockmill_Native_version(JNIEnv* env, jclass type, jstring library) {
  void* mapped = opened(env, library);
  if (mapped == NULL) return 0;
  jint (*version)(JNIEnv*, jclass) = NULL;
  *(void**)&version = dlsym(mapped, "Java_org_rocksdb_RocksDB_version");
  const jint found = version != NULL ? version(env, type) : 0;
  dlclose(mapped);
  return found;
}

/* Opens a shim, which stays loaded: databases call it. So does RocksDB's library, which it needs. */
static void* opened_shim(JNIEnv* env, jstring shim) {
  char* path = text(env, shim);
  void* part = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  free(path);
  return part;
}

/* Sets a clone of a service on options of the mapped library, by the shim at `shim`, or by RocksDB's C API if that is
 * null. RocksDB closes the clone. */
JNIEXPORT void JNICALL Java_org_rockmill_Native_attach(JNIEnv* env, jclass type, jlong service, jlong options,
                                                      jstring library, jstring shim) {
  (void)type;
  void* mapped = opened(env, library);
  if (mapped == NULL) {
    if (!(*env)->ExceptionCheck(env)) fail(env, "RocksDB's library is no longer mapped");
    return;
  }
  char* error = NULL;
  if (shim == NULL) {
    /* The library stays open, since its functions are called later. */
    const rm_status attached = rm_attach_service((void*)(intptr_t)options, handle(service), mapped, &error);
    if (attached != RM_SUCCESS) fail_with(env, error);
    return;
  }
  const void* place = dlsym(mapped, "Java_org_rocksdb_RocksDB_version");
  void* part = opened_shim(env, shim);
  const char* (*attach)(void*, rm_service*, const void*) = NULL;
  if (part != NULL) *(void**)&attach = dlsym(part, "rockmill_shim_attach");
  if (attach == NULL) {
    char what[1024];
    const char* why = dlerror();
    snprintf(what, sizeof(what), "RocksDB's library is built otherwise than those on Maven Central (%s)",
             why != NULL ? why : "it lacks a function");
    if (!(*env)->ExceptionCheck(env)) fail(env, what);
    dlclose(mapped);
    return;
  }
  /* The shim holds it. */
  dlclose(mapped);
  rm_service* clone = rm_service_clone(handle(service), &error);
  if (clone == NULL) {
    fail_with(env, error);
    return;
  }
  const char* refused = attach((void*)(intptr_t)options, clone, place);
  if (refused == NULL) return;
  rm_service_close(clone, NULL);
  fail(env, refused);
}

/* Registers the shim's functions that close databases as those of RocksJava's classes, if the shim has any. */
JNIEXPORT void JNICALL Java_org_rockmill_Native_watchClose(JNIEnv* env, jclass type, jstring shim,
                                                          jobjectArray databases) {
  (void)type;
  void* part = opened_shim(env, shim);
  void* const* (*watch)(const void*, const void*) = NULL;
  if (part != NULL) *(void**)&watch = dlsym(part, "rockmill_shim_close");
  if (watch == NULL) return;
  /* Of RocksDB's library, which the shim needs. */
  const void* of_database = dlsym(part, "_ZNK7rocksdb6DBImpl14GetDbSessionIdERSs");
  const void* of_stackable = dlsym(part, "_ZNK7rocksdb11StackableDB14GetDbSessionIdERSs");
  if (of_database == NULL || of_stackable == NULL) return;
  void* const* close = watch(of_database, of_stackable);
  for (jsize at = 0; at < (*env)->GetArrayLength(env, databases); ++at) {
    const JNINativeMethod method = {(char*)"closeDatabase", (char*)"(J)V", close[at]};
    jclass database = (jclass)(*env)->GetObjectArrayElement(env, databases, at);
    if ((*env)->RegisterNatives(env, database, &method, 1) != 0) return;
    (*env)->DeleteLocalRef(env, database);
  }
}

// The table on the host: its memory is the host's, and streams do nothing.

#include <cstdlib>
#include <new>

#include "stages.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory), (void)(bytes))
#endif

namespace rockmill::ROCKMILL_TARGET {
namespace {

constexpr int OUT_OF_MEMORY = 2;
constexpr u64 ALIGNMENT = 256;
// Pinned memory consists of whole pages on a GPU too.
constexpr u64 PAGE = 4096;

int allocate(void** out, u64 bytes) {
  *out = std::aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  return *out == nullptr ? OUT_OF_MEMORY : 0;
}
int allocate_pages(void** out, u64 bytes) { return posix_memalign(out, PAGE, bytes) == 0 ? 0 : OUT_OF_MEMORY; }
int release(void* memory) {
  std::free(memory);
  return 0;
}
int nothing(void*) { return 0; }
int make_nothing(void** out) {
  *out = nullptr;
  return 0;
}

KernelTable make() {
  KernelTable t = stages::table();
  t.error_text = [](int) { return "out of memory"; };
  t.device_count = [](int* count) { return *count = 1, 0; };
  t.device_info = [](int, DeviceInfo* info) {
    *info = DeviceInfo{};
    std::strcpy(info->name, "host");
    return 0;
  };
  t.get_device = [](int* device) { return *device = 0; };
  t.set_device = [](int) { return 0; };
  t.versions = [](int* driver, int* build) { return *driver = *build = 0; };
  t.memory_info = [](u64* free, u64* total) {
    *free = *total = 0;
    return 0;
  };
  t.allocate = allocate;
  t.release = release;
  t.allocate_pinned = allocate_pages;
  t.release_pinned = release;
  t.forbid = [](const void* memory, u64 bytes) { ASAN_POISON_MEMORY_REGION(memory, bytes); };
  t.allow = [](const void* memory, u64 bytes) { ASAN_UNPOISON_MEMORY_REGION(memory, bytes); };
  t.reaches = [](const void*, u32* reaches) {
    *reaches = 1;
    return 0;
  };
  t.stream_create = make_nothing;
  t.stream_destroy = nothing;
  t.event_create = make_nothing;
  t.event_destroy = nothing;
  t.event_record = [](void*, void*) { return 0; };
  t.event_synchronize = nothing;
  t.event_query = [](void*, u32* is_done) {
    *is_done = 1;
    return 0;
  };
  t.stream_captures = [](void*, u32* captures) {
    *captures = 0;
    return 0;
  };
  t.event_elapsed_ms = [](float* ms, void*, void*) { return *ms = 0, 0; };
  t.copy_to_device = [](void* to, const void* from, u64 n, void*) {
    std::memcpy(to, from, n);
    return 0;
  };
  t.copy_from_device = t.copy_inside = t.copy_to_device;
  t.fill = [](void* to, int byte, u64 n, void*) {
    std::memset(to, byte, n);
    return 0;
  };
  return t;
}

}  // namespace
}  // namespace rockmill::ROCKMILL_TARGET

extern "C" const rockmill::ROCKMILL_TARGET::KernelTable* rockmill_host_kernels() {
  static const rockmill::ROCKMILL_TARGET::KernelTable table = rockmill::ROCKMILL_TARGET::make();
  return &table;
}

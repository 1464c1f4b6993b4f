// The table on a GPU, over the CUDA runtime, which finds the driver at its first call.

#include <algorithm>

#include "stages.hpp"

namespace rockmill::ROCKMILL_TARGET {
namespace {

cudaStream_t cuda_stream(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

// A failed call leaves its error behind; without this, the next launch would appear to have failed.
int checked(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error;
}

int device_info(int device, DeviceInfo* info) {
  cudaDeviceProp properties;
  if (int error = checked(cudaGetDeviceProperties(&properties, device))) return error;
  *info = DeviceInfo{};
  std::memcpy(info->name, properties.name, sizeof info->name - 1);
  if (int error = checked(cudaDeviceGetPCIBusId(info->pci_bus_id, sizeof info->pci_bus_id, device))) {
    return error;
  }
  info->memory_bytes = properties.totalGlobalMem;
  info->compute_major = properties.major;
  info->compute_minor = properties.minor;
  info->multiprocessors = properties.multiProcessorCount;
  return 0;
}

int reaches(const void* memory, u32* reaches) {
  cudaPointerAttributes about;
  if (int error = checked(cudaPointerGetAttributes(&about, memory))) return error;
  int device = 0;
  if (int error = checked(cudaGetDevice(&device))) return error;
  const bool is_own = about.type == cudaMemoryTypeDevice && about.device == device;
  // Other memory has no pointer for this device if the device cannot access it.
  *reaches = about.type != cudaMemoryTypeUnregistered && (is_own || about.devicePointer != nullptr);
  return 0;
}

KernelTable make() {
  KernelTable t = stages::table();
  t.error_text = [](int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); };
  t.device_count = [](int* count) { return checked(cudaGetDeviceCount(count)); };
  t.device_info = device_info;
  t.get_device = [](int* device) { return checked(cudaGetDevice(device)); };
  t.set_device = [](int device) { return checked(cudaSetDevice(device)); };
  t.versions = [](int* driver, int* build) {
    *build = CUDART_VERSION;
    return checked(cudaDriverGetVersion(driver));
  };
  t.memory_info = [](u64* free, u64* total) {
    size_t free_bytes = 0, total_bytes = 0;
    const int error = checked(cudaMemGetInfo(&free_bytes, &total_bytes));
    *free = free_bytes;
    *total = total_bytes;
    return error;
  };
  t.allocate = [](void** out, u64 bytes) { return checked(cudaMalloc(out, bytes)); };
  t.release = [](void* memory) { return checked(cudaFree(memory)); };
  t.allocate_pinned = [](void** out, u64 bytes) {
    return checked(cudaHostAlloc(out, bytes, cudaHostAllocPortable));
  };
  t.release_pinned = [](void* memory) { return checked(cudaFreeHost(memory)); };
  t.forbid = t.allow = [](const void*, u64) {};
  t.reaches = reaches;
  t.stream_create = [](void** out) {
    return checked(cudaStreamCreateWithFlags(reinterpret_cast<cudaStream_t*>(out), cudaStreamNonBlocking));
  };
  t.stream_destroy = [](void* stream) { return checked(cudaStreamDestroy(cuda_stream(stream))); };
  t.event_create = [](void** out) {
    return checked(cudaEventCreateWithFlags(reinterpret_cast<cudaEvent_t*>(out), cudaEventBlockingSync));
  };
  t.event_destroy = [](void* event) { return checked(cudaEventDestroy(event_of(event))); };
  t.event_record = [](void* event, void* stream) {
    return checked(cudaEventRecord(event_of(event), cuda_stream(stream)));
  };
  t.event_synchronize = [](void* event) {
    // Sleeping and waking takes longer than most copies.
    const cudaError_t now = cudaEventQuery(event_of(event));
    if (now != cudaErrorNotReady) return checked(now);
    cudaGetLastError();
    return checked(cudaEventSynchronize(event_of(event)));
  };
  t.event_query = [](void* event, u32* is_done) {
    // In the default mode it would break a graph that another thread captures meanwhile.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (int error = checked(cudaThreadExchangeStreamCaptureMode(&mode))) return error;
    const cudaError_t now = cudaEventQuery(event_of(event));
    if (int error = checked(cudaThreadExchangeStreamCaptureMode(&mode))) return error;
    *is_done = now == cudaSuccess;
    return now == cudaErrorNotReady ? (cudaGetLastError(), 0) : checked(now);
  };
  t.stream_captures = [](void* stream, u32* captures) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const int error = checked(cudaStreamIsCapturing(cuda_stream(stream), &status));
    *captures = status != cudaStreamCaptureStatusNone;
    return error;
  };
  t.event_elapsed_ms = [](float* ms, void* from, void* to) {
    return checked(cudaEventElapsedTime(ms, event_of(from), event_of(to)));
  };
  t.copy_to_device = [](void* to, const void* from, u64 n, void* stream) {
    return checked(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, cuda_stream(stream)));
  };
  t.copy_from_device = [](void* to, const void* from, u64 n, void* stream) {
    return checked(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToHost, cuda_stream(stream)));
  };
  t.copy_inside = [](void* to, const void* from, u64 n, void* stream) {
    return checked(cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, cuda_stream(stream)));
  };
  t.fill = [](void* to, int byte, u64 n, void* stream) {
    return checked(cudaMemsetAsync(to, byte, n, cuda_stream(stream)));
  };
  return t;
}

}  // namespace
}  // namespace rockmill::ROCKMILL_TARGET

extern "C" const rockmill::ROCKMILL_TARGET::KernelTable* rockmill_cuda_kernels() {
  static const rockmill::ROCKMILL_TARGET::KernelTable table = rockmill::ROCKMILL_TARGET::make();
  return &table;
}

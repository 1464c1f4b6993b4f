// Words that several threads use at once, on the device or on the host. Relaxed operations order nothing else. Those of
// the system are shared by the device and the host, and order earlier writes.
#pragma once

#include "types.hpp"

#if !defined(__CUDACC_RTC__)
#include <ctime>
#endif

namespace rockmill::ROCKMILL_TARGET {

// Stores `to` if the value is `from`, and returns the previous value.
ROCKMILL_HD u64 compare_and_swap(u64* at, u64 from, u64 to) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(reinterpret_cast<unsigned long long*>(at), static_cast<unsigned long long>(from),
                   static_cast<unsigned long long>(to));
#else
  __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return from;
#endif
}

ROCKMILL_HD u64 load_relaxed(const u64* at) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const volatile u64*>(at);
#else
  return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

ROCKMILL_HD u32 load_relaxed(const u32* at) {
#if defined(__CUDA_ARCH__)
  return *reinterpret_cast<const volatile u32*>(at);
#else
  return __atomic_load_n(at, __ATOMIC_RELAXED);
#endif
}

ROCKMILL_HD void add_relaxed(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

// Returns the previous value.
ROCKMILL_HD u64 fetch_add(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

ROCKMILL_HD void or_relaxed(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicOr(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  __atomic_fetch_or(to, value, __ATOMIC_RELAXED);
#endif
}

// Acquires a word with the value `from`, together with all writes before its release.
ROCKMILL_HD bool acquire_word(u32* at, u32 from, u32 to) {
#if defined(__CUDA_ARCH__)
  const bool is_taken = atomicCAS(at, from, to) == from;
  __threadfence();
  return is_taken;
#else
  return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
#endif
}

ROCKMILL_HD void release_word(u32* at, u32 value) {
#if defined(__CUDA_ARCH__)
  __threadfence();
  *reinterpret_cast<volatile u32*>(at) = value;
#else
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
#endif
}

ROCKMILL_HD u32 acquire_of_system(const u32* at) {
#if defined(__CUDA_ARCH__)
  u32 value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
#else
  return __atomic_load_n(at, __ATOMIC_ACQUIRE);
#endif
}

ROCKMILL_HD void release_to_system(u32* at, u32 value) {
#if defined(__CUDA_ARCH__)
  __threadfence_system();
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
#else
  __atomic_store_n(at, value, __ATOMIC_RELEASE);
#endif
}

// Makes the device read memory into its cache. Nothing waits for it.
ROCKMILL_HD void fetch_ahead(const void* at) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  (void)at;
#endif
}

// A number that concurrent threads hardly share.
ROCKMILL_HD u64 thread_mark() {
#if defined(__CUDA_ARCH__)
  const u64 block = (u64(blockIdx.z) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  return ((block * blockDim.z + threadIdx.z) * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
#else
  return reinterpret_cast<u64>(__builtin_frame_address(0));
#endif
}

// Nanoseconds since an arbitrary time.
ROCKMILL_HD u64 clock_ns() {
#if defined(__CUDA_ARCH__)
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return u64(now.tv_sec) * 1'000'000'000 + u64(now.tv_nsec);
#endif
}

// Pauses for about `ns` nanoseconds, less than a second.
ROCKMILL_HD void sleep_ns(u32 ns) {
#if defined(__CUDA_ARCH__)
  __nanosleep(ns);
#else
  const timespec time{0, long(ns)};
  nanosleep(&time, nullptr);
#endif
}

}  // namespace rockmill::ROCKMILL_TARGET

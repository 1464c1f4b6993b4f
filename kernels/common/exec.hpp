// Runs functors over many items, and the device-wide primitives: kernels and CUB on the device, loops on the host.
// Stages use only this header for it.
//
//   for_each(exec, n, f)          f(i), a thread each
//   for_each_group(exec, n, f)    f(group, i), a warp each
//   for_each_tile<W>(exec, n, f)  f(group, i), a tile of W lanes each
//   for_each_group_with_shared<T>(exec, n, f)
//                                 f(group, i, t), a warp each; t is a T in the shared memory of the warp
//   for_each_of_groups_with_shared<T>(exec, n, f, groups, next)
//                                 f(group, i, t, k), by `groups` groups, an even number: group k < groups takes an item
//                                 when it is done with the one before; next is a counter that is 0
//   for_each_with_words(exec, n, count, f), for_each_group_with_words(exec, n, count, f)
//                                 f(i, words), f(group, i, words); each thread has `count` words of shared memory
//   for_each_of(exec, count, most, f)
//                                 f(k, i) for each i < f.items(k) <= most and k < count, a thread each
//   accumulate(exec, n, f, out)   f(i, sums), then all sums merged into *out
//   accumulate_each<Sums>(exec, count, most, f)
//                                 f(k, i, sums) for each i < f.items(k) <= most and k < count, those of k merged into f.out(k)
//   exclusive_sum(exec, in, out, n), inclusive_max(exec, in, out, n), merge_two(exec, ..)
//
// Nothing here waits for the device.
#pragma once

#include <algorithm>
#include <vector>

#include "atomic.hpp"
#include "group.hpp"
#include "tuning.hpp"

#if defined(__CUDACC__)
#include <cub/cub.cuh>
#endif

namespace rockmill::ROCKMILL_TARGET {

// A stream for queued work, with scratch memory that the caller sized by scratch_bytes().
struct Exec {
  void* stream;
  void* scratch;
  u64 scratch_bytes;
  // Multiprocessors of the device.
  u32 processors;
  u32 unused;
};

// Words of a thread. Those of neighbouring threads lie side by side.
struct ThreadWords {
  u64* first;
  // From one word to the next.
  u32 step;

  ROCKMILL_HD u64& operator[](u32 k) const { return first[u64(k) * step]; }
};

#if defined(__CUDACC__)
constexpr u32 SHARED_THREADS = WARPS_WITH_SHARED * Warp::width;

// Blocks of a grid for `count` threads.
inline u32 grid_blocks(const Exec& exec, u64 count, u32 block_threads = THREADS,
                       u32 blocks_per_processor = BLOCKS_PER_PROCESSOR) {
  const u64 most = u64(std::max<u32>(exec.processors, 1)) * blocks_per_processor * (THREADS / block_threads);
  return u32(std::min<u64>(std::max<u64>((count + block_threads - 1) / block_threads, 1), most));
}

inline cudaStream_t stream_of(const Exec& exec) { return static_cast<cudaStream_t>(exec.stream); }

template <class F>
__global__ void __launch_bounds__(THREADS) each_kernel(u64 n, F f) {
  const u64 step = u64(gridDim.x) * THREADS;
  for (u64 i = u64(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) f(i);
}

template <class F>
__global__ void __launch_bounds__(THREADS) each_group_kernel(u64 n, F f) {
  const u64 step = u64(gridDim.x) * (THREADS / Warp::width);
  const u64 first = (u64(blockIdx.x) * THREADS + threadIdx.x) / Warp::width;
  for (u64 i = first; i < n; i += step) f(Warp{}, i);
}

template <u32 W, class F>
__global__ void __launch_bounds__(THREADS) each_tile_kernel(u64 n, F f) {
  const u64 step = u64(gridDim.x) * (THREADS / W);
  const u64 first = (u64(blockIdx.x) * THREADS + threadIdx.x) / W;
  for (u64 i = first; i < n; i += step) f(Tile<W>{}, i);
}

template <class F>
__global__ void __launch_bounds__(THREADS) each_with_words_kernel(u64 n, const __grid_constant__ F f) {
  extern __shared__ u64 words[];
  const u64 step = u64(gridDim.x) * blockDim.x;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
    f(i, ThreadWords{words + threadIdx.x, blockDim.x});
}

template <class F>
__global__ void __launch_bounds__(THREADS) each_group_with_words_kernel(u64 n, const __grid_constant__ F f) {
  extern __shared__ u64 words[];
  const u64 step = u64(gridDim.x) * (blockDim.x / Warp::width);
  const u64 first = (u64(blockIdx.x) * blockDim.x + threadIdx.x) / Warp::width;
  for (u64 i = first; i < n; i += step) f(Warp{}, i, ThreadWords{words + threadIdx.x, blockDim.x});
}

template <class T, class F>
__global__ void __launch_bounds__(SHARED_THREADS, BLOCKS_WITH_SHARED)
    each_group_with_shared_kernel(u64 n, F f) {
  constexpr u32 warps = WARPS_WITH_SHARED;
  __shared__ T shared[warps];
  const u32 warp = threadIdx.x / Warp::width;
  const u64 step = u64(gridDim.x) * warps;
  for (u64 i = u64(blockIdx.x) * warps + warp; i < n; i += step) {
    f(Warp{}, i, shared[warp]);
    // No lane writes for the next item while another one still reads for this one.
    Warp{}.sync();
  }
}

// Fewer blocks may run at once than there are; late ones find no items left.
template <class T, class F>
__global__ void __launch_bounds__(SHARED_THREADS, BLOCKS_WITH_SHARED)
    each_of_groups_with_shared_kernel(u64 n, F f, u64* next) {
  constexpr u32 warps = WARPS_WITH_SHARED;
  __shared__ T shared[warps];
  const u32 warp = threadIdx.x / Warp::width;
  const auto take = [&] {
    u64 i = 0;
    if (Warp{}.rank() == 0) i = atomicAdd(reinterpret_cast<unsigned long long*>(next), 1ull);
    return Warp{}.shuffle(i, 0);
  };
  for (u64 i = take(); i < n; i = take()) {
    f(Warp{}, i, shared[warp], u64(blockIdx.x) * warps + warp);
    Warp{}.sync();
  }
}

// The sums of a warp's lanes, in its first lane.
template <class Sums>
__device__ void add_up_lanes(Sums& sums) {
  for (u32 mask = Warp::width / 2; mask > 0; mask /= 2) {
    Sums other;
    for (u32 w = 0; w < Sums::words; ++w)
      other.word(w) = Warp{}.shuffle_xor(sums.word(w), mask);
    sums.merge(other);
  }
}

// The grid is one of `count` rows of blocks.
template <class F>
__global__ void __launch_bounds__(THREADS) each_of_kernel(const __grid_constant__ F f) {
  const u64 n = f.items(blockIdx.y), step = u64(gridDim.x) * THREADS;
  for (u64 i = u64(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) f(blockIdx.y, i);
}

template <class Sums, class F>
__device__ void accumulate_in_block(u64 n, const F& f, typename Sums::Total* out) {
  constexpr u32 warps = THREADS / Warp::width;
  __shared__ Sums of_warps[warps];
  if (u64(blockIdx.x) * THREADS >= n) return;
  Sums sums = Sums::zero();
  const u64 step = u64(gridDim.x) * THREADS;
  for (u64 i = u64(blockIdx.x) * THREADS + threadIdx.x; i < n; i += step) f(i, sums);
  add_up_lanes(sums);
  if (Warp{}.rank() == 0) of_warps[threadIdx.x / Warp::width] = sums;
  __syncthreads();
  if (threadIdx.x >= Warp::width) return;
  sums = threadIdx.x < warps ? of_warps[threadIdx.x] : Sums::zero();
  add_up_lanes(sums);
  // Atomic operations on one address wait for each other, so a block has one for each word.
  if (threadIdx.x == 0) sums.merge_into(*out);
}

template <class Sums, class F>
__global__ void __launch_bounds__(THREADS) accumulate_kernel(u64 n, F f, typename Sums::Total* out) {
  accumulate_in_block<Sums>(n, f, out);
}

template <class Sums, class F>
__global__ void __launch_bounds__(THREADS) accumulate_each_kernel(const __grid_constant__ F f) {
  const u32 k = blockIdx.y;
  const auto one = [&](u64 i, Sums& sums) { f(k, i, sums); };
  accumulate_in_block<Sums>(f.items(k), one, f.out(k));
}

template <class F>
int for_each(const Exec& exec, u64 n, F f) {
  if (n == 0) return 0;
  each_kernel<<<grid_blocks(exec, n), THREADS, 0, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

template <class F>
int for_each_of(const Exec& exec, u32 count, u64 most, F f) {
  if (count == 0 || most == 0) return 0;
  each_of_kernel<<<dim3(grid_blocks(exec, most), count), THREADS, 0, stream_of(exec)>>>(f);
  return cudaGetLastError();
}

template <class F>
int for_each_group(const Exec& exec, u64 n, F f) {
  if (n == 0) return 0;
  each_group_kernel<<<grid_blocks(exec, n * Warp::width), THREADS, 0, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

// Shared memory that every device gives a block.
constexpr u32 SHARED_BYTES = 48 << 10;

// Threads of a block with `count` words each: as many as fit.
inline u32 threads_with_words(u32 count) {
  const u32 fitting = SHARED_BYTES / (std::max<u32>(count, 1) * sizeof(u64));
  return std::max<u32>(std::min(fitting, THREADS) / Warp::width, 1) * Warp::width;
}

template <class F>
int for_each_with_words(const Exec& exec, u64 n, u32 count, F f) {
  if (n == 0) return 0;
  const u32 threads = threads_with_words(count), bytes = threads * count * u32(sizeof(u64));
  each_with_words_kernel<<<grid_blocks(exec, n, threads), threads, bytes, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

template <class F>
int for_each_group_with_words(const Exec& exec, u64 n, u32 count, F f) {
  if (n == 0) return 0;
  const u32 threads = threads_with_words(count), bytes = threads * count * u32(sizeof(u64));
  const u32 blocks = grid_blocks(exec, n * Warp::width, threads);
  each_group_with_words_kernel<<<blocks, threads, bytes, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

template <u32 W, class F>
int for_each_tile(const Exec& exec, u64 n, F f) {
  if (n == 0) return 0;
  each_tile_kernel<W><<<grid_blocks(exec, n * W), THREADS, 0, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

template <class T, class F>
int for_each_group_with_shared(const Exec& exec, u64 n, F f) {
  static_assert(sizeof(T) * WARPS_WITH_SHARED <= 48 << 10, "static shared memory of a block");
  if (n == 0) return 0;
  const u32 blocks = grid_blocks(exec, n * Warp::width, SHARED_THREADS);
  each_group_with_shared_kernel<T><<<blocks, SHARED_THREADS, 0, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}

template <class T, class F>
int for_each_of_groups_with_shared(const Exec& exec, u64 n, F f, u64 groups, u64* next) {
  if (n == 0) return 0;
  const u32 blocks = u32(groups / WARPS_WITH_SHARED);
  each_of_groups_with_shared_kernel<T><<<blocks, SHARED_THREADS, 0, stream_of(exec)>>>(n, f, next);
  return cudaGetLastError();
}

// `out` has totals of nothing, or totals to add to.
template <class Sums, class F>
int accumulate(const Exec& exec, u64 n, F f, typename Sums::Total* out) {
  if (n == 0) return 0;
  const u32 blocks = grid_blocks(exec, n, THREADS, SUMMING_BLOCKS_PER_PROCESSOR);
  accumulate_kernel<Sums><<<blocks, THREADS, 0, stream_of(exec)>>>(n, f, out);
  return cudaGetLastError();
}

template <class Sums, class F>
int accumulate_each(const Exec& exec, u32 count, u64 most, F f) {
  if (count == 0 || most == 0) return 0;
  const u32 blocks = grid_blocks(exec, most, THREADS, SUMMING_BLOCKS_PER_PROCESSOR);
  accumulate_each_kernel<Sums><<<dim3(blocks, count), THREADS, 0, stream_of(exec)>>>(f);
  return cudaGetLastError();
}

template <class In, class Out>
int exclusive_sum(const Exec& exec, const In* in, Out* out, u64 n) {
  size_t bytes = exec.scratch_bytes;
  return cub::DeviceScan::ExclusiveScan(exec.scratch, bytes, in, out, cuda::std::plus<>{}, Out{0}, n,
                                        stream_of(exec));
}

inline int inclusive_max(const Exec& exec, const u32* in, u32* out, u64 n) {
  size_t bytes = exec.scratch_bytes;
  return cub::DeviceScan::InclusiveScan(exec.scratch, bytes, in, out, cuda::maximum<>{}, n,
                                        stream_of(exec));
}

// Merges two ascending ranges. CUB's merge is not stable, so no two items may be equal.
template <class T, class Less>
int merge_two(const Exec& exec, const T* a, u64 na, const T* b, u64 nb, T* out, Less less) {
  size_t bytes = exec.scratch_bytes;
  return cub::DeviceMerge::MergeKeys(exec.scratch, bytes, a, int64_t(na), b, int64_t(nb), out, less,
                                     stream_of(exec));
}

template <class T, class Less>
u64 scratch_bytes_for(u64 n) {
  size_t scan32 = 0, scan64 = 0, max = 0, merge = 0, wide = 0;
  cub::DeviceScan::ExclusiveScan(nullptr, scan32, (u32*)nullptr, (u32*)nullptr, cuda::std::plus<>{},
                                 u32{0}, n);
  cub::DeviceScan::ExclusiveScan(nullptr, scan64, (u32*)nullptr, (u64*)nullptr, cuda::std::plus<>{},
                                 u64{0}, n);
  cub::DeviceScan::ExclusiveScan(nullptr, wide, (u64*)nullptr, (u64*)nullptr, cuda::std::plus<>{},
                                 u64{0}, n);
  cub::DeviceScan::InclusiveScan(nullptr, max, (u32*)nullptr, (u32*)nullptr, cuda::maximum<>{}, n);
  cub::DeviceMerge::MergeKeys(nullptr, merge, (T*)nullptr, int64_t(n), (T*)nullptr, int64_t(n),
                              (T*)nullptr, Less{});
  return std::max<u64>({scan32, scan64, wide, max, merge});
}

ROCKMILL_HD void atomic_add(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  *to += value;
#endif
}
ROCKMILL_HD void atomic_min(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicMin(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  if (value < *to) *to = value;
#endif
}
ROCKMILL_HD void atomic_max(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  atomicMax(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
#else
  if (value > *to) *to = value;
#endif
}
// Stores a value if the word is 0. Returns the previous value.
ROCKMILL_HD u64 atomic_claim(u64* to, u64 value) {
#if defined(__CUDA_ARCH__)
  return atomicCAS(reinterpret_cast<unsigned long long*>(to), 0ull, static_cast<unsigned long long>(value));
#else
  const u64 before = *to;
  if (before == 0) *to = value;
  return before;
#endif
}
ROCKMILL_HD void atomic_or(u32* to, u32 value) {
#if defined(__CUDA_ARCH__)
  atomicOr(to, value);
#else
  *to |= value;
#endif
}

#else
template <class F>
int for_each(const Exec&, u64 n, F f) {
  for (u64 i = 0; i < n; ++i) f(i);
  return 0;
}

template <class F>
int for_each_of(const Exec&, u32 count, u64, F f) {
  for (u32 k = 0; k < count; ++k)
    for (u64 i = 0; i < f.items(k); ++i) f(k, i);
  return 0;
}

template <class F>
int for_each_group(const Exec&, u64 n, F f) {
  for (u64 i = 0; i < n; ++i) f(SingleThread{}, i);
  return 0;
}

template <class F>
int for_each_with_words(const Exec&, u64 n, u32 count, F f) {
  std::vector<u64> words(count);
  for (u64 i = 0; i < n; ++i) f(i, ThreadWords{words.data(), 1});
  return 0;
}

template <class F>
int for_each_group_with_words(const Exec&, u64 n, u32 count, F f) {
  std::vector<u64> words(count);
  for (u64 i = 0; i < n; ++i) f(SingleThread{}, i, ThreadWords{words.data(), 1});
  return 0;
}

template <u32 W, class F>
int for_each_tile(const Exec&, u64 n, F f) {
  for (u64 i = 0; i < n; ++i) f(SingleThread{}, i);
  return 0;
}

template <class T, class F>
int for_each_group_with_shared(const Exec&, u64 n, F f) {
  T shared;
  for (u64 i = 0; i < n; ++i) f(SingleThread{}, i, shared);
  return 0;
}

template <class T, class F>
int for_each_of_groups_with_shared(const Exec&, u64 n, F f, u64 groups, u64*) {
  T shared;
  for (u64 i = 0; i < n; ++i) f(SingleThread{}, i, shared, i % groups);
  return 0;
}

template <class Sums, class F>
int accumulate(const Exec&, u64 n, F f, typename Sums::Total* out) {
  Sums sums = Sums::zero();
  for (u64 i = 0; i < n; ++i) f(i, sums);
  sums.merge_into(*out);
  return 0;
}

template <class Sums, class F>
int accumulate_each(const Exec&, u32 count, u64, F f) {
  for (u32 k = 0; k < count; ++k) {
    Sums sums = Sums::zero();
    for (u64 i = 0; i < f.items(k); ++i) f(k, i, sums);
    sums.merge_into(*f.out(k));
  }
  return 0;
}

template <class In, class Out>
int exclusive_sum(const Exec&, const In* in, Out* out, u64 n) {
  Out sum = 0;
  for (u64 i = 0; i < n; ++i) {
    const Out value = in[i];
    out[i] = sum;
    sum += value;
  }
  return 0;
}

inline int inclusive_max(const Exec&, const u32* in, u32* out, u64 n) {
  u32 max = 0;
  for (u64 i = 0; i < n; ++i) out[i] = max = std::max(max, in[i]);
  return 0;
}

template <class T, class Less>
int merge_two(const Exec&, const T* a, u64 na, const T* b, u64 nb, T* out, Less less) {
  // Equal items of `b` come first here, so that a caller that relies on a stable merge fails its tests on the host as
  // well.
  std::merge(b, b + nb, a, a + na, out, less);
  return 0;
}

template <class T, class Less>
u64 scratch_bytes_for(u64) {
  return 1;
}

inline void atomic_add(u64* to, u64 value) { *to += value; }
inline void atomic_min(u64* to, u64 value) { *to = std::min(*to, value); }
inline void atomic_max(u64* to, u64 value) { *to = std::max(*to, value); }
inline u64 atomic_claim(u64* to, u64 value) {
  const u64 before = *to;
  if (before == 0) *to = value;
  return before;
}
inline void atomic_or(u32* to, u32 value) { *to |= value; }

#endif

// Records an error of block or entry `at`; the first one is reported.
ROCKMILL_HD void report(u64* errors, u64 at, ErrorCode code) { atomic_min(errors, at << 8 | code); }

}  // namespace rockmill::ROCKMILL_TARGET

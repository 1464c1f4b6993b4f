// The functions that the benchmark calls. dev/bench/src/gpukv/kernels.rs has the same table.
#pragma once

#include "functors.hpp"

namespace rockmill::ROCKMILL_TARGET::bench {

// A tile of cooperative groups for each item, as in programs of users; on the host, a thread.
#if defined(__CUDACC__)
template <u32 W, class F>
__global__ void __launch_bounds__(THREADS) tiles_kernel(u64 n, F f) {
  const auto tile = cooperative_groups::tiled_partition<W>(cooperative_groups::this_thread_block());
  const u64 step = u64(gridDim.x) * (THREADS / W);
  for (u64 i = (u64(blockIdx.x) * THREADS + threadIdx.x) / W; i < n; i += step) f(tile, i);
}

template <u32 W, class F>
int launch(const Exec& exec, u64 n, const F& f) {
  if (n == 0) return 0;
  tiles_kernel<W><<<grid_blocks(exec, n * W), THREADS, 0, stream_of(exec)>>>(n, f);
  return cudaGetLastError();
}
#else
template <u32 W, class F>
int launch(const Exec&, u64 n, const F& f) {
  for (u64 i = 0; i < n; ++i) f(rockmill::thread{}, i);
  return 0;
}
#endif

// Lanes of the kernels with a fixed number of lanes: for values of some words, and for long values or requests that
// wait.
constexpr u32 LANES = 8, WIDE_LANES = 32;

constexpr int NO_SUCH_WIDTH = -1;

template <class F>
int launch_with(const Exec& exec, u32 lanes, u64 n, const F& f) {
  switch (lanes) {
    case 1: return launch<1>(exec, n, f);
    case 2: return launch<2>(exec, n, f);
    case 4: return launch<4>(exec, n, f);
    case 8: return launch<8>(exec, n, f);
    case 16: return launch<16>(exec, n, f);
    case 32: return launch<32>(exec, n, f);
  }
  return NO_SUCH_WIDTH;
}

rockmill::kv kv_of(const KvRecord* record) {
  rockmill::kv kv{};
  static_cast<KvRecord&>(kv) = *record;
  return kv;
}

// A view, or dense values if there is none.
struct WalkArgs {
  const KvRecord* view;
  DenseValues dense;
  u64* numbers;
  u64* sums;
  u64 keys;
  u32 steps;
  u32 words;
  u32* step_ticks;
  u64* wrong;
};

// A view, or dense lists if there is none.
struct ListArgs {
  const KvRecord* view;
  DenseLists dense;
};

template <class Values>
int walk_over(const Exec& exec, u64 n, const WalkArgs& a, const Values& values) {
  const Walk<Values> walk{values, a.numbers, a.sums, a.keys, a.steps, a.words, a.step_ticks, a.wrong};
  return a.words > 2 * WIDE_LANES ? launch<WIDE_LANES>(exec, n, walk) : launch<LANES>(exec, n, walk);
}

struct Table {
  int (*zero)(const Exec*, u64* words, u64 n);
  int (*wait)(const Exec*);
  const char* (*error_text)(int error);
  int (*make_keys)(const Exec*, u64 n, const MakeKeys*);
  int (*check_rows)(const Exec*, u64 n, const CheckRows*);
  int (*gather)(const Exec*, u64 n, const Gather*);
  // The library's own lookup, with other tiles.
  int (*look_up)(const Exec*, u32 lanes, u64 n, const KvRecord* view, const NumberedKey* keys, u8* rows, u64 stride,
                 u8* statuses);
  int (*get)(const Exec*, u32 lanes, u64 n, const KvRecord* view, const NumberedKey* keys, u8* rows, u64 stride,
             u8* statuses);
  int (*walk)(const Exec*, u64 n, const WalkArgs*);
  int (*expand)(const Exec*, u64 n, const ListArgs*, const u32* frontier, u32 level, u32* levels, u32* next,
                u64* next_len);
  int (*share_rank)(const Exec*, u64 n, const ListArgs*, u32 first, const u64* ranks, u64* shares);
  int (*sum_ranks)(const Exec*, u64 n, u64* ranks, u64* shares);
  int (*request)(const Exec*, u64 n, const KvRecord* view, const u64* numbers, u32 each, u64 version, u32 words,
                 u64 period_ns, u64* rows, u32* times_ns, u64* wrong);
  int (*mix)(const Exec*, u64 n, const KvRecord* view, const u64* numbers, const NumberedKey* keys, u8* rows, u64 stride,
             u8* statuses, u32 put_every, u64 version, u64* wrong);
  int (*place)(const Exec*, u64 n, u64* slots, u64 buckets, u8* records, u32 words, u64* wrong, KvRecord* view);
};

struct Zero {
  u64* words;
  ROCKMILL_HD void operator()(u64 i) const { words[i] = 0; }
};

Table make() {
  Table t{};
  t.zero = [](const Exec* exec, u64* words, u64 n) { return for_each(*exec, n, Zero{words}); };
#if defined(__CUDACC__)
  // It spins at first, and then yields the processor to threads that answer kernels.
  t.wait = [](const Exec* exec) {
    constexpr u64 SPIN_NS = 1'000'000;
    constexpr u32 PAUSE_NS = 20'000;
    const u64 start = clock_ns();
    for (;;) {
      const cudaError_t code = cudaStreamQuery(stream_of(*exec));
      if (code != cudaErrorNotReady) return int(code);
      if (clock_ns() - start > SPIN_NS) sleep_ns(PAUSE_NS);
    }
  };
  t.error_text = [](int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); };
#else
  t.wait = [](const Exec*) { return 0; };
  t.error_text = [](int) { return "no such number of lanes"; };
#endif
  t.make_keys = [](const Exec* exec, u64 n, const MakeKeys* make) { return for_each(*exec, n, *make); };
  t.check_rows = [](const Exec* exec, u64 n, const CheckRows* check) { return for_each_tile<LANES>(*exec, n, *check); };
  t.gather = [](const Exec* exec, u64 n, const Gather* gather) {
    return gather->from.stride > 16 * LANES ? for_each_group(*exec, n, *gather) : for_each_tile<4>(*exec, n, *gather);
  };
  t.look_up = [](const Exec* exec, u32 lanes, u64 n, const KvRecord* view, const NumberedKey* keys, u8* rows, u64 stride,
                 u8* statuses) {
    const LookUp<false, false> look_up{Kv{*view}, reinterpret_cast<const u8*>(keys), nullptr, KEY_BYTES, rows,
                                       stride,    nullptr, statuses, nullptr, nullptr, nullptr, {}, 0};
    switch (lanes) {
      case 2: return for_each_tile<2>(*exec, n, look_up);
      case 4: return for_each_tile<4>(*exec, n, look_up);
      case 8: return for_each_tile<8>(*exec, n, look_up);
      case 16: return for_each_tile<16>(*exec, n, look_up);
    }
    return NO_SUCH_WIDTH;
  };
  t.get = [](const Exec* exec, u32 lanes, u64 n, const KvRecord* view, const NumberedKey* keys, u8* rows, u64 stride,
             u8* statuses) {
    return launch_with(*exec, lanes, n, Get{kv_of(view), keys, rows, stride, statuses});
  };
  t.walk = [](const Exec* exec, u64 n, const WalkArgs* a) {
    if (a->view == nullptr) return walk_over(*exec, n, *a, a->dense);
    return walk_over(*exec, n, *a, ViewValues{kv_of(a->view)});
  };
  t.expand = [](const Exec* exec, u64 n, const ListArgs* lists, const u32* frontier, u32 level, u32* levels, u32* next,
                u64* next_len) {
    if (lists->view == nullptr)
      return launch<LANES>(*exec, n, Expand<DenseLists>{lists->dense, frontier, level, levels, next, next_len});
    return launch<LANES>(*exec, n, Expand<ViewLists>{{kv_of(lists->view)}, frontier, level, levels, next, next_len});
  };
  t.share_rank = [](const Exec* exec, u64 n, const ListArgs* lists, u32 first, const u64* ranks, u64* shares) {
    if (lists->view == nullptr)
      return launch<LANES>(*exec, n, ShareRank<DenseLists>{lists->dense, first, ranks, shares});
    return launch<LANES>(*exec, n, ShareRank<ViewLists>{{kv_of(lists->view)}, first, ranks, shares});
  };
  t.sum_ranks = [](const Exec* exec, u64 n, u64* ranks, u64* shares) {
    return for_each(*exec, n, SumRanks{ranks, shares});
  };
  t.request = [](const Exec* exec, u64 n, const KvRecord* view, const u64* numbers, u32 each, u64 version, u32 words,
                 u64 period_ns, u64* rows, u32* times_ns, u64* wrong) {
    const Request request{kv_of(view), numbers, each, version, words, period_ns, rows, times_ns, wrong};
    return launch<WIDE_LANES>(*exec, n, request);
  };
  t.mix = [](const Exec* exec, u64 n, const KvRecord* view, const u64* numbers, const NumberedKey* keys, u8* rows,
             u64 stride, u8* statuses, u32 put_every, u64 version, u64* wrong) {
    const Get get{kv_of(view), keys, rows, stride, statuses};
    return launch<LANES>(*exec, n, Mixed{get, numbers, put_every, version, wrong});
  };
  t.place = [](const Exec* exec, u64 n, u64* slots, u64 buckets, u8* records, u32 words, u64* wrong, KvRecord* view) {
    *view = KvRecord{};
    view->abi = KV_ABI;
    view->table = {slots, buckets, PRIME64_5, ~u64{0}, nullptr, nullptr, 0};
    return for_each_tile<LANES>(*exec, n, InsertNumbers{view->table, records, words, wrong});
  };
  return t;
}

}  // namespace rockmill::ROCKMILL_TARGET::bench

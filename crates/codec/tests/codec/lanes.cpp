// The codecs over groups of several lanes, emulated on one thread of the host: each lane has a stack of its own, and
// runs until it waits for the others. So what differs between a warp and one thread shows without a GPU.

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "codec/lz4.hpp"
#include "codec/snappy.hpp"
#include "codec/zstd_encode.hpp"
#include "codec/zstd.hpp"

using namespace rockmill::host_target;

namespace {

constexpr u32 MOST_LANES = 32;
constexpr size_t STACK_BYTES = 64 << 10;

struct Machine {
  u32 lanes;
  // Lanes run in the order of their places, which may be that of their ranks or the other way round.
  u32 current, ended;
  std::function<u32(u32 place)> code;
  ucontext_t caller, contexts[MOST_LANES];
  u64 values[MOST_LANES];
  u32 results[MOST_LANES];

  void next() {
    const u32 from = current;
    current = (current + 1) % lanes;
    swapcontext(&contexts[from], &contexts[current]);
  }
  // A barrier.
  void wait() {
    if (ended > 0) fail("a lane waits for one that has returned");
    next();
  }
  [[noreturn]] static void fail(const char* why) {
    std::fprintf(stderr, "%s\n", why);
    std::abort();
  }
};

// A test has a thread of its own.
thread_local Machine machine;

void run_lane() {
  const u32 place = machine.current;
  machine.results[place] = machine.code(place);
  if (++machine.ended < machine.lanes) machine.next();
}

// The code's result, which must be the same on all lanes.
u32 run(u32 lanes, std::function<u32(u32)> code) {
  thread_local std::vector<char> stacks(MOST_LANES * STACK_BYTES);
  machine.lanes = lanes;
  machine.current = machine.ended = 0;
  machine.code = std::move(code);
  for (u32 i = 0; i < lanes; ++i) {
    ucontext_t& context = machine.contexts[i];
    getcontext(&context);
    context.uc_stack.ss_sp = &stacks[i * STACK_BYTES];
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = &machine.caller;
    makecontext(&context, run_lane, 0);
  }
  swapcontext(&machine.caller, &machine.contexts[0]);
  for (u32 i = 1; i < lanes; ++i)
    if (machine.results[i] != machine.results[0]) Machine::fail("lanes return different results");
  return machine.results[0];
}

template <u32 W>
struct Emulated {
  static constexpr u32 width = W;
  u32 own;
  u32 rank() const { return own; }
  void sync() const { machine.wait(); }
  u32 ballot(bool value) const {
    u32 bits = 0;
    exchange(value, [&](u32 i, u64 other) { bits |= u32(other) << i; });
    return bits;
  }
  bool any(bool value) const { return ballot(value) != 0; }
  u32 peers(u32 value) const {
    u32 bits = 0;
    exchange(value, [&](u32 i, u64 other) { bits |= u32(other == value) << i; });
    return bits;
  }
  bool all(bool value) const { return ballot(!value) == 0; }
  u64 sum64(u64 value) const { return sum_of(value, W); }
  u64 sum64_below(u64 value) const { return sum_of(value, own); }
  u32 max(u32 value) const {
    u32 most = 0;
    exchange(value, [&](u32, u64 other) { most = other > most ? u32(other) : most; });
    return most;
  }
  u32 sum(u32 value) const { return u32(sum64(value)); }
  u32 sum_below(u32 value) const { return u32(sum64_below(value)); }
  template <class T>
  T shuffle(T value, u32 from) const {
    T result{};
    exchange(value, [&](u32 i, u64 other) {
      if (i == from) result = T(other);
    });
    return result;
  }

 private:
  u64 sum_of(u64 value, u32 lanes) const {
    u64 sum = 0;
    exchange(value, [&](u32 i, u64 other) { sum += i < lanes ? other : 0; });
    return sum;
  }
  template <class F>
  void exchange(u64 value, F f) const {
    machine.values[own] = value;
    machine.wait();
    for (u32 i = 0; i < W; ++i) f(i, machine.values[i]);
    machine.wait();
  }
};

enum Codec : u32 { LZ4 = 0, SNAPPY = 1, ZSTD = 2 };

template <u32 W>
u32 run_codec(bool is_reversed, u32 codec, bool decodes, const u8* src, u32 n, u8* dst, u32 m) {
  union {
    MatchTable match;
    ZstdTables zstd;
    ZstdEncodeTables zstd_encode;
  } tables;
  std::vector<u64> scratch(zstd_scratch_bytes(n) / sizeof(u64));
  return run(W, [&](u32 place) {
    const Emulated<W> g{is_reversed ? W - 1 - place : place};
    if (codec == LZ4) return decodes ? lz4_decode(g, src, n, dst, m) : lz4_encode(g, src, n, dst, m, tables.match);
    if (codec == SNAPPY)
      return decodes ? snappy_decode(g, src, n, dst, m) : snappy_encode(g, src, n, dst, m, tables.match);
    return decodes ? zstd_decode(g, src, n, dst, m, tables.zstd)
                   : zstd_encode(g, src, n, dst, m, tables.zstd_encode, reinterpret_cast<u8*>(scratch.data()));
  });
}

}  // namespace

extern "C" u32 rockmill_codec_lanes(u32 width, bool is_reversed, u32 codec, bool decodes, const u8* src, u32 n,
                                    u8* dst, u32 m) {
  const auto run = width == 2 ? run_codec<2> : width == 8 ? run_codec<8> : run_codec<32>;
  return run(is_reversed, codec, decodes, src, n, dst, m);
}

extern "C" u32 rockmill_codec_zstd_lanes(bool is_reversed, const u8* src, u32 n, u8* dst, u32 m) {
  ZstdTables tables;
  return run(MOST_LANES, [&](u32 place) {
    const Emulated<MOST_LANES> g{is_reversed ? MOST_LANES - 1 - place : place};
    return zstd_decode(g, src, n, dst, m, tables);
  });
}

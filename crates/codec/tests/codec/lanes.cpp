// The codecs and resident tables over groups of several lanes, emulated on one thread of the host: each lane has a
// stack of its own, and runs until it waits for the others. So differences between a warp and one thread show without a
// GPU.

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "codec/lz4.hpp"
#include "codec/snappy.hpp"
#include "codec/zstd_encode.hpp"
#include "codec/zstd.hpp"
#include "view/lookup.hpp"
#include "view/revise.hpp"

using namespace rockmill::host_target;

namespace {

constexpr u32 MOST_LANES = 32;
constexpr size_t STACK_BYTES = 64 << 10;

struct Machine {
  u32 lanes;
  // Lanes run in the order of their ranks, or in the reverse order.
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

// Places keys of several lengths in a table, and looks them up together with as many absent keys. Every third has no
// value. Returns 1 + the number of the first key that is not found as it was placed, or 0.
template <u32 W>
u32 run_table(bool is_reversed, u64 seed, u32 n, u64 hash_mask) {
  std::vector<u8> bytes(64), values(64);
  std::vector<Key> rows(2 * n);
  std::vector<u64> at(2 * n), offsets(n + 1), sizes(n + 1);
  std::vector<ValueRef> refs(n);
  u64 state = seed;
  const auto draw = [&state] { return (state = state * 0xd1342543de82ef95 + 1) >> 32; };
  for (u32 i = 0; i < 2 * n; ++i) {
    // Keys are unique: their first four bytes are their number.
    u8 key[64];
    for (u8& byte : key) byte = u8(draw());
    store32(key, i);
    const u32 len = 4 + u32(draw() % 60);
    rows[i] = {word_of(key, len), len <= 8 ? 0 : word_of(key + 8, len - 8), i % 3 == 2 ? 2 : TYPE_VALUE, i, len};
    at[i] = bytes.size();
    bytes.insert(bytes.end(), key, key + len);
  }
  for (u32 i = 0; i < n; ++i) {
    refs[i] = {values.size(), draw() % 70};
    for (u64 k = 0; k < refs[i].len; ++k) values.push_back(u8(draw()));
  }
  bytes.resize(bytes.size() + 64);
  values.resize(values.size() + 64);
  std::vector<SlotPair> slots((n / 6 + 1) * BUCKET_PAIRS);
  const ResidentTable table{slots[0].slots, slots.size() / BUCKET_PAIRS, seed, hash_mask, {}};
  InsertTotals totals{};
  const KeyBytes key_bytes{bytes.data(), at.data()};
  const auto on_lanes = [&](auto f, u32 i) {
    run(W, [&](u32 place) {
      f(Emulated<W>{is_reversed ? W - 1 - place : place}, i);
      return 0u;
    });
  };
  const MeasureRecords measure{values.data(), rows.data(), key_bytes, refs.data(), {}, nullptr, sizes.data(), &totals};
  for (u32 i = 0; i < n; ++i) {
    on_lanes(measure, i);
    offsets[i + 1] = offsets[i] + sizes[i];
  }
  std::vector<RecordWords> records(offsets[n] / RECORD_UNIT + 1);
  const InsertRecords place_row{values.data(), rows.data(), key_bytes, refs.data(), offsets.data(),
                               reinterpret_cast<u8*>(records.data()), {}, table, &totals};
  constexpr u64 STRIDE = 64;
  std::vector<u8> out(2 * n * STRIDE), statuses(2 * n), default_row(STRIDE, 0xee);
  std::vector<u32> lens(2 * n);
  for (u32 i = 0; i < n; ++i) on_lanes(place_row, i);
  if (totals.left_over != 0 || totals.needs_host_in != n / 3) return 1;
  // Each row has the table's value, and records move to other memory.
  totals = {};
  std::vector<u64> seen(slots.size() * 2 / 64 + 1);
  const MeasureRecords again{values.data(), rows.data(), key_bytes, refs.data(), table, seen.data(), sizes.data(), &totals};
  for (u32 i = 0; i < n; ++i) on_lanes(again, i);
  u64 num_seen = 0;
  for (const u64 word : seen) num_seen += __builtin_popcountll(word);
  if (totals.without != n || num_seen != n) return 1;
  std::vector<RecordWords> moved(records.size());
  RecordChunk chunk{reinterpret_cast<u64>(records.data()), 0, 1};
  u64 cursor = 0;
  for (u32 i = 0; i < slots.size() * 2; ++i) MeasureChunks{table, &chunk, 1}(i);
  const MoveRecords move{table, &chunk, 1, reinterpret_cast<u8*>(moved.data()), &cursor};
  for (u32 i = 0; i < slots.size() * 2; ++i) on_lanes(move, i);
  if (chunk.live_bytes != offsets[n] || cursor != offsets[n]) return 1;
  std::memset(records.data(), 0xee, records.size() * sizeof(RecordWords));
  at.push_back(bytes.size() - 64);
  Kv kv{};
  kv.table = table;
  const LookUp<false, false> look_up{kv,     bytes.data(),       at.data(),       bytes.size(), out.data(), STRIDE,
                                     default_row.data(), statuses.data(), lens.data(), nullptr, nullptr, {}, 0};
  for (u32 i = 0; i < 2 * n; ++i) {
    on_lanes(look_up, i);
    const u8* row = &out[i * STRIDE];
    const bool is_in = i < n, has_value = is_in && i % 3 != 2, fits = has_value && refs[i].len <= STRIDE;
    const KeyStatus meant = !is_in       ? KEY_NOT_FOUND
                            : !has_value ? KEY_NEEDS_HOST
                            : fits       ? KEY_FOUND
                                         : KEY_TOO_SMALL;
    if (statuses[i] != meant || lens[i] != (has_value ? refs[i].len : 0)) return 1 + i;
    if (fits && std::memcmp(row, &values[refs[i].at], refs[i].len) != 0) return 1 + i;
    if (meant == KEY_NOT_FOUND && std::memcmp(row, default_row.data(), STRIDE) != 0) return 1 + i;
  }
  return 0;
}

}  // namespace

extern "C" u32 rockmill_table_lanes(u32 width, bool is_reversed, u64 seed, u32 n, u64 hash_mask) {
  const auto run = width == 2   ? run_table<2>
                   : width == 4 ? run_table<4>
                   : width == 8 ? run_table<8>
                   : width == 16 ? run_table<16>
                                 : run_table<32>;
  return run(is_reversed, seed, n, hash_mask);
}

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

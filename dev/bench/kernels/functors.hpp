// The work of the kernels of `rockmill-bench gpukv` for one item, with a tile of lanes or, on the host, a thread.
//
// Keys and values follow from a number, so that every row can be checked. A key is a common prefix of 8 bytes and the
// number, big-endian. Word 0 of a value is its version, and the others follow from number and version.
// dev/bench/src/gpukv/data.rs makes the same keys and values.
#pragma once

#if defined(__CUDACC__)
#include <cooperative_groups.h>
#endif

#include <rockmill/gpukv.cuh>

#include "common/exec.hpp"
#include "view/lookup.hpp"
#include "view/insert.hpp"

namespace rockmill::ROCKMILL_TARGET::bench {

constexpr u64 KEY_START = 0x2e64'7265'626d'756e;  // "numberd."
constexpr u32 KEY_BYTES = 16;
// Word of a value that names the next number of a walk.
constexpr u32 NEXT_WORD = 1;
constexpr u32 UNSEEN = ~u32{0};

struct alignas(KEY_BYTES) NumberedKey {
  u64 start, number;
};

ROCKMILL_HD NumberedKey key_of(u64 number) { return {KEY_START, byte_swap(number)}; }

ROCKMILL_HD u64 value_word(u64 number, u64 version, u64 word) {
  if (word == 0) return version;
  return fold(fold(number ^ PRIME64_1, version ^ PRIME64_2) ^ PRIME64_3, word ^ PRIME64_4);
}

// Sets a word that is UNSEEN; returns false if another thread was first.
ROCKMILL_HD bool see(u32* word, u32 value) {
  if (load_relaxed(word) != UNSEEN) return false;
#if defined(__CUDA_ARCH__)
  return atomicCAS(word, UNSEEN, value) == UNSEEN;
#else
  u32 unseen = UNSEEN;
  return __atomic_compare_exchange_n(word, &unseen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
}

// Reads a clock that is cheap to read.
ROCKMILL_HD u64 ticks() {
#if defined(__CUDA_ARCH__)
  return u64(clock64());
#else
  return clock_ns();
#endif
}

struct MakeKeys {
  const u64* numbers;
  NumberedKey* keys;

  ROCKMILL_HD void operator()(u64 i) const { keys[i] = key_of(numbers[i]); }
};

// Counts rows that are not a value of their key.
struct CheckRows {
  const u64* numbers;
  const u64* rows;
  // Null if rows have no statuses.
  const u8* statuses;
  u64 words;
  u64 max_version;
  u64* wrong;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const u64* row = rows + i * words;
    const u64 version = row[0];
    bool is_right = version <= max_version && (statuses == nullptr || statuses[i] == KEY_FOUND);
    for (u64 j = g.rank(); j < words; j += g.width) is_right &= row[j] == value_word(numbers[i], version, j);
    if (!g.all(is_right) && g.rank() == 0) add_relaxed(wrong, 1);
  }
};

// Contiguous values without keys.
struct DenseValues {
  const u8* values;
  u64 stride;
  // Whether the values are in the order of requests, or by number.
  bool is_ordered;

  template <class Tile>
  ROCKMILL_HD FoundValue find(const Tile&, u64 at, u64 number) const {
    return {KEY_FOUND, u32(stride), values + (is_ordered ? at : number) * stride};
  }
};

struct ViewValues {
  rockmill::kv kv;

  template <class Tile>
  ROCKMILL_HD FoundValue find(const Tile& tile, u64, u64 number) const {
    const NumberedKey key = key_of(number);
    return kv.find(tile, &key, sizeof key);
  }
};

// Copies rows by their numbers, which is the minimal work of a lookup.
struct Gather {
  const u64* numbers;
  DenseValues from;
  u8* rows;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const FoundValue found = from.find(g, i, numbers[i]);
    copy_value(g, rows + i * from.stride, found.data, found.len);
  }
};

struct Get {
  rockmill::kv kv;
  const NumberedKey* keys;
  u8* rows;
  u64 stride;
  u8* statuses;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto got = kv.get(tile, keys + i, KEY_BYTES, rows + i * stride, u32(stride));
    if (group_of(tile).rank() == 0) statuses[i] = got.status;
  }
};

// Gets. One in a fixed number of them is a put followed by a get of the same key.
struct Mixed {
  Get get;
  const u64* numbers;
  u32 put_every;
  u64 version;
  u64* wrong;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto g = group_of(tile);
    if (i % put_every == 0) {
      rockmill::kv own = get.kv;
      u64* row = reinterpret_cast<u64*>(get.rows + i * get.stride);
      for (u64 j = g.rank(); j < get.stride / 8; j += g.width) row[j] = value_word(numbers[i], version, j);
      g.sync();
      const auto ticket = own.put(tile, get.keys + i, KEY_BYTES, row, u32(get.stride));
      if (own.wait(tile, ticket).status != KEY_WRITTEN && g.rank() == 0) add_relaxed(wrong, 1);
    }
    get(tile, i);
  }
};

// Reads values, each of which names the next: `steps` values for each of the numbers, which it replaces by the next
// ones.
template <class Values>
struct Walk {
  Values values;
  u64* numbers;
  u64* sums;
  u64 keys;
  u32 steps;
  u32 words;
  // Ticks of each step of the first walk; may be null.
  u32* step_ticks;
  u64* wrong;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto g = group_of(tile);
    u64 number = numbers[i], sum = 0;
    u64 before = ticks();
    for (u32 step = 0; step < steps; ++step) {
      const FoundValue found = values.find(tile, i, number);
      if (found.status != KEY_FOUND || found.len != 8 * words) {
        if (g.rank() == 0) add_relaxed(wrong, 1);
        return;
      }
      const u64* value = reinterpret_cast<const u64*>(found.data);
      for (u32 j = g.rank(); j < words; j += g.width) sum += value[j];
      number = value[NEXT_WORD] % keys;
      if (step_ticks == nullptr || i != 0 || g.rank() != 0) continue;
      const u64 now = ticks();
      step_ticks[step] = u32(now - before);
      before = now;
    }
    add_relaxed(sums + i, sum);
    g.sync();
    if (g.rank() == 0) numbers[i] = number;
  }
};

struct Neighbours {
  const u32* vertices;
  u32 len;
};

// Contiguous adjacency lists, by vertex or in the order of requests.
struct DenseLists {
  const u64* offsets;
  const u32* vertices;
  bool is_ordered;

  template <class Tile>
  ROCKMILL_HD Neighbours find(const Tile&, u64 at, u32 vertex) const {
    const u64 i = is_ordered ? at : vertex;
    return {vertices + offsets[i], u32(offsets[i + 1] - offsets[i])};
  }
};

// A vertex that the view lacks has no neighbours, and the result differs.
struct ViewLists {
  rockmill::kv kv;

  template <class Tile>
  ROCKMILL_HD Neighbours find(const Tile& tile, u64, u32 vertex) const {
    const NumberedKey key = key_of(vertex);
    const FoundValue found = kv.find(tile, &key, sizeof key);
    return {reinterpret_cast<const u32*>(found.data), found.status == KEY_FOUND ? found.len / 4 : 0};
  }
};

// A level of a breadth-first search.
template <class Lists>
struct Expand {
  Lists lists;
  const u32* frontier;
  u32 level;
  u32* levels;
  u32* next;
  u64* next_len;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto g = group_of(tile);
    const Neighbours list = lists.find(tile, i, frontier[i]);
    for (u32 j = g.rank(); j < list.len; j += g.width) {
      const u32 vertex = list.vertices[j];
      if (see(levels + vertex, level)) next[fetch_add(next_len, 1)] = vertex;
    }
  }
};

// PageRank in integers, whose sums do not depend on the order.
template <class Lists>
struct ShareRank {
  Lists lists;
  u32 first;
  const u64* ranks;
  u64* shares;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto g = group_of(tile);
    const u32 vertex = first + u32(i);
    const Neighbours list = lists.find(tile, i, vertex);
    if (list.len == 0) return;
    const u64 share = ranks[vertex] / list.len;
    for (u32 j = g.rank(); j < list.len; j += g.width) add_relaxed(shares + list.vertices[j], share);
  }
};

struct SumRanks {
  // Parts of a rank: the constant base, and the percentage of what neighbours contribute.
  static constexpr u64 BASE = u64{15} << 24, PERCENT = 85;
  u64* ranks;
  u64* shares;

  ROCKMILL_HD void operator()(u64 i) const {
    ranks[i] = BASE + shares[i] / 100 * PERCENT;
    shares[i] = 0;
  }
};

// Requests to the host, one after another by each tile.
struct Request {
  rockmill::kv kv;
  const u64* numbers;
  u32 each;
  // Version of the values to put; 0 gets values.
  u64 version;
  u32 words;
  // Minimum time from the begin of one request to that of the next.
  u64 period_ns;
  u64* rows;
  u32* times_ns;
  u64* wrong;

  template <class Tile>
  ROCKMILL_HD void operator()(const Tile& tile, u64 i) const {
    const auto g = group_of(tile);
    rockmill::kv own = kv;
    u64* row = rows + i * words;
    // Tiles begin at different times.
    u64 due = clock_ns() + fold(i ^ PRIME64_1, PRIME64_2) % (period_ns + 1);
    for (u32 n = 0; n < each; ++n, due += period_ns) {
      while (period_ns > 0 && clock_ns() < due) sleep_ns(100);
      g.sync();
      const u64 number = numbers[i * each + n], start = clock_ns();
      const NumberedKey key = key_of(number);
      bool is_right = true;
      if (version > 0) {
        for (u32 j = g.rank(); j < words; j += g.width) row[j] = value_word(number, version, j);
        g.sync();
        const auto ticket = own.put(tile, &key, sizeof key, row, 8 * words);
        is_right = own.wait(tile, ticket).status == KEY_WRITTEN;
      } else {
        const auto ticket = own.get_latest(tile, &key, sizeof key, row, 8 * words);
        const auto got = own.wait(tile, ticket);
        g.sync();
        is_right = got.status == KEY_FOUND && got.len == 8 * words;
        for (u32 j = g.rank(); is_right && j < words; j += g.width)
          is_right = row[j] == value_word(number, row[0], j);
        is_right = g.all(is_right);
        g.sync();
      }
      if (g.rank() != 0) continue;
      times_ns[i * each + n] = u32(clock_ns() - start);
      if (!is_right) add_relaxed(wrong, 1);
    }
  }
};

// Records and slots of a table that was not loaded from files.
struct InsertNumbers {
  ResidentTable table;
  u8* records;
  u32 words;
  u64* wrong;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    u8* record = records + i * record_bytes(KEY_BYTES, 8 * words);
    const NumberedKey key = key_of(i);
    u64* value = reinterpret_cast<u64*>(record + record_value_at(KEY_BYTES));
    for (u32 j = g.rank(); j < words; j += g.width) value[j] = value_word(i, 0, j);
    if (g.rank() != 0) return;
    *reinterpret_cast<RecordHead*>(record) = {KEY_BYTES, 8 * words};
    u64* own = reinterpret_cast<u64*>(record + sizeof(RecordHead));
    own[0] = key.start;
    own[1] = key.number;
    const u64 hash = key_hash(table, reinterpret_cast<const u8*>(own), KEY_BYTES);
    if (insert_slot(table, hash, reinterpret_cast<u64>(record) / RECORD_UNIT) == NO_ROOM) add_relaxed(wrong, 1);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET::bench

// Blocks to columns: checksums, then how many entries each block has, then the entries.
//
//   payload:  entry .. | restart offsets, u32 each | number of restarts, u32
//   entry:    shared varint32 | non_shared varint32 | value_len varint32 | key[shared..] | value
//
// A restart interval is decoded by one lane: its first key shares nothing. What this decoder does
// not know (separated values, common prefixes, hash indexes, keys of several lengths) it reports.
#pragma once

#include "../common/exec.hpp"
#include "../common/content.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 RESTARTS_MASK = (u32{1} << 28) - 1;
// The bit that says that keys of the block have one length tells nothing new here.
constexpr u32 UNIFORM_KEYS_BIT = u32{1} << 29;

struct CheckBlock {
  const u8* arena;
  const BlockRef* blocks;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const BlockRef block = blocks[i];
    const u8* payload = arena + block.at;
    const u32 found = block_checksum(g, payload, block.size, block.checksum_base, block.file_offset);
    if (g.rank() != 0) return;
    if (payload[block.size] != 0) report(errors, i, ERROR_COMPRESSED);
    else if (load32(payload + block.size + 1) != found) report(errors, i, ERROR_CHECKSUM);
  }
};

// The frame of a block.
struct Frame {
  const u8* payload;
  const u8* entries_end;
  u32 num_restarts;

  ROCKMILL_HD static bool parse(const u8* payload, u32 size, Frame& frame) {
    if (size < 4) return false;
    const u32 packed = load32(payload + size - 4);
    if (packed & ~(RESTARTS_MASK | UNIFORM_KEYS_BIT)) return false;
    frame.payload = payload;
    frame.num_restarts = packed & RESTARTS_MASK;
    if (frame.num_restarts == 0 || u64(frame.num_restarts) * 4 + 4 > size) return false;
    frame.entries_end = payload + size - 4 - 4 * frame.num_restarts;
    return frame.restart(0) == 0;
  }
  ROCKMILL_HD u32 restart(u32 i) const { return load32(entries_end + 4 * i); }
  // False unless the interval lies in the block and is not empty.
  ROCKMILL_HD bool interval(u32 i, const u8*& begin, const u8*& end) const {
    const u32 size = u32(entries_end - payload);
    const u32 from = restart(i), to = i + 1 < num_restarts ? restart(i + 1) : size;
    if (from >= to || to > size) return false;
    begin = payload + from;
    end = payload + to;
    return true;
  }
};

// One stored entry.
struct StoredEntry {
  const u8* suffix;
  const u8* value;
  u32 shared;
  u32 non_shared;
  u32 value_len;

  // Reads the entry at `at` and moves `at` behind it.
  ROCKMILL_HD bool read(const u8*& at, const u8* end) {
    if (!read_varint(at, end, shared) || !read_varint(at, end, non_shared) ||
        !read_varint(at, end, value_len))
      return false;
    if (u64(non_shared) + value_len > u64(end - at)) return false;
    suffix = at;
    value = at + non_shared;
    at = value + value_len;
    return true;
  }
};

// The internal key that a lane has come to, as big-endian words.
struct RunningKey {
  u64 words[3] = {0, 0, 0};

  // Keeps `shared` bytes and takes the rest from `suffix`. What is read beyond the suffix is not used.
  ROCKMILL_HD void restore(u32 shared, const u8* suffix) {
ROCKMILL_UNROLL
    for (u32 w = 0; w < 3; ++w) {
      const u32 kept = shared <= 8 * w ? 0 : shared - 8 * w;
      const u64 mask = kept == 0 ? 0 : kept >= 8 ? ~u64{0} : ~u64{0} << (64 - 8 * kept);
      const u64 read = byte_swap(load64(suffix - shared + 8 * w));
      words[w] = (words[w] & mask) | (read & ~mask);
    }
  }

  ROCKMILL_HD Key split(u32 key_bytes, u32 entry) const {
    Key key{words[0], 0, 0, entry, 0};
    const u32 bits = 8 * (key_bytes % 8);
    u64 tag;
    if (key_bytes < 8) {
      key.hi &= ~u64{0} << (64 - bits);
      tag = words[0] << bits | words[1] >> (64 - bits);
    } else if (key_bytes < 16) {
      key.lo = bits == 0 ? 0 : words[1] & ~u64{0} << (64 - bits);
      tag = bits == 0 ? words[1] : words[1] << bits | words[2] >> (64 - bits);
    } else {
      key.lo = words[1];
      tag = words[2];
    }
    key.tag = byte_swap(tag);
    return key;
  }
};

struct CountEntries {
  const u8* arena;
  const BlockRef* blocks;
  u32 key_bytes;
  u32* counts;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    Frame frame;
    u32 count = 0;
    if (!Frame::parse(arena + blocks[i].at, blocks[i].size, frame)) {
      if (g.rank() == 0) report(errors, i, ERROR_FRAME);
      frame.num_restarts = 0;
    }
    for (u32 r = g.rank(); r < frame.num_restarts; r += g.width) {
      const u8 *at, *end;
      if (!frame.interval(r, at, end)) {
        report(errors, i, ERROR_FRAME);
        continue;
      }
      bool first = true;
      while (at < end) {
        StoredEntry entry;
        if (!entry.read(at, end)) {
          report(errors, i, ERROR_ENTRY);
          break;
        }
        const u32 most_shared = first ? 0 : key_bytes + TAG_BYTES;
        if (entry.shared > most_shared ||
            u64(entry.shared) + entry.non_shared != key_bytes + TAG_BYTES) {
          report(errors, i, ERROR_KEY_LENGTH);
          break;
        }
        first = false;
        ++count;
      }
    }
    count = g.sum(count);
    if (g.rank() == 0) counts[i] = count;
  }
};

// Block i's entries go to [starts[i], starts[i + 1]), whatever the block says.
struct DecodeEntries {
  const u8* arena;
  const BlockRef* blocks;
  u32 key_bytes;
  const u32* starts;
  Key* keys;
  ValueRef* values;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    Frame frame;
    if (!Frame::parse(arena + blocks[i].at, blocks[i].size, frame)) return;
    u32 next = starts[i];
    for (u32 first = 0; first < frame.num_restarts; first += g.width) {
      const u32 r = first + g.rank();
      const u8 *begin = nullptr, *end = nullptr;
      if (r >= frame.num_restarts || !frame.interval(r, begin, end)) begin = end = nullptr;
      u32 count = 0;
      StoredEntry entry;
      for (const u8* at = begin; at < end && entry.read(at, end);) ++count;
      u32 to = next + g.sum_below(count);
      next += g.sum(count);
      RunningKey key;
      for (const u8* at = begin; at < end && to < starts[i + 1] && entry.read(at, end); ++to) {
        if (u64(entry.shared) + entry.non_shared != key_bytes + TAG_BYTES) break;
        key.restore(entry.shared, entry.suffix);
        keys[to] = key.split(key_bytes, to);
        values[to] = {u64(entry.value - arena), entry.value_len};
        const u64 type = keys[to].tag & 0xff;
        if (type != TYPE_DELETION && type != TYPE_VALUE) report(errors, i, ERROR_VALUE_TYPE);
      }
    }
  }
};

// rockmill_core::kv_hash of each entry.
struct HashEntries {
  const u8* arena;
  const Key* keys;
  const ValueRef* values;
  u32 key_bytes;
  u64* hashes;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 value = rapidhash(arena + values[i].at, values[i].len);
    hashes[i] = kv_hash(rapidhash_key(keys[i].hi, keys[i].lo, key_bytes), value);
  }
};

ROCKMILL_HD bool same_user_key(const Key& a, const Key& b) { return a.hi == b.hi && a.lo == b.lo; }

// User key ascending, newest first.
struct KeyLess {
  ROCKMILL_HD bool operator()(const Key& a, const Key& b) const {
    if (a.hi != b.hi) return a.hi < b.hi;
    if (a.lo != b.lo) return a.lo < b.lo;
    return a.tag > b.tag;
  }
};

// Keys of a run ascend strictly.
struct CheckOrder {
  const Key* keys;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i) const {
    if (!KeyLess{}(keys[i], keys[i + 1])) report(errors, keys[i + 1].entry, ERROR_ORDER);
  }
};

// The part of a run that lies in a range: trimmed[2r] is its first entry, trimmed[2r + 1] the one behind
// its last.
struct TrimRun {
  const Key* keys;
  const u32* run_starts;
  u32 key_bytes;
  Bound begin, end;
  u32* trimmed;

  // First entry of the run that is not below the bound.
  ROCKMILL_HD u32 lower_bound(u32 from, u32 to, const Bound& bound) const {
    while (from < to) {
      const u32 middle = from + (to - from) / 2;
      const Key& key = keys[middle];
      const bool equal = key.hi == bound.hi && key.lo == bound.lo;
      const bool less = key.hi != bound.hi ? key.hi < bound.hi
                        : !equal           ? key.lo < bound.lo
                                           : key_bytes < bound.len;
      if (less) from = middle + 1;
      else to = middle;
    }
    return from;
  }

  ROCKMILL_HD void operator()(u64 run) const {
    const u32 from = run_starts[run], to = run_starts[run + 1];
    trimmed[2 * run] = begin.present ? lower_bound(from, to, begin) : from;
    trimmed[2 * run + 1] = end.present ? lower_bound(from, to, end) : to;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

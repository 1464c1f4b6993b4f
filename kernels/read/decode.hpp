// From blocks to columns: checksums, then the number of entries of each block and the length of their keys, then the
// entries. One lane decodes a restart interval, whose first key shares nothing.
#pragma once

#include "../common/checksum.hpp"
#include "../common/content.hpp"
#include "../common/exec.hpp"
#include "block.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Maximum bytes of keys in a block. Entries that share a long key could have far longer keys than a block stores.
constexpr u64 MAX_BLOCK_KEY_BYTES = u64{256} << 20;

struct CheckBlock {
  const u8* arena;
  const BlockRef* blocks;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const BlockRef block = blocks[i];
    const u8* payload = arena + block.at;
    const u8 codec = payload[block.stored_size];
    const u32 found = block_checksum(g, block.checksum, payload, block.stored_size, codec, block.checksum_base,
                                     block.file_offset);
    if (g.rank() != 0) return;
    if (block.codec != CODEC_IN_TRAILER && codec != block.codec) report(errors, i, ERROR_COMPRESSED);
    else if (block.checksum != CHECKSUM_NONE && load32(payload + block.stored_size + 1) != found)
      report(errors, i, ERROR_CHECKSUM);
  }
};

// Length of an entry's internal key, given that of the previous key; 0 if it is impossible.
ROCKMILL_HD u32 internal_key_len(const Frame& frame, const StoredEntry& entry, u32 before) {
  if (entry.shared > before) return 0;
  const u32 front = entry.shared == 0 ? frame.prefix_len : entry.shared;
  const u64 len = u64(front) + entry.non_shared;
  return len < TAG_BYTES || len > MAX_BLOCK_KEY_BYTES ? 0 : u32(len);
}

struct CountEntries {
  const u8* arena;
  const BlockRef* blocks;
  u32* counts;
  // Bytes of each block's internal keys.
  u64* key_sums;
  // The longest user key.
  u64* longest;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    Frame frame;
    u32 count = 0, longest_here = 0;
    u64 key_bytes = 0;
    if (!Frame::parse(arena + blocks[i].at, blocks[i].raw_size, blocks[i].restart_interval, frame)) {
      if (g.rank() == 0) report(errors, i, ERROR_FRAME);
      frame.num_restarts = 0;
    }
    for (u32 r = g.rank(); r < frame.num_restarts; r += g.width) {
      IntervalReader interval(frame, r);
      u32 len = 0;
      StoredEntry entry;
      while (!interval.done() && interval.next(entry)) {
        len = internal_key_len(frame, entry, len);
        if (len == 0 || (key_bytes += len) > MAX_BLOCK_KEY_BYTES) {
          report(errors, i, ERROR_KEY_LENGTH);
          break;
        }
        if (len > longest_here) longest_here = len;
        ++count;
      }
      if (interval.failed) report(errors, i, ERROR_ENTRY);
    }
    // Short keys are the usual case.
    if (longest_here > WORD_KEY_BYTES + TAG_BYTES) atomic_max(longest, longest_here - TAG_BYTES);
    count = g.sum(count);
    key_bytes = g.sum64(key_bytes);
    if (g.rank() != 0) return;
    counts[i] = count;
    key_sums[i] = key_bytes;
    if (key_bytes > MAX_BLOCK_KEY_BYTES) report(errors, i, ERROR_KEY_LENGTH);
  }
};

// A lane's current internal key, as big-endian words; for a narrow task.
struct RunningKey {
  u64 words[3] = {0, 0, 0};
  u32 len = 0;

  // Keeps `kept` bytes and reads the rest, up to `end`, from `from`. Bytes read beyond `end` are not used.
  ROCKMILL_HD void put(u32 kept, const u8* from, u32 end) {
ROCKMILL_UNROLL
    for (u32 w = 0; w < 3; ++w) {
      if (kept >= 8 * (w + 1) || end <= 8 * w) continue;
      const u64 mask = kept <= 8 * w ? 0 : ~u64{0} << (64 - (8 * kept - 64 * w));
      const u64 read = byte_swap(load64(from - kept + 8 * w));
      words[w] = (words[w] & mask) | (read & ~mask);
    }
    len = end;
  }

  ROCKMILL_HD Key split(u32 entry) const {
    const u32 user_len = len - TAG_BYTES, bits = 8 * (user_len % 8);
    Key key{words[0], 0, 0, entry, user_len};
    u64 tag;
    if (user_len < 8) {
      key.hi &= bits == 0 ? 0 : ~u64{0} << (64 - bits);
      tag = bits == 0 ? words[0] : words[0] << bits | words[1] >> (64 - bits);
    } else if (user_len < 16) {
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

// The key whose `len` bytes, tag included, are at `bytes`.
ROCKMILL_HD Key key_of(const u8* bytes, u32 len, u32 entry) {
  const u32 user_len = len - TAG_BYTES;
  Key key{word_of(bytes, user_len), 0, byte_swap(word_of(bytes + user_len, 8)), entry, user_len};
  if (user_len > 8) key.lo = word_of(bytes + 8, user_len - 8);
  return key;
}

// Block i's entries go to [starts[i], starts[i + 1]), and in a wide task their keys to [key_starts[i], key_starts[i +
// 1]), whatever the block contains.
struct DecodeEntries {
  const u8* arena;
  const BlockRef* blocks;
  const u32* starts;
  Key* keys;
  ValueRef* values;
  // Keys of a wide task; else null.
  const u64* key_starts;
  u8* key_bytes;
  u64* key_at;
  // A bit for each accepted type of entries.
  u32 types;
  u64* errors;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    Frame frame;
    if (!Frame::parse(arena + blocks[i].at, blocks[i].raw_size, blocks[i].restart_interval, frame)) return;
    u32 next = starts[i];
    u64 next_key = key_at != nullptr ? key_starts[i] : 0;
    for (u32 first = 0; first < frame.num_restarts; first += g.width) {
      const u32 r = first + g.rank();
      u32 count = 0;
      u64 key_len = 0;
      if (r < frame.num_restarts) measure(frame, r, count, key_len);
      const u32 to = next + g.sum_below(count);
      next += g.sum(count);
      const u64 key_to = next_key + g.sum64_below(key_len);
      next_key += g.sum64(key_len);
      if (count == 0) continue;
      if (key_at != nullptr) decode_wide(frame, r, i, to, key_to);
      else decode_narrow(frame, r, i, to);
    }
  }

 private:
  ROCKMILL_HD static void measure(const Frame& frame, u32 r, u32& count, u64& key_len) {
    IntervalReader interval(frame, r);
    StoredEntry entry;
    u32 len = 0;
    while (!interval.done() && interval.next(entry)) {
      len = internal_key_len(frame, entry, len);
      if (len == 0) return;
      key_len += len;
      ++count;
    }
  }

  ROCKMILL_HD void put(u64 block, u32 to, Key key, const StoredEntry& entry) const {
    const u64 type = key.tag & 0xff, sequence = blocks[block].sequence;
    if (type >= 32 || (types >> type & 1) == 0) report(errors, block, ERROR_VALUE_TYPE);
    if (sequence != STORED_SEQUENCE) {
      if (key.tag != type) report(errors, block, ERROR_SEQUENCE);
      key.tag = sequence << 8 | type;
    }
    keys[to] = key;
    values[to] = {u64(entry.value - arena), entry.value_len};
  }

  ROCKMILL_HD void decode_narrow(const Frame& frame, u32 r, u64 block, u32 to) const {
    IntervalReader interval(frame, r);
    StoredEntry entry;
    RunningKey key;
    for (; !interval.done() && to < starts[block + 1] && interval.next(entry); ++to) {
      const u32 len = internal_key_len(frame, entry, key.len);
      if (len == 0 || len > WORD_KEY_BYTES + TAG_BYTES) break;
      if (entry.shared == 0 && frame.prefix_len > 0) key.put(0, frame.payload, frame.prefix_len);
      key.put(len - entry.non_shared, entry.suffix, len);
      put(block, to, key.split(to), entry);
    }
  }

  ROCKMILL_HD void decode_wide(const Frame& frame, u32 r, u64 block, u32 to, u64 key_to) const {
    IntervalReader interval(frame, r);
    StoredEntry entry;
    const u8* before = nullptr;
    u32 len = 0;
    for (; !interval.done() && to < starts[block + 1] && interval.next(entry); ++to) {
      len = internal_key_len(frame, entry, len);
      if (len == 0 || key_to + len > key_starts[block + 1]) break;
      u8* key = key_bytes + key_to;
      const u32 front = len - entry.non_shared;
      copy_bytes(SingleThread{}, key, entry.shared == 0 ? frame.payload : before, front);
      copy_bytes(SingleThread{}, key + front, entry.suffix, entry.non_shared);
      put(block, to, key_of(key, len, to), entry);
      key_at[to] = key_to;
      before = key;
      key_to += len;
    }
  }
};

// rockmill_core::kv_hash of each entry.
struct HashEntries {
  const u8* arena;
  const Key* keys;
  KeyBytes key_bytes;
  const ValueRef* values;
  u64* hashes;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 value = rapidhash(arena + values[i].at, values[i].len);
    hashes[i] = kv_hash(rapidhash_key(key_bytes, keys[i]), value);
  }
};

// Copies entries, whose numbers and places change by constants.
// Moves up to MOST parts at a time, which fit among the parameters of a kernel.
struct PlaceEntries {
  static constexpr u32 MOST = 32;
  PlaceArgs parts[MOST];

  ROCKMILL_HD u64 items(u32 k) const { return parts[k].n; }

  ROCKMILL_HD void operator()(u32 k, u64 i) const {
    const PlaceArgs& part = parts[k];
    Key key = part.keys[i];
    key.entry += u32(part.entry_shift);
    part.to_keys[i] = key;
    part.to_values[i] = {part.values[i].at + part.value_shift, part.values[i].len};
    part.to_hashes[i] = part.hashes[i];
    if (part.key_at != nullptr) part.to_key_at[i] = part.key_at[i] + part.key_shift;
  }
};

// Keys of a run ascend strictly.
struct CheckOrder {
  const Key* keys;
  KeyBytes key_bytes;
  u64* errors;

  ROCKMILL_HD void operator()(u64 i) const {
    if (!KeyLess{key_bytes}(keys[i], keys[i + 1])) report(errors, keys[i + 1].entry, ERROR_ORDER);
  }
};

// The part of a run in a range: trimmed[2r] is its first entry, trimmed[2r + 1] the one behind its last.
struct TrimRun {
  const Key* keys;
  KeyBytes key_bytes;
  const u32* run_starts;
  UserKey begin, end;
  u32* trimmed;

  ROCKMILL_HD void operator()(u64 run) const {
    const u32 from = run_starts[run], to = run_starts[run + 1];
    trimmed[2 * run] = begin.present ? u32(lower_bound(key_bytes, keys, from, to, begin, false)) : from;
    trimmed[2 * run + 1] = end.present ? u32(lower_bound(key_bytes, keys, from, to, end, false)) : to;
  }
};

// Whether the part of a run lies behind the part of the run before, and its keys behind the other's: so files of a level do.
struct FollowRun {
  const Key* keys;
  KeyBytes key_bytes;
  const u32* trimmed;
  u32* follows;

  ROCKMILL_HD void operator()(u64 run) const {
    const u32 begin = trimmed[2 * run];
    follows[run] = run > 0 && trimmed[2 * run - 2] < begin && trimmed[2 * run - 1] == begin && begin < trimmed[2 * run + 1] &&
                   KeyLess{key_bytes}(keys[begin - 1], keys[begin]);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// The syntax of a data block (`table/block_based/block.cc`, `data_block_footer.cc`), every offset checked:
//
//   [common user-key prefix]     as many bytes as the first restart offset says
//   entries                      shared varint32 | non_shared varint32 | value_len varint32 |
//                                key[shared..] | value
//   [values section]             where values are stored apart from keys
//   restart offsets, u32 each
//   [hash index: buckets u8 each, their number u16]
//   [offset of the values section u32]
//   packed word u32              bits 0-27 number of restarts, 28 values apart, 29 uniform keys,
//                                30 reserved, 31 hash index
//
// If values are stored apart, an entry at a restart point has one more varint32: its value's offset in that section.
// The values of the other entries follow one another.
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u32 RESTARTS_MASK = (u32{1} << 28) - 1;
constexpr u32 APART_BIT = u32{1} << 28, RESERVED_BIT = u32{1} << 30, HASH_INDEX_BIT = u32{1} << 31;

// The frame of a block.
struct Frame {
  const u8* payload;
  // Ends of the entries and of the values section.
  const u8 *entries_end, *values_end;
  // Null unless values are stored apart.
  const u8* values;
  u32 prefix_len;
  u32 num_restarts;
  u32 restart_interval;

  ROCKMILL_HD static bool parse(const u8* payload, u32 size, u32 restart_interval, Frame& frame) {
    if (size < 4) return false;
    u32 end = size - 4;
    const u32 packed = load32(payload + end);
    if (packed & RESERVED_BIT) return false;
    u32 values_at = 0;
    if (packed & APART_BIT) {
      if (end < 4) return false;
      values_at = load32(payload + (end -= 4));
    }
    if (packed & HASH_INDEX_BIT) {
      if (end < 2) return false;
      end -= 2;
      const u32 buckets = payload[end] | u32(payload[end + 1]) << 8;
      if (end < buckets) return false;
      end -= buckets;
    }
    frame.num_restarts = packed & RESTARTS_MASK;
    if (u64(frame.num_restarts) * 4 > end) return false;
    end -= 4 * frame.num_restarts;
    const u32 entries_end = packed & APART_BIT ? values_at : end;
    if (entries_end > end) return false;
    frame.payload = payload;
    frame.entries_end = payload + entries_end;
    frame.values_end = payload + end;
    frame.values = packed & APART_BIT ? frame.entries_end : nullptr;
    frame.restart_interval = restart_interval;
    frame.prefix_len = 0;
    if (frame.values != nullptr && restart_interval == 0) return false;
    if (entries_end == 0) {
      // An empty block has no restart, or one.
      const bool sound = frame.num_restarts == 0 || (frame.num_restarts == 1 && frame.restart(0) == 0);
      frame.num_restarts = 0;
      return sound;
    }
    if (frame.num_restarts == 0) return false;
    frame.prefix_len = frame.restart(0);
    return true;
  }
  ROCKMILL_HD u32 restart(u32 i) const { return load32(values_end + 4 * i); }
};

// One stored entry.
struct StoredEntry {
  // Bytes of the key before, and own ones. Between them comes the block's prefix if nothing is shared.
  u32 shared;
  u32 non_shared;
  const u8* suffix;
  const u8* value;
  u32 value_len;
};

// Reads the entries of one restart interval. Those of a sound interval are all read before it says `done`.
struct IntervalReader {
  const Frame& frame;
  u32 index;
  const u8 *at, *end;
  // Where the next value begins, if values are stored apart.
  const u8* value;
  u32 count = 0;
  bool failed = false;

  ROCKMILL_HD IntervalReader(const Frame& f, u32 r) : frame(f), index(r), value(f.values) {
    const u32 size = u32(frame.entries_end - frame.payload);
    const u32 from = frame.restart(r), to = r + 1 < frame.num_restarts ? frame.restart(r + 1) : size;
    failed = from >= to || to > size;
    at = frame.payload + (failed ? 0 : from);
    end = frame.payload + (failed ? 0 : to);
  }

  ROCKMILL_HD bool done() const { return failed || at >= end; }

  // Reads an entry's header and moves on to its key; `offset` is that of a value stored apart.
  ROCKMILL_HD static bool read_header(const u8*& at, const u8* end, bool has_offset, StoredEntry& entry,
                                      u32& offset) {
    return read_varint(at, end, entry.shared) && read_varint(at, end, entry.non_shared) &&
           read_varint(at, end, entry.value_len) && (!has_offset || read_varint(at, end, offset));
  }

  // False, and nothing more comes, if the entry is damaged.
  ROCKMILL_HD bool next(StoredEntry& entry) {
    const bool apart = frame.values != nullptr, restarts = count == 0;
    u32 offset = 0;
    failed = !read_header(at, end, apart && restarts, entry, offset) ||
             entry.non_shared > u64(end - at) || (restarts && entry.shared != 0) || !place(entry, offset);
    count += !failed;
    return !failed;
  }

 private:
  ROCKMILL_HD bool place(StoredEntry& entry, u32 offset) {
    const bool apart = frame.values != nullptr;
    entry.suffix = at;
    at += entry.non_shared;
    if (!apart) {
      if (entry.value_len > u64(end - at)) return false;
      entry.value = at;
      at += entry.value_len;
      return true;
    }
    if (count == 0) {
      if (offset > u64(frame.values_end - frame.values)) return false;
      value = frame.values + offset;
    }
    if (entry.value_len > u64(frame.values_end - value)) return false;
    entry.value = value;
    value += entry.value_len;
    return at < end || ends_well();
  }

  // What must hold behind the last entry of an interval whose values are stored apart: there are as many
  // entries as the file says, and the next interval's values follow.
  ROCKMILL_HD bool ends_well() const {
    const bool last = index + 1 == frame.num_restarts;
    const u32 entries = count + 1;
    if (last) return entries <= frame.restart_interval;
    const u8* next = end;
    StoredEntry entry;
    u32 offset = 0;
    return entries == frame.restart_interval && read_header(next, frame.entries_end, true, entry, offset) &&
           offset >= u64(value - frame.values);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Keys with their values in a resident table: both lengths, the key, and the value on the next 16 bytes. A record is
// aligned to 16 bytes as well, so a slot stores its address in these units.
#pragma once

#include "../common/bytes.hpp"

namespace rockmill::ROCKMILL_TARGET {

constexpr u64 RECORD_UNIT = 16;

// Replaces a value's length if the value is not in the table, and RocksDB must be asked for it.
constexpr u32 NEEDS_HOST_VALUE = ~u32{0};

struct RecordHead {
  u32 key_len, value_len;
};

ROCKMILL_HD u64 record_units_bytes(u64 bytes) { return (bytes + RECORD_UNIT - 1) / RECORD_UNIT * RECORD_UNIT; }

// Offset of the value in its record.
ROCKMILL_HD u64 record_value_at(u32 key_len) { return record_units_bytes(sizeof(RecordHead) + u64(key_len)); }

ROCKMILL_HD u64 record_bytes(u32 key_len, u32 value_len) {
  return record_value_at(key_len) + (value_len == NEEDS_HOST_VALUE ? 0 : record_units_bytes(value_len));
}

ROCKMILL_HD u64 record_bytes(const RecordHead& head) { return record_bytes(head.key_len, head.value_len); }

// Whether bytes that are aligned to 8 equal these.
template <class G>
ROCKMILL_HD bool are_equal(const G& g, const u8* own, const u8* other, u32 len) {
  bool same = true;
  for (u32 i = g.rank(); i < len / 8; i += g.width)
    same &= reinterpret_cast<const u64*>(own)[i] == load64(other + 8 * u64(i));
  for (u32 i = len / 8 * 8 + g.rank(); i < len; i += g.width) same &= own[i] == other[i];
  return g.all(same);
}

// Whether the record's key is this one.
template <class G>
ROCKMILL_HD bool record_has_key(const G& g, const u8* record, const u8* key, u32 len) {
  if (reinterpret_cast<const RecordHead*>(record)->key_len != len) return false;
  return are_equal(g, record + sizeof(RecordHead), key, len);
}

struct alignas(RECORD_UNIT) RecordWords {
  u64 low, high;
};

// Copies with the whole group, 16 bytes at a time if both ends are aligned to them.
template <class G>
ROCKMILL_HD void copy_value(const G& g, u8* to, const u8* from, u64 len) {
  if ((reinterpret_cast<u64>(to) | reinterpret_cast<u64>(from)) % RECORD_UNIT != 0) {
    copy_bytes(g, to, from, len);
    return;
  }
  const u64 words = len / RECORD_UNIT;
  RecordWords* target = reinterpret_cast<RecordWords*>(to);
  const RecordWords* source = reinterpret_cast<const RecordWords*>(from);
  for (u64 i = g.rank(); i < words; i += g.width) target[i] = source[i];
  for (u64 i = words * RECORD_UNIT + g.rank(); i < len; i += g.width) to[i] = from[i];
}

}  // namespace rockmill::ROCKMILL_TARGET

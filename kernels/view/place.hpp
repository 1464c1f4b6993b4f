// Rows of a task become records of a resident table.
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"
#include "record.hpp"
#include "slots.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Puts a slot into the table; false if there is no room where it belongs. No other row has the key. Other tasks put in
// theirs meanwhile.
ROCKMILL_HD bool insert_slot(const ResidentTable& table, u64 hash, u64 address) {
  u64 bucket = first_bucket(table, hash);
  for (u32 left = run_buckets(table); left > 0; --left, bucket = next_bucket(table, bucket)) {
    u64* slots = table.slots + bucket * BUCKET_SLOTS;
    for (u32 i = 0; i < BUCKET_SLOTS; ++i) {
      if (load_relaxed(slots + i) != EMPTY_SLOT) continue;
      if (compare_and_swap(slots + i, EMPTY_SLOT, slot_of(hash, address)) == EMPTY_SLOT) return true;
    }
  }
  return false;
}

ROCKMILL_HD bool has_record(const Key& row) { return (row.tag & 0xff) == TYPE_VALUE; }

struct MeasureRecords {
  const Key* rows;
  const ValueRef* values;
  u64* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    sizes[i] = has_record(rows[i]) ? record_bytes(rows[i].len, u32(values[rows[i].entry].len)) : 0;
  }
};

struct PlaceRecords {
  const u8* arena;
  const Key* rows;
  KeyBytes bytes;
  const ValueRef* values;
  const u64* offsets;
  u8* records;
  ResidentTable table;
  PlaceTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const Key row = rows[i];
    const u64 words[2] = {byte_swap(row.hi), byte_swap(row.lo)};
    const u8* key = row.len <= WORD_KEY_BYTES ? reinterpret_cast<const u8*>(words) : bytes.of(row);
    u64 address = ASK_ADDRESS;
    if (has_record(row)) {
      const ValueRef value = values[row.entry];
      u8* record = records + offsets[i];
      if (g.rank() == 0) *reinterpret_cast<RecordHead*>(record) = {row.len, u32(value.len)};
      copy_bytes(g, record + sizeof(RecordHead), key, row.len);
      // Compilers may have the end of a key read together with what is behind it.
      for (u64 at = sizeof(RecordHead) + row.len + g.rank(); at < record_value_at(row.len); at += g.width) record[at] = 0;
      copy_bytes(g, record + record_value_at(row.len), arena + value.at, value.len);
      address = reinterpret_cast<u64>(record) / RECORD_UNIT;
    } else if (g.rank() == 0) {
      atomic_add(&totals->ask, 1);
    }
    if (g.rank() == 0 && !insert_slot(table, key_hash(table, key, row.len), address)) {
      atomic_add(&totals->left_over, 1);
    }
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

// Rows of a task become records of a resident table.
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"
#include "probe.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Puts a slot into the table; false if there is no room where it belongs. No other row has the key. Other tasks put in
// theirs meanwhile.
ROCKMILL_HD bool insert_slot(const ResidentTable& table, u64 hash, u64 address) {
  u64 bucket = first_bucket(table, hash);
  for (u32 left = run_buckets(table); left > 0; --left, bucket = next_bucket(table, bucket)) {
    u64* slots = table.slots + bucket * BUCKET_SLOTS;
    for (u32 i = 0; i < BUCKET_SLOTS; ++i) {
      const u64 own = load_relaxed(slots + i);
      if (own != EMPTY_SLOT && own != GONE_ADDRESS) continue;
      if (compare_and_swap(slots + i, own, slot_of(hash, address)) == own) return true;
    }
  }
  return false;
}

ROCKMILL_HD bool has_record(const Key& row) { return (row.tag & 0xff) == TYPE_VALUE; }
ROCKMILL_HD bool is_deleted(const Key& row) {
  return (row.tag & 0xff) == TYPE_DELETION || (row.tag & 0xff) == TYPE_SINGLE_DELETION;
}

struct MeasureRecords {
  const Key* rows;
  const ValueRef* values;
  u64* sizes;

  ROCKMILL_HD void operator()(u64 i) const {
    sizes[i] = has_record(rows[i]) ? record_bytes(rows[i].len, u32(values[rows[i].entry].len)) : 0;
  }
};

// The key of a row. Short ones have their words alone.
struct RowKey {
  u64 words[2];
  const u8* bytes;
  u32 len;

  ROCKMILL_HD RowKey(const Key& row, const KeyBytes& all)
      : words{byte_swap(row.hi), byte_swap(row.lo)}, bytes(row.len <= WORD_KEY_BYTES ? nullptr : all.of(row)), len(row.len) {}
  ROCKMILL_HD const u8* data() const { return bytes != nullptr ? bytes : reinterpret_cast<const u8*>(words); }
};

struct PlaceRecords {
  const u8* arena;
  const Key* rows;
  KeyBytes bytes;
  const ValueRef* values;
  const u64* offsets;
  u8* records;
  // Without slots, or one that is not changed any more and was copied to `table`: its keys keep the places of their slots.
  ResidentTable base;
  ResidentTable table;
  PlaceTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const Key row = rows[i];
    const RowKey key(row, bytes);
    const u64 hash = key_hash(table, key.data(), key.len);
    FoundSlot before{nullptr, 0, false};
    if (base.slots != nullptr) before = find_slot(g, base, hash, key.data(), key.len);
    u64 address = is_deleted(row) ? GONE_ADDRESS : ASK_ADDRESS;
    if (has_record(row)) {
      const ValueRef value = values[row.entry];
      u8* record = records + offsets[i];
      if (g.rank() == 0) *reinterpret_cast<RecordHead*>(record) = {row.len, u32(value.len)};
      copy_bytes(g, record + sizeof(RecordHead), key.data(), row.len);
      // Compilers may have the end of a key read together with what is behind it.
      for (u64 at = sizeof(RecordHead) + row.len + g.rank(); at < record_value_at(row.len); at += g.width) record[at] = 0;
      copy_bytes(g, record + record_value_at(row.len), arena + value.at, value.len);
      address = reinterpret_cast<u64>(record) / RECORD_UNIT;
    }
    if (g.rank() == 0) put(before, hash, address);
  }

 private:
  ROCKMILL_HD void put(const FoundSlot& before, u64 hash, u64 address) const {
    if (address <= GONE_ADDRESS) atomic_add(&totals->without, 1);
    if (before.record != nullptr) {
      const RecordHead head = *reinterpret_cast<const RecordHead*>(before.record);
      atomic_add(&totals->replaced, 1);
      atomic_add(&totals->dead_bytes, record_bytes(head.key_len, head.value_len));
      // Nobody else changes it: the slot is that of this row's key.
      u64* slot = table.slots + before.slot;
      compare_and_swap(slot, load_relaxed(slot), address == GONE_ADDRESS ? GONE_ADDRESS : slot_of(hash, address));
    } else if (address != GONE_ADDRESS && !(address == ASK_ADDRESS && before.asks)) {
      // A slot that asks stays, since nothing tells whether it is this key's. A record is found in front of it or behind.
      if (!insert_slot(table, hash, address)) atomic_add(&totals->left_over, 1);
    } else {
      return;
    }
    if (address == ASK_ADDRESS) atomic_add(&totals->ask, 1);
    if (address == GONE_ADDRESS) atomic_add(&totals->gone, 1);
  }
};

// Counts the rows whose record is the same in both tables.
struct CountUnchanged {
  const Key* rows;
  KeyBytes bytes;
  ResidentTable base;
  ResidentTable table;
  PlaceTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const RowKey key(rows[i], bytes);
    const u64 hash = key_hash(table, key.data(), key.len);
    const u8* before = find_slot(g, base, hash, key.data(), key.len).record;
    const u8* now = find_slot(g, table, hash, key.data(), key.len).record;
    if (g.rank() == 0 && now != nullptr && before == now) atomic_add(&totals->unchanged, 1);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

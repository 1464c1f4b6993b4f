// From rows of a task to records of a resident table.
#pragma once

#include "../common/exec.hpp"
#include "../common/key.hpp"
#include "probe.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Counts a record that no slot names any more.
ROCKMILL_HD void count_out(InsertTotals* totals, const u8* record) {
  const RecordHead& head = *reinterpret_cast<const RecordHead*>(record);
  atomic_add(head.value_len == NEEDS_HOST_VALUE ? &totals->needs_host_out : &totals->values_out, 1);
  atomic_add(&totals->dead_bytes, record_bytes(head));
}

// Result for a slot: no room where it belongs; stored in an empty one; stored in that of a deleted key.
enum Inserted : u32 { NO_ROOM = 0, IN_EMPTY = 1, IN_GONE = 2 };

// Stores a slot in the table. No other row has the key. Other tasks store theirs meanwhile.
ROCKMILL_HD Inserted insert_slot(const ResidentTable& table, u64 hash, u64 address) {
  u64 bucket = first_bucket(table, hash);
  for (u32 left = run_buckets(table); left > 0; --left, bucket = next_bucket(table, bucket)) {
    u64* slots = table.slots + bucket * BUCKET_SLOTS;
    for (u32 i = 0; i < BUCKET_SLOTS; ++i) {
      const u64 own = load_relaxed(slots + i);
      if (own != EMPTY_SLOT && own != GONE_ADDRESS) continue;
      if (compare_and_swap(slots + i, own, slot_of(hash, address)) != own) continue;
      return own == EMPTY_SLOT ? IN_EMPTY : IN_GONE;
    }
  }
  return NO_ROOM;
}

// The same, counted.
ROCKMILL_HD void count_in(const ResidentTable& table, u64 hash, u64 address, InsertTotals* totals) {
  const Inserted inserted = insert_slot(table, hash, address);
  if (inserted == NO_ROOM) atomic_add(&totals->left_over, 1);
  if (inserted == IN_GONE) atomic_add(&totals->retaken, 1);
}

ROCKMILL_HD bool is_deleted(const Key& row) {
  return (row.tag & 0xff) == TYPE_DELETION || (row.tag & 0xff) == TYPE_SINGLE_DELETION;
}

// The length of a row's value in its record.
ROCKMILL_HD u32 told_len(const Key& row, const ValueRef& value) {
  return (row.tag & 0xff) == TYPE_VALUE ? u32(value.len) : NEEDS_HOST_VALUE;
}

// The key of a row. Short ones have only their words.
struct RowKey {
  u64 words[2];
  const u8* bytes;
  u32 len;

  ROCKMILL_HD RowKey(const Key& row, const KeyBytes& all)
      : words{byte_swap(row.hi), byte_swap(row.lo)}, bytes(row.len <= WORD_KEY_BYTES ? nullptr : all.of(row)), len(row.len) {}
  ROCKMILL_HD const u8* data() const { return bytes != nullptr ? bytes : reinterpret_cast<const u8*>(words); }
};

// Bytes of the record of each row: 0 if the row has no record, or if that of the base is equal.
struct MeasureRecords {
  const u8* arena;
  const Key* rows;
  KeyBytes bytes;
  const ValueRef* values;
  // Without slots, or a table that does not change.
  ResidentTable base;
  // A bit for each slot of the base, set if a row has its key.
  u64* seen;
  u64* sizes;
  InsertTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const Key row = rows[i];
    const ValueRef value = values[row.entry];
    const bool is_same = base.slots != nullptr && is_in_base(g, row, value);
    const bool has_record = !is_same && !is_deleted(row);
    if (g.rank() != 0) return;
    sizes[i] = has_record ? record_bytes(row.len, told_len(row, value)) : 0;
    if (!has_record) atomic_add(&totals->without, 1);
  }

 private:
  // Whether the base has the key with the row's value.
  template <class G>
  ROCKMILL_HD bool is_in_base(const G& g, const Key& row, const ValueRef& value) const {
    const RowKey key(row, bytes);
    const FoundSlot found = find_slot(g, base, key_hash(base, key.data(), key.len), key.data(), key.len);
    if (found.record == nullptr) return false;
    if (g.rank() == 0) or_relaxed(seen + found.slot / 64, u64{1} << found.slot % 64);
    const u32 len = told_len(row, value);
    if (is_deleted(row) || reinterpret_cast<const RecordHead*>(found.record)->value_len != len) return false;
    return len == NEEDS_HOST_VALUE || are_equal(g, found.record + record_value_at(key.len), arena + value.at, len);
  }
};

struct InsertRecords {
  const u8* arena;
  const Key* rows;
  KeyBytes bytes;
  const ValueRef* values;
  const u64* offsets;
  u8* records;
  // Without slots, or one that does not change any more and was copied to `table`: its keys keep the places of their
  // slots.
  ResidentTable base;
  ResidentTable table;
  InsertTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const Key row = rows[i];
    const bool deletes = is_deleted(row);
    if (!deletes && offsets[i] == offsets[i + 1]) return;
    const RowKey key(row, bytes);
    const u64 hash = key_hash(table, key.data(), key.len);
    FoundSlot before{nullptr, 0};
    if (base.slots != nullptr) before = find_slot(g, base, hash, key.data(), key.len);
    u8* record = records + offsets[i];
    if (!deletes) write(g, record, key, row);
    if (g.rank() == 0) put(before, hash, deletes ? GONE_ADDRESS : reinterpret_cast<u64>(record) / RECORD_UNIT);
  }

 private:
  template <class G>
  ROCKMILL_HD void write(const G& g, u8* record, const RowKey& key, const Key& row) const {
    const ValueRef value = values[row.entry];
    const u32 len = told_len(row, value);
    if (g.rank() == 0) *reinterpret_cast<RecordHead*>(record) = {row.len, len};
    copy_bytes(g, record + sizeof(RecordHead), key.data(), row.len);
    // Bytes behind a key may be read with its end, and records move as a whole.
    clear(g, record, sizeof(RecordHead) + row.len, record_value_at(row.len));
    if (len == NEEDS_HOST_VALUE) {
      if (g.rank() == 0) atomic_add(&totals->needs_host_in, 1);
      return;
    }
    copy_bytes(g, record + record_value_at(row.len), arena + value.at, len);
    clear(g, record, record_value_at(row.len) + len, record_bytes(row.len, len));
  }

  template <class G>
  static ROCKMILL_HD void clear(const G& g, u8* record, u64 from, u64 to) {
    for (u64 at = from + g.rank(); at < to; at += g.width) record[at] = 0;
  }

  ROCKMILL_HD void put(const FoundSlot& before, u64 hash, u64 address) const {
    if (before.record != nullptr) {
      // No other thread changes it: the slot is that of this row's key.
      table.slots[before.slot] = address == GONE_ADDRESS ? GONE_ADDRESS : slot_of(hash, address);
      count_out(totals, before.record);
      if (address == GONE_ADDRESS) atomic_add(&totals->gone, 1);
    } else if (address != GONE_ADDRESS) {
      count_in(table, hash, address, totals);
    }
  }
};

ROCKMILL_HD bool is_seen(const u64* seen, u64 slot) { return (load_relaxed(seen + slot / 64) >> slot % 64 & 1) != 0; }

// Counts the rows whose keys the base has, but no measured row.
struct CountUnseen {
  const Key* rows;
  KeyBytes bytes;
  ResidentTable base;
  const u64* seen;
  InsertTotals* totals;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const RowKey key(rows[i], bytes);
    const FoundSlot found = find_slot(g, base, key_hash(base, key.data(), key.len), key.data(), key.len);
    if (g.rank() == 0 && found.record != nullptr && !is_seen(seen, found.slot)) atomic_add(&totals->unseen, 1);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

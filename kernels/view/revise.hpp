// Work on all slots of a table before lookups use it.
#pragma once

#include "../common/exec.hpp"
#include "insert.hpp"

namespace rockmill::ROCKMILL_TARGET {

ROCKMILL_HD const u8* record_of(u64 slot) {
  return reinterpret_cast<const u8*>((slot & SLOT_ADDRESS) * RECORD_UNIT);
}

// Removes the keys of some ranges from a copy of a table, except those whose bits are set.
struct EraseMissing {
  ResidentTable base;
  const u64* seen;
  KeyRanges ranges;
  ResidentTable table;
  InsertTotals* totals;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 slot = base.slots[i];
    if (!has_record(slot) || is_seen(seen, i)) return;
    const u8* record = record_of(slot);
    if (!is_in(ranges, record + sizeof(RecordHead), reinterpret_cast<const RecordHead*>(record)->key_len)) return;
    table.slots[i] = GONE_ADDRESS;
    count_out(totals, record);
    atomic_add(&totals->gone, 1);
  }
};

// Stores all records of a table in another one, with other slots.
struct Rehash {
  ResidentTable base;
  ResidentTable table;
  InsertTotals* totals;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 slot = base.slots[i];
    if (!has_record(slot)) return;
    const u8* record = record_of(slot);
    const u32 key_len = reinterpret_cast<const RecordHead*>(record)->key_len;
    const u64 hash = key_hash(table, record + sizeof(RecordHead), key_len);
    count_in(table, hash, slot & SLOT_ADDRESS, totals);
  }
};

// The chunk with a record.
ROCKMILL_HD RecordChunk& chunk_of(RecordChunk* chunks, u64 num_chunks, const u8* record) {
  u64 from = 0, to = num_chunks;
  while (to - from > 1) {
    const u64 middle = from + (to - from) / 2;
    if (chunks[middle].address <= reinterpret_cast<u64>(record)) from = middle;
    else to = middle;
  }
  return chunks[from];
}

// Sums the bytes of each chunk's records that slots name.
struct MeasureChunks {
  ResidentTable table;
  RecordChunk* chunks;
  u64 num_chunks;

  ROCKMILL_HD void operator()(u64 i) const {
    const u64 slot = table.slots[i];
    if (!has_record(slot)) return;
    const u8* record = record_of(slot);
    atomic_add(&chunk_of(chunks, num_chunks, record).live_bytes,
               record_bytes(*reinterpret_cast<const RecordHead*>(record)));
  }
};

// Moves the records of some chunks to other memory, in any order.
struct MoveRecords {
  ResidentTable table;
  RecordChunk* chunks;
  u64 num_chunks;
  u8* records;
  u64* cursor;

  template <class G>
  ROCKMILL_HD void operator()(const G& g, u64 i) const {
    const u64 slot = table.slots[i];
    if (!has_record(slot) || chunk_of(chunks, num_chunks, record_of(slot)).moves == 0) return;
    const u64 bytes = record_bytes(*reinterpret_cast<const RecordHead*>(record_of(slot)));
    u64 at = 0;
    if (g.rank() == 0) at = fetch_add(cursor, bytes);
    u8* to = records + g.shuffle(at, 0);
    copy_value(g, to, record_of(slot), bytes);
    // Lanes have read the slot before.
    g.sync();
    if (g.rank() == 0) table.slots[i] = (slot & ~SLOT_ADDRESS) | reinterpret_cast<u64>(to) / RECORD_UNIT;
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

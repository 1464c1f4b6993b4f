// The sums that stages accumulate, and how two of them become one.
#pragma once

#include "content.hpp"
#include "exec.hpp"

namespace rockmill::ROCKMILL_TARGET {

// Adds the words of a record of u64s; see exec.hpp:accumulate.
template <class Record>
struct Added : Record {
  using Total = Record;
  static constexpr u32 words = sizeof(Record) / sizeof(u64);
  ROCKMILL_HD static Added zero() { return Added{}; }
  ROCKMILL_HD u64& word(u32 i) { return reinterpret_cast<u64*>(this)[i]; }
  ROCKMILL_HD void merge(Added& other) {
    for (u32 i = 0; i < words; ++i) word(i) += other.word(i);
  }
  ROCKMILL_HD void merge_into(Record& total) {
    for (u32 i = 0; i < words; ++i) atomic_add(reinterpret_cast<u64*>(&total) + i, word(i));
  }
};

using InputSums = Added<InputTotals>;
using RetainSums = Added<RetainTotals>;
using ScanSums = Added<ScanTotals>;

// FileTotals, in which two words are a minimum and a maximum.
struct FileSums : FileTotals {
  using Total = FileTotals;
  static constexpr u32 words = sizeof(FileTotals) / sizeof(u64);
  ROCKMILL_HD static FileSums zero() {
    FileSums sums{};
    sums.smallest_seqno = MAX_SEQUENCE;
    return sums;
  }
  ROCKMILL_HD u64& word(u32 i) { return reinterpret_cast<u64*>(this)[i]; }
  // Adds entry `i` of a file.
  ROCKMILL_HD void add(const Key& key, u64 hash, u64 value_len, u64 i) {
    const u64 sequence = key.tag >> 8;
    content_hash += placed_hash(hash, i);
    rows_hash += hash;
    const u64 type = key.tag & 0xff;
    deletions += type == TYPE_DELETION || type == TYPE_SINGLE_DELETION;
    merge_operands += type == TYPE_MERGE;
    key_bytes += key.len + TAG_BYTES;
    value_bytes += value_len;
    if (sequence < smallest_seqno) smallest_seqno = sequence;
    if (sequence > largest_seqno) largest_seqno = sequence;
  }
  ROCKMILL_HD void merge(const FileSums& other) {
    content_hash += other.content_hash;
    rows_hash += other.rows_hash;
    deletions += other.deletions;
    merge_operands += other.merge_operands;
    key_bytes += other.key_bytes;
    value_bytes += other.value_bytes;
    filter_entries += other.filter_entries;
    if (other.smallest_seqno < smallest_seqno) smallest_seqno = other.smallest_seqno;
    if (other.largest_seqno > largest_seqno) largest_seqno = other.largest_seqno;
  }
  ROCKMILL_HD void merge_into(FileTotals& total) {
    atomic_add(&total.content_hash, content_hash);
    atomic_add(&total.rows_hash, rows_hash);
    atomic_add(&total.deletions, deletions);
    atomic_add(&total.merge_operands, merge_operands);
    atomic_add(&total.key_bytes, key_bytes);
    atomic_add(&total.value_bytes, value_bytes);
    atomic_add(&total.filter_entries, filter_entries);
    atomic_min(&total.smallest_seqno, smallest_seqno);
    atomic_max(&total.largest_seqno, largest_seqno);
  }
};

}  // namespace rockmill::ROCKMILL_TARGET

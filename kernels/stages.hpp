// The stages as the table offers them: each a few functors in a row.
#pragma once

#include "encode/blocks.hpp"
#include "encode/filter.hpp"
#include "merge/merge.hpp"
#include "retain/retain.hpp"
#include "table.hpp"
#include "verify/verify.hpp"

namespace rockmill::ROCKMILL_TARGET::stages {

// Goes on unless the step before has failed.
#define ROCKMILL_STEP(call)               \
  do {                                    \
    if (int error = (call)) return error; \
  } while (0)

struct Nothing {
  ROCKMILL_HD void operator()(u64) const {}
};

inline int probe(const Exec* exec) { return for_each(*exec, 1, Nothing{}); }

inline u64 scratch_bytes(u64 n) { return scratch_bytes_for<Key, KeyLess>(n); }

inline int check_blocks(const Exec* exec, const DecodeArgs* a) {
  return for_each_group(*exec, a->num_blocks, CheckBlock{a->arena, a->blocks, a->errors});
}

inline int count_entries(const Exec* exec, const DecodeArgs* a) {
  ROCKMILL_STEP(for_each_group(*exec, a->num_blocks,
                               CountEntries{a->arena, a->blocks, a->key_bytes, a->counts, a->errors}));
  return exclusive_sum(*exec, a->counts, a->starts, a->num_blocks + 1);
}

inline int decode_entries(const Exec* exec, const DecodeArgs* a) {
  return for_each_group(*exec, a->num_blocks,
                        DecodeEntries{a->arena, a->blocks, a->key_bytes, a->starts, a->keys, a->values,
                                      a->errors});
}

inline int hash_entries(const Exec* exec, const DecodeArgs* a, u64 n) {
  return for_each(*exec, n, HashEntries{a->arena, a->keys, a->values, a->key_bytes, a->hashes});
}

inline int check_order(const Exec* exec, const DecodeArgs* a, u64 first, u64 end) {
  return end - first < 2 ? 0
                         : for_each(*exec, end - first - 1, CheckOrder{a->keys + first, a->errors});
}

inline int trim_runs(const Exec* exec, const DecodeArgs* a, const u32* run_starts, u32 num_runs,
                     const Bound* begin, const Bound* end, u32* trimmed) {
  return for_each(*exec, num_runs,
                  TrimRun{a->keys, run_starts, a->key_bytes, *begin, *end, trimmed});
}

inline int sum_input(const Exec* exec, const DecodeArgs* a, u64 first, u64 end, InputTotals* totals) {
  if (end <= first) return 0;
  const SumInput sum{a->keys + first, a->values + first, a->hashes + first};
  return accumulate<InputSums>(*exec, end - first, sum, totals);
}

inline int merge(const Exec* exec, Key* a, Key* b, const u32* trimmed, u32 num_runs, Key** merged) {
  return merge_runs(*exec, a, b, trimmed, num_runs, merged);
}

inline int retain(const Exec* exec, const RetainArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->n, MarkHeads{a->keys, a->rules, a->heads}));
  ROCKMILL_STEP(inclusive_max(*exec, a->heads, a->heads, a->n));
  ROCKMILL_STEP(for_each(*exec, a->n, MarkOlder{a->keys, a->heads, a->has_older}));
  const Decide decide{a->keys, a->heads, a->has_older, a->hashes, a->rules, a->keep};
  ROCKMILL_STEP((accumulate<RetainSums>(*exec, a->n, decide, a->totals)));
  ROCKMILL_STEP(exclusive_sum(*exec, a->keep, a->places, a->n));
  return for_each(*exec, a->n, Gather{a->keys, a->keep, a->places, a->rules, a->survivors});
}

inline int cut(const Exec* exec, const LayoutArgs* a) {
  const FileSum sum{a->survivors, a->values, a->prefix, a->layout.key_bytes};
  ROCKMILL_STEP(
      for_each(*exec, a->n, MeasureEntries{a->survivors, a->values, a->layout, a->shared, a->sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->prefix, a->n + 1));
  ROCKMILL_STEP(for_each(*exec, 1, CutFiles{sum, a->layout, a->n, a->most_files, a->file_starts,
                                            a->num_files, a->errors}));
  ROCKMILL_STEP(
      for_each(*exec, a->n, MarkBlocks{sum, a->layout, a->file_starts, a->num_files, a->begins}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->begins, a->before, a->n + 1));
  ROCKMILL_STEP(for_each(*exec, a->n + 1, StartBlocks{a->begins, a->before, a->n, a->block_starts}));
  return for_each(*exec, a->most_files + 1,
                  FindFileBlocks{a->before, a->file_starts, a->num_files, a->file_blocks});
}

inline int measure_blocks(const Exec* exec, const LayoutArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->n,
                         MeasureStored{a->survivors, a->values, a->layout, a->begins, a->before,
                                       a->block_starts, a->shared, a->sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->prefix, a->n + 1));
  ROCKMILL_STEP(for_each(*exec, a->num_blocks,
                         MeasureBlocks{a->block_starts, a->prefix, a->layout, a->block_sizes,
                                       a->errors}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->block_sizes, a->block_offsets, a->num_blocks + 1));
  return for_each(*exec, a->most_files + 1,
                  FindFileOffsets{a->file_blocks, a->num_files, a->block_offsets, a->file_offsets});
}

inline int sum_file(const Exec* exec, const LayoutArgs* a, u64 start, u64 n, FileTotals* totals) {
  const SumFile sum{a->survivors, a->values, a->hashes, a->layout.key_bytes, start};
  return accumulate<FileSums>(*exec, n, sum, totals);
}

inline int place_blocks(const Exec* exec, const LayoutArgs* a, u32 num_files, const u64* images) {
  return for_each(*exec, a->num_blocks,
                  PlaceBlocks{a->survivors, a->block_starts, a->block_offsets, a->file_starts,
                              a->file_offsets, num_files, images, a->blocks});
}

inline int write_blocks(const Exec* exec, const LayoutArgs* a, u8* images) {
  return for_each_group(*exec, a->num_blocks,
                        WriteBlocks{a->arena, a->survivors, a->values, a->layout, a->shared,
                                    a->prefix, a->blocks, images});
}

inline int seal_blocks(const Exec* exec, const OutBlock* blocks, u64 n, const u32* bases, u8* images) {
  return for_each_group(*exec, n, SealBlocks{blocks, bases, images});
}

inline int build_filter(const Exec* exec, const LayoutArgs* a, const FilterArgs* filter) {
  return for_each(*exec, filter->num_entries,
                  SetFilterBits{a->survivors, filter->file_start, a->layout.key_bytes,
                                filter->num_lines, filter->num_probes, filter->lines});
}

inline int decode_images(const Exec* exec, const VerifyArgs* a) {
  const DecodeArgs& d = a->decode;
  const ReferBlocks refer{a->blocks, a->bases, a->num_blocks, u32(a->num_entries), a->refs, d.starts};
  ROCKMILL_STEP(for_each(*exec, a->num_blocks + 1, refer));
  ROCKMILL_STEP(for_each_group(*exec, a->num_blocks,
                               CountEntries{d.arena, d.blocks, d.key_bytes, d.counts, d.errors}));
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, CompareCounts{a->blocks, d.counts, d.errors}));
  ROCKMILL_STEP(decode_entries(exec, &d));
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, CompareKeys{a->blocks, d.keys, d.errors}));
  ROCKMILL_STEP((accumulate<Added<BlocksTotal>>(*exec, a->num_blocks, HashBlocks{a->blocks},
                                                reinterpret_cast<BlocksTotal*>(a->blocks_hash))));
  return hash_entries(exec, &d, a->num_entries);
}

inline int verify_file(const Exec* exec, const VerifyArgs* a, u64 start, u64 n, const u8* lines,
                       u32 num_lines, u32 num_probes, FileTotals* totals) {
  const DecodeArgs& decode = a->decode;
  const VerifyFile verify{decode.keys, decode.values, decode.hashes, start, decode.key_bytes,
                          lines, num_lines, num_probes, decode.errors};
  return accumulate<FileSums>(*exec, n, verify, totals);
}

// All of the table that does not touch memory or streams.
inline KernelTable table() {
  KernelTable t{};
  t.table_bytes = sizeof t;
  const u32 records[] = {sizeof(BlockRef),    sizeof(Key),          sizeof(ValueRef),
                         sizeof(OutBlock),    sizeof(Bound),        sizeof(KeySpan),
                         sizeof(InputTotals), sizeof(RetainTotals), sizeof(FileTotals),
                         sizeof(RetainRules), sizeof(Layout),       sizeof(Exec),
                         sizeof(DecodeArgs),  sizeof(RetainArgs),   sizeof(LayoutArgs),
                         sizeof(FilterArgs),  sizeof(VerifyArgs),   sizeof(DeviceInfo)};
  static_assert(sizeof records == sizeof t.record_bytes);
  std::memcpy(t.record_bytes, records, sizeof records);
  t.scratch_bytes = scratch_bytes;
  t.probe = probe;
  t.check_blocks = check_blocks;
  t.count_entries = count_entries;
  t.decode_entries = decode_entries;
  t.hash_entries = hash_entries;
  t.check_order = check_order;
  t.trim_runs = trim_runs;
  t.sum_input = sum_input;
  t.merge_runs = merge;
  t.retain = retain;
  t.cut = cut;
  t.measure_blocks = measure_blocks;
  t.sum_file = sum_file;
  t.place_blocks = place_blocks;
  t.write_blocks = write_blocks;
  t.seal_blocks = seal_blocks;
  t.build_filter = build_filter;
  t.decode_images = decode_images;
  t.verify_file = verify_file;
  return t;
}

}  // namespace rockmill::ROCKMILL_TARGET::stages

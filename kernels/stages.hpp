// The stages in the table: each a few functors in a row.
#pragma once

#include <type_traits>

#include "common/range.hpp"
#include "encode/blocks.hpp"
#include "encode/compress.hpp"
#include "encode/filter.hpp"
#include "encode/index.hpp"
#include "read/decompress.hpp"
#include "read/groups.hpp"
#include "read/merge.hpp"
#include "read/operands.hpp"
#include "read/retain.hpp"
#include "read/snapshot.hpp"
#include "rows/rows.hpp"
#include "scan/columns.hpp"
#include "scan/groups.hpp"
#include "stage_list.hpp"
#include "table.hpp"
#include "verify/verify.hpp"
#include "view/lookup.hpp"
#include "view/revise.hpp"

// Behind all that it checks.
#include "layout_checks.hpp"

namespace rockmill::ROCKMILL_TARGET::stages {

// Continues unless the previous step has failed.
#define ROCKMILL_STEP(call)               \
  do {                                    \
    if (int error = (call)) return error; \
  } while (0)

struct Nothing {
  ROCKMILL_HD void operator()(u64) const {}
};

inline int probe(const Exec* exec) { return for_each(*exec, 1, Nothing{}); }

inline u64 scratch_bytes(u64 n) { return scratch_bytes_for<Key, MergeLess>(n); }

inline KeyBytes key_bytes_of(const DecodeArgs* a) { return {a->key_bytes, a->key_at}; }

inline int check_blocks(const Exec* exec, const DecodeArgs* a) {
  return for_each_group(*exec, a->num_blocks, CheckBlock{a->arena, a->blocks, a->errors});
}

inline int measure_raw(const Exec* exec, const DecompressArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, MeasureRaw{a->from, a->blocks, a->sizes, a->errors}));
  return exclusive_sum(*exec, a->sizes, a->offsets, a->num_blocks + 1);
}

inline int decompress(const Exec* exec, const DecompressArgs* a) {
  return decompress_all(*exec, Decompression{a->from, a->blocks, a->offsets, a->to, a->errors}, a->num_blocks);
}

inline int count_alone(const Exec* exec, const DecodeArgs* a) {
  const CountEntries count{a->arena, a->blocks, a->counts, a->key_sums, a->longest, a->errors};
  return for_each_group(*exec, a->num_blocks, count);
}

inline int count_entries(const Exec* exec, const DecodeArgs* a) {
  ROCKMILL_STEP(count_alone(exec, a));
  ROCKMILL_STEP(exclusive_sum(*exec, a->counts, a->starts, a->num_blocks + 1));
  return exclusive_sum(*exec, a->key_sums, a->key_starts, a->num_blocks + 1);
}

inline int decode_entries(const Exec* exec, const DecodeArgs* a) {
  return for_each_group(*exec, a->num_blocks,
                        DecodeEntries{a->arena, a->blocks, a->starts, a->keys, a->values, a->key_starts,
                                      a->key_bytes, a->key_at, a->types, a->errors});
}

inline int hash_entries(const Exec* exec, const DecodeArgs* a, u64 n) {
  return for_each(*exec, n, HashEntries{a->arena, a->keys, key_bytes_of(a), a->values, a->hashes});
}

// Calls run(f, number of parts, maximum of their items) for parts of F, as many as a kernel takes at a time.
template <class F, class Part, class Run>
int in_batches(F f, const Part* parts, u64 count, Run run) {
  for (u64 first = 0; first < count; first += F::MOST) {
    const u32 of_batch = u32(std::min<u64>(F::MOST, count - first));
    std::copy_n(parts + first, of_batch, f.parts);
    u64 most = 0;
    for (u32 k = 0; k < of_batch; ++k) most = std::max(most, f.items(k));
    ROCKMILL_STEP(run(f, of_batch, most));
  }
  return 0;
}

inline int place_entries(const Exec* exec, const PlaceArgs* parts, u64 count) {
  return in_batches(PlaceEntries{}, parts, count,
                    [&](const PlaceEntries& f, u32 n, u64 most) { return for_each_of(*exec, n, most, f); });
}

inline int check_order(const Exec* exec, const DecodeArgs* a, u64 first, u64 end) {
  if (end - first < 2) return 0;
  return for_each(*exec, end - first - 1, CheckOrder{a->keys + first, key_bytes_of(a), a->errors});
}

inline int trim_runs(const Exec* exec, const DecodeArgs* a, const u32* run_starts, u32 num_runs,
                     const UserKey* begin, const UserKey* end, u32* trimmed) {
  ROCKMILL_STEP(for_each(*exec, num_runs, TrimRun{a->keys, key_bytes_of(a), run_starts, *begin, *end, trimmed}));
  return for_each(*exec, num_runs, FollowRun{a->keys, key_bytes_of(a), trimmed, trimmed + 2 * num_runs});
}

inline int sum_input(const Exec* exec, const DecodeArgs* a, u64 first, u64 end, InputTotals* totals) {
  if (end <= first) return 0;
  const SumInput sum{a->keys + first, a->values + first, a->hashes + first};
  return accumulate<InputSums>(*exec, end - first, sum, totals);
}

inline int merge_runs(const Exec* exec, const KeyBytes* key_bytes, Key* a, Key* b, const u32* trimmed,
                      u32 num_runs, Key** merged) {
  return ROCKMILL_TARGET::merge_runs(*exec, *key_bytes, a, b, trimmed, num_runs, merged);
}

// Finds the last fragment of range tombstones before each key.
template <typename Args>
int cover_keys(const Exec* exec, const Args* a) {
  if (a->cover == nullptr) return 0;
  const u64 fragments = a->rules.num_fragments;
  const FindFragments place{a->keys, a->key_bytes, a->n, a->rules.fragments, a->fragment_places};
  ROCKMILL_STEP(for_each(*exec, fragments, place));
  ROCKMILL_STEP(for_each(*exec, fragments, MarkFragments{a->fragment_places, fragments, a->n, a->cover}));
  return inclusive_max(*exec, a->cover, a->cover, a->n);
}

inline int decide(const Exec* exec, const RetainArgs* a) {
  ROCKMILL_STEP(cover_keys(exec, a));
  if (a->one_by_one) {
    const RetainGroup groups{a->keys, a->key_bytes, a->n,     a->values, a->hashes,
                             a->rules, a->cover,    a->keep, a->errors};
    return accumulate<RetainSums>(*exec, a->n, groups, a->totals);
  }
  ROCKMILL_STEP(for_each(*exec, a->n, MarkHeads{a->keys, a->key_bytes, a->rules, a->heads}));
  ROCKMILL_STEP(inclusive_max(*exec, a->heads, a->heads, a->n));
  ROCKMILL_STEP(for_each(*exec, a->n, MarkOlder{a->keys, a->key_bytes, a->heads, a->has_older}));
  const Decide decide{a->keys, a->key_bytes, a->heads, a->has_older, a->hashes, a->rules, a->cover, a->keep};
  if (a->made == nullptr) return accumulate<RetainSums>(*exec, a->n, decide, a->totals);
  const DecideMerged merged{decide, a->values, a->n, a->merging, a->made, a->made_offsets, a->errors};
  return accumulate<RetainSums>(*exec, a->n, merged, a->totals);
}

inline int measure_made(const Exec* exec, const RetainArgs* a) {
  ROCKMILL_STEP(decide(exec, a));
  return exclusive_sum(*exec, a->made_offsets, a->made_offsets, a->n + 1);
}

inline int make_values(const Exec* exec, const RetainArgs* a) {
  const MakeValues make{{a->arena, a->keys, a->values}, a->merging, a->made, a->made_offsets, a->arena + a->made_at};
  return for_each_group(*exec, a->n, make);
}

inline int finish_made(const Exec* exec, const RetainArgs* a) {
  const CheckMerged check{{a->arena, a->keys, a->values}, a->key_bytes, a->merging, a->made, a->made_offsets,
                        a->arena + a->made_at,          a->hashes,    a->errors};
  ROCKMILL_STEP(for_each(*exec, a->n, check));
  const FinishMerged finish{a->arena, a->keys,    a->key_bytes, a->values,       a->hashes,
                          a->rules, a->merging, a->made,      a->made_offsets, a->made_at};
  return accumulate<RetainSums>(*exec, a->n, finish, a->totals);
}

inline int retain(const Exec* exec, const RetainArgs* a) {
  // The merged values were decided when they were measured.
  ROCKMILL_STEP(a->made != nullptr ? finish_made(exec, a) : decide(exec, a));
  ROCKMILL_STEP(exclusive_sum(*exec, a->keep, a->places, a->n));
  RetainRules rules = a->rules;
  // Their tags are final.
  if (a->one_by_one) rules.bottommost = 0;
  return for_each(*exec, a->n, Gather{a->keys, a->keep, a->places, rules, a->selected_rows});
}

inline int select_visible(const Exec* exec, const SnapshotArgs* a) {
  ROCKMILL_STEP(cover_keys(exec, a));
  const SelectVisible select{a->keys, a->key_bytes, a->hashes, a->rules, a->cover, a->keep, a->errors};
  return accumulate<RetainSums>(*exec, a->n, select, a->totals);
}

inline int gather_visible(const Exec* exec, const SnapshotArgs* a) {
  ROCKMILL_STEP(exclusive_sum(*exec, a->keep, a->places, a->n));
  // Rows keep their tags.
  return for_each(*exec, a->n, Gather{a->keys, a->keep, a->places, RetainRules{}, a->selected_rows});
}

inline int measure_rows(const Exec* exec, const RowArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->n, MeasureRows{a->rows, a->values, a->sizes}));
  return exclusive_sum(*exec, a->sizes, a->offsets, a->n + 1);
}

inline int copy_rows(const Exec* exec, const RowArgs* a, u64 first, u64 end, u8* out) {
  return for_each_group(*exec, end - first,
                        CopyRows{a->arena, a->rows, a->key_bytes, a->values, a->offsets, first, out});
}

inline int measure_records(const Exec* exec, const InsertArgs* a) {
  const MeasureRecords measure{a->arena, a->rows, a->key_bytes, a->values, a->base, a->seen, a->sizes, a->totals};
  ROCKMILL_STEP(for_each_tile<VIEW_LANES>(*exec, a->n, measure));
  return exclusive_sum(*exec, a->sizes, a->offsets, a->n + 1);
}

inline int insert_records(const Exec* exec, const InsertArgs* a) {
  const InsertRecords place{a->arena,   a->rows, a->key_bytes, a->values, a->offsets,
                           a->records, a->base, a->table,     a->totals};
  return for_each_tile<VIEW_LANES>(*exec, a->n, place);
}

inline int count_unseen(const Exec* exec, const InsertArgs* a) {
  return for_each_tile<VIEW_LANES>(*exec, a->n, CountUnseen{a->rows, a->key_bytes, a->base, a->seen, a->totals});
}

inline u64 num_slots(const ResidentTable& table) { return table.buckets * BUCKET_SLOTS; }

inline int erase_missing(const Exec* exec, const SlotsArgs* a) {
  return for_each(*exec, num_slots(a->base), EraseMissing{a->base, a->seen, a->ranges, a->table, a->totals});
}

inline int rehash(const Exec* exec, const SlotsArgs* a) {
  return for_each(*exec, num_slots(a->base), Rehash{a->base, a->table, a->totals});
}

inline int measure_chunks(const Exec* exec, const SlotsArgs* a) {
  return for_each(*exec, num_slots(a->table), MeasureChunks{a->table, a->chunks, a->num_chunks});
}

inline int move_records(const Exec* exec, const SlotsArgs* a) {
  const MoveRecords move{a->table, a->chunks, a->num_chunks, a->records, a->cursor};
  return for_each_tile<VIEW_LANES>(*exec, num_slots(a->table), move);
}

inline int look_up(const Exec* exec, const LookupArgs* a) {
  const auto run = [&](auto asks, auto of_ids) {
    const LookUp<decltype(asks)::value, decltype(of_ids)::value> look_up{
        Kv{a->kv},   a->keys,  a->key_offsets, a->key_bytes,  a->rows, a->stride, a->default_row,
        a->statuses, a->sizes, a->found,       a->unanswered, a->form, a->options};
    if (!decltype(asks)::value && a->stride >= LONG_ROW) return for_each_tile<2 * VIEW_LANES>(*exec, a->n, look_up);
    return for_each_tile<VIEW_LANES>(*exec, a->n, look_up);
  };
  const auto run_of = [&](auto asks) {
    return a->form.id_bytes == 0 ? run(asks, std::false_type{}) : run(asks, std::true_type{});
  };
  return a->kv.ring.slots == 0 ? run_of(std::false_type{}) : run_of(std::true_type{});
}

inline ScanProgram scan_program(const ScanArgs* a) {
  return {a->arena, a->rows, a->key_bytes, a->values, a->ops, a->constants, a->literals};
}

// Words of a thread that runs the program.
inline u32 slot_words(const ScanArgs* a) { return ScanSlots::SLOT_WORDS * a->num_slots; }

inline int scan_filter(const Exec* exec, const ScanArgs* a) {
  const FilterRows filter{scan_program(a), a->num_filter, a->keep, a->sizes, a->errors};
  ROCKMILL_STEP(for_each_with_words(*exec, a->n, slot_words(a), filter));
  ROCKMILL_STEP(exclusive_sum(*exec, a->keep, a->places, a->n + 1));
  return for_each(*exec, a->n, GatherSelected{a->keep, a->places, a->selected});
}

inline int scan_measure(const Exec* exec, const ScanArgs* a) {
  const MeasureSelected measure{scan_program(a), a->num_filter, a->num_ops,   a->selected, a->columns,
                              a->num_columns,  a->row_bytes,  a->has_bytes, a->sizes,  a->errors};
  ROCKMILL_STEP(for_each_with_words(*exec, a->num_selected, slot_words(a), measure));
  ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->offsets, a->num_selected + 1));
  return for_each(*exec, 1, CutBatches{a->offsets, a->num_selected, a->batch_rows, a->batch_bytes, a->sizes});
}

inline int scan_fill(const Exec* exec, const ScanArgs* a, const ScanColumn* columns, u64 first, u64 rows) {
  const FillColumns fill{scan_program(a), a->num_filter,  a->num_ops, a->selected + first, rows,
                         a->columns,      a->num_columns, a->out,     a->errors};
  ROCKMILL_STEP(for_each_with_words(*exec, rows, slot_words(a), fill));
  for (u32 i = 0; i < a->num_columns; ++i) {
    if (columns[i].stored != STORED_BYTES) continue;
    const u32* lens = reinterpret_cast<const u32*>(a->out + columns[i].lens);
    ROCKMILL_STEP(exclusive_sum(*exec, lens, reinterpret_cast<u32*>(a->out + columns[i].packed), rows + 1));
  }
  return for_each(*exec, a->num_columns * ((rows + 7) / 8), PackBits{rows, a->columns, a->out});
}

inline int scan_copy(const Exec* exec, const ScanArgs* a, u64 first, u64 rows) {
  return for_each_group(*exec, a->num_columns * rows,
                        CopyCells{scan_program(a), a->selected + first, rows, a->columns, a->out});
}

inline int scan_group(const Exec* exec, const ScanArgs* a, const ScanGroups* groups) {
  const u64 items = (a->num_selected + GROUP_ROWS - 1) / GROUP_ROWS;
  GroupRows group{scan_program(a), a->num_filter, a->num_ops, a->selected, a->num_selected, *groups, false, a->errors};
  ROCKMILL_STEP(for_each_group_with_words(*exec, items, slot_words(a), group));
  if (!groups->has_wide) return 0;
  group.is_second = true;
  return for_each_group_with_words(*exec, items, slot_words(a), group);
}

inline int scan_take_groups(const Exec* exec, const ScanGroups* groups, const u32* slots, u64 n, u64* out) {
  return for_each(*exec, n * groups->num_words, TakeGroups{*groups, slots, out});
}

inline int scan_hash(const Exec* exec, const HashPart* parts, u64 count, ScanTotals* totals) {
  HashWords hash{};
  hash.totals = totals;
  return in_batches(hash, parts, count, [&](const HashWords& f, u32 n, u64 most) {
    return accumulate_each<ScanSums>(*exec, n, most, f);
  });
}

inline FilterKeys filter_keys(const LayoutArgs* a) {
  return {a->selected_rows, a->key_bytes, a->filter, a->last_with_prefix, a->errors};
}

inline int split(const Exec* exec, const LayoutArgs* a) {
  const FileSum sum{a->selected_rows, a->values, a->prefix};
  if (a->key_sums != nullptr) {
    ROCKMILL_STEP(for_each(*exec, a->n, MeasureKeys{a->selected_rows, a->sizes}));
    ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->key_sums, a->n + 1));
  }
  if (a->last_with_prefix != nullptr) {
    ROCKMILL_STEP(for_each(*exec, a->n, MarkPrefixed{filter_keys(a), a->last_with_prefix}));
    ROCKMILL_STEP(inclusive_max(*exec, a->last_with_prefix, a->last_with_prefix, a->n));
  }
  ROCKMILL_STEP(for_each(*exec, a->n, MeasureEntries{a->selected_rows, a->key_bytes, a->values, a->layout,
                                                     a->shared, a->sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->prefix, a->n + 1));
  const FindFragments fragments{a->selected_rows, a->key_bytes, a->n, a->fragments, a->fragment_places};
  ROCKMILL_STEP(for_each(*exec, a->num_fragments, fragments));
  const Items items{a->selected_rows, a->key_bytes, a->n, a->fragments, a->fragment_places, a->num_fragments};
  ROCKMILL_STEP(for_each(*exec, a->splitting.num_grandparents,
                         FindGrandparents{items, a->splitting, a->grandparent_places}));
  ROCKMILL_STEP(for_each(*exec, 1,
                         SplitFiles{sum, items, a->splitting, a->grandparent_places, a->max_files, a->max_cuts,
                                    a->file_starts, a->num_files, a->cuts, a->errors}));
  if (a->deletion_sums != nullptr) {
    ROCKMILL_STEP(for_each(*exec, a->n + 1, MarkDeletions{a->selected_rows, a->n, a->deletion_sums}));
    ROCKMILL_STEP(exclusive_sum(*exec, a->deletion_sums, a->deletion_sums, a->n + 1));
  }
  ROCKMILL_STEP(
      for_each(*exec, a->n, MarkBlocks{sum, a->layout, a->file_starts, a->num_files, a->begins}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->begins, a->before, a->n + 1));
  ROCKMILL_STEP(for_each(*exec, a->n + 1, StartBlocks{a->begins, a->before, a->n, a->block_starts}));
  return for_each(*exec, a->max_files + 1,
                  FindFileBlocks{a->before, a->file_starts, a->num_files, a->file_blocks});
}

inline int measure_blocks(const Exec* exec, const LayoutArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->num_blocks,
                         FindPrefixes{a->selected_rows, a->key_bytes, a->layout, a->block_starts,
                                      a->prefix_lens}));
  ROCKMILL_STEP(for_each(*exec, a->n,
                         MeasureStored{a->selected_rows, a->values, a->layout, a->begins, a->before,
                                       a->block_starts, a->prefix_lens, a->shared, a->sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->sizes, a->prefix, a->n + 1));
  return for_each(*exec, a->num_blocks,
                  MeasureBlocks{a->block_starts, a->prefix_lens, a->prefix, a->layout, a->hash_buckets,
                                a->raw_sizes, a->errors});
}

inline int place_raw(const Exec* exec, const LayoutArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, SumBlocks{a->raw_sizes, a->block_sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->block_sizes, a->raw_offsets, a->num_blocks + 1));
  return for_each(*exec, a->num_blocks, FindRawOffsets{a->block_starts, a->raw_offsets, a->raw_sizes, a->blocks});
}

inline WriteBlocks block_writer(const LayoutArgs* a, u8* to) {
  return {a->arena,  a->selected_rows,   a->key_bytes,    a->values, a->layout, a->shared,
          a->prefix, a->prefix_lens, a->hash_buckets, a->blocks, to};
}

inline int compress_blocks(const Exec* exec, const LayoutArgs* a) {
  ROCKMILL_STEP(for_each_group(*exec, a->num_blocks, block_writer(a, a->raw)));
  const CompressScratch scratch{a->compress_scratch, a->compress_groups, a->compress_group_bytes,
                                u32(a->compress_usual), 0, nullptr};
  const CompressBlocks compress{a->compression,  a->blocks, a->raw,      a->packed,
                                a->stored_sizes, a->codecs, a->raw_sums, scratch};
  if (a->compression.codec == CODEC_ZSTD) return compress_all_zstd(*exec, a->num_blocks, compress);
  return for_each_group_with_shared<MatchTable>(*exec, a->num_blocks, compress);
}

inline int sum_blocks(const Exec* exec, const LayoutArgs* a) {
  // An uncompressed block has its raw size.
  const u32* sizes = a->raw_offsets != nullptr ? a->stored_sizes : a->raw_sizes;
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, SumBlocks{sizes, a->block_sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->block_sizes, a->block_offsets, a->num_blocks + 1));
  return for_each(*exec, a->max_files + 1,
                  FindFileOffsets{a->file_blocks, a->num_files, a->block_offsets, a->file_offsets});
}

inline Separators separators(const LayoutArgs* a) {
  return {a->selected_rows, a->key_bytes, a->block_starts, a->index};
}

inline IndexEntries index_entries(const LayoutArgs* a) {
  return {separators(a), a->block_offsets, a->file_offsets, a->file_blocks, a->num_files, a->indexes};
}

inline int measure_index(const Exec* exec, const LayoutArgs* a) {
  ROCKMILL_STEP(for_each(*exec, a->max_files,
                         DescribeFiles{separators(a), a->file_starts, a->file_blocks, a->num_files,
                                       a->indexes}));
  ROCKMILL_STEP(for_each(*exec, a->num_blocks,
                         MarkInternal{separators(a), a->file_blocks, a->num_files, a->indexes}));
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, MeasureIndex{index_entries(a), a->index_sizes}));
  ROCKMILL_STEP(exclusive_sum(*exec, a->index_sizes, a->index_sums, a->num_blocks + 1));
  return for_each(*exec, a->max_files,
                  SizeIndexes{index_entries(a), a->index_sums, a->raw_offsets, a->indexes, a->errors});
}

inline int sum_file(const Exec* exec, const LayoutArgs* a, u64 start, u64 n, FileTotals* totals) {
  const SumFile sum{a->selected_rows, a->values, a->hashes, filter_keys(a), start};
  return accumulate<FileSums>(*exec, n, sum, totals);
}

inline int most_deletions(const Exec* exec, const LayoutArgs* a, u64 start, u64 n, u64 bucket_size, u64* most) {
  if (n == 0 || bucket_size == 0) return 0;
  const FindMostDeletions find{a->deletion_sums + start, n, bucket_size};
  return accumulate<MostDeletions>(*exec, (n - 1) / bucket_size + 1, find, most);
}

inline int place_blocks(const Exec* exec, const LayoutArgs* a, u32 num_files) {
  ROCKMILL_STEP(for_each(*exec, a->num_blocks,
                         FindBlockOffsets{a->block_starts, a->block_offsets, a->file_starts, a->file_offsets,
                                     num_files, a->places, a->key_sums, a->raw_sizes, a->codecs, a->blocks}));
  return for_each_group(*exec, num_files,
                        CopyEdges{a->selected_rows, a->key_bytes, a->file_starts, a->places, a->edges});
}

inline int write_blocks(const Exec* exec, const LayoutArgs* a, u8* images) {
  if (a->raw_offsets == nullptr) return for_each_group(*exec, a->num_blocks, block_writer(a, images));
  return for_each_group(*exec, a->num_blocks,
                        GatherBlocks{a->blocks, a->raw_offsets, a->raw, a->packed, images});
}

inline int seal_blocks(const Exec* exec, const OutBlock* blocks, u64 n, const u32* bases, u32 checksum,
                       u8* images) {
  return for_each_group(*exec, n, SealBlocks{blocks, bases, checksum, images});
}

inline int write_index(const Exec* exec, const LayoutArgs* a, u8* images) {
  return for_each_group(*exec, a->num_blocks,
                        WriteIndex{index_entries(a), a->index_sums, a->places, images});
}

inline int build_filter(const Exec* exec, const LayoutArgs* a, const FilterArgs* filter) {
  const FilterShape shape{a->filter.format, filter->num_lines, filter->num_probes};
  return for_each(*exec, filter->num_entries,
                  SetFilterBits{filter_keys(a), filter->file_start, shape, filter->lines});
}

inline int decode_images(const Exec* exec, const VerifyArgs* a) {
  const DecodeArgs& d = a->decode;
  const ReferBlocks refer{a->blocks,           a->bases, a->layout, a->num_blocks, u32(a->num_entries),
                          a->num_key_bytes, a->refs,  d.starts,  d.key_starts};
  ROCKMILL_STEP(for_each(*exec, a->num_blocks + 1, refer));
  if (a->raw_offsets != nullptr)
    ROCKMILL_STEP(decompress_all(*exec, Decompression{a->images, a->refs, a->raw_offsets, a->packed, d.errors},
                                 a->num_blocks));
  ROCKMILL_STEP(count_alone(exec, &d));
  ROCKMILL_STEP(
      for_each(*exec, a->num_blocks,
               CompareCounts{d.arena, a->blocks, a->refs, d.counts, a->hash_buckets, a->layout.restart_interval,
                             d.errors}));
  ROCKMILL_STEP(decode_entries(exec, &d));
  if (a->hash_buckets != nullptr) {
    const CheckHashIndexes check{d.arena,         d.keys, key_bytes_of(&d), a->blocks, a->refs,
                                 a->hash_buckets, a->layout.restart_interval, d.errors};
    ROCKMILL_STEP(for_each_group(*exec, a->num_blocks, check));
  }
  const Separators separators{d.keys, key_bytes_of(&d), d.starts, a->index};
  const FindIndex index{separators, a->blocks, a->file_blocks, a->indexes, a->found, d.errors};
  ROCKMILL_STEP(for_each(*exec, a->num_blocks, index));
  const FindEdges edges{d.keys, key_bytes_of(&d), a->file_starts, a->found};
  ROCKMILL_STEP(for_each(*exec, a->num_files, edges));
  return hash_entries(exec, &d, a->num_entries);
}

inline int verify_file(const Exec* exec, const VerifyArgs* a, u64 start, u64 n, const u8* lines,
                       u32 num_lines, u32 num_probes, FileTotals* totals) {
  const DecodeArgs& decode = a->decode;
  const VerifyFile verify{decode.keys,
                          decode.values,
                          decode.hashes,
                          start,
                          {decode.keys, key_bytes_of(&decode), a->filter, nullptr, decode.errors},
                          lines,
                          {a->filter.format, num_lines, num_probes},
                          decode.errors};
  return accumulate<FileSums>(*exec, n, verify, totals);
}

// All functions of the table that do not manage memory or streams.
inline KernelTable table() {
  KernelTable t{};
  t.table_bytes = sizeof t;
  t.scratch_bytes = scratch_bytes;
  t.probe = probe;
#define ROCKMILL_SET(stage)          \
  t.stage = [](auto... args) {       \
    const Range range(#stage);       \
    return stages::stage(args...);   \
  };
  ROCKMILL_STAGES(ROCKMILL_SET)
#undef ROCKMILL_SET
  return t;
}

}  // namespace rockmill::ROCKMILL_TARGET::stages

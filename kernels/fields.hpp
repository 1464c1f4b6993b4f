// The places of the fields of the records that the host and the kernels share, for comparison with Rust's
// (crates/cuda/src/driver/ffi/records.rs): the records' sizes alone would not show that two fields of one size are
// exchanged.
#pragma once

#include <cstddef>

#include "table.hpp"

namespace rockmill::ROCKMILL_TARGET {

// The size of the record itself, without a name.
#define ROCKMILL_RECORD(Record, ...) \
  {#Record, "", 0, sizeof(Record)}, ROCKMILL_FOR_EACH(ROCKMILL_FIELD, Record, __VA_ARGS__)
#define ROCKMILL_FIELD(Record, name) {#Record, #name, offsetof(Record, name), sizeof(Record::name)},

// macro(Record, a) macro(Record, b) .. for some 80 names: each expansion processes the rest of the previous one.
#define ROCKMILL_FOR_EACH(macro, Record, ...) ROCKMILL_EXPAND(ROCKMILL_NEXT(macro, Record, __VA_ARGS__))
#define ROCKMILL_NEXT(macro, Record, name, ...) \
  macro(Record, name) __VA_OPT__(ROCKMILL_AGAIN ROCKMILL_PARENS(macro, Record, __VA_ARGS__))
#define ROCKMILL_AGAIN() ROCKMILL_NEXT
#define ROCKMILL_PARENS ()
#define ROCKMILL_EXPAND(...) ROCKMILL_EXPAND_3(ROCKMILL_EXPAND_3(ROCKMILL_EXPAND_3(__VA_ARGS__)))
#define ROCKMILL_EXPAND_3(...) ROCKMILL_EXPAND_2(ROCKMILL_EXPAND_2(ROCKMILL_EXPAND_2(__VA_ARGS__)))
#define ROCKMILL_EXPAND_2(...) ROCKMILL_EXPAND_1(ROCKMILL_EXPAND_1(ROCKMILL_EXPAND_1(__VA_ARGS__)))
#define ROCKMILL_EXPAND_1(...) ROCKMILL_EXPAND_0(ROCKMILL_EXPAND_0(ROCKMILL_EXPAND_0(__VA_ARGS__)))
#define ROCKMILL_EXPAND_0(...) __VA_ARGS__

constexpr FieldPlace FIELDS[] = {
    ROCKMILL_RECORD(BlockRef, at, file_offset, stored_size, raw_size, codec, checksum_base, checksum,
                    restart_interval, sequence)
    ROCKMILL_RECORD(Key, hi, lo, tag, entry, len)
    ROCKMILL_RECORD(KeyBytes, bytes, at)
    ROCKMILL_RECORD(ValueRef, at, len)
    ROCKMILL_RECORD(OutBlock, at, file_offset, size, raw_size, codec, file, first, count, key_start)
    ROCKMILL_RECORD(FileIndex, data_size, raw_size, size, prefix_len, internal_keys, smallest_len, largest_len, check)
    ROCKMILL_RECORD(FilePlace, image, index, edges)
    ROCKMILL_RECORD(FoundFile, index_hash, tags_hash, edges_hash)
    ROCKMILL_RECORD(UserKey, hi, lo, bytes, len, present)
    ROCKMILL_RECORD(KeySpan, first, last, file_size)
    ROCKMILL_RECORD(Fragment, begin, end, first, last)
    ROCKMILL_RECORD(RetainRules, snapshots, num_snapshots, earliest, deeper, level_ends, num_levels,
                    bottommost, deeper_unknown, enforce_single_delete, fragments, sequences, num_fragments)
    ROCKMILL_RECORD(MergeRules, function, partial, delimiter, delimiter_len, max_bytes, operand_bytes)
    ROCKMILL_RECORD(SnapshotRules, sequence, keep_tombstones, mark_undecided)
    ROCKMILL_RECORD(ScanOp, code, to, a, b, c, detail)
    ROCKMILL_RECORD(ScanConstant, low, high, is_set, part)
    ROCKMILL_RECORD(ScanColumn, operand, stored, bytes, unused, flags, validity, values, packed, lens, data)
    ROCKMILL_RECORD(ScanGroupKey, operand, stored, bytes, unused)
    ROCKMILL_RECORD(ScanArgument, operand, needed, at, unused)
    ROCKMILL_RECORD(ScanGroups, keys, arguments, num_keys, num_arguments, num_words, has_wide, num_slots, most, found, table,
                    firsts, words)
    ROCKMILL_RECORD(ScanTotals, hash)
    ROCKMILL_RECORD(KeyRanges, ends, bytes, num_bounds)
    ROCKMILL_RECORD(ResidentTable, slots, buckets, seed, hash_mask, outside)
    ROCKMILL_RECORD(RingRequest, operation, key_len, value_len, version, capacity, at, part_len)
    ROCKMILL_RECORD(RingAnswer, status, part_len, len)
    ROCKMILL_RECORD(ChangedKeys, slots, mask, state, seed)
    ROCKMILL_RECORD(Ring, posted, requests, outgoing, answered, answers, incoming, states, numbers, changed, timeout_ns,
                    mailboxes, mailbox_bytes)
    ROCKMILL_RECORD(KvRecord, abi, num_tickets, version, table, ring, last_mailbox, last_number)
    ROCKMILL_RECORD(PlaceTotals, without, asks_in, asks_out, values_out, dead_bytes, gone, retaken, left_over, unseen)
    ROCKMILL_RECORD(RecordChunk, address, live_bytes, moves)
    ROCKMILL_RECORD(InputTotals, hash, tombstones, single_deletes, operands, key_bytes, value_bytes)
    ROCKMILL_RECORD(RetainTotals, hash_kept, hash_dropped, hash_consumed, replaced, tombstones_dropped, kept,
                    dropped, consumed, made, above, rows_hash)
    ROCKMILL_RECORD(FileTotals, content_hash, rows_hash, deletions, merge_operands, key_bytes, value_bytes, smallest_seqno,
                    largest_seqno, filter_entries)
    ROCKMILL_RECORD(Layout, block_size, restart_interval, delta_keys, common_prefix, checksum, buckets_per_entry)
    ROCKMILL_RECORD(Compression, codec, max_bytes_per_kb)
    ROCKMILL_RECORD(IndexLayout, format_version, restart_interval, shortening, common_prefix)
    ROCKMILL_RECORD(Splitting, file_size, grandparents, num_grandparents, target_file_size,
                    max_compaction_bytes, stored, uncompressed, partition_bytes, level_style, unused)
    ROCKMILL_RECORD(FileCut, survivors, fragment)
    ROCKMILL_RECORD(FilterRules, format, whole_keys, prefix_kind, unused, prefix_len)
    ROCKMILL_RECORD(Exec, stream, scratch, scratch_bytes, processors, unused)
    ROCKMILL_RECORD(DecompressArgs, from, blocks, num_blocks, sizes, offsets, to, errors)
    ROCKMILL_RECORD(DecodeArgs, arena, blocks, num_blocks, counts, starts, key_sums, key_starts, longest,
                    keys, values, hashes, key_bytes, key_at, errors, types, unused)
    ROCKMILL_RECORD(RetainArgs, keys, n, key_bytes, values, hashes, rules, fragment_places, cover, heads, has_older, keep, places,
                    survivors, totals, errors, arena, merging, made, made_offsets, made_at, one_by_one, unused)
    ROCKMILL_RECORD(SnapshotArgs, keys, n, key_bytes, hashes, rules, keep, places, survivors, totals, errors)
    ROCKMILL_RECORD(RowArgs, arena, rows, n, key_bytes, values, sizes, offsets)
    ROCKMILL_RECORD(PlaceArgs, arena, rows, n, key_bytes, values, sizes, offsets, records, base, seen, table, totals)
    ROCKMILL_RECORD(SlotsArgs, base, seen, ranges, table, chunks, num_chunks, records, cursor, totals)
    ROCKMILL_RECORD(LookupArgs, kv, keys, key_offsets, key_bytes, n, rows, stride, default_row, statuses, sizes)
    ROCKMILL_RECORD(ScanArgs, arena, rows, n, key_bytes, values, ops, constants, literals, num_filter, num_ops, columns,
                    num_columns, row_bytes, has_bytes, unused, batch_rows, batch_bytes, keep, places, wanted, num_wanted,
                    sizes, offsets, out, errors)
    ROCKMILL_RECORD(LayoutArgs, arena, survivors, n, key_bytes, values, hashes, layout, index, splitting,
                    filter, compression, shared, sizes, prefix, begins, before, block_starts, key_sums, last_with_prefix,
                    deletion_sums, fragments, num_fragments, fragment_places, cuts, grandparent_places, prefix_lens,
                    hash_buckets, raw_sizes, block_sizes, block_offsets, raw_offsets,
                    stored_sizes, codecs, raw_sums, raw, packed, compress_scratch, compress_groups,
                    compress_group_bytes, compress_usual, index_sizes, index_sums, blocks, num_blocks, file_starts, num_files, file_blocks, file_offsets, indexes, places,
                    edges, max_files, max_cuts, errors)
    ROCKMILL_RECORD(FilterArgs, file_start, num_entries, num_lines, num_probes, lines)
    ROCKMILL_RECORD(VerifyArgs, blocks, num_blocks, num_entries, num_key_bytes, num_files, file_starts,
                    file_blocks, indexes, layout, hash_buckets, index, filter, bases, refs, found, images, raw_offsets, packed, decode)
    ROCKMILL_RECORD(DeviceInfo, name, pci_bus_id, memory_bytes, compute_major, compute_minor,
                    multiprocessors, unused)
};

}  // namespace rockmill::ROCKMILL_TARGET

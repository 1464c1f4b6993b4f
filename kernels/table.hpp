// The functions that crates/cuda calls, as a table: one instance with the memory and streams of a GPU, and one entirely
// on the host, where the same stages run sequentially.
//
// Every function returns 0 or an error code that error_text explains. Only functions that say so wait for the device.
// Pointers are to the kernels' memory unless called host_*.
#pragma once

#include "common/exec.hpp"
#include "common/key.hpp"
#include "common/types.hpp"

namespace rockmill::ROCKMILL_TARGET {

struct DeviceInfo {
  char name[128];
  // As in "0000:01:00.0"; empty on the host.
  char pci_bus_id[16];
  u64 memory_bytes;
  int compute_major, compute_minor;
  // 0 on the host.
  int multiprocessors;
  int unused;
};

// Arguments of decompression: blocks in `from`, whose checksums were verified.
struct DecompressArgs {
  const u8* from;
  BlockRef* blocks;
  u64 num_blocks;
  // One more than blocks: bytes of each in `to`, and the sums of those before.
  u64* sizes;
  u64* offsets;
  // As many bytes, with padding around them.
  u8* to;
  u64* errors;
};

// Arguments of decoding.
struct DecodeArgs {
  const u8* arena;
  const BlockRef* blocks;
  u64 num_blocks;
  // Entries of each block, one more than blocks; and the sums of those before.
  u32* counts;
  u32* starts;
  // The same for the bytes of internal keys; and the longest user key, which is found with them.
  u64* key_sums;
  u64* key_starts;
  u64* longest;
  Key* keys;
  ValueRef* values;
  u64* hashes;
  // Null in a narrow task (key.hpp:KeyBytes).
  u8* key_bytes;
  u64* key_at;
  u64* errors;
  // A bit for each accepted type of entries.
  u32 types;
  u32 unused;
};

struct RetainArgs {
  Key* keys;
  u64 n;
  KeyBytes key_bytes;
  ValueRef* values;
  u64* hashes;
  RetainRules rules;
  // Keys before each fragment of range tombstones, and for n keys one more than the last fragment before each; null
  // without any.
  u64* fragment_places;
  u32* cover;
  // n each; `heads` and `has_older` are unused if user keys are processed one by one.
  u32* heads;
  u8* has_older;
  u32* keep;
  u32* places;
  Key* selected_rows;
  RetainTotals* totals;
  u64* errors;
  // If operands are merged: places of values; for n entries the merged rows, and for n + 1 the bytes of merged values
  // before each, which begin in the arena at `made_at`. Else null.
  u8* arena;
  MergeRules merging;
  u32* made;
  u64* made_offsets;
  u64 made_at;
  // Whether user keys are processed one by one (read/groups.hpp).
  u32 one_by_one;
  u32 unused;
};

struct SnapshotArgs {
  const Key* keys;
  u64 n;
  KeyBytes key_bytes;
  const u64* hashes;
  SnapshotRules rules;
  // As in RetainArgs.
  u64* fragment_places;
  u32* cover;
  // n each.
  u32* keep;
  u32* places;
  Key* selected_rows;
  RetainTotals* totals;
  u64* errors;
};

struct RowArgs {
  const u8* arena;
  const Key* rows;
  u64 n;
  KeyBytes key_bytes;
  const ValueRef* values;
  // n + 1 each: bytes of user keys and values, and the sums of those before.
  u64* sizes;
  u64* offsets;
};

// Arguments of storing rows in a table.
struct InsertArgs {
  const u8* arena;
  const Key* rows;
  u64 n;
  KeyBytes key_bytes;
  const ValueRef* values;
  // n + 1 each: bytes of records, and the sums of those before.
  u64* sizes;
  u64* offsets;
  // Target of the records.
  u8* records;
  // The base table, of which `table` is a copy with other rows; without slots if there is none.
  ResidentTable base;
  // A bit for each slot of the base, set if a row has its key; null without a base.
  u64* seen;
  ResidentTable table;
  InsertTotals* totals;
};

// Arguments of work on all slots of a table; see view/revise.hpp.
struct SlotsArgs {
  ResidentTable base;
  const u64* seen;
  KeyRanges ranges;
  ResidentTable table;
  RecordChunk* chunks;
  u64 num_chunks;
  // Target of moved records, and the bytes in use there.
  u8* records;
  u64* cursor;
  InsertTotals* totals;
};

// Keys to look up in a table; see view/lookup.hpp.
struct LookupArgs {
  KvRecord kv;
  const u8* keys;
  const u64* key_offsets;
  u64 key_bytes;
  u64 n;
  u8* rows;
  u64 stride;
  const u8* default_row;
  u8* statuses;
  u32* sizes;
  u8* found;
  u32* unanswered;
  IdForm form;
  // Of LookupOption.
  u32 options;
  u32 unused;
};

// Arguments of a scan.
struct ScanArgs {
  const u8* arena;
  const Key* rows;
  u64 n;
  KeyBytes key_bytes;
  const ValueRef* values;
  // The steps of the filter, then those of the output.
  const ScanOp* ops;
  const ScanConstant* constants;
  const u8* literals;
  u32 num_filter, num_ops;
  const ScanColumn* columns;
  u32 num_columns;
  // Bytes of each row in all columns, without those of byte columns; and whether there are byte columns.
  u32 row_bytes, has_bytes;
  // Results of a row that a thread stores.
  u32 num_slots;
  // Maximum rows and bytes of a batch.
  u64 batch_rows, batch_bytes;
  // n + 1 each; the last of `places` is the number of selected rows.
  u32* keep;
  u32* places;
  u32* selected;
  u64 num_selected;
  // num_selected + 1 each; sizes become the ends of batches, behind their number. While rows are filtered, the first of
  // them counts rows in which a counted check fails.
  u64* sizes;
  u64* offsets;
  // Memory of the batch.
  u8* out;
  u64* errors;
};

struct LayoutArgs {
  const u8* arena;
  const Key* selected_rows;
  u64 n;
  KeyBytes key_bytes;
  const ValueRef* values;
  const u64* hashes;
  Layout layout;
  IndexLayout index;
  Splitting splitting;
  FilterRules filter;
  Compression compression;
  // n + 1 each.
  u32* shared;
  u32* sizes;
  u64* prefix;
  u32* begins;
  u32* before;
  u32* block_starts;
  // n + 1, in a wide task; else null.
  u64* key_sums;
  // n, if some keys may lack a prefix; else null.
  u32* last_with_prefix;
  // n + 1, if tombstones are counted; else null.
  u32* deletion_sums;
  // Range tombstones at whose begins files may end, and surviving entries before each.
  const Fragment* fragments;
  u64 num_fragments;
  u64* fragment_places;
  // max_cuts + 1; the last one has the number of cuts. There may be nothing between one and the next.
  FileCut* cuts;
  // Two for each grandparent.
  u64* grandparent_places;
  // num_blocks + 1 each.
  u32* prefix_lens;
  // Buckets of each block's hash index; null if no block has one.
  u32* hash_buckets;
  u32* raw_sizes;
  u32* block_sizes;
  u64* block_offsets;
  // Null if no block is compressed: offsets of raw images, one more than blocks; for each block the stored bytes of the
  // payload, its codec, the checksum of its raw image; the raw images, and as much room for the compressed ones.
  u64* raw_offsets;
  u32* stored_sizes;
  u32* codecs;
  u32* raw_sums;
  u8* raw;
  u8* packed;
  // compress.hpp:CompressScratch; null unless blocks are compressed by ZSTD.
  u8* compress_scratch;
  u64 compress_groups;
  u64 compress_group_bytes;
  u64 compress_usual;
  // The same of the index's entries.
  u32* index_sizes;
  u64* index_sums;
  OutBlock* blocks;
  u64 num_blocks;
  // max_files + 1 each.
  u32* file_starts;
  u32* num_files;
  // First block of each file, and the bytes of blocks before it.
  u32* file_blocks;
  u64* file_offsets;
  // One for each file.
  FileIndex* indexes;
  const FileOffsets* places;
  // Internal keys at the files' ends.
  u8* edges;
  u32 max_files;
  u32 max_cuts;
  u64* errors;
};

struct FilterArgs {
  u64 file_start;
  u64 num_entries;
  u32 num_lines;
  u32 num_probes;
  u32* lines;
};

struct VerifyArgs {
  const OutBlock* blocks;
  u64 num_blocks;
  u64 num_entries;
  // Bytes of all surviving internal keys, in a wide task.
  u64 num_key_bytes;
  u64 num_files;
  // As in LayoutArgs.
  const u32* file_starts;
  const u32* file_blocks;
  const FileIndex* indexes;
  Layout layout;
  const u32* hash_buckets;
  IndexLayout index;
  FilterRules filter;
  const u32* bases;
  BlockRef* refs;
  // One for each file, cleared.
  FoundFile* found;
  const u8* images;
  // As in LayoutArgs: the blocks are decompressed to the place of their compression.
  const u64* raw_offsets;
  u8* packed;
  DecodeArgs decode;
};

// The functions of a device. The host checks the error code of each.
struct KernelTable {
  u32 table_bytes;
  u32 unused;

  const char* (*error_text)(int);
  int (*device_count)(int*);
  int (*device_info)(int, DeviceInfo*);
  // Gets and sets the calling thread's device.
  int (*get_device)(int*);
  int (*set_device)(int);
  // Versions of CUDA, as 1000 * major + 10 * minor: the newest that the driver supports, 0 without a driver, and that
  // of this build.
  int (*versions)(int* driver, int* build);
  // Memory of the calling thread's device in bytes.
  int (*memory_info)(u64* free, u64* total);

  int (*allocate)(void**, u64);
  int (*release)(void*);
  int (*allocate_pinned)(void**, u64);
  int (*release_pinned)(void*);
  // For memory of the host under a sanitizer: forbids bytes without a buffer, or allows those of a buffer.
  void (*forbid)(const void*, u64);
  void (*allow)(const void*, u64);
  // Whether the address is of device, pinned or managed memory that the calling thread's device can access. May be
  // called while a stream is captured into a graph.
  int (*reaches)(const void*, u32* reaches);

  int (*stream_create)(void**);
  int (*stream_destroy)(void*);
  int (*event_create)(void**);
  int (*event_destroy)(void*);
  int (*event_record)(void*, void* stream);
  // Waits.
  int (*event_synchronize)(void*);
  // Whether the device has reached the event; 1 if it was never recorded.
  int (*event_query)(void*, u32* is_done);
  // Whether a stream is being captured into a graph.
  int (*stream_captures)(void* stream, u32* captures);
  int (*event_elapsed_ms)(float*, void*, void*);
  int (*copy_to_device)(void*, const void*, u64, void* stream);
  int (*copy_from_device)(void*, const void*, u64, void* stream);
  int (*copy_inside)(void*, const void*, u64, void* stream);
  int (*fill)(void*, int, u64, void* stream);

  // Launches a kernel that does nothing, to find out whether this build has code for the device.
  int (*probe)(const Exec*);
  // Bytes of scratch memory for stages over a number of entries.
  u64 (*scratch_bytes)(u64);
  int (*check_blocks)(const Exec*, const DecodeArgs*);
  // Fills sizes and offsets, and the blocks' codecs and uncompressed sizes.
  int (*measure_raw)(const Exec*, const DecompressArgs*);
  // Decompresses all blocks into `to`.
  int (*decompress)(const Exec*, const DecompressArgs*);
  // Fills counts and starts, key_sums and key_starts, longest.
  int (*count_entries)(const Exec*, const DecodeArgs*);
  // Fills keys and values.
  int (*decode_entries)(const Exec*, const DecodeArgs*);
  int (*hash_entries)(const Exec*, const DecodeArgs*, u64 n);
  // Moves decoded entries, whose values and long keys stay or move by themselves.
  int (*place_entries)(const Exec*, const PlaceArgs host_parts[], u64 count);
  // Checks that keys of the run from `first` to `end` ascend.
  int (*check_order)(const Exec*, const DecodeArgs*, u64 first, u64 end);
  // Three numbers of each run: first those of TrimRun of all runs, then those of FollowRun.
  int (*trim_runs)(const Exec*, const DecodeArgs*, const u32* run_starts, u32 num_runs,
                   const UserKey* host_begin, const UserKey* host_end, u32* trimmed);
  // Adds the entries from `first` to `end` in the order of decoding.
  int (*sum_input)(const Exec*, const DecodeArgs*, u64 first, u64 end, InputTotals* totals);
  int (*merge_runs)(const Exec*, const KeyBytes* host_key_bytes, Key* keys, Key* other_keys, const u32 host_trimmed[],
                    u32 num_runs, Key** host_merged);
  // Only if operands are merged: fills made and made_offsets.
  int (*measure_made)(const Exec*, const RetainArgs*);
  // Only after measure_made, and before retain: the bytes of merged values.
  int (*make_values)(const Exec*, const RetainArgs*);
  int (*retain)(const Exec*, const RetainArgs*);
  // Up to `keep` and `totals`.
  int (*select_visible)(const Exec*, const SnapshotArgs*);
  // After select_visible: fills places and selected_rows.
  int (*gather_visible)(const Exec*, const SnapshotArgs*);
  // Fills sizes and offsets.
  int (*measure_rows)(const Exec*, const RowArgs*);
  // Copies the rows from `first` to `end` contiguously.
  int (*copy_rows)(const Exec*, const RowArgs*, u64 first, u64 end, u8* out);
  // Fills sizes and offsets, and sets bits of `seen`.
  int (*measure_records)(const Exec*, const InsertArgs*);
  // Writes the records and stores their slots in the table.
  int (*insert_records)(const Exec*, const InsertArgs*);
  // Counts the rows whose keys the base has and whose bits are not set.
  int (*count_unseen)(const Exec*, const InsertArgs*);
  // Removes keys of the ranges whose bits are not set from the table.
  int (*erase_missing)(const Exec*, const SlotsArgs*);
  // Stores the records of the base in the table, which has other slots.
  int (*rehash)(const Exec*, const SlotsArgs*);
  // Adds to the live bytes of chunks.
  int (*measure_chunks)(const Exec*, const SlotsArgs*);
  // Moves the records of the chunks that are marked.
  int (*move_records)(const Exec*, const SlotsArgs*);
  int (*look_up)(const Exec*, const LookupArgs*);
  // Fills keep, places and selected.
  int (*scan_filter)(const Exec*, const ScanArgs*);
  // Fills sizes and offsets.
  int (*scan_measure)(const Exec*, const ScanArgs*);
  // Fills the columns of `rows` selected rows from `first` on, without the bytes of byte columns; then these.
  int (*scan_fill)(const Exec*, const ScanArgs*, const ScanColumn host_columns[], u64 first, u64 rows);
  int (*scan_copy)(const Exec*, const ScanArgs*, u64 first, u64 rows);
  // Groups the selected rows.
  int (*scan_group)(const Exec*, const ScanArgs*, const ScanGroups* host_groups);
  // Copies the words of the groups in some slots contiguously.
  int (*scan_take_groups)(const Exec*, const ScanGroups* host_groups, const u32* slots, u64 n, u64* out);
  // Adds the hashes of the words of parts to their totals.
  int (*scan_hash)(const Exec*, const HashPart host_parts[], u64 count, ScanTotals* totals);
  // Up to the block starts and the files' first blocks; the last of `before` is the number of blocks.
  int (*split)(const Exec*, const LayoutArgs*);
  // Raw sizes of blocks.
  int (*measure_blocks)(const Exec*, const LayoutArgs*);
  // Only if blocks are compressed: offsets of raw images; then the raw images and their compressed form.
  int (*place_raw)(const Exec*, const LayoutArgs*);
  int (*compress_blocks)(const Exec*, const LayoutArgs*);
  // Stored sizes of blocks, offsets of blocks and files.
  int (*sum_blocks)(const Exec*, const LayoutArgs*);
  // Sizes and sums of the index's entries, and indexes.
  int (*measure_index)(const Exec*, const LayoutArgs*);
  int (*sum_file)(const Exec*, const LayoutArgs*, u64 start, u64 n, FileTotals* totals);
  // Maximum tombstones in a window of buckets of this number of entries.
  int (*most_deletions)(const Exec*, const LayoutArgs*, u64 start, u64 n, u64 bucket_size, u64* most);
  // Fills blocks and edges.
  int (*place_blocks)(const Exec*, const LayoutArgs*, u32 num_files);
  int (*write_blocks)(const Exec*, const LayoutArgs*, u8* images);
  int (*seal_blocks)(const Exec*, const OutBlock* blocks, u64 n, const u32* bases, u32 checksum, u8* images);
  // Writes index blocks, which are not yet sealed.
  int (*write_index)(const Exec*, const LayoutArgs*, u8* images);
  int (*build_filter)(const Exec*, const LayoutArgs*, const FilterArgs* host_filter);
  // Decodes images; keys, values and hashes are filled.
  int (*decode_images)(const Exec*, const VerifyArgs*);
  int (*verify_file)(const Exec*, const VerifyArgs*, u64 start, u64 n, const u8* lines, u32 num_lines,
                     u32 num_probes, FileTotals* totals);
};

}  // namespace rockmill::ROCKMILL_TARGET

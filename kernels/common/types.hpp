// Words, and the records and numbers that the host and the kernels share. `make boundary` writes the Rust side
// (crates/cuda/src/driver/ffi/boundary.rs); a build fails while it differs.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cstdint>
#include <cstring>
#endif

// The same code is compiled for a GPU and for the host, and both may be linked into one program, so each
// has its own namespace.
#if defined(__CUDACC__)
#define ROCKMILL_TARGET cuda_target
#define ROCKMILL_HD __host__ __device__ __forceinline__
#define ROCKMILL_NO_INLINE __host__ __device__ __noinline__ inline
#define ROCKMILL_UNROLL _Pragma("unroll")
#define ROCKMILL_NO_UNROLL _Pragma("unroll 1")
#else
#define ROCKMILL_TARGET host_target
#define ROCKMILL_HD inline
#define ROCKMILL_NO_INLINE inline
#define ROCKMILL_UNROLL
#define ROCKMILL_NO_UNROLL
#endif

namespace rockmill::ROCKMILL_TARGET {

#if defined(__CUDACC_RTC__)
// NVRTC has no headers of its own.
using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;
using i32 = int;
using i64 = long;
#else
using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
#endif

// Bytes that may be read before and behind any block or value without checking its bounds.
constexpr u64 ARENA_PADDING = 64;
constexpr u32 TAG_BYTES = 8;
constexpr u32 TRAILER_BYTES = 5;

// A block in an arena: `stored_size` bytes of payload at `at`, and a trailer, which names the codec.
struct BlockRef {
  u64 at;
  u64 file_offset;
  u32 stored_size;
  // Size after decompression.
  u32 raw_size;
  // Codec.
  u32 codec;
  u32 checksum_base;
  // ChecksumType.
  u32 checksum;
  // Restart interval from the properties of the block's file; used if values are stored apart from keys.
  u32 restart_interval;
  // Sequence number of all entries, which are stored with 0; or STORED_SEQUENCE.
  u64 sequence;
};

constexpr u64 STORED_SEQUENCE = ~u64{0};

// Leading bytes of a user key in its record.
constexpr u32 WORD_KEY_BYTES = 16;

// An internal key: the first 16 bytes of the user key as two big-endian words, zero padded; the tag; the user
// key's length. The bytes of longer ones are found by `entry` (key.hpp:KeyBytes).
struct Key {
  u64 hi;
  u64 lo;
  u64 tag;
  // Position of the entry in the order of decoding.
  u32 entry;
  u32 len;
};

// A user key without an entry: a bound, or the end of a file elsewhere in the tree.
struct UserKey {
  u64 hi;
  u64 lo;
  // All of it.
  const u8* bytes;
  u32 len;
  u32 present;
};

// The place of a value in the arena.
struct ValueRef {
  u64 at;
  u64 len;
};

// Decoded entries to move to other memory.
struct PlaceArgs {
  const Key* keys;
  const ValueRef* values;
  const u64* hashes;
  // Places of the bytes of keys, in both; null in a narrow task (key.hpp:KeyBytes).
  const u64* key_at;
  u64 n;
  Key* to_keys;
  ValueRef* to_values;
  u64* to_hashes;
  u64* to_key_at;
  // These are added to the numbers of entries, and to the places of values and of keys' bytes. Sums wrap.
  u64 entry_shift, value_shift, key_shift;
};

// A finished data block of an output file.
struct OutBlock {
  // In the image buffer.
  u64 at;
  u64 file_offset;
  // Stored size, and size before compression.
  u32 size, raw_size;
  // Codec.
  u32 codec;
  u32 file;
  u32 first;
  u32 count;
  // In a wide task: bytes of the internal keys before the block.
  u64 key_start;
};

// Sizes of a file, which the host receives before it chooses the file's place.
struct FileIndex {
  // Size of the data blocks, trailers included.
  u64 data_size;
  // The same before compression, without trailers.
  u64 raw_size;
  // Size of the index block's payload.
  u64 size;
  // Number of bytes that all separators share, if they are stored once.
  u32 prefix_len;
  // Whether separators are internal keys instead of user keys.
  u32 internal_keys;
  // Bytes of the first and the last user key.
  u32 smallest_len, largest_len;
  // A hash of the other fields.
  u64 check;
};

// The places of the parts of a file.
struct FileOffsets {
  // Its image and its index block, both in the image buffer.
  u64 image;
  u64 index;
  // Its first and last internal key, among those of all files.
  u64 edges;
};

// A range of user keys, both ends inclusive, of a file of another level; its size if needed.
struct KeySpan {
  UserKey first, last;
  u64 file_size;
};

// A range of user keys that range tombstones cover: from `begin` to before `end`. The sequence numbers of their tombstones
// are those from `first` to before `last` of all.
struct Fragment {
  UserKey begin, end;
  u64 first, last;
};

// The rules that decide which entries survive.
struct RetainRules {
  const u64* snapshots;
  u64 num_snapshots;
  u64 earliest;
  // Files of deeper levels, level by level, ascending in each; level i ends at level_ends[i].
  const KeySpan* deeper;
  const u32* level_ends;
  u32 num_levels;
  u32 bottommost;
  // Whether deeper levels may contain any key.
  u32 deeper_unknown;
  // Whether a SingleDelete that meets a Delete is an error.
  u32 enforce_single_delete;
  // Range tombstones, ascending, and the sequence numbers of each fragment, descending.
  const Fragment* fragments;
  const u64* sequences;
  u64 num_fragments;
};

// The merge function of operands; see rockmill_core::Merging.
struct MergeRules {
  // MergeFunction.
  u32 function;
  // Whether operands are also merged without their base.
  u32 partial;
  // Bytes between two values.
  const u8* delimiter;
  u64 delimiter_len;
  // Limit of a stripe's operands and their base, and the overhead of each beside its value and a delimiter.
  u64 max_bytes, operand_bytes;
};

// The entries that a snapshot sees; see rockmill_core::SnapshotRules.
struct SnapshotRules {
  u64 sequence;
  u32 keep_tombstones;
  // Whether entries that do not determine the value alone are rows; else they are errors.
  u32 mark_needs_merge;
  // Fragments of range tombstones. The first sequence number of each is that of the newest tombstone.
  const Fragment* fragments;
  const u64* sequences;
  u64 num_fragments;
};

// Sums over the decoded entries of a task.
struct InputTotals {
  u64 hash;
  u64 tombstones, single_deletes, operands, key_bytes, value_bytes;
};

// Sums over the merged entries of a task.
struct RetainTotals {
  u64 hash_kept, hash_dropped, hash_consumed;
  u64 replaced, tombstones_dropped;
  // As in rockmill_core::ReadReport.
  u64 kept, dropped, consumed, made;
  // Above the snapshot.
  u64 above;
  // Sum over the kept entries as they are passed on, for comparison with the output.
  u64 rows_hash;
};

// Sums over the entries of one output file.
struct FileTotals {
  u64 content_hash;
  // As in RetainTotals.
  u64 rows_hash;
  u64 deletions, merge_operands, key_bytes, value_bytes;
  u64 smallest_seqno, largest_seqno;
  u64 filter_entries;
};

// Hashes found in one finished file.
struct FoundFile {
  // rockmill_core::index_hash of the index that fits its blocks.
  u64 index_hash;
  // Hash of its separators' tags, if they are internal keys.
  u64 tags_hash;
  // Hash of the first and the last internal key.
  u64 edges_hash;
};

// How entries become data blocks.
struct Layout {
  u64 block_size;
  u32 restart_interval;
  u32 delta_keys;
  // Whether the common prefix of a block's user keys is stored once.
  u32 common_prefix;
  // ChecksumType.
  u32 checksum;
  // Buckets of a block's hash index for each entry; negative without one.
  double buckets_per_entry;
};

// How data blocks are compressed.
struct Compression {
  // CODEC_NONE, CODEC_SNAPPY, CODEC_LZ4 or CODEC_ZSTD.
  u32 codec;
  // A block is stored uncompressed unless it shrinks to this many bytes of 1024.
  u32 max_bytes_per_kb;
};

// How separators become index blocks.
struct IndexLayout {
  u32 format_version;
  u32 restart_interval;
  // Shortening.
  u32 shortening;
  // Whether the common prefix of all separators is stored once.
  u32 common_prefix;
};

// Where files end; see rockmill_core::OutputSplitting.
struct Splitting {
  // A file ends before the first new user key at which its encoded entries reach `file_size` bytes.
  u64 file_size;
  // From this key on, files do not end because of their size; absent if they do everywhere.
  UserKey tail;
  // The rest is used if there are grandparents.
  const KeySpan* grandparents;
  u64 num_grandparents;
  u64 target_file_size;
  u64 max_compaction_bytes;
  // Stored bytes for this number of uncompressed ones; 0 for as many.
  u64 stored, uncompressed;
  // Leading bytes in which the keys of a file agree; NO_PARTITIONS if they need not.
  u64 partition_bytes;
  u32 level_style;
  u32 unused;
};

constexpr u64 NO_PARTITIONS = ~u64{0};

// The border between two files. The next one may have no entries.
struct FileCut {
  // Entries before it.
  u32 selected_rows;
  // The fragment with whose begin the next file begins; NO_FRAGMENT if it begins with an entry's key.
  u32 fragment;
};

constexpr u32 NO_FRAGMENT = ~u32{0};

// The keys in filters.
struct FilterRules {
  // FilterFormat.
  u32 format;
  u32 whole_keys;
  // PrefixKind, and the length of prefixes.
  u32 prefix_kind;
  u32 unused;
  u64 prefix_len;
};

// Bytes whose words are hashed.
struct HashPart {
  const u8* bytes;
  u64 len;
  // Position of the first word.
  u64 position;
  // Number of the sum to which they are added.
  u64 total;
};

// A step of a scan's program. Operands are slots, or constants (SCAN_CONSTANT).
struct ScanOp {
  // program.hpp:ScanCode.
  u32 code;
  // Slot of the result.
  u32 to;
  u32 a, b, c;
  // By instruction. Load: `format << 16 | is_big_endian << 8 | bytes`. Comparison: `kind << 8` and a bit for each of
  // less, equal and greater that it accepts. Arithmetic: `range << 8 | bytes`. List: its kind. Pattern: Pattern.
  // String: the bytes of a padded group, or 0. Lists and patterns have `c` constants from `b` on.
  u32 detail;
};

// A constant, in the form of program.hpp:ScanValue.
struct ScanConstant {
  u64 low, high;
  u32 is_set;
  // Part, of a pattern.
  u32 part;
};

// A column, and the places of its parts in the memory of a batch.
struct ScanColumn {
  u32 operand;
  // Stored.
  u32 stored;
  // Bytes of a value.
  u32 bytes;
  u32 unused;
  // A byte for each row, set if it is not null, and the same as bits.
  u64 flags, validity;
  // Values; a byte for each boolean; a ScanValue for each row's bytes.
  u64 values;
  // A bit for each boolean; offsets of bytes, as u32.
  u64 packed;
  // For bytes: the lengths, as u32, one more than rows; and all bytes.
  u64 lens, data;
};

// A key of groups.
struct ScanGroupKey {
  u32 operand;
  // Stored form, and the bytes of an integer or float that are used.
  u32 stored, bytes;
  u32 unused;
};

// A value that aggregates of groups need.
struct ScanArgument {
  u32 operand;
  // Bits of Needed.
  u32 needed;
  // Its first word among those of each group: the number of values that are not null, followed by the words of each
  // need.
  u32 at;
  u32 unused;
};

// Memory for groups. Words of groups are 0 at first.
struct ScanGroups {
  const ScanGroupKey* keys;
  const ScanArgument* arguments;
  u32 num_keys, num_arguments;
  // Words of each group: the number of its rows, then those of the arguments.
  u32 num_words;
  // Whether a minimum or maximum may exceed 64 bits.
  u32 has_wide;
  // A power of two.
  u64 num_slots;
  // Maximum number of groups.
  u64 most;
  // Number of groups; if it exceeds `most`, the other results are invalid.
  u64* found;
  // For each slot: SCAN_KEY_WORDS, 0 if it is empty; the group's first row, ~0 in an empty slot; and words.
  u64* table;
  u64* firsts;
  u64* words;
};

// Sum over the data that a scan passes on.
struct ScanTotals {
  u64 hash;
};

enum Needed : u32 {
  // A word for each 32 bits of the values, and the number of negative ones.
  NEEDED_SUM = 1,
  // The minimum and the maximum: one word each, two for a wide value.
  NEEDED_LEAST = 2,
  NEEDED_GREATEST = 4,
  // Values may exceed 64 bits.
  NEEDED_WIDE = 8,
};
constexpr u32 SCAN_SUM_WORDS = 5;
// Words of a group's keys, and the number of key bytes in each.
constexpr u32 SCAN_KEY_WORDS = 6, SCAN_KEY_WORD_BYTES = 7;

// Results of a row that a thread stores.
constexpr u32 SCAN_SLOTS = 64;
constexpr u32 SCAN_CONSTANT = 1u << 31;

enum NumberFormat : u32 { NUMBER_UNSIGNED = 0, NUMBER_SIGNED = 1, NUMBER_SIGNED_INVERTED = 2, NUMBER_FLOAT = 3 };
enum IntegerRange : u32 { RANGE_SIGNED = 0, RANGE_UNSIGNED = 1, RANGE_EXACT = 2 };
enum ValueKind : u32 { KIND_BOOLEAN = 0, KIND_INTEGER = 1, KIND_BYTES = 2 };
enum Pattern : u32 { PATTERN_PREFIX = 0, PATTERN_SUFFIX = 1, PATTERN_CONTAINS = 2, PATTERN_PARTS = 3 };
enum PatternPart : u32 { PART_BYTES = 0, PART_ANY_CHARACTER = 1, PART_ANY_BYTES = 2 };
enum Stored : u32 { STORED_BOOLEAN = 0, STORED_INTEGER = 1, STORED_FLOAT = 2, STORED_BYTES = 3 };
enum ByteSource : u64 { SOURCE_KEY = 0, SOURCE_VALUE = 1, SOURCE_LITERAL = 2 };

// Disjoint ranges of keys. Their bounds ascend: a range begins at each even one and ends before the next, or never.
// Bound i ends at ends[i] of the bytes.
struct KeyRanges {
  const u64* ends;
  const u8* bytes;
  u64 num_bounds;
};

// A table of keys and values that outlives the tasks whose rows it receives (view/slots.hpp).
struct ResidentTable {
  u64* slots;
  u64 buckets;
  u64 seed;
  // All ones, except in tests with many equal hashes.
  u64 hash_mask;
  // Keys that are not in it: RocksDB must be asked for these.
  KeyRanges outside;
};

// Most bytes of a prefix of keys of integers.
constexpr u32 MAX_ID_PREFIX = 50;

// How integers become keys (view/ids.hpp): a prefix, and the bytes of the integer.
struct IdForm {
  // Bytes of an integer in memory, little-endian: 1, 2, 4 or 8; 0 if keys are no integers.
  u8 id_bytes;
  u8 is_id_signed;
  // Bytes of an integer in a key: 1, 2, 4 or 8.
  u8 key_bytes;
  u8 is_key_signed;
  u8 is_big_endian;
  u8 prefix_bytes;
  u8 prefix[MAX_ID_PREFIX];
};

// Options of a lookup.
enum LookupOption : u32 {
  // Bytes of rows that no value fills are zeroed.
  LOOKUP_CLEARS = 1,
  // Values of another size than a row have no room.
  LOOKUP_EXACT = 2,
};

// A part of a request: a key and, on the next 16 bytes, a value. Those that do not fit into a slot are sent in
// several.
struct RingRequest {
  // RingOperation.
  u32 operation;
  u32 key_len;
  u64 value_len;
  // The requested version.
  u64 version;
  // Capacity of the caller's buffer.
  u64 capacity;
  // Start of the part, and its bytes. For a request for the rest of a value: the start of the rest.
  u64 at;
  u64 part_len;
};

// A part of an answer.
struct RingAnswer {
  // KeyStatus.
  u32 status;
  // Bytes of the value in the slot.
  u32 part_len;
  // Length of the whole value.
  u64 len;
};

// Keys that were put or deleted through a ring (ring/changed.hpp): a set of hashes.
struct ChangedKeys {
  u64* slots;
  // Number of the slots, a power of two, less one.
  u64 mask;
  // Number of hashes in it; the upper bit is set if some found no room.
  u64* state;
  u64 seed;
};

// Slots in which device threads send requests to the host (ring/ring.hpp).
struct Ring {
  // Memory of the host, written by the device: for each slot the number of its request; the request; its bytes.
  u32* posted;
  RingRequest* requests;
  u8* outgoing;
  // Memory of the host, written by the host: the number of the answered request; the answer; its bytes.
  const u32* answered;
  const RingAnswer* answers;
  const u8* incoming;
  // Memory of the device: for each slot its owner, and the number of its last request.
  u32* states;
  u32* numbers;
  ChangedKeys changed;
  // Time after which a wait ends.
  u64 timeout_ns;
  // Number of slots; 0 if the host does not answer.
  u32 slots;
  // Capacity of a slot for the bytes of a request, and for those of an answer; a multiple of 16.
  u32 slot_bytes;
};

// The argument with which a kernel gets and puts keys. Each thread has a copy.
struct KvRecord {
  // KV_ABI.
  u32 abi;
  // Requests for which the thread's group has yet to wait.
  u32 num_tickets;
  // The number of the version on the host.
  u64 version;
  ResidentTable table;
  Ring ring;
  // The last put or delete of the group, unless it was waited for; number 0 is none.
  u32 last_slot, last_number;
};

// Changes of the slots and records of a table.
struct InsertTotals {
  // Rows without a record; new records that say that RocksDB must be asked.
  u64 without, needs_host_in;
  // Records that no slot names any more: those that say that RocksDB must be asked, those with a value, and the bytes
  // of both.
  u64 needs_host_out, values_out, dead_bytes;
  // Slots of deleted keys, and those of them that a key has taken again.
  u64 gone, retaken;
  // Keys without room for their slot.
  u64 left_over;
  // Rows whose keys the base has, but no other row.
  u64 unseen;
};

// An allocation with records of a table.
struct RecordChunk {
  // Chunks ascend by address.
  u64 address;
  // Bytes of records that slots name.
  u64 live_bytes;
  // Whether its live records move to other memory.
  u64 moves;
};

// The smallest (block << 8 | code) of all errors; NO_ERROR if there was none.
constexpr u64 NO_ERROR = ~u64{0};
enum ErrorCode : u32 {
  ERROR_CHECKSUM = 1,
  ERROR_COMPRESSED = 2,
  ERROR_FRAME = 3,
  ERROR_ENTRY = 4,
  ERROR_KEY_LENGTH = 5,
  ERROR_VALUE_TYPE = 6,
  ERROR_ORDER = 7,
  ERROR_LAYOUT = 8,
  ERROR_TOO_MANY_FILES = 9,
  ERROR_SINGLE_DELETE = 10,
  ERROR_FILTER = 11,
  ERROR_SEQUENCE = 12,
  ERROR_UNDECIDED = 13,
  ERROR_OUT_OF_RANGE = 14,
  ERROR_CHECK = 15,
  ERROR_MERGED_TYPE = 16,
  ERROR_MERGED_BYTES = 17,
  ERROR_MADE = 18,
};

// Compression of a block: its type in RocksDB's trailers.
enum Codec : u32 {
  CODEC_NONE = 0,
  CODEC_SNAPPY = 1,
  CODEC_LZ4 = 4,
  CODEC_LZ4HC = 5,
  CODEC_ZSTD = 7,
  // The trailer has the codec.
  CODEC_IN_TRAILER = 0xff,
};

// RocksDB compresses no block of this size or more (`block_based_table_builder.cc:kCompressionSizeLimit`).
constexpr u64 COMPRESSION_SIZE_LIMIT = 0x7fffffff;

enum ChecksumType : u32 {
  CHECKSUM_NONE = 0,
  CHECKSUM_CRC32C = 1,
  CHECKSUM_XXHASH = 2,
  CHECKSUM_XXHASH64 = 3,
  CHECKSUM_XXH3 = 4,
};

enum FilterFormat : u32 { FILTER_NONE = 0, FILTER_FAST_LOCAL = 1, FILTER_LEGACY = 2 };
enum Shortening : u32 { SHORTEN_NOTHING = 0, SHORTEN_SEPARATORS = 1, SHORTEN_SUCCESSOR = 2 };
enum PrefixKind : u32 { PREFIX_NONE = 0, PREFIX_FIXED = 1, PREFIX_CAPPED = 2 };

constexpr u64 TYPE_DELETION = 0;
constexpr u64 TYPE_VALUE = 1;
constexpr u64 TYPE_MERGE = 2;
constexpr u64 TYPE_SINGLE_DELETION = 7;
constexpr u64 TYPE_DELETION_WITH_TIMESTAMP = 0x14;
constexpr u64 MAX_SEQUENCE = (u64{1} << 56) - 1;

}  // namespace rockmill::ROCKMILL_TARGET

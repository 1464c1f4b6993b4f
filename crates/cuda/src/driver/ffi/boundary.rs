//! The constants, records and functions that the host and the kernels share. Written by `make boundary` from the
//! headers of `kernels/`; the build compares them.

use std::ffi::{c_char, c_int, c_void};

use rockmill_core::Result;

use super::Stages;

/// Bytes that may be read before and behind any block or value without checking its bounds.
pub const ARENA_PADDING: u64 = 64;
pub const TAG_BYTES: u32 = 8;
pub const TRAILER_BYTES: u32 = 5;

/// A block in an arena: `stored_size` bytes of payload at `at`, and a trailer, which names the codec.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct BlockRef {
    pub at: u64,
    pub file_offset: u64,
    pub stored_size: u32,
    /// Size after decompression.
    pub raw_size: u32,
    /// Codec.
    pub codec: u32,
    pub checksum_base: u32,
    /// ChecksumType.
    pub checksum: u32,
    /// Restart interval from the properties of the block's file; used if values are stored apart from keys.
    pub restart_interval: u32,
    /// Sequence number of all entries, which are stored with 0; or STORED_SEQUENCE.
    pub sequence: u64,
}
pub const STORED_SEQUENCE: u64 = u64::MAX;

/// Leading bytes of a user key in its record.
pub const WORD_KEY_BYTES: u32 = 16;

/// An internal key: the first 16 bytes of the user key as two big-endian words, zero padded; the tag; the user
/// key's length. The bytes of longer ones are found by `entry` (key.hpp:KeyBytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Key {
    pub hi: u64,
    pub lo: u64,
    pub tag: u64,
    /// Position of the entry in the order of decoding.
    pub entry: u32,
    pub len: u32,
}

/// A user key without an entry: a bound, or the end of a file elsewhere in the tree.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct UserKey {
    pub hi: u64,
    pub lo: u64,
    /// All of it.
    pub bytes: *const u8,
    pub len: u32,
    pub present: u32,
}

/// The place of a value in the arena.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ValueRef {
    pub at: u64,
    pub len: u64,
}

/// Decoded entries to move to other memory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PlaceArgs {
    pub keys: *const Key,
    pub values: *const ValueRef,
    pub hashes: *const u64,
    /// Places of the bytes of keys, in both; null in a narrow task (key.hpp:KeyBytes).
    pub key_at: *const u64,
    pub n: u64,
    pub to_keys: *mut Key,
    pub to_values: *mut ValueRef,
    pub to_hashes: *mut u64,
    pub to_key_at: *mut u64,
    /// These are added to the numbers of entries, and to the places of values and of keys' bytes. Sums wrap.
    pub entry_shift: u64,
    pub value_shift: u64,
    pub key_shift: u64,
}

/// A finished data block of an output file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct OutBlock {
    /// In the image buffer.
    pub at: u64,
    pub file_offset: u64,
    /// Stored size, and size before compression.
    pub size: u32,
    pub raw_size: u32,
    /// Codec.
    pub codec: u32,
    pub file: u32,
    pub first: u32,
    pub count: u32,
    /// In a wide task: bytes of the internal keys before the block.
    pub key_start: u64,
}

/// Sizes of a file, which the host receives before it chooses the file's place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileIndex {
    /// Size of the data blocks, trailers included.
    pub data_size: u64,
    /// The same before compression, without trailers.
    pub raw_size: u64,
    /// Size of the index block's payload.
    pub size: u64,
    /// Number of bytes that all separators share, if they are stored once.
    pub prefix_len: u32,
    /// Whether separators are internal keys instead of user keys.
    pub internal_keys: u32,
    /// Bytes of the first and the last user key.
    pub smallest_len: u32,
    pub largest_len: u32,
    /// A hash of the other fields.
    pub check: u64,
}

/// The places of the parts of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileOffsets {
    /// Its image and its index block, both in the image buffer.
    pub image: u64,
    pub index: u64,
    /// Its first and last internal key, among those of all files.
    pub edges: u64,
}

/// A range of user keys, both ends inclusive, of a file of another level; its size if needed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KeySpan {
    pub first: UserKey,
    pub last: UserKey,
    pub file_size: u64,
}

/// A range of user keys that range tombstones cover: from `begin` to before `end`. The sequence numbers of their tombstones
/// are those from `first` to before `last` of all.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Fragment {
    pub begin: UserKey,
    pub end: UserKey,
    pub first: u64,
    pub last: u64,
}

/// The rules that decide which entries survive.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RetainRules {
    pub snapshots: *const u64,
    pub num_snapshots: u64,
    pub earliest: u64,
    /// Files of deeper levels, level by level, ascending in each; level i ends at level_ends\[i\].
    pub deeper: *const KeySpan,
    pub level_ends: *const u32,
    pub num_levels: u32,
    pub bottommost: u32,
    /// Whether deeper levels may contain any key.
    pub deeper_unknown: u32,
    /// Whether a SingleDelete that meets a Delete is an error.
    pub enforce_single_delete: u32,
    /// Range tombstones, ascending, and the sequence numbers of each fragment, descending.
    pub fragments: *const Fragment,
    pub sequences: *const u64,
    pub num_fragments: u64,
}

/// The merge function of operands; see rockmill_core::Merging.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct MergeRules {
    /// MergeFunction.
    pub function: u32,
    /// Whether operands are also merged without their base.
    pub partial: u32,
    /// Bytes between two values.
    pub delimiter: *const u8,
    pub delimiter_len: u64,
    /// Limit of a stripe's operands and their base, and the overhead of each beside its value and a delimiter.
    pub max_bytes: u64,
    pub operand_bytes: u64,
}

/// The entries that a snapshot sees; see rockmill_core::SnapshotRules.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SnapshotRules {
    pub sequence: u64,
    pub keep_tombstones: u32,
    /// Whether entries that do not determine the value alone are rows; else they are errors.
    pub mark_needs_merge: u32,
    /// Fragments of range tombstones. The first sequence number of each is that of the newest tombstone.
    pub fragments: *const Fragment,
    pub sequences: *const u64,
    pub num_fragments: u64,
}

/// Sums over the decoded entries of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct InputTotals {
    pub hash: u64,
    pub tombstones: u64,
    pub single_deletes: u64,
    pub operands: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
}

/// Sums over the merged entries of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RetainTotals {
    pub hash_kept: u64,
    pub hash_dropped: u64,
    pub hash_consumed: u64,
    pub replaced: u64,
    pub tombstones_dropped: u64,
    /// As in rockmill_core::ReadReport.
    pub kept: u64,
    pub dropped: u64,
    pub consumed: u64,
    pub made: u64,
    /// Above the snapshot.
    pub above: u64,
    /// Sum over the kept entries as they are passed on, for comparison with the output.
    pub rows_hash: u64,
}

/// Sums over the entries of one output file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileTotals {
    pub content_hash: u64,
    /// As in RetainTotals.
    pub rows_hash: u64,
    pub deletions: u64,
    pub merge_operands: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub smallest_seqno: u64,
    pub largest_seqno: u64,
    pub filter_entries: u64,
}

/// Hashes found in one finished file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FoundFile {
    /// rockmill_core::index_hash of the index that fits its blocks.
    pub index_hash: u64,
    /// Hash of its separators' tags, if they are internal keys.
    pub tags_hash: u64,
    /// Hash of the first and the last internal key.
    pub edges_hash: u64,
}

/// How entries become data blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[repr(C)]
pub struct Layout {
    pub block_size: u64,
    pub restart_interval: u32,
    pub delta_keys: u32,
    /// Whether the common prefix of a block's user keys is stored once.
    pub common_prefix: u32,
    /// ChecksumType.
    pub checksum: u32,
    /// Buckets of a block's hash index for each entry; negative without one.
    pub buckets_per_entry: f64,
}

/// How data blocks are compressed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Compression {
    /// CODEC_NONE, CODEC_SNAPPY, CODEC_LZ4 or CODEC_ZSTD.
    pub codec: u32,
    /// A block is stored uncompressed unless it shrinks to this many bytes of 1024.
    pub max_bytes_per_kb: u32,
}

/// How separators become index blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IndexLayout {
    pub format_version: u32,
    pub restart_interval: u32,
    /// Shortening.
    pub shortening: u32,
    /// Whether the common prefix of all separators is stored once.
    pub common_prefix: u32,
}

/// Where files end; see rockmill_core::OutputSplitting.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Splitting {
    /// A file ends before the first new user key at which its encoded entries reach `file_size` bytes.
    pub file_size: u64,
    /// From this key on, files do not end because of their size; absent if they do everywhere.
    pub tail: UserKey,
    /// The rest is used if there are grandparents.
    pub grandparents: *const KeySpan,
    pub num_grandparents: u64,
    pub target_file_size: u64,
    pub max_compaction_bytes: u64,
    /// Stored bytes for this number of uncompressed ones; 0 for as many.
    pub stored: u64,
    pub uncompressed: u64,
    /// Leading bytes in which the keys of a file agree; NO_PARTITIONS if they need not.
    pub partition_bytes: u64,
    pub level_style: u32,
    pub unused: u32,
}
pub const NO_PARTITIONS: u64 = u64::MAX;

/// The border between two files. The next one may have no entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FileCut {
    /// Entries before it.
    pub selected_rows: u32,
    /// The fragment with whose begin the next file begins; NO_FRAGMENT if it begins with an entry's key.
    pub fragment: u32,
}
pub const NO_FRAGMENT: u32 = u32::MAX;

/// The keys in filters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FilterRules {
    /// FilterFormat.
    pub format: u32,
    pub whole_keys: u32,
    /// PrefixKind, and the length of prefixes.
    pub prefix_kind: u32,
    pub unused: u32,
    pub prefix_len: u64,
}

/// Bytes whose words are hashed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HashPart {
    pub bytes: *const u8,
    pub len: u64,
    /// Position of the first word.
    pub position: u64,
    /// Number of the sum to which they are added.
    pub total: u64,
}

/// A step of a scan's program. Operands are slots, or constants (SCAN_CONSTANT).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanOp {
    /// program.hpp:ScanCode.
    pub code: u32,
    /// Slot of the result.
    pub to: u32,
    pub a: u32,
    pub b: u32,
    pub c: u32,
    /// By instruction. Load: `format \<\< 16 | is_big_endian \<\< 8 | bytes`. Comparison: `kind \<\< 8` and a bit for each of
    /// less, equal and greater that it accepts. Arithmetic: `range \<\< 8 | bytes`. List: its kind. Pattern: Pattern.
    /// String: the bytes of a padded group, or 0. Lists and patterns have `c` constants from `b` on.
    pub detail: u32,
}

/// A constant, in the form of program.hpp:ScanValue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanConstant {
    pub low: u64,
    pub high: u64,
    pub is_set: u32,
    /// Part, of a pattern.
    pub part: u32,
}

/// A column, and the places of its parts in the memory of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanColumn {
    pub operand: u32,
    /// Stored.
    pub stored: u32,
    /// Bytes of a value.
    pub bytes: u32,
    pub unused: u32,
    /// A byte for each row, set if it is not null, and the same as bits.
    pub flags: u64,
    pub validity: u64,
    /// Values; a byte for each boolean; a ScanValue for each row's bytes.
    pub values: u64,
    /// A bit for each boolean; offsets of bytes, as u32.
    pub packed: u64,
    /// For bytes: the lengths, as u32, one more than rows; and all bytes.
    pub lens: u64,
    pub data: u64,
}

/// A key of groups.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanGroupKey {
    pub operand: u32,
    /// Stored form, and the bytes of an integer or float that are used.
    pub stored: u32,
    pub bytes: u32,
    pub unused: u32,
}

/// A value that aggregates of groups need.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanArgument {
    pub operand: u32,
    /// Bits of Needed.
    pub needed: u32,
    /// Its first word among those of each group: the number of values that are not null, followed by the words of each
    /// need.
    pub at: u32,
    pub unused: u32,
}

/// Memory for groups. Words of groups are 0 at first.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ScanGroups {
    pub keys: *const ScanGroupKey,
    pub arguments: *const ScanArgument,
    pub num_keys: u32,
    pub num_arguments: u32,
    /// Words of each group: the number of its rows, then those of the arguments.
    pub num_words: u32,
    /// Whether a minimum or maximum may exceed 64 bits.
    pub has_wide: u32,
    /// A power of two.
    pub num_slots: u64,
    /// Maximum number of groups.
    pub most: u64,
    /// Number of groups; if it exceeds `most`, the other results are invalid.
    pub found: *mut u64,
    /// For each slot: SCAN_KEY_WORDS, 0 if it is empty; the group's first row, ~0 in an empty slot; and words.
    pub table: *mut u64,
    pub firsts: *mut u64,
    pub words: *mut u64,
}

/// Sum over the data that a scan passes on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ScanTotals {
    pub hash: u64,
}

/// `Needed`.
/// A word for each 32 bits of the values, and the number of negative ones.
pub const NEEDED_SUM: u32 = 1;

/// The minimum and the maximum: one word each, two for a wide value.
pub const NEEDED_LEAST: u32 = 2;
pub const NEEDED_GREATEST: u32 = 4;

/// Values may exceed 64 bits.
pub const NEEDED_WIDE: u32 = 8;
pub const SCAN_SUM_WORDS: u32 = 5;

/// Words of a group's keys, and the number of key bytes in each.
pub const SCAN_KEY_WORDS: u32 = 6;
pub const SCAN_KEY_WORD_BYTES: u32 = 7;

/// Results of a row that a thread stores.
pub const SCAN_SLOTS: u32 = 64;
pub const SCAN_CONSTANT: u32 = 2147483648;

/// `NumberFormat`.
pub const NUMBER_UNSIGNED: u32 = 0;
pub const NUMBER_SIGNED: u32 = 1;
pub const NUMBER_SIGNED_INVERTED: u32 = 2;
pub const NUMBER_FLOAT: u32 = 3;

/// `IntegerRange`.
pub const RANGE_SIGNED: u32 = 0;
pub const RANGE_UNSIGNED: u32 = 1;
pub const RANGE_EXACT: u32 = 2;

/// `ValueKind`.
pub const KIND_BOOLEAN: u32 = 0;
pub const KIND_INTEGER: u32 = 1;
pub const KIND_BYTES: u32 = 2;

/// `Pattern`.
pub const PATTERN_PREFIX: u32 = 0;
pub const PATTERN_SUFFIX: u32 = 1;
pub const PATTERN_CONTAINS: u32 = 2;
pub const PATTERN_PARTS: u32 = 3;

/// `PatternPart`.
pub const PART_BYTES: u32 = 0;
pub const PART_ANY_CHARACTER: u32 = 1;
pub const PART_ANY_BYTES: u32 = 2;

/// `Stored`.
pub const STORED_BOOLEAN: u32 = 0;
pub const STORED_INTEGER: u32 = 1;
pub const STORED_FLOAT: u32 = 2;
pub const STORED_BYTES: u32 = 3;

/// `ByteSource`.
pub const SOURCE_KEY: u64 = 0;
pub const SOURCE_VALUE: u64 = 1;
pub const SOURCE_LITERAL: u64 = 2;

/// Disjoint ranges of keys. Their bounds ascend: a range begins at each even one and ends before the next, or never.
/// Bound i ends at ends\[i\] of the bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KeyRanges {
    pub ends: *const u64,
    pub bytes: *const u8,
    pub num_bounds: u64,
}

/// A table of keys and values that outlives the tasks whose rows it receives (view/slots.hpp).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ResidentTable {
    pub slots: *mut u64,
    pub buckets: u64,
    pub seed: u64,
    /// All ones, except in tests with many equal hashes.
    pub hash_mask: u64,
    /// Keys that are not in it: RocksDB must be asked for these.
    pub outside: KeyRanges,
}

/// Most bytes of a prefix of keys of integers.
pub const MAX_ID_PREFIX: u32 = 50;

/// How integers become keys (view/ids.hpp): a prefix, and the bytes of the integer.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct IdForm {
    /// Bytes of an integer in memory, little-endian: 1, 2, 4 or 8; 0 if keys are no integers.
    pub id_bytes: u8,
    pub is_id_signed: u8,
    /// Bytes of an integer in a key: 1, 2, 4 or 8.
    pub key_bytes: u8,
    pub is_key_signed: u8,
    pub is_big_endian: u8,
    pub prefix_bytes: u8,
    pub prefix: [u8; 50],
}

/// Options of a lookup.
/// `LookupOption`.
/// Bytes of rows that no value fills are zeroed.
pub const LOOKUP_CLEARS: u32 = 1;

/// Values of another size than a row have no room.
pub const LOOKUP_EXACT: u32 = 2;

/// A part of a request: a key and, on the next 16 bytes, a value. Those that do not fit into a slot are sent in
/// several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RingRequest {
    /// RingOperation.
    pub operation: u32,
    pub key_len: u32,
    pub value_len: u64,
    /// The requested version.
    pub version: u64,
    /// Capacity of the caller's buffer.
    pub capacity: u64,
    /// Start of the part, and its bytes. For a request for the rest of a value: the start of the rest.
    pub at: u64,
    pub part_len: u64,
}

/// A part of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RingAnswer {
    /// KeyStatus.
    pub status: u32,
    /// Bytes of the value in the slot.
    pub part_len: u32,
    /// Length of the whole value.
    pub len: u64,
}

/// Keys that were put or deleted through a ring (ring/changed.hpp): a set of hashes.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ChangedKeys {
    pub slots: *mut u64,
    /// Number of the slots, a power of two, less one.
    pub mask: u64,
    /// Number of hashes in it; the upper bit is set if some found no room.
    pub state: *mut u64,
    pub seed: u64,
}

/// Slots in which device threads send requests to the host (ring/ring.hpp).
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Ring {
    /// Memory of the host, written by the device: for each slot the number of its request; the request; its bytes.
    pub posted: *mut u32,
    pub requests: *mut RingRequest,
    pub outgoing: *mut u8,
    /// Memory of the host, written by the host: the number of the answered request; the answer; its bytes.
    pub answered: *const u32,
    pub answers: *const RingAnswer,
    pub incoming: *const u8,
    /// Memory of the device: for each slot its owner, and the number of its last request.
    pub states: *mut u32,
    pub numbers: *mut u32,
    pub changed: ChangedKeys,
    /// Time after which a wait ends.
    pub timeout_ns: u64,
    /// Number of slots; 0 if the host does not answer.
    pub slots: u32,
    /// Capacity of a slot for the bytes of a request, and for those of an answer; a multiple of 16.
    pub slot_bytes: u32,
}

/// The argument with which a kernel gets and puts keys. Each thread has a copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KvRecord {
    /// KV_ABI.
    pub abi: u32,
    /// Requests for which the thread's group has yet to wait.
    pub num_tickets: u32,
    /// The number of the version on the host.
    pub version: u64,
    pub table: ResidentTable,
    pub ring: Ring,
    /// The last put or delete of the group, unless it was waited for; number 0 is none.
    pub last_slot: u32,
    pub last_number: u32,
}

/// Changes of the slots and records of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct InsertTotals {
    /// Rows without a record; new records that say that RocksDB must be asked.
    pub without: u64,
    pub needs_host_in: u64,
    /// Records that no slot names any more: those that say that RocksDB must be asked, those with a value, and the bytes
    /// of both.
    pub needs_host_out: u64,
    pub values_out: u64,
    pub dead_bytes: u64,
    /// Slots of deleted keys, and those of them that a key has taken again.
    pub gone: u64,
    pub retaken: u64,
    /// Keys without room for their slot.
    pub left_over: u64,
    /// Rows whose keys the base has, but no other row.
    pub unseen: u64,
}

/// An allocation with records of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct RecordChunk {
    /// Chunks ascend by address.
    pub address: u64,
    /// Bytes of records that slots name.
    pub live_bytes: u64,
    /// Whether its live records move to other memory.
    pub moves: u64,
}

/// The smallest (block \<\< 8 | code) of all errors; NO_ERROR if there was none.
pub const NO_ERROR: u64 = u64::MAX;

/// `ErrorCode`.
pub const ERROR_CHECKSUM: u32 = 1;
pub const ERROR_COMPRESSED: u32 = 2;
pub const ERROR_FRAME: u32 = 3;
pub const ERROR_ENTRY: u32 = 4;
pub const ERROR_KEY_LENGTH: u32 = 5;
pub const ERROR_VALUE_TYPE: u32 = 6;
pub const ERROR_ORDER: u32 = 7;
pub const ERROR_LAYOUT: u32 = 8;
pub const ERROR_TOO_MANY_FILES: u32 = 9;
pub const ERROR_SINGLE_DELETE: u32 = 10;
pub const ERROR_FILTER: u32 = 11;
pub const ERROR_SEQUENCE: u32 = 12;
pub const ERROR_UNDECIDED: u32 = 13;
pub const ERROR_OUT_OF_RANGE: u32 = 14;
pub const ERROR_CHECK: u32 = 15;
pub const ERROR_MERGED_TYPE: u32 = 16;
pub const ERROR_MERGED_BYTES: u32 = 17;
pub const ERROR_MADE: u32 = 18;

/// Compression of a block: its type in RocksDB's trailers.
/// `Codec`.
pub const CODEC_NONE: u32 = 0;
pub const CODEC_SNAPPY: u32 = 1;
pub const CODEC_LZ4: u32 = 4;
pub const CODEC_LZ4HC: u32 = 5;
pub const CODEC_ZSTD: u32 = 7;

/// The trailer has the codec.
pub const CODEC_IN_TRAILER: u32 = 255;

/// RocksDB compresses no block of this size or more (`block_based_table_builder.cc:kCompressionSizeLimit`).
pub const COMPRESSION_SIZE_LIMIT: u64 = 2147483647;

/// `ChecksumType`.
pub const CHECKSUM_NONE: u32 = 0;
pub const CHECKSUM_CRC32C: u32 = 1;
pub const CHECKSUM_XXHASH: u32 = 2;
pub const CHECKSUM_XXHASH64: u32 = 3;
pub const CHECKSUM_XXH3: u32 = 4;

/// `FilterFormat`.
pub const FILTER_NONE: u32 = 0;
pub const FILTER_FAST_LOCAL: u32 = 1;
pub const FILTER_LEGACY: u32 = 2;

/// `Shortening`.
pub const SHORTEN_NOTHING: u32 = 0;
pub const SHORTEN_SEPARATORS: u32 = 1;
pub const SHORTEN_SUCCESSOR: u32 = 2;

/// `PrefixKind`.
pub const PREFIX_NONE: u32 = 0;
pub const PREFIX_FIXED: u32 = 1;
pub const PREFIX_CAPPED: u32 = 2;
pub const TYPE_DELETION: u64 = 0;
pub const TYPE_VALUE: u64 = 1;
pub const TYPE_MERGE: u64 = 2;
pub const TYPE_SINGLE_DELETION: u64 = 7;
pub const TYPE_DELETION_WITH_TIMESTAMP: u64 = 20;
pub const MAX_SEQUENCE: u64 = 72057594037927935;

/// Places of the bytes of long user keys. If no user key of a task is longer than its two words, the task is narrow and
/// has none; otherwise it is wide, and all entries have theirs, tag included.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KeyBytes {
    pub bytes: *const u8,
    /// Position of each entry's key; null in a narrow task.
    pub at: *const u64,
}

/// Warps of a block whose warps have shared memory. Such blocks are small, because room for less than a whole block is
/// wasted.
pub const WARPS_WITH_SHARED: u32 = 2;

/// Number of such blocks for which a multiprocessor has registers: half the warps that it can run.
pub const BLOCKS_WITH_SHARED: u32 = 16;

/// A stream for queued work, with scratch memory that the caller sized by scratch_bytes().
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Exec {
    pub stream: *mut c_void,
    pub scratch: *mut c_void,
    pub scratch_bytes: u64,
    /// Multiprocessors of the device.
    pub processors: u32,
    pub unused: u32,
}

/// Maximum size of a block before it is compressed. Positions and lengths may be added in 32 bits.
pub const MAX_BLOCK_BYTES: u32 = 2147483648;
pub const ZSTD_MAX_BLOCK: u32 = 131072;

/// Alignment of blocks, for the words in which they are written.
pub const RAW_ALIGNMENT: u64 = 16;

/// `MergeFunction`.
pub const MERGE_ADD: u32 = 1;
pub const MERGE_PUT: u32 = 2;
pub const MERGE_MAX: u32 = 3;
pub const MERGE_XOR: u32 = 4;
pub const MERGE_APPEND: u32 = 5;
pub const BUCKET_SLOTS: u32 = 8;
pub const SLOT_ADDRESS_BITS: u32 = 44;
pub const RECORD_UNIT: u64 = 16;

/// Result for a key.
/// `KeyStatus`.
pub const KEY_NOT_FOUND: u8 = 0;
pub const KEY_FOUND: u8 = 1;

/// The table cannot answer: RocksDB must be asked.
pub const KEY_NEEDS_HOST: u8 = 2;

/// There is no room for the value.
pub const KEY_TOO_SMALL: u8 = 3;

/// The others come only from a ring. The database accepted a write.
pub const KEY_WRITTEN: u8 = 4;

/// Nothing was done: all slots are taken, or RocksDB stalls writes.
pub const KEY_BUSY: u8 = 5;

/// Nothing was done: the view does not write to the database.
pub const KEY_READ_ONLY: u8 = 6;

/// The view is being closed. A write may have happened.
pub const KEY_ABORTED: u8 = 7;

/// There was no answer in time. A write may have happened.
pub const KEY_TIMED_OUT: u8 = 8;

/// RocksDB could not read or write. The host has the cause.
pub const KEY_IO_ERROR: u8 = 9;

/// RocksDB has found damaged data. The host has the place.
pub const KEY_CORRUPT: u8 = 10;

/// Bytes of a read of device memory, and bytes behind a record's first ones that are read before they are needed. Memory
/// of records continues for as many bytes.
pub const SECTOR: u32 = 32;
pub const FETCHED_AHEAD: u32 = 128;

/// `RingOperation`.
/// The value of a key in a version.
pub const RING_GET: u32 = 1;

/// The current value of a key.
pub const RING_GET_LATEST: u32 = 2;
pub const RING_PUT: u32 = 3;
pub const RING_DELETE: u32 = 4;

/// More of a requested value.
pub const RING_REST: u32 = 5;

/// Written in place of all numbers after the host has stopped answering.
pub const RING_ABORTED: u32 = u32::MAX;

/// Version of KvRecord and its parts. A program and the library must have the same.
pub const KV_ABI: u32 = 2;

/// `DeviceInfo`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DeviceInfo {
    pub name: [c_char; 128],
    /// As in "0000:01:00.0"; empty on the host.
    pub pci_bus_id: [c_char; 16],
    pub memory_bytes: u64,
    pub compute_major: c_int,
    pub compute_minor: c_int,
    /// 0 on the host.
    pub multiprocessors: c_int,
    pub unused: c_int,
}

/// Arguments of decompression: blocks in `from`, whose checksums were verified.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DecompressArgs {
    pub from: *const u8,
    pub blocks: *mut BlockRef,
    pub num_blocks: u64,
    /// One more than blocks: bytes of each in `to`, and the sums of those before.
    pub sizes: *mut u64,
    pub offsets: *mut u64,
    /// As many bytes, with padding around them.
    pub to: *mut u8,
    pub errors: *mut u64,
}

/// Arguments of decoding.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DecodeArgs {
    pub arena: *const u8,
    pub blocks: *const BlockRef,
    pub num_blocks: u64,
    /// Entries of each block, one more than blocks; and the sums of those before.
    pub counts: *mut u32,
    pub starts: *mut u32,
    /// The same for the bytes of internal keys; and the longest user key, which is found with them.
    pub key_sums: *mut u64,
    pub key_starts: *mut u64,
    pub longest: *mut u64,
    pub keys: *mut Key,
    pub values: *mut ValueRef,
    pub hashes: *mut u64,
    /// Null in a narrow task (key.hpp:KeyBytes).
    pub key_bytes: *mut u8,
    pub key_at: *mut u64,
    pub errors: *mut u64,
    /// A bit for each accepted type of entries.
    pub types: u32,
    pub unused: u32,
}

/// `RetainArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RetainArgs {
    pub keys: *mut Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *mut ValueRef,
    pub hashes: *mut u64,
    pub rules: RetainRules,
    /// Keys before each fragment of range tombstones, and for n keys one more than the last fragment before each; null
    /// without any.
    pub fragment_places: *mut u64,
    pub cover: *mut u32,
    /// n each; `heads` and `has_older` are unused if user keys are processed one by one.
    pub heads: *mut u32,
    pub has_older: *mut u8,
    pub keep: *mut u32,
    pub places: *mut u32,
    pub selected_rows: *mut Key,
    pub totals: *mut RetainTotals,
    pub errors: *mut u64,
    /// If operands are merged: places of values; for n entries the merged rows, and for n + 1 the bytes of merged values
    /// before each, which begin in the arena at `made_at`. Else null.
    pub arena: *mut u8,
    pub merging: MergeRules,
    pub made: *mut u32,
    pub made_offsets: *mut u64,
    pub made_at: u64,
    /// Whether user keys are processed one by one (read/groups.hpp).
    pub one_by_one: u32,
    pub unused: u32,
}

/// `SnapshotArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SnapshotArgs {
    pub keys: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub hashes: *const u64,
    pub rules: SnapshotRules,
    /// As in RetainArgs.
    pub fragment_places: *mut u64,
    pub cover: *mut u32,
    /// n each.
    pub keep: *mut u32,
    pub places: *mut u32,
    pub selected_rows: *mut Key,
    pub totals: *mut RetainTotals,
    pub errors: *mut u64,
}

/// `RowArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct RowArgs {
    pub arena: *const u8,
    pub rows: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *const ValueRef,
    /// n + 1 each: bytes of user keys and values, and the sums of those before.
    pub sizes: *mut u64,
    pub offsets: *mut u64,
}

/// Arguments of storing rows in a table.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct InsertArgs {
    pub arena: *const u8,
    pub rows: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *const ValueRef,
    /// n + 1 each: bytes of records, and the sums of those before.
    pub sizes: *mut u64,
    pub offsets: *mut u64,
    /// Target of the records.
    pub records: *mut u8,
    /// The base table, of which `table` is a copy with other rows; without slots if there is none.
    pub base: ResidentTable,
    /// A bit for each slot of the base, set if a row has its key; null without a base.
    pub seen: *mut u64,
    pub table: ResidentTable,
    pub totals: *mut InsertTotals,
}

/// Arguments of work on all slots of a table; see view/revise.hpp.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct SlotsArgs {
    pub base: ResidentTable,
    pub seen: *const u64,
    pub ranges: KeyRanges,
    pub table: ResidentTable,
    pub chunks: *mut RecordChunk,
    pub num_chunks: u64,
    /// Target of moved records, and the bytes in use there.
    pub records: *mut u8,
    pub cursor: *mut u64,
    pub totals: *mut InsertTotals,
}

/// Keys to look up in a table; see view/lookup.hpp.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LookupArgs {
    pub kv: KvRecord,
    pub keys: *const u8,
    pub key_offsets: *const u64,
    pub key_bytes: u64,
    pub n: u64,
    pub rows: *mut u8,
    pub stride: u64,
    pub default_row: *const u8,
    pub statuses: *mut u8,
    pub sizes: *mut u32,
    pub found: *mut u8,
    pub unanswered: *mut u32,
    pub form: IdForm,
    /// Of LookupOption.
    pub options: u32,
    pub unused: u32,
}

/// Arguments of a scan.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct ScanArgs {
    pub arena: *const u8,
    pub rows: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *const ValueRef,
    /// The steps of the filter, then those of the output.
    pub ops: *const ScanOp,
    pub constants: *const ScanConstant,
    pub literals: *const u8,
    pub num_filter: u32,
    pub num_ops: u32,
    pub columns: *const ScanColumn,
    pub num_columns: u32,
    /// Bytes of each row in all columns, without those of byte columns; and whether there are byte columns.
    pub row_bytes: u32,
    pub has_bytes: u32,
    /// Results of a row that a thread stores.
    pub num_slots: u32,
    /// Maximum rows and bytes of a batch.
    pub batch_rows: u64,
    pub batch_bytes: u64,
    /// n + 1 each; the last of `places` is the number of selected rows.
    pub keep: *mut u32,
    pub places: *mut u32,
    pub selected: *mut u32,
    pub num_selected: u64,
    /// num_selected + 1 each; sizes become the ends of batches, behind their number. While rows are filtered, the first of
    /// them counts rows in which a counted check fails.
    pub sizes: *mut u64,
    pub offsets: *mut u64,
    /// Memory of the batch.
    pub out: *mut u8,
    pub errors: *mut u64,
}

/// `LayoutArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct LayoutArgs {
    pub arena: *const u8,
    pub selected_rows: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *const ValueRef,
    pub hashes: *const u64,
    pub layout: Layout,
    pub index: IndexLayout,
    pub splitting: Splitting,
    pub filter: FilterRules,
    pub compression: Compression,
    /// n + 1 each.
    pub shared: *mut u32,
    pub sizes: *mut u32,
    pub prefix: *mut u64,
    pub begins: *mut u32,
    pub before: *mut u32,
    pub block_starts: *mut u32,
    /// n + 1, in a wide task; else null.
    pub key_sums: *mut u64,
    /// n, if some keys may lack a prefix; else null.
    pub last_with_prefix: *mut u32,
    /// n + 1, if tombstones are counted; else null.
    pub deletion_sums: *mut u32,
    /// Range tombstones at whose begins files may end, and surviving entries before each.
    pub fragments: *const Fragment,
    pub num_fragments: u64,
    pub fragment_places: *mut u64,
    /// max_cuts + 1; the last one has the number of cuts. There may be nothing between one and the next.
    pub cuts: *mut FileCut,
    /// Two for each grandparent.
    pub grandparent_places: *mut u64,
    /// num_blocks + 1 each.
    pub prefix_lens: *mut u32,
    /// Buckets of each block's hash index; null if no block has one.
    pub hash_buckets: *mut u32,
    pub raw_sizes: *mut u32,
    pub block_sizes: *mut u32,
    pub block_offsets: *mut u64,
    /// Null if no block is compressed: offsets of raw images, one more than blocks; for each block the stored bytes of the
    /// payload, its codec, the checksum of its raw image; the raw images, and as much room for the compressed ones.
    pub raw_offsets: *mut u64,
    pub stored_sizes: *mut u32,
    pub codecs: *mut u32,
    pub raw_sums: *mut u32,
    pub raw: *mut u8,
    pub packed: *mut u8,
    /// compress.hpp:CompressScratch; null unless blocks are compressed by ZSTD.
    pub compress_scratch: *mut u8,
    pub compress_groups: u64,
    pub compress_group_bytes: u64,
    pub compress_usual: u64,
    /// The same of the index's entries.
    pub index_sizes: *mut u32,
    pub index_sums: *mut u64,
    pub blocks: *mut OutBlock,
    pub num_blocks: u64,
    /// max_files + 1 each.
    pub file_starts: *mut u32,
    pub num_files: *mut u32,
    /// First block of each file, and the bytes of blocks before it.
    pub file_blocks: *mut u32,
    pub file_offsets: *mut u64,
    /// One for each file.
    pub indexes: *mut FileIndex,
    pub places: *const FileOffsets,
    /// Internal keys at the files' ends.
    pub edges: *mut u8,
    pub max_files: u32,
    pub max_cuts: u32,
    pub errors: *mut u64,
}

/// `FilterArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct FilterArgs {
    pub file_start: u64,
    pub num_entries: u64,
    pub num_lines: u32,
    pub num_probes: u32,
    pub lines: *mut u32,
}

/// `VerifyArgs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct VerifyArgs {
    pub blocks: *const OutBlock,
    pub num_blocks: u64,
    pub num_entries: u64,
    /// Bytes of all surviving internal keys, in a wide task.
    pub num_key_bytes: u64,
    pub num_files: u64,
    /// As in LayoutArgs.
    pub file_starts: *const u32,
    pub file_blocks: *const u32,
    pub indexes: *const FileIndex,
    pub layout: Layout,
    pub hash_buckets: *const u32,
    pub index: IndexLayout,
    pub filter: FilterRules,
    pub bases: *const u32,
    pub refs: *mut BlockRef,
    /// One for each file, cleared.
    pub found: *mut FoundFile,
    pub images: *const u8,
    /// As in LayoutArgs: the blocks are decompressed to the place of their compression.
    pub raw_offsets: *const u64,
    pub packed: *mut u8,
    pub decode: DecodeArgs,
}

/// The functions of a device. The host checks the error code of each.
#[repr(C)]
pub struct KernelTable {
    pub table_bytes: u32,
    pub unused: u32,
    pub error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    pub device_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub device_info: unsafe extern "C" fn(c_int, *mut DeviceInfo) -> c_int,
    /// Gets and sets the calling thread's device.
    pub get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub set_device: unsafe extern "C" fn(c_int) -> c_int,
    /// Versions of CUDA, as 1000 \* major + 10 \* minor: the newest that the driver supports, 0 without a driver, and that
    /// of this build.
    pub versions: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    /// Memory of the calling thread's device in bytes.
    pub memory_info: unsafe extern "C" fn(*mut u64, *mut u64) -> c_int,
    pub allocate: unsafe extern "C" fn(*mut *mut c_void, u64) -> c_int,
    pub release: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub allocate_pinned: unsafe extern "C" fn(*mut *mut c_void, u64) -> c_int,
    pub release_pinned: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// For memory of the host under a sanitizer: forbids bytes without a buffer, or allows those of a buffer.
    pub forbid: unsafe extern "C" fn(*const c_void, u64),
    pub allow: unsafe extern "C" fn(*const c_void, u64),
    /// Whether the address is of device, pinned or managed memory that the calling thread's device can access. May be
    /// called while a stream is captured into a graph.
    pub reaches: unsafe extern "C" fn(*const c_void, *mut u32) -> c_int,
    pub stream_create: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    pub stream_destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub event_create: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
    pub event_destroy: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub event_record: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    /// Waits.
    pub event_synchronize: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// Whether the device has reached the event; 1 if it was never recorded.
    pub event_query: unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int,
    /// Whether a stream is being captured into a graph.
    pub stream_captures: unsafe extern "C" fn(*mut c_void, *mut u32) -> c_int,
    pub event_elapsed_ms: unsafe extern "C" fn(*mut f32, *mut c_void, *mut c_void) -> c_int,
    pub copy_to_device: unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void) -> c_int,
    pub copy_from_device: unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void) -> c_int,
    pub copy_inside: unsafe extern "C" fn(*mut c_void, *const c_void, u64, *mut c_void) -> c_int,
    pub fill: unsafe extern "C" fn(*mut c_void, c_int, u64, *mut c_void) -> c_int,
    /// Launches a kernel that does nothing, to find out whether this build has code for the device.
    pub probe: unsafe extern "C" fn(*const Exec) -> c_int,
    /// Bytes of scratch memory for stages over a number of entries.
    pub scratch_bytes: unsafe extern "C" fn(u64) -> u64,
    pub check_blocks: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    /// Fills sizes and offsets, and the blocks' codecs and uncompressed sizes.
    pub measure_raw: unsafe extern "C" fn(*const Exec, *const DecompressArgs) -> c_int,
    /// Decompresses all blocks into `to`.
    pub decompress: unsafe extern "C" fn(*const Exec, *const DecompressArgs) -> c_int,
    /// Fills counts and starts, key_sums and key_starts, longest.
    pub count_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    /// Fills keys and values.
    pub decode_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    pub hash_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64) -> c_int,
    /// Moves decoded entries, whose values and long keys stay or move by themselves.
    pub place_entries: unsafe extern "C" fn(*const Exec, *const PlaceArgs, u64) -> c_int,
    /// Checks that keys of the run from `first` to `end` ascend.
    pub check_order: unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64, u64) -> c_int,
    /// Three numbers of each run: first those of TrimRun of all runs, then those of FollowRun.
    pub trim_runs: unsafe extern "C" fn(*const Exec, *const DecodeArgs, *const u32, u32, *const UserKey, *const UserKey, *mut u32) -> c_int,
    /// Adds the entries from `first` to `end` in the order of decoding.
    pub sum_input: unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64, u64, *mut InputTotals) -> c_int,
    pub merge_runs: unsafe extern "C" fn(*const Exec, *const KeyBytes, *mut Key, *mut Key, *const u32, u32, *mut *mut Key) -> c_int,
    /// Only if operands are merged: fills made and made_offsets.
    pub measure_made: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    /// Only after measure_made, and before retain: the bytes of merged values.
    pub make_values: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    pub retain: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    /// Up to `keep` and `totals`.
    pub select_visible: unsafe extern "C" fn(*const Exec, *const SnapshotArgs) -> c_int,
    /// After select_visible: fills places and selected_rows.
    pub gather_visible: unsafe extern "C" fn(*const Exec, *const SnapshotArgs) -> c_int,
    /// Fills sizes and offsets.
    pub measure_rows: unsafe extern "C" fn(*const Exec, *const RowArgs) -> c_int,
    /// Copies the rows from `first` to `end` contiguously.
    pub copy_rows: unsafe extern "C" fn(*const Exec, *const RowArgs, u64, u64, *mut u8) -> c_int,
    /// Fills sizes and offsets, and sets bits of `seen`.
    pub measure_records: unsafe extern "C" fn(*const Exec, *const InsertArgs) -> c_int,
    /// Writes the records and stores their slots in the table.
    pub insert_records: unsafe extern "C" fn(*const Exec, *const InsertArgs) -> c_int,
    /// Counts the rows whose keys the base has and whose bits are not set.
    pub count_unseen: unsafe extern "C" fn(*const Exec, *const InsertArgs) -> c_int,
    /// Removes keys of the ranges whose bits are not set from the table.
    pub erase_missing: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    /// Stores the records of the base in the table, which has other slots.
    pub rehash: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    /// Adds to the live bytes of chunks.
    pub measure_chunks: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    /// Moves the records of the chunks that are marked.
    pub move_records: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    pub look_up: unsafe extern "C" fn(*const Exec, *const LookupArgs) -> c_int,
    /// Fills keep, places and selected.
    pub scan_filter: unsafe extern "C" fn(*const Exec, *const ScanArgs) -> c_int,
    /// Fills sizes and offsets.
    pub scan_measure: unsafe extern "C" fn(*const Exec, *const ScanArgs) -> c_int,
    /// Fills the columns of `rows` selected rows from `first` on, without the bytes of byte columns; then these.
    pub scan_fill: unsafe extern "C" fn(*const Exec, *const ScanArgs, *const ScanColumn, u64, u64) -> c_int,
    pub scan_copy: unsafe extern "C" fn(*const Exec, *const ScanArgs, u64, u64) -> c_int,
    /// Groups the selected rows.
    pub scan_group: unsafe extern "C" fn(*const Exec, *const ScanArgs, *const ScanGroups) -> c_int,
    /// Copies the words of the groups in some slots contiguously.
    pub scan_take_groups: unsafe extern "C" fn(*const Exec, *const ScanGroups, *const u32, u64, *mut u64) -> c_int,
    /// Adds the hashes of the words of parts to their totals.
    pub scan_hash: unsafe extern "C" fn(*const Exec, *const HashPart, u64, *mut ScanTotals) -> c_int,
    /// Up to the block starts and the files' first blocks; the last of `before` is the number of blocks.
    pub split: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    /// Raw sizes of blocks.
    pub measure_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    /// Only if blocks are compressed: offsets of raw images; then the raw images and their compressed form.
    pub place_raw: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub compress_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    /// Stored sizes of blocks, offsets of blocks and files.
    pub sum_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    /// Sizes and sums of the index's entries, and indexes.
    pub measure_index: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub sum_file: unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, *mut FileTotals) -> c_int,
    /// Maximum tombstones in a window of buckets of this number of entries.
    pub most_deletions: unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, u64, *mut u64) -> c_int,
    /// Fills blocks and edges.
    pub place_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs, u32) -> c_int,
    pub write_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *mut u8) -> c_int,
    pub seal_blocks: unsafe extern "C" fn(*const Exec, *const OutBlock, u64, *const u32, u32, *mut u8) -> c_int,
    /// Writes index blocks, which are not yet sealed.
    pub write_index: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *mut u8) -> c_int,
    pub build_filter: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *const FilterArgs) -> c_int,
    /// Decodes images; keys, values and hashes are filled.
    pub decode_images: unsafe extern "C" fn(*const Exec, *const VerifyArgs) -> c_int,
    pub verify_file: unsafe extern "C" fn(*const Exec, *const VerifyArgs, u64, u64, *const u8, u32, u32, *mut FileTotals) -> c_int,
}

/// Kinds of calls.
/// `Kind`.
pub const CALL_ALLOCATE: u32 = 0;
pub const CALL_PIN: u32 = 1;
pub const CALL_STREAM: u32 = 2;
pub const CALL_EVENT: u32 = 3;
pub const CALL_WAIT: u32 = 4;
pub const CALL_COPY: u32 = 5;
pub const CALL_STAGE: u32 = 6;

/// Reported regions.
/// `Region`.
pub const REGION_INDEX: u32 = 0;
pub const REGION_EDGES: u32 = 1;
pub const REGION_SIZES: u32 = 2;
pub const REGION_FOUND: u32 = 3;
pub const REGION_NEXT_KEY: u32 = 4;
pub const REGION_ROWS: u32 = 5;
pub const REGION_MERGED: u32 = 6;

/// Moments at which blocks are reported.
/// `Moment`.
pub const MOMENT_UNSEALED: u32 = 0;
pub const MOMENT_FINISHED: u32 = 1;

/// `Hooks`.
#[repr(C)]
pub struct Hooks {
    /// Called before a call: 0, or the error that the call returns without doing anything.
    pub before: extern "C" fn(u32, u64) -> c_int,
    /// Called with allocations, and with releases.
    pub got: extern "C" fn(u32, *mut c_void, u64),
    pub gone: extern "C" fn(u32, *mut c_void),
    /// Says how much device memory there is, or is free.
    pub memory: extern "C" fn(u32) -> u64,
    /// May alter the data copied back.
    pub copied_back: extern "C" fn(*mut c_void, *const c_void, u64),
    /// Called with the place of a list to come, or of data that may be altered: an index block without its checksum, a
    /// key.
    pub made: extern "C" fn(u32, *const c_void, u64),
    /// May alter blocks in the images before they get their checksums, or when images are finished and not yet verified.
    pub written: extern "C" fn(u32, *const u8, *const OutBlock, u64),
}

/// The stages. Each queues work, and returns an error of the device.
///
/// # Safety
/// Memory that the arguments name exists with the size that the headers state, until the stream has reached
/// this point.
impl Stages<'_> {
    pub unsafe fn check_blocks(&self, args: &DecodeArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().check_blocks)(&raw const self.exec, args) };
        self.device.check(code, "check blocks")
    }

    /// Fills sizes and offsets, and the blocks' codecs and uncompressed sizes.
    pub unsafe fn measure_raw(&self, args: &DecompressArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_raw)(&raw const self.exec, args) };
        self.device.check(code, "measure raw")
    }

    /// Decompresses all blocks into `to`.
    pub unsafe fn decompress(&self, args: &DecompressArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().decompress)(&raw const self.exec, args) };
        self.device.check(code, "decompress")
    }

    /// Fills counts and starts, key_sums and key_starts, longest.
    pub unsafe fn count_entries(&self, args: &DecodeArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().count_entries)(&raw const self.exec, args) };
        self.device.check(code, "count entries")
    }

    /// Fills keys and values.
    pub unsafe fn decode_entries(&self, args: &DecodeArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().decode_entries)(&raw const self.exec, args) };
        self.device.check(code, "decode entries")
    }

    pub unsafe fn hash_entries(&self, args: &DecodeArgs, n: u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().hash_entries)(&raw const self.exec, args, n) };
        self.device.check(code, "hash entries")
    }

    /// Moves decoded entries, whose values and long keys stay or move by themselves.
    pub unsafe fn place_entries(&self, parts: *const PlaceArgs, count: u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().place_entries)(&raw const self.exec, parts, count) };
        self.device.check(code, "place entries")
    }

    /// Checks that keys of the run from `first` to `end` ascend.
    pub unsafe fn check_order(&self, args: &DecodeArgs, first: u64, end: u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().check_order)(&raw const self.exec, args, first, end) };
        self.device.check(code, "check order")
    }

    /// Three numbers of each run: first those of TrimRun of all runs, then those of FollowRun.
    pub unsafe fn trim_runs(&self, args: &DecodeArgs, run_starts: *const u32, num_runs: u32, begin: &UserKey, end: &UserKey, trimmed: *mut u32) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().trim_runs)(&raw const self.exec, args, run_starts, num_runs, begin, end, trimmed) };
        self.device.check(code, "trim runs")
    }

    /// Adds the entries from `first` to `end` in the order of decoding.
    pub unsafe fn sum_input(&self, args: &DecodeArgs, first: u64, end: u64, totals: *mut InputTotals) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().sum_input)(&raw const self.exec, args, first, end, totals) };
        self.device.check(code, "sum input")
    }

    pub unsafe fn merge_runs(&self, key_bytes: &KeyBytes, keys: *mut Key, other_keys: *mut Key, trimmed: *const u32, num_runs: u32, merged: &mut *mut Key) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().merge_runs)(&raw const self.exec, key_bytes, keys, other_keys, trimmed, num_runs, merged) };
        self.device.check(code, "merge runs")
    }

    /// Only if operands are merged: fills made and made_offsets.
    pub unsafe fn measure_made(&self, args: &RetainArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_made)(&raw const self.exec, args) };
        self.device.check(code, "measure made")
    }

    /// Only after measure_made, and before retain: the bytes of merged values.
    pub unsafe fn make_values(&self, args: &RetainArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().make_values)(&raw const self.exec, args) };
        self.device.check(code, "make values")
    }

    pub unsafe fn retain(&self, args: &RetainArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().retain)(&raw const self.exec, args) };
        self.device.check(code, "retain")
    }

    /// Up to `keep` and `totals`.
    pub unsafe fn select_visible(&self, args: &SnapshotArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().select_visible)(&raw const self.exec, args) };
        self.device.check(code, "select visible")
    }

    /// After select_visible: fills places and selected_rows.
    pub unsafe fn gather_visible(&self, args: &SnapshotArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().gather_visible)(&raw const self.exec, args) };
        self.device.check(code, "gather visible")
    }

    /// Fills sizes and offsets.
    pub unsafe fn measure_rows(&self, args: &RowArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_rows)(&raw const self.exec, args) };
        self.device.check(code, "measure rows")
    }

    /// Copies the rows from `first` to `end` contiguously.
    pub unsafe fn copy_rows(&self, args: &RowArgs, first: u64, end: u64, out: *mut u8) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().copy_rows)(&raw const self.exec, args, first, end, out) };
        self.device.check(code, "copy rows")
    }

    /// Fills sizes and offsets, and sets bits of `seen`.
    pub unsafe fn measure_records(&self, args: &InsertArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_records)(&raw const self.exec, args) };
        self.device.check(code, "measure records")
    }

    /// Writes the records and stores their slots in the table.
    pub unsafe fn insert_records(&self, args: &InsertArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().insert_records)(&raw const self.exec, args) };
        self.device.check(code, "insert records")
    }

    /// Counts the rows whose keys the base has and whose bits are not set.
    pub unsafe fn count_unseen(&self, args: &InsertArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().count_unseen)(&raw const self.exec, args) };
        self.device.check(code, "count unseen")
    }

    /// Removes keys of the ranges whose bits are not set from the table.
    pub unsafe fn erase_missing(&self, args: &SlotsArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().erase_missing)(&raw const self.exec, args) };
        self.device.check(code, "erase missing")
    }

    /// Stores the records of the base in the table, which has other slots.
    pub unsafe fn rehash(&self, args: &SlotsArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().rehash)(&raw const self.exec, args) };
        self.device.check(code, "rehash")
    }

    /// Adds to the live bytes of chunks.
    pub unsafe fn measure_chunks(&self, args: &SlotsArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_chunks)(&raw const self.exec, args) };
        self.device.check(code, "measure chunks")
    }

    /// Moves the records of the chunks that are marked.
    pub unsafe fn move_records(&self, args: &SlotsArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().move_records)(&raw const self.exec, args) };
        self.device.check(code, "move records")
    }

    pub unsafe fn look_up(&self, args: &LookupArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().look_up)(&raw const self.exec, args) };
        self.device.check(code, "look up")
    }

    /// Fills keep, places and selected.
    pub unsafe fn scan_filter(&self, args: &ScanArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_filter)(&raw const self.exec, args) };
        self.device.check(code, "scan filter")
    }

    /// Fills sizes and offsets.
    pub unsafe fn scan_measure(&self, args: &ScanArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_measure)(&raw const self.exec, args) };
        self.device.check(code, "scan measure")
    }

    /// Fills the columns of `rows` selected rows from `first` on, without the bytes of byte columns; then these.
    pub unsafe fn scan_fill(&self, args: &ScanArgs, columns: *const ScanColumn, first: u64, rows: u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_fill)(&raw const self.exec, args, columns, first, rows) };
        self.device.check(code, "scan fill")
    }

    pub unsafe fn scan_copy(&self, args: &ScanArgs, first: u64, rows: u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_copy)(&raw const self.exec, args, first, rows) };
        self.device.check(code, "scan copy")
    }

    /// Groups the selected rows.
    pub unsafe fn scan_group(&self, args: &ScanArgs, groups: &ScanGroups) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_group)(&raw const self.exec, args, groups) };
        self.device.check(code, "scan group")
    }

    /// Copies the words of the groups in some slots contiguously.
    pub unsafe fn scan_take_groups(&self, groups: &ScanGroups, slots: *const u32, n: u64, out: *mut u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_take_groups)(&raw const self.exec, groups, slots, n, out) };
        self.device.check(code, "scan take groups")
    }

    /// Adds the hashes of the words of parts to their totals.
    pub unsafe fn scan_hash(&self, parts: *const HashPart, count: u64, totals: *mut ScanTotals) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().scan_hash)(&raw const self.exec, parts, count, totals) };
        self.device.check(code, "scan hash")
    }

    /// Up to the block starts and the files' first blocks; the last of `before` is the number of blocks.
    pub unsafe fn split(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().split)(&raw const self.exec, args) };
        self.device.check(code, "split")
    }

    /// Raw sizes of blocks.
    pub unsafe fn measure_blocks(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_blocks)(&raw const self.exec, args) };
        self.device.check(code, "measure blocks")
    }

    /// Only if blocks are compressed: offsets of raw images; then the raw images and their compressed form.
    pub unsafe fn place_raw(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().place_raw)(&raw const self.exec, args) };
        self.device.check(code, "place raw")
    }

    pub unsafe fn compress_blocks(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().compress_blocks)(&raw const self.exec, args) };
        self.device.check(code, "compress blocks")
    }

    /// Stored sizes of blocks, offsets of blocks and files.
    pub unsafe fn sum_blocks(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().sum_blocks)(&raw const self.exec, args) };
        self.device.check(code, "sum blocks")
    }

    /// Sizes and sums of the index's entries, and indexes.
    pub unsafe fn measure_index(&self, args: &LayoutArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().measure_index)(&raw const self.exec, args) };
        self.device.check(code, "measure index")
    }

    pub unsafe fn sum_file(&self, args: &LayoutArgs, start: u64, n: u64, totals: *mut FileTotals) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().sum_file)(&raw const self.exec, args, start, n, totals) };
        self.device.check(code, "sum file")
    }

    /// Maximum tombstones in a window of buckets of this number of entries.
    pub unsafe fn most_deletions(&self, args: &LayoutArgs, start: u64, n: u64, bucket_size: u64, most: *mut u64) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().most_deletions)(&raw const self.exec, args, start, n, bucket_size, most) };
        self.device.check(code, "most deletions")
    }

    /// Fills blocks and edges.
    pub unsafe fn place_blocks(&self, args: &LayoutArgs, num_files: u32) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().place_blocks)(&raw const self.exec, args, num_files) };
        self.device.check(code, "place blocks")
    }

    pub unsafe fn write_blocks(&self, args: &LayoutArgs, images: *mut u8) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().write_blocks)(&raw const self.exec, args, images) };
        self.device.check(code, "write blocks")
    }

    pub unsafe fn seal_blocks(&self, blocks: *const OutBlock, n: u64, bases: *const u32, checksum: u32, images: *mut u8) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().seal_blocks)(&raw const self.exec, blocks, n, bases, checksum, images) };
        self.device.check(code, "seal blocks")
    }

    /// Writes index blocks, which are not yet sealed.
    pub unsafe fn write_index(&self, args: &LayoutArgs, images: *mut u8) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().write_index)(&raw const self.exec, args, images) };
        self.device.check(code, "write index")
    }

    pub unsafe fn build_filter(&self, args: &LayoutArgs, filter: &FilterArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().build_filter)(&raw const self.exec, args, filter) };
        self.device.check(code, "build filter")
    }

    /// Decodes images; keys, values and hashes are filled.
    pub unsafe fn decode_images(&self, args: &VerifyArgs) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().decode_images)(&raw const self.exec, args) };
        self.device.check(code, "decode images")
    }

    #[expect(clippy::too_many_arguments, reason = "it is a function of C")]
    pub unsafe fn verify_file(&self, args: &VerifyArgs, start: u64, n: u64, lines: *const u8, num_lines: u32, num_probes: u32, totals: *mut FileTotals) -> Result<()> {
        // SAFETY: the caller guarantees it.
        let code = unsafe { (self.device.table().verify_file)(&raw const self.exec, args, start, n, lines, num_lines, num_probes, totals) };
        self.device.check(code, "verify file")
    }
}

//! The records of `kernels/table.hpp` and `common/types.hpp`, field by field.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

/// The place of a field in its record; for the record itself, without a name, its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPlace {
    pub record: &'static str,
    pub field: &'static str,
    pub offset: usize,
    pub bytes: usize,
}

/// Declares records with C's layout, and lists the places of their fields.
macro_rules! records {
    ($($(#[$attribute:meta])* pub struct $record:ident { $(pub $field:ident: $kind:ty,)+ })+) => {
        $($(#[$attribute])*
        #[repr(C)]
        pub struct $record {
            $(pub $field: $kind,)+
        })+

        /// All fields of all records in Rust's layout; `kernels/fields.hpp` lists them in the same order.
        pub const FIELDS: &[FieldPlace] = &[$(
            FieldPlace {
                record: stringify!($record),
                field: "",
                offset: 0,
                bytes: size_of::<$record>(),
            },
            $(FieldPlace {
                record: stringify!($record),
                field: stringify!($field),
                offset: offset_of!($record, $field),
                bytes: size_of::<$kind>(),
            },)+
        )+];
    };
}

records! {
    /// `BlockRef`: a block in an arena.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct BlockRef {
        pub at: u64,
        pub file_offset: u64,
        pub stored_size: u32,
        pub raw_size: u32,
        pub codec: u32,
        pub checksum_base: u32,
        pub checksum: u32,
        pub restart_interval: u32,
        pub sequence: u64,
    }

    /// `Key`: an internal key and the place of its value.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Key {
        pub hi: u64,
        pub lo: u64,
        pub tag: u64,
        pub entry: u32,
        pub len: u32,
    }

    /// `KeyBytes`: the place of the bytes of long user keys.
    #[derive(Debug, Clone, Copy)]
    pub struct KeyBytes {
        pub bytes: *const u8,
        pub at: *const u64,
    }

    /// `ValueRef`: the place of a value.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ValueRef {
        pub at: u64,
        pub len: u64,
    }

    /// `OutBlock`: a finished data block.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct OutBlock {
        pub at: u64,
        pub file_offset: u64,
        pub size: u32,
        pub raw_size: u32,
        pub codec: u32,
        pub file: u32,
        pub first: u32,
        pub count: u32,
        pub key_start: u64,
    }

    /// `FileIndex`: sizes of a file, with which the host chooses its place.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct FileIndex {
        pub data_size: u64,
        pub raw_size: u64,
        pub size: u64,
        pub prefix_len: u32,
        pub internal_keys: u32,
        pub smallest_len: u32,
        pub largest_len: u32,
        pub check: u64,
    }

    /// `FilePlace`: the places of a file's parts.
    #[derive(Debug, Clone, Copy)]
    pub struct FilePlace {
        pub image: u64,
        pub index: u64,
        pub edges: u64,
    }

    /// `FoundFile`: hashes found in a finished file.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct FoundFile {
        pub index_hash: u64,
        pub tags_hash: u64,
        pub edges_hash: u64,
    }

    /// `UserKey`: a user key that belongs to no entry.
    #[derive(Debug, Clone, Copy)]
    pub struct UserKey {
        pub hi: u64,
        pub lo: u64,
        pub bytes: *const u8,
        pub len: u32,
        pub present: u32,
    }

    /// `KeySpan`: a range of user keys in another level.
    #[derive(Debug, Clone, Copy)]
    pub struct KeySpan {
        pub first: UserKey,
        pub last: UserKey,
        pub file_size: u64,
    }

    /// `Fragment`: a range of user keys that range tombstones cover.
    #[derive(Debug, Clone, Copy)]
    pub struct Fragment {
        pub begin: UserKey,
        pub end: UserKey,
        pub first: u64,
        pub last: u64,
    }

    /// `RetainRules`.
    #[derive(Debug, Clone, Copy)]
    pub struct RetainRules {
        pub snapshots: *const u64,
        pub num_snapshots: u64,
        pub earliest: u64,
        pub deeper: *const KeySpan,
        pub level_ends: *const u32,
        pub num_levels: u32,
        pub bottommost: u32,
        pub deeper_unknown: u32,
        pub enforce_single_delete: u32,
        pub fragments: *const Fragment,
        pub sequences: *const u64,
        pub num_fragments: u64,
    }

    /// `MergeRules`: the merge function of operands.
    #[derive(Debug, Clone, Copy)]
    pub struct MergeRules {
        pub function: u32,
        pub partial: u32,
        pub delimiter: *const u8,
        pub delimiter_len: u64,
        pub max_bytes: u64,
        pub operand_bytes: u64,
    }

    /// `SnapshotRules`.
    #[derive(Debug, Clone, Copy)]
    pub struct SnapshotRules {
        pub sequence: u64,
        pub keep_tombstones: u32,
        pub mark_undecided: u32,
    }

    /// `ScanOp`: a step of a scan's program.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanOp {
        pub code: u32,
        pub to: u32,
        pub a: u32,
        pub b: u32,
        pub c: u32,
        pub detail: u32,
    }

    /// `ScanConstant`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanConstant {
        pub low: u64,
        pub high: u64,
        pub is_set: u32,
        pub part: u32,
    }

    /// `ScanColumn`: a column, and the places of its parts.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanColumn {
        pub operand: u32,
        pub stored: u32,
        pub bytes: u32,
        pub unused: u32,
        pub flags: u64,
        pub validity: u64,
        pub values: u64,
        pub packed: u64,
        pub lens: u64,
        pub data: u64,
    }

    /// `ScanGroupKey`: a key of groups.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanGroupKey {
        pub operand: u32,
        pub stored: u32,
        pub bytes: u32,
        pub unused: u32,
    }

    /// `ScanArgument`: a value that aggregates of groups need.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanArgument {
        pub operand: u32,
        pub needed: u32,
        pub at: u32,
        pub unused: u32,
    }

    /// `ScanGroups`.
    #[derive(Debug, Clone, Copy)]
    pub struct ScanGroups {
        pub keys: *const ScanGroupKey,
        pub arguments: *const ScanArgument,
        pub num_keys: u32,
        pub num_arguments: u32,
        pub num_words: u32,
        pub has_wide: u32,
        pub num_slots: u64,
        pub most: u64,
        pub found: *mut u64,
        pub table: *mut u64,
        pub firsts: *mut u64,
        pub words: *mut u64,
    }

    /// `ScanTotals`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct ScanTotals {
        pub hash: u64,
    }

    /// `KeyRanges`: disjoint ranges of keys.
    #[derive(Debug, Clone, Copy)]
    pub struct KeyRanges {
        pub ends: *const u64,
        pub bytes: *const u8,
        pub num_bounds: u64,
    }

    /// `ResidentTable`: a table that outlives the tasks whose rows it takes.
    #[derive(Debug, Clone, Copy)]
    pub struct ResidentTable {
        pub slots: *mut u64,
        pub buckets: u64,
        pub seed: u64,
        pub hash_mask: u64,
        pub outside: KeyRanges,
    }

    /// `RingRequest`: a part of a request of a kernel.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct RingRequest {
        pub operation: u32,
        pub key_len: u32,
        pub value_len: u64,
        pub version: u64,
        pub capacity: u64,
        pub at: u64,
        pub part_len: u64,
    }

    /// `RingAnswer`: a part of an answer.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct RingAnswer {
        pub status: u32,
        pub part_len: u32,
        pub len: u64,
    }

    /// `ChangedKeys`: keys that kernels have put or deleted.
    #[derive(Debug, Clone, Copy)]
    pub struct ChangedKeys {
        pub slots: *mut u64,
        pub mask: u64,
        pub state: *mut u64,
        pub seed: u64,
    }

    /// `Ring`: mailboxes for requests of kernels to the host.
    #[derive(Debug, Clone, Copy)]
    pub struct Ring {
        pub posted: *mut u32,
        pub requests: *mut RingRequest,
        pub outgoing: *mut u8,
        pub answered: *const u32,
        pub answers: *const RingAnswer,
        pub incoming: *const u8,
        pub states: *mut u32,
        pub numbers: *mut u32,
        pub changed: ChangedKeys,
        pub timeout_ns: u64,
        pub mailboxes: u32,
        pub mailbox_bytes: u32,
    }

    /// `KvRecord`: the parameter with which kernels get and put keys.
    #[derive(Debug, Clone, Copy)]
    pub struct KvRecord {
        pub abi: u32,
        pub num_tickets: u32,
        pub version: u64,
        pub table: ResidentTable,
        pub ring: Ring,
        pub last_mailbox: u32,
        pub last_number: u32,
    }

    /// `PlaceTotals`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct PlaceTotals {
        pub without: u64,
        pub asks_in: u64,
        pub asks_out: u64,
        pub values_out: u64,
        pub dead_bytes: u64,
        pub gone: u64,
        pub retaken: u64,
        pub left_over: u64,
        pub unseen: u64,
    }

    /// `RecordChunk`: memory with records of a table.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct RecordChunk {
        pub address: u64,
        pub live_bytes: u64,
        pub moves: u64,
    }

    /// `InputTotals`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct InputTotals {
        pub hash: u64,
        pub tombstones: u64,
        pub single_deletes: u64,
        pub operands: u64,
        pub key_bytes: u64,
        pub value_bytes: u64,
    }

    /// `RetainTotals`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct RetainTotals {
        pub hash_kept: u64,
        pub hash_dropped: u64,
        pub hash_consumed: u64,
        pub replaced: u64,
        pub tombstones_dropped: u64,
        pub kept: u64,
        pub dropped: u64,
        pub consumed: u64,
        pub made: u64,
        pub above: u64,
        pub rows_hash: u64,
    }

    /// `FileTotals`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct FileTotals {
        pub content_hash: u64,
        pub rows_hash: u64,
        pub deletions: u64,
        pub merge_operands: u64,
        pub key_bytes: u64,
        pub value_bytes: u64,
        pub smallest_seqno: u64,
        pub largest_seqno: u64,
        pub filter_entries: u64,
    }

    /// `Layout`.
    #[derive(Debug, Clone, Copy)]
    pub struct Layout {
        pub block_size: u64,
        pub restart_interval: u32,
        pub delta_keys: u32,
        pub common_prefix: u32,
        pub checksum: u32,
        pub buckets_per_entry: f64,
    }

    /// `Compression`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Compression {
        pub codec: u32,
        pub max_bytes_per_kb: u32,
    }

    /// `IndexLayout`.
    #[derive(Debug, Clone, Copy)]
    pub struct IndexLayout {
        pub format_version: u32,
        pub restart_interval: u32,
        pub shortening: u32,
        pub common_prefix: u32,
    }

    /// `Splitting`.
    #[derive(Debug, Clone, Copy)]
    pub struct Splitting {
        pub file_size: u64,
        pub grandparents: *const KeySpan,
        pub num_grandparents: u64,
        pub target_file_size: u64,
        pub max_compaction_bytes: u64,
        pub stored: u64,
        pub uncompressed: u64,
        pub partition_bytes: u64,
        pub level_style: u32,
        pub unused: u32,
    }

    /// `FileCut`: the border between two files.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct FileCut {
        pub survivors: u32,
        pub fragment: u32,
    }

    /// `FilterRules`.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct FilterRules {
        pub format: u32,
        pub whole_keys: u32,
        pub prefix_kind: u32,
        pub unused: u32,
        pub prefix_len: u64,
    }

    /// `Exec`.
    #[derive(Debug, Clone, Copy)]
    pub struct Exec {
        pub stream: *mut c_void,
        pub scratch: *mut c_void,
        pub scratch_bytes: u64,
        pub processors: u32,
        pub unused: u32,
    }

    /// `DecompressArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct DecompressArgs {
        pub from: *const u8,
        pub blocks: *mut BlockRef,
        pub num_blocks: u64,
        pub sizes: *mut u64,
        pub offsets: *mut u64,
        pub to: *mut u8,
        pub errors: *mut u64,
    }

    /// `DecodeArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct DecodeArgs {
        pub arena: *const u8,
        pub blocks: *const BlockRef,
        pub num_blocks: u64,
        pub counts: *mut u32,
        pub starts: *mut u32,
        pub key_sums: *mut u64,
        pub key_starts: *mut u64,
        pub longest: *mut u64,
        pub keys: *mut Key,
        pub values: *mut ValueRef,
        pub hashes: *mut u64,
        pub key_bytes: *mut u8,
        pub key_at: *mut u64,
        pub errors: *mut u64,
        pub types: u32,
        pub unused: u32,
    }

    /// `RetainArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct RetainArgs {
        pub keys: *mut Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub values: *mut ValueRef,
        pub hashes: *mut u64,
        pub rules: RetainRules,
        pub fragment_places: *mut u64,
        pub cover: *mut u32,
        pub heads: *mut u32,
        pub has_older: *mut u8,
        pub keep: *mut u32,
        pub places: *mut u32,
        pub survivors: *mut Key,
        pub totals: *mut RetainTotals,
        pub errors: *mut u64,
        pub arena: *mut u8,
        pub merging: MergeRules,
        pub made: *mut u32,
        pub made_offsets: *mut u64,
        pub made_at: u64,
        pub one_by_one: u32,
        pub unused: u32,
    }

    /// `SnapshotArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct SnapshotArgs {
        pub keys: *const Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub hashes: *const u64,
        pub rules: SnapshotRules,
        pub keep: *mut u32,
        pub places: *mut u32,
        pub survivors: *mut Key,
        pub totals: *mut RetainTotals,
        pub errors: *mut u64,
    }

    /// `RowArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct RowArgs {
        pub arena: *const u8,
        pub rows: *const Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub values: *const ValueRef,
        pub sizes: *mut u64,
        pub offsets: *mut u64,
    }

    /// `PlaceArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct PlaceArgs {
        pub arena: *const u8,
        pub rows: *const Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub values: *const ValueRef,
        pub sizes: *mut u64,
        pub offsets: *mut u64,
        pub records: *mut u8,
        pub base: ResidentTable,
        pub seen: *mut u64,
        pub table: ResidentTable,
        pub totals: *mut PlaceTotals,
    }

    /// `SlotsArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct SlotsArgs {
        pub base: ResidentTable,
        pub seen: *const u64,
        pub ranges: KeyRanges,
        pub table: ResidentTable,
        pub chunks: *mut RecordChunk,
        pub num_chunks: u64,
        pub records: *mut u8,
        pub cursor: *mut u64,
        pub totals: *mut PlaceTotals,
    }

    /// `LookupArgs`.
    #[derive(Debug, Clone, Copy)]
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
    }

    /// `ScanArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct ScanArgs {
        pub arena: *const u8,
        pub rows: *const Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub values: *const ValueRef,
        pub ops: *const ScanOp,
        pub constants: *const ScanConstant,
        pub literals: *const u8,
        pub num_filter: u32,
        pub num_ops: u32,
        pub columns: *const ScanColumn,
        pub num_columns: u32,
        pub row_bytes: u32,
        pub has_bytes: u32,
        pub unused: u32,
        pub batch_rows: u64,
        pub batch_bytes: u64,
        pub keep: *mut u32,
        pub places: *mut u32,
        pub wanted: *mut u32,
        pub num_wanted: u64,
        pub sizes: *mut u64,
        pub offsets: *mut u64,
        pub out: *mut u8,
        pub errors: *mut u64,
    }

    /// `LayoutArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct LayoutArgs {
        pub arena: *const u8,
        pub survivors: *const Key,
        pub n: u64,
        pub key_bytes: KeyBytes,
        pub values: *const ValueRef,
        pub hashes: *const u64,
        pub layout: Layout,
        pub index: IndexLayout,
        pub splitting: Splitting,
        pub filter: FilterRules,
        pub compression: Compression,
        pub shared: *mut u32,
        pub sizes: *mut u32,
        pub prefix: *mut u64,
        pub begins: *mut u32,
        pub before: *mut u32,
        pub block_starts: *mut u32,
        pub key_sums: *mut u64,
        pub last_with_prefix: *mut u32,
        pub deletion_sums: *mut u32,
        pub fragments: *const Fragment,
        pub num_fragments: u64,
        pub fragment_places: *mut u64,
        pub cuts: *mut FileCut,
        pub grandparent_places: *mut u64,
        pub prefix_lens: *mut u32,
        pub hash_buckets: *mut u32,
        pub raw_sizes: *mut u32,
        pub block_sizes: *mut u32,
        pub block_offsets: *mut u64,
        pub raw_offsets: *mut u64,
        pub stored_sizes: *mut u32,
        pub codecs: *mut u32,
        pub raw_sums: *mut u32,
        pub raw: *mut u8,
        pub packed: *mut u8,
        pub compress_scratch: *mut u8,
        pub compress_groups: u64,
        pub compress_group_bytes: u64,
        pub compress_usual: u64,
        pub index_sizes: *mut u32,
        pub index_sums: *mut u64,
        pub blocks: *mut OutBlock,
        pub num_blocks: u64,
        pub file_starts: *mut u32,
        pub num_files: *mut u32,
        pub file_blocks: *mut u32,
        pub file_offsets: *mut u64,
        pub indexes: *mut FileIndex,
        pub places: *const FilePlace,
        pub edges: *mut u8,
        pub max_files: u32,
        pub max_cuts: u32,
        pub errors: *mut u64,
    }

    /// `FilterArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct FilterArgs {
        pub file_start: u64,
        pub num_entries: u64,
        pub num_lines: u32,
        pub num_probes: u32,
        pub lines: *mut u32,
    }

    /// `VerifyArgs`.
    #[derive(Debug, Clone, Copy)]
    pub struct VerifyArgs {
        pub blocks: *const OutBlock,
        pub num_blocks: u64,
        pub num_entries: u64,
        pub num_key_bytes: u64,
        pub num_files: u64,
        pub file_starts: *const u32,
        pub file_blocks: *const u32,
        pub indexes: *const FileIndex,
        pub layout: Layout,
        pub hash_buckets: *const u32,
        pub index: IndexLayout,
        pub filter: FilterRules,
        pub bases: *const u32,
        pub refs: *mut BlockRef,
        pub found: *mut FoundFile,
        pub images: *const u8,
        pub raw_offsets: *const u64,
        pub packed: *mut u8,
        pub decode: DecodeArgs,
    }

    /// `DeviceInfo`.
    #[derive(Debug, Clone, Copy)]
    pub struct DeviceInfo {
        pub name: [c_char; 128],
        pub pci_bus_id: [c_char; 16],
        pub memory_bytes: u64,
        pub compute_major: c_int,
        pub compute_minor: c_int,
        pub multiprocessors: c_int,
        pub unused: c_int,
    }
}

// SAFETY: the pointer is an address on the device, which host code never dereferences.
unsafe impl Send for UserKey {}

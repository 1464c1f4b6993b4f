//! The first of three storeys: `kernels/table.hpp` word for word. Nothing here is checked.

use std::ffi::{c_char, c_int, c_void};

/// `BlockRef`: an uncompressed block in an arena.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockRef {
    pub at: u64,
    pub file_offset: u64,
    pub size: u32,
    pub checksum_base: u32,
    pub checksum: u32,
    pub restart_interval: u32,
}

/// `Key`: an internal key and where its value is found.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Key {
    pub hi: u64,
    pub lo: u64,
    pub tag: u64,
    pub entry: u32,
    pub len: u32,
}

/// `KeyBytes`: where the bytes of long user keys lie.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KeyBytes {
    pub bytes: *const u8,
    pub at: *const u64,
}

/// `ValueRef`: where a value lies.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ValueRef {
    pub at: u64,
    pub len: u64,
}

/// `OutBlock`: a finished data block.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct OutBlock {
    pub at: u64,
    pub file_offset: u64,
    pub size: u32,
    pub file: u32,
    pub first: u32,
    pub count: u32,
    pub key_start: u64,
    pub edge_start: u64,
    pub first_key: Key,
    pub last_key: Key,
}

/// `UserKey`: a user key that no entry has.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UserKey {
    pub hi: u64,
    pub lo: u64,
    pub bytes: *const u8,
    pub len: u32,
    pub present: u32,
}

// SAFETY: the pointer is an address on the device, which host code never looks behind.
unsafe impl Send for UserKey {}

/// `KeySpan`: a range of user keys in another level.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KeySpan {
    pub first: UserKey,
    pub last: UserKey,
    pub file_size: u64,
}

/// `RetainRules`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RetainRules {
    pub snapshots: *const u64,
    pub num_snapshots: u64,
    pub earliest: u64,
    pub beneath: *const KeySpan,
    pub level_ends: *const u32,
    pub num_levels: u32,
    pub bottommost: u32,
    pub beneath_unknown: u32,
    pub enforce_single_delete: u32,
}

/// `InputTotals`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct InputTotals {
    pub hash: u64,
    pub tombstones: u64,
    pub single_deletes: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
}

/// `RetainTotals`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct RetainTotals {
    pub hash_kept: u64,
    pub hash_dropped: u64,
    pub replaced: u64,
    pub tombstones_dropped: u64,
    pub kept: u64,
    pub kv_kept: u64,
}

/// `FileTotals`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileTotals {
    pub content_hash: u64,
    pub kv_hash: u64,
    pub deletions: u64,
    pub key_bytes: u64,
    pub value_bytes: u64,
    pub smallest_seqno: u64,
    pub largest_seqno: u64,
    pub filter_entries: u64,
}

/// `Layout`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    pub block_size: u64,
    pub restart_interval: u32,
    pub delta_keys: u32,
    pub common_prefix: u32,
    pub checksum: u32,
}

/// `Cutting`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Cutting {
    pub file_size: u64,
    pub grandparents: *const KeySpan,
    pub num_grandparents: u64,
    pub target_file_size: u64,
    pub max_compaction_bytes: u64,
    pub stored: u64,
    pub uncompressed: u64,
    pub level_style: u32,
    pub unused: u32,
}

/// `FilterRules`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct FilterRules {
    pub format: u32,
    pub whole_keys: u32,
    pub prefix_kind: u32,
    pub unused: u32,
    pub prefix_len: u64,
}

/// `Exec`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Exec {
    pub stream: *mut c_void,
    pub scratch: *mut c_void,
    pub scratch_bytes: u64,
}

/// `DecodeArgs`.
#[repr(C)]
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
}

/// `RetainArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RetainArgs {
    pub keys: *mut Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *mut ValueRef,
    pub hashes: *mut u64,
    pub rules: RetainRules,
    pub heads: *mut u32,
    pub has_older: *mut u8,
    pub keep: *mut u32,
    pub places: *mut u32,
    pub survivors: *mut Key,
    pub totals: *mut RetainTotals,
    pub errors: *mut u64,
    pub one_by_one: u32,
    pub unused: u32,
}

/// `LayoutArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LayoutArgs {
    pub arena: *const u8,
    pub survivors: *const Key,
    pub n: u64,
    pub key_bytes: KeyBytes,
    pub values: *const ValueRef,
    pub hashes: *const u64,
    pub layout: Layout,
    pub cutting: Cutting,
    pub filter: FilterRules,
    pub shared: *mut u32,
    pub sizes: *mut u32,
    pub prefix: *mut u64,
    pub begins: *mut u32,
    pub before: *mut u32,
    pub block_starts: *mut u32,
    pub key_sums: *mut u64,
    pub last_with_prefix: *mut u32,
    pub grandparent_places: *mut u64,
    pub prefix_lens: *mut u32,
    pub block_sizes: *mut u32,
    pub block_offsets: *mut u64,
    pub edge_sizes: *mut u64,
    pub edge_starts: *mut u64,
    pub edges: *mut u8,
    pub blocks: *mut OutBlock,
    pub num_blocks: u64,
    pub file_starts: *mut u32,
    pub num_files: *mut u32,
    pub file_blocks: *mut u32,
    pub file_offsets: *mut u64,
    pub most_files: u32,
    pub unused: u32,
    pub errors: *mut u64,
}

/// `FilterArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FilterArgs {
    pub file_start: u64,
    pub num_entries: u64,
    pub num_lines: u32,
    pub num_probes: u32,
    pub lines: *mut u32,
}

/// `VerifyArgs`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VerifyArgs {
    pub blocks: *const OutBlock,
    pub num_blocks: u64,
    pub num_entries: u64,
    pub num_key_bytes: u64,
    pub layout: Layout,
    pub filter: FilterRules,
    pub bases: *const u32,
    pub edges: *const u8,
    pub refs: *mut BlockRef,
    pub blocks_hash: *mut u64,
    pub decode: DecodeArgs,
}

/// `DeviceInfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceInfo {
    pub name: [c_char; 128],
    pub pci_bus_id: [c_char; 16],
    pub memory_bytes: u64,
    pub compute_major: c_int,
    pub compute_minor: c_int,
}

type Handle = *mut c_void;

/// `KernelTable`.
#[repr(C)]
pub struct KernelTable {
    pub table_bytes: u32,
    pub record_bytes: [u32; 21],

    pub error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    pub device_count: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub device_info: unsafe extern "C" fn(c_int, *mut DeviceInfo) -> c_int,
    pub get_device: unsafe extern "C" fn(*mut c_int) -> c_int,
    pub set_device: unsafe extern "C" fn(c_int) -> c_int,
    pub versions: unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
    pub memory_info: unsafe extern "C" fn(*mut u64, *mut u64) -> c_int,

    pub allocate: unsafe extern "C" fn(*mut Handle, u64) -> c_int,
    pub release: unsafe extern "C" fn(Handle) -> c_int,
    pub allocate_pinned: unsafe extern "C" fn(*mut Handle, u64) -> c_int,
    pub release_pinned: unsafe extern "C" fn(Handle) -> c_int,
    pub forbid: unsafe extern "C" fn(*const c_void, u64),
    pub allow: unsafe extern "C" fn(*const c_void, u64),
    pub register_host: unsafe extern "C" fn(Handle, u64) -> c_int,
    pub unregister_host: unsafe extern "C" fn(Handle) -> c_int,

    pub stream_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub stream_destroy: unsafe extern "C" fn(Handle) -> c_int,
    pub event_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub event_destroy: unsafe extern "C" fn(Handle) -> c_int,
    pub event_record: unsafe extern "C" fn(Handle, Handle) -> c_int,
    pub event_synchronize: unsafe extern "C" fn(Handle) -> c_int,
    pub event_elapsed_ms: unsafe extern "C" fn(*mut f32, Handle, Handle) -> c_int,
    pub copy_to_device: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub copy_from_device: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub copy_inside: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub fill: unsafe extern "C" fn(Handle, c_int, u64, Handle) -> c_int,

    pub probe: unsafe extern "C" fn(*const Exec) -> c_int,
    pub scratch_bytes: unsafe extern "C" fn(u64) -> u64,
    pub check_blocks: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    pub count_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    pub decode_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    pub hash_entries: unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64) -> c_int,
    pub check_order: unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64, u64) -> c_int,
    pub trim_runs: unsafe extern "C" fn(
        *const Exec,
        *const DecodeArgs,
        *const u32,
        u32,
        *const UserKey,
        *const UserKey,
        *mut u32,
    ) -> c_int,
    pub sum_input:
        unsafe extern "C" fn(*const Exec, *const DecodeArgs, u64, u64, *mut InputTotals) -> c_int,
    pub merge_runs: unsafe extern "C" fn(
        *const Exec,
        *const KeyBytes,
        *mut Key,
        *mut Key,
        *const u32,
        u32,
        *mut *mut Key,
    ) -> c_int,
    pub retain: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    pub cut: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub measure_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub sum_file:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, *mut FileTotals) -> c_int,
    pub place_blocks:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, u32, *const u64) -> c_int,
    pub write_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *mut u8) -> c_int,
    pub seal_blocks:
        unsafe extern "C" fn(*const Exec, *const OutBlock, u64, *const u32, u32, *mut u8) -> c_int,
    pub build_filter:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, *const FilterArgs) -> c_int,
    pub decode_images: unsafe extern "C" fn(*const Exec, *const VerifyArgs) -> c_int,
    pub verify_file: unsafe extern "C" fn(
        *const Exec,
        *const VerifyArgs,
        u64,
        u64,
        *const u8,
        u32,
        u32,
        *mut FileTotals,
    ) -> c_int,
}

/// `faulty.cpp:Hooks`.
#[repr(C)]
pub struct Hooks {
    pub before: extern "C" fn(u32, u64) -> c_int,
    pub got: extern "C" fn(u32, Handle, u64),
    pub gone: extern "C" fn(u32, Handle),
    pub copied_back: extern "C" fn(Handle, *const c_void, u64),
    pub placed: extern "C" fn(*const OutBlock, u64),
    pub finished: extern "C" fn(*const u8, *const OutBlock, u64),
}

/// Sizes of the records as Rust lays them out, to be compared with the table's.
pub const RECORD_BYTES: [u32; 21] = [
    size_of::<BlockRef>() as u32,
    size_of::<Key>() as u32,
    size_of::<ValueRef>() as u32,
    size_of::<OutBlock>() as u32,
    size_of::<UserKey>() as u32,
    size_of::<KeySpan>() as u32,
    size_of::<InputTotals>() as u32,
    size_of::<RetainTotals>() as u32,
    size_of::<FileTotals>() as u32,
    size_of::<RetainRules>() as u32,
    size_of::<Layout>() as u32,
    size_of::<Exec>() as u32,
    size_of::<DecodeArgs>() as u32,
    size_of::<RetainArgs>() as u32,
    size_of::<LayoutArgs>() as u32,
    size_of::<FilterArgs>() as u32,
    size_of::<VerifyArgs>() as u32,
    size_of::<DeviceInfo>() as u32,
    size_of::<KeyBytes>() as u32,
    size_of::<Cutting>() as u32,
    size_of::<FilterRules>() as u32,
];

unsafe extern "C" {
    #[cfg(has_cuda)]
    pub fn rockmill_cuda_kernels() -> *const KernelTable;
    pub fn rockmill_host_kernels() -> *const KernelTable;
    pub fn rockmill_faulty_kernels(hooks: *const Hooks) -> *const KernelTable;
}

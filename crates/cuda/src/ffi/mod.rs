//! The first of three storeys: `kernels/table.hpp` word for word. Nothing here is checked.

use std::ffi::{c_char, c_int, c_void};

mod records;

pub use records::*;

type Handle = *mut c_void;

/// `KernelTable`.
#[repr(C)]
pub struct KernelTable {
    pub table_bytes: u32,
    pub record_bytes: [u32; RECORD_BYTES.len()],

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
    pub measure_index: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub sum_file:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, *mut FileTotals) -> c_int,
    pub place_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs, u32) -> c_int,
    pub write_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *mut u8) -> c_int,
    pub seal_blocks:
        unsafe extern "C" fn(*const Exec, *const OutBlock, u64, *const u32, u32, *mut u8) -> c_int,
    pub write_index: unsafe extern "C" fn(*const Exec, *const LayoutArgs, *mut u8) -> c_int,
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
    pub made: extern "C" fn(u32, *const c_void, u64),
    pub written: extern "C" fn(u32, *const u8, *const OutBlock, u64),
}

unsafe extern "C" {
    #[cfg(has_cuda)]
    pub fn rockmill_cuda_kernels() -> *const KernelTable;
    pub fn rockmill_host_kernels() -> *const KernelTable;
    pub fn rockmill_faulty_kernels(hooks: *const Hooks) -> *const KernelTable;
}

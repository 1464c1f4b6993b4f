//! The kernels of `dev/bench/kernels`: their table, word for word.

use std::ffi::{c_char, c_int, c_void};

use rockmill_view::KvRecord;

/// `exec.hpp:Exec`.
#[derive(Debug)]
#[repr(C)]
pub struct Exec {
    pub stream: *mut c_void,
    pub scratch: *mut c_void,
    pub scratch_bytes: u64,
    pub processors: u32,
    pub unused: u32,
}

/// `functors.hpp:MakeKeys`.
#[repr(C)]
pub struct MakeKeys {
    pub numbers: *const u64,
    pub keys: *mut u8,
}

/// `functors.hpp:CheckRows`.
#[repr(C)]
pub struct CheckRows {
    pub numbers: *const u64,
    pub rows: *const u64,
    pub statuses: *const u8,
    pub words: u64,
    pub max_version: u64,
    pub wrong: *mut u64,
}

/// `functors.hpp:DenseValues`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DenseValues {
    pub values: *const u8,
    pub stride: u64,
    pub is_ordered: bool,
}

/// `functors.hpp:Gather`.
#[repr(C)]
pub struct Gather {
    pub numbers: *const u64,
    pub from: DenseValues,
    pub rows: *mut u8,
}

/// `table.hpp:WalkArgs`.
#[repr(C)]
pub struct WalkArgs {
    pub view: *const KvRecord,
    pub dense: DenseValues,
    pub numbers: *mut u64,
    pub sums: *mut u64,
    pub keys: u64,
    pub steps: u32,
    pub words: u32,
    pub step_ticks: *mut u32,
    pub wrong: *mut u64,
}

/// `functors.hpp:DenseLists`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DenseLists {
    pub offsets: *const u64,
    pub vertices: *const u32,
    pub is_ordered: bool,
}

/// `table.hpp:ListArgs`.
#[derive(Debug)]
#[repr(C)]
pub struct ListArgs {
    pub view: *const KvRecord,
    pub dense: DenseLists,
}

type Ex = *const Exec;
/// Arguments: lanes of each lookup, keys, rows, stride and statuses.
type Lookup =
    unsafe extern "C" fn(Ex, u32, u64, *const KvRecord, *const u8, *mut u8, u64, *mut u8) -> c_int;

/// `table.hpp:Table`.
#[repr(C)]
pub struct Table {
    pub zero: unsafe extern "C" fn(Ex, *mut u64, u64) -> c_int,
    pub wait: unsafe extern "C" fn(Ex) -> c_int,
    pub error_text: unsafe extern "C" fn(c_int) -> *const c_char,
    pub make_keys: unsafe extern "C" fn(Ex, u64, *const MakeKeys) -> c_int,
    pub check_rows: unsafe extern "C" fn(Ex, u64, *const CheckRows) -> c_int,
    pub gather: unsafe extern "C" fn(Ex, u64, *const Gather) -> c_int,
    pub look_up: Lookup,
    pub get: Lookup,
    pub walk: unsafe extern "C" fn(Ex, u64, *const WalkArgs) -> c_int,
    pub expand: unsafe extern "C" fn(
        Ex,
        u64,
        *const ListArgs,
        *const u32,
        u32,
        *mut u32,
        *mut u32,
        *mut u64,
    ) -> c_int,
    pub share_rank:
        unsafe extern "C" fn(Ex, u64, *const ListArgs, u32, *const u64, *mut u64) -> c_int,
    pub sum_ranks: unsafe extern "C" fn(Ex, u64, *mut u64, *mut u64) -> c_int,
    pub request: unsafe extern "C" fn(
        Ex,
        u64,
        *const KvRecord,
        *const u64,
        u32,
        u64,
        u32,
        u64,
        *mut u64,
        *mut u32,
        *mut u64,
    ) -> c_int,
    pub mix: unsafe extern "C" fn(
        Ex,
        u64,
        *const KvRecord,
        *const u64,
        *const u8,
        *mut u8,
        u64,
        *mut u8,
        u32,
        u64,
        *mut u64,
    ) -> c_int,
    pub place: unsafe extern "C" fn(
        Ex,
        u64,
        *mut u64,
        u64,
        *mut u8,
        u32,
        *mut u64,
        *mut KvRecord,
    ) -> c_int,
}

unsafe extern "C" {
    /// Returns the table of the host, which is a [`Table`].
    pub fn rockmill_bench_host() -> *const c_void;
    /// Returns the table of GPUs.
    #[cfg(has_cuda)]
    pub fn rockmill_bench_cuda() -> *const c_void;
}

//! The lowest of three layers: `kernels/table.hpp` word for word. Nothing here is checked.

use std::ffi::{CStr, c_char, c_int, c_void};

mod records;

pub use records::*;

type Handle = *mut c_void;

/// `FieldPlace`.
#[repr(C)]
pub struct RecordField {
    pub record: *const c_char,
    pub field: *const c_char,
    pub offset: u64,
    pub bytes: u64,
}

impl KernelTable {
    /// The first field whose place differs between the kernels' records and Rust's, as both have it.
    pub fn different_field(&self) -> Option<(Option<FieldPlace>, Option<FieldPlace>)> {
        let text = |text| {
            // SAFETY: the table's strings live as long as the program.
            let text = unsafe { CStr::from_ptr::<'static>(text) };
            text.to_str().unwrap_or_default()
        };
        // SAFETY: the table has `num_fields` fields.
        let theirs = unsafe { std::slice::from_raw_parts(self.fields, self.num_fields as usize) };
        let theirs = theirs.iter().map(|field| FieldPlace {
            record: text(field.record),
            field: text(field.field),
            offset: field.offset as usize,
            bytes: field.bytes as usize,
        });
        first_difference(FIELDS.iter().copied(), theirs)
    }
}

/// The first two that differ, or one that has no counterpart.
fn first_difference(
    ours: impl Iterator<Item = FieldPlace>,
    theirs: impl Iterator<Item = FieldPlace>,
) -> Option<(Option<FieldPlace>, Option<FieldPlace>)> {
    let (mut ours, mut theirs) = (ours.fuse(), theirs.fuse());
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return None,
            (our, their) if our != their => return Some((our, their)),
            _ => {}
        }
    }
}

/// `KernelTable`.
#[repr(C)]
pub struct KernelTable {
    pub table_bytes: u32,
    pub num_fields: u32,
    pub fields: *const RecordField,

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
    pub reaches: unsafe extern "C" fn(*const c_void, *mut u32) -> c_int,

    pub stream_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub stream_destroy: unsafe extern "C" fn(Handle) -> c_int,
    pub event_create: unsafe extern "C" fn(*mut Handle) -> c_int,
    pub event_destroy: unsafe extern "C" fn(Handle) -> c_int,
    pub event_record: unsafe extern "C" fn(Handle, Handle) -> c_int,
    pub event_synchronize: unsafe extern "C" fn(Handle) -> c_int,
    pub event_query: unsafe extern "C" fn(Handle, *mut u32) -> c_int,
    pub stream_captures: unsafe extern "C" fn(Handle, *mut u32) -> c_int,
    pub event_elapsed_ms: unsafe extern "C" fn(*mut f32, Handle, Handle) -> c_int,
    pub copy_to_device: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub copy_from_device: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub copy_inside: unsafe extern "C" fn(Handle, *const c_void, u64, Handle) -> c_int,
    pub fill: unsafe extern "C" fn(Handle, c_int, u64, Handle) -> c_int,

    pub probe: unsafe extern "C" fn(*const Exec) -> c_int,
    pub scratch_bytes: unsafe extern "C" fn(u64) -> u64,
    pub check_blocks: unsafe extern "C" fn(*const Exec, *const DecodeArgs) -> c_int,
    pub measure_raw: unsafe extern "C" fn(*const Exec, *const DecompressArgs) -> c_int,
    pub decompress: unsafe extern "C" fn(*const Exec, *const DecompressArgs) -> c_int,
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
    pub measure_made: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    pub make_values: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    pub retain: unsafe extern "C" fn(*const Exec, *const RetainArgs) -> c_int,
    pub see_snapshot: unsafe extern "C" fn(*const Exec, *const SnapshotArgs) -> c_int,
    pub measure_rows: unsafe extern "C" fn(*const Exec, *const RowArgs) -> c_int,
    pub copy_rows: unsafe extern "C" fn(*const Exec, *const RowArgs, u64, u64, *mut u8) -> c_int,
    pub measure_records: unsafe extern "C" fn(*const Exec, *const PlaceArgs) -> c_int,
    pub place_records: unsafe extern "C" fn(*const Exec, *const PlaceArgs) -> c_int,
    pub count_unseen: unsafe extern "C" fn(*const Exec, *const PlaceArgs) -> c_int,
    pub take_unseen: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    pub put_again: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    pub measure_chunks: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    pub move_records: unsafe extern "C" fn(*const Exec, *const SlotsArgs) -> c_int,
    pub look_up: unsafe extern "C" fn(*const Exec, *const LookupArgs) -> c_int,
    pub scan_filter: unsafe extern "C" fn(*const Exec, *const ScanArgs) -> c_int,
    pub scan_measure: unsafe extern "C" fn(*const Exec, *const ScanArgs) -> c_int,
    pub scan_fill:
        unsafe extern "C" fn(*const Exec, *const ScanArgs, *const ScanColumn, u64, u64) -> c_int,
    pub scan_copy: unsafe extern "C" fn(*const Exec, *const ScanArgs, u64, u64) -> c_int,
    pub scan_group: unsafe extern "C" fn(*const Exec, *const ScanArgs, *const ScanGroups) -> c_int,
    pub scan_take_groups:
        unsafe extern "C" fn(*const Exec, *const ScanGroups, *const u32, u64, *mut u64) -> c_int,
    pub scan_hash: unsafe extern "C" fn(*const Exec, *const u8, u64, u64, *mut ScanTotals) -> c_int,
    pub split: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub measure_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub place_raw: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub compress_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub sum_blocks: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub measure_index: unsafe extern "C" fn(*const Exec, *const LayoutArgs) -> c_int,
    pub sum_file:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, *mut FileTotals) -> c_int,
    pub most_deletions:
        unsafe extern "C" fn(*const Exec, *const LayoutArgs, u64, u64, u64, *mut u64) -> c_int,
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
    pub memory: extern "C" fn(u32) -> u64,
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

// SAFETY: the table and all that it names are constants.
unsafe impl Sync for KernelTable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_same_fields_in_the_same_places_as_the_kernels_have_them() {
        // SAFETY: the function takes nothing and returns the address of a static.
        let host = unsafe { &*rockmill_host_kernels() };
        assert_eq!(host.different_field(), None);
        #[cfg(has_cuda)]
        {
            // SAFETY: as above.
            let cuda = unsafe { &*rockmill_cuda_kernels() };
            assert_eq!(cuda.different_field(), None);
        }
    }

    #[test]
    fn two_fields_that_are_exchanged_are_noticed_and_so_is_one_too_many() {
        let mut exchanged = FIELDS.to_vec();
        let at = FIELDS.iter().position(|place| place.field == "hash_kept");
        let at = at.expect("a field of RetainTotals");
        (exchanged[at].field, exchanged[at + 1].field) = ("hash_dropped", "hash_kept");
        let found = first_difference(FIELDS.iter().copied(), exchanged.into_iter());
        let (ours, theirs) = found.expect("they differ");
        assert_eq!(ours, Some(FIELDS[at]));
        assert_eq!(theirs.map(|place| place.field), Some("hash_dropped"));
        let fewer = FIELDS[1..].iter().copied();
        assert!(first_difference(FIELDS.iter().copied(), fewer).is_some());
        let one_less = FIELDS[..FIELDS.len() - 1].iter().copied();
        let last = first_difference(FIELDS.iter().copied(), one_less);
        assert_eq!(last, Some((FIELDS.last().copied(), None)));
    }
}

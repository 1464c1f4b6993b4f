//! The lowest of three layers. It has what the host and the kernels share, which nothing checks, and the stages, whose
//! error codes are checked.

use std::ffi::{c_int, c_void};

use rockmill_format::checksum::ChecksumType;
use rockmill_format::compression::CompressionType;
use rockmill_format::key::{self, ValueType};

use super::device::Device;

#[rustfmt::skip]
#[allow(dead_code, reason = "some numbers are used by kernels alone")]
mod boundary;

pub use boundary::*;

// Enums of other crates whose numbers are RocksDB's, and are passed to the kernels.
const _: () = {
    assert!(CODEC_NONE == CompressionType::None as u32);
    assert!(CODEC_SNAPPY == CompressionType::Snappy as u32);
    assert!(CODEC_LZ4 == CompressionType::Lz4 as u32);
    assert!(CODEC_LZ4HC == CompressionType::Lz4hc as u32);
    assert!(CODEC_ZSTD == CompressionType::Zstd as u32);
    assert!(CHECKSUM_NONE == ChecksumType::None as u32);
    assert!(CHECKSUM_CRC32C == ChecksumType::Crc32c as u32);
    assert!(CHECKSUM_XXHASH == ChecksumType::XxHash as u32);
    assert!(CHECKSUM_XXHASH64 == ChecksumType::XxHash64 as u32);
    assert!(CHECKSUM_XXH3 == ChecksumType::Xxh3 as u32);
    assert!(TYPE_DELETION == ValueType::Deletion as u64);
    assert!(TYPE_VALUE == ValueType::Value as u64);
    assert!(TYPE_MERGE == ValueType::Merge as u64);
    assert!(TYPE_SINGLE_DELETION == ValueType::SingleDeletion as u64);
    assert!(TYPE_DELETION_WITH_TIMESTAMP == ValueType::DeletionWithTimestamp as u64);
    assert!(MAX_SEQUENCE == key::MAX_SEQUENCE);
    assert!(TAG_BYTES as usize == key::TAG_SIZE);
    assert!(TRAILER_BYTES as usize == rockmill_format::handle::BLOCK_TRAILER_SIZE);
};

/// The stages of a device, on a stream. Each checks the error code of its launches.
#[derive(Debug)]
pub struct Stages<'a> {
    device: &'a Device,
    exec: Exec,
}

impl<'a> Stages<'a> {
    /// The stages on `stream`, with scratch memory.
    pub fn new(
        device: &'a Device,
        stream: *mut c_void,
        scratch: *mut c_void,
        scratch_bytes: u64,
    ) -> Self {
        let exec = Exec {
            stream,
            scratch,
            scratch_bytes,
            processors: device.properties().multiprocessors,
            unused: 0,
        };
        Self { device, exec }
    }

    /// Launches a kernel that does nothing. Returns its error code.
    pub fn probe(&self) -> c_int {
        // SAFETY: the kernel accesses no memory.
        unsafe { (self.device.table().probe)(&raw const self.exec) }
    }
}

unsafe extern "C" {
    #[cfg(has_cuda)]
    pub fn rockmill_cuda_kernels() -> *const KernelTable;
    pub fn rockmill_host_kernels() -> *const KernelTable;
    pub fn rockmill_faulty_kernels(hooks: *const Hooks) -> *const KernelTable;
}

// SAFETY: the table and all that it names are constants.
unsafe impl Sync for KernelTable {}

// SAFETY: the pointer is an address on the device, which host code never dereferences.
unsafe impl Send for UserKey {}

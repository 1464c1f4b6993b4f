//! How the backend uses host and device.

use crate::cache::CHUNK_BYTES as CHUNK_BYTES_OF_CACHE;

/// Threads of a task that read its input.
pub const IO_THREADS: usize = 3;

/// How the backend uses host and device.
#[derive(Debug, Clone, Copy)]
pub struct CudaSettings {
    /// Maximum device memory of tasks in bytes. Default: four fifths of the memory that is free at the start. A task
    /// waits for all that it needs; a task that needs more is left to another backend.
    pub memory_bytes: Option<u64>,
    /// Maximum device memory of cached files in bytes, a part of `memory_bytes`. Default: none. Tasks may have it.
    pub cache_bytes: Option<u64>,
    /// Bytes in which files are cached; changed only by tests.
    #[doc(hidden)]
    pub cache_chunk_bytes: u64,
    /// Maximum pinned host memory in bytes for copying files to the device and back, at least that of one thread.
    /// Default: that of a quarter more threads than processors.
    pub pinned_bytes: Option<u64>,
    /// Bytes per copy to the device and back.
    pub chunk_bytes: usize,
}

impl Default for CudaSettings {
    fn default() -> Self {
        const CHUNK_BYTES: usize = 1 << 20;
        Self {
            memory_bytes: None,
            cache_bytes: None,
            cache_chunk_bytes: CHUNK_BYTES_OF_CACHE,
            pinned_bytes: None,
            chunk_bytes: CHUNK_BYTES,
        }
    }
}

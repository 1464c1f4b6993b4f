//! How the backend uses host and device.

/// How the backend uses host and device.
#[derive(Debug, Clone, Copy)]
pub struct CudaSettings {
    /// Device memory that tasks hold at most, bytes; four fifths of what is free at the start if nothing is
    /// said. A task waits for all that it needs, and one that needs more is left to another backend.
    pub memory_bytes: Option<u64>,
    /// Pinned host memory through which files go to the device and back, at most, bytes, but at least that of
    /// one thread; that of a quarter more threads than there are processors if nothing is said.
    pub pinned_bytes: Option<u64>,
    /// Bytes that are copied at a time, to the device and back.
    pub chunk_bytes: usize,
    /// Threads of a task that read its input.
    pub io_threads: usize,
}

impl Default for CudaSettings {
    fn default() -> Self {
        const CHUNK_BYTES: usize = 1 << 20;
        const IO_THREADS: usize = 3;
        Self {
            memory_bytes: None,
            pinned_bytes: None,
            chunk_bytes: CHUNK_BYTES,
            io_threads: IO_THREADS,
        }
    }
}
